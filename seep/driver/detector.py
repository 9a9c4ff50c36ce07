"""The failure detector: three kinds of evidence, one word: this node is lost.

It may be wrong about a node that is only slow or cut off. That is safe, for the node is fenced before others take over
what it did; a wrong word costs one recovery.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: How the reason begins if nothing is known but that a node says nothing.
SILENT = "silent"
#: Of the patience, how far apart two looks may be; in a longer time nobody listened.
_ABSENT = 0.25


@dataclass(slots=True)
class _Evidence:
    heard: float  #: when the node last said anything
    verdict: str | None = None
    broken: bool = False


@dataclass(slots=True)
class Detector:
    """Told of what happens with its time; asked for the nodes to give up. Holds no clock of its own.

    >>> detector = Detector(patience=3.0)
    >>> detector.joined("n1", 0.0), detector.joined("n2", 0.0)
    (None, None)
    >>> detector.heard("n1", 2.9)
    >>> detector.lost(3.1)
    [('n2', 'silent for 3.1 s')]
    """

    patience: float  #: seconds of silence that are one too many
    _nodes: dict[str, _Evidence] = field(default_factory=dict)
    _looked: float | None = None

    def joined(self, node: str, now: float) -> None:
        self._nodes[node] = _Evidence(now)

    def forget(self, node: str) -> None:
        self._nodes.pop(node, None)

    def heard(self, node: str, now: float) -> None:
        """A heartbeat, or anything else, came from the node."""
        if node in self._nodes:
            self._nodes[node].heard = now

    def ended(self, node: str, why: str) -> None:
        """Spark's word: the node's task is over."""
        if node in self._nodes:
            self._nodes[node].verdict = why

    def broken(self, node: str, refused: bool) -> None:
        """The link to the node broke. A lost link is not a lost node, unless nobody listens at its address any more."""
        if node in self._nodes:
            self._nodes[node].broken = True
            if refused:
                self._nodes[node].verdict = "connection refused: its process is gone"

    def restored(self, node: str, now: float) -> None:
        """The link is back."""
        if node in self._nodes:
            self._nodes[node].broken = False
            self._nodes[node].heard = now

    def lost(self, now: float) -> list[tuple[str, str]]:
        """The nodes to give up now, and why; each is said once."""
        self._forgive(now)
        found = [(node, why) for node, evidence in self._nodes.items() if (why := self._why(evidence, now))]
        for node, _ in found:
            del self._nodes[node]
        return found

    def _forgive(self, now: float) -> None:
        """If this process itself stood still, what nodes said meanwhile is still to be heard."""
        absent = now - self._looked if self._looked is not None else 0.0
        self._looked = now
        if absent > _ABSENT * self.patience:
            for evidence in self._nodes.values():
                evidence.heard = min(now, evidence.heard + absent)

    def _why(self, evidence: _Evidence, now: float) -> str | None:
        silence = now - evidence.heard
        if evidence.verdict is None and silence > self.patience:
            return f"{SILENT} for {silence:.1f} s" + (", its link is broken" if evidence.broken else "")
        return evidence.verdict
