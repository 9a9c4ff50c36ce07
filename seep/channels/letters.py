"""Letters between a node's process and the manager's that are not part of the protocol; each is a class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from primitives.event import Event
from seep.logs.line import LogLine
from seep.record.reports import InstanceFigures, NodeReport

# -- node to manager --------------------------------------------------------------------------------------------------


class NodeReady(NamedTuple):
    """The node has started and can host instances."""

    node: str


class NodeFailed(NamedTuple):
    """A machine of the node has failed; the failure is the result of `failure_to_json`."""

    failure: Mapping[str, Any]
    story: Mapping[str, tuple[str, ...]]  #: after an internal error: by machine, its last messages and answers


class EventTold(NamedTuple):
    """An event for the user."""

    event: Event


class NoticeGiven(NamedTuple):
    """The cloud will take the node's VM away after this number of seconds."""

    seconds: float


class InstanceLeft(NamedTuple):
    """An instance that was told to stop has stopped; carries its last report."""

    last_word: InstanceFigures


class LastWord(NamedTuple):
    """The answer to `SayLastWord`: the node's report at the end of the run."""

    report: NodeReport


class LinesLogged(NamedTuple):
    """The log lines of the node's process since the last such letter, as far as they were kept."""

    lines: tuple[LogLine, ...]
    dropped: int  #: number of lines before these that were not kept


# -- manager to node --------------------------------------------------------------------------------------------------


class KnowPeers(NamedTuple):
    """The addresses of other nodes: host and port by name."""

    addresses: Mapping[str, tuple[str, int]]


class ForgetPeers(NamedTuple):
    """These nodes are lost for ever."""

    names: tuple[str, ...]


class CountSlots(NamedTuple):
    """The node is to count the rows of these operators by slot, and of no others."""

    operators: tuple[str, ...]


class NewsOfPushed(NamedTuple):
    """The batches that Spark has pushed to a source, for `Intake.on_news`."""

    source: str
    news: Mapping[str, Any]


class SayLastWord(NamedTuple):
    """The run is ending: the node is to send its last report."""


class EndNode(NamedTuple):
    """The run is over: the node's process is to end."""


FromNode = NodeReady | NodeFailed | EventTold | NoticeGiven | InstanceLeft | LastWord | LinesLogged
ToNode = KnowPeers | ForgetPeers | CountSlots | NewsOfPushed | SayLastWord | EndNode
