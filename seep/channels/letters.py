"""Letters between a node's process and the manager's, beside those of the protocol: each is one class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from primitives.event import Event
from seep.record.reports import InstanceFigures, NodeReport

# -- node to manager --------------------------------------------------------------------------------------------------


class NodeReady(NamedTuple):
    """The node has started and can host instances."""

    node: str


class NodeFailed(NamedTuple):
    """A machine of the node cannot go on; the failure is what `failure_to_json` makes of it."""

    failure: Mapping[str, Any]
    story: Mapping[str, tuple[str, ...]]  #: of a failure of seep itself: by machine, what it took and answered last


class EventTold(NamedTuple):
    """Something worth telling the user."""

    event: Event


class NoticeGiven(NamedTuple):
    """The cloud will take the node's VM away in so many seconds."""

    seconds: float


class InstanceLeft(NamedTuple):
    """An instance that was told to stop has stopped; with its last report."""

    last_word: InstanceFigures


class LastWord(NamedTuple):
    """The answer to `SayLastWord`: the node's report at the end of the run."""

    report: NodeReport


# -- manager to node --------------------------------------------------------------------------------------------------


class KnowPeers(NamedTuple):
    """Where other nodes listen: host and port by name."""

    addresses: Mapping[str, tuple[str, int]]


class ForgetPeers(NamedTuple):
    """These nodes are gone for good."""

    names: tuple[str, ...]


class CountSlots(NamedTuple):
    """From now on the rows of these operators are counted by slot, and those of no others."""

    operators: tuple[str, ...]


class NewsOfPushed(NamedTuple):
    """What Spark has pushed to a source, as `Intake.on_news` takes it."""

    source: str
    news: Mapping[str, Any]


class SayLastWord(NamedTuple):
    """The run is ending: the node is to send its last report."""


class EndNode(NamedTuple):
    """The run is over: the node's process is to end."""


FromNode = NodeReady | NodeFailed | EventTold | NoticeGiven | InstanceLeft | LastWord
ToNode = KnowPeers | ForgetPeers | CountSlots | NewsOfPushed | SayLastWord | EndNode
