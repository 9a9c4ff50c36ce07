"""The failure detector: decides by three kinds of evidence that a node is lost.

It may be wrong about a node that is only slow or disconnected. That is safe, because the node is fenced before others
take over its instances; a wrong decision costs one recovery.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: The start of the reason if the only evidence is silence.
SILENT = "silent"
#: If two checks are further apart than this part of the patience, this process was not listening between them.
_ABSENT = 0.25


@dataclass(slots=True)
class _Evidence:
    heard: float  #: the time of the last message of the node
    verdict: str | None = None
    broken: bool = False


@dataclass(slots=True)
class Detector:
    """Takes evidence with its time; returns the nodes to give up. It has no clock of its own.

    >>> detector = Detector(patience=3.0)
    >>> detector.joined("n1", 0.0), detector.joined("n2", 0.0)
    (None, None)
    >>> detector.heard("n1", 2.9)
    >>> detector.lost(3.1)
    [('n2', 'silent for 3.1 s')]
    """

    patience: float  #: seconds of silence after which a node is lost
    _nodes: dict[str, _Evidence] = field(default_factory=dict)
    _looked: float | None = None

    def joined(self, node: str, now: float) -> None:
        self._nodes[node] = _Evidence(now)

    def heard(self, node: str, now: float) -> None:
        """Records a heartbeat, or any other message, of the node."""
        if node in self._nodes:
            self._nodes[node].heard = now

    def ended(self, node: str, why: str) -> None:
        """Records that the node's task has ended, as reported by Spark."""
        if node in self._nodes:
            self._nodes[node].verdict = why

    def broken(self, node: str, refused: bool) -> None:
        """Records that the link to the node broke. The node is lost only if connections to its address are refused."""
        if node in self._nodes:
            self._nodes[node].broken = True
            if refused:
                self._nodes[node].verdict = "connection refused: its process is gone"

    def restored(self, node: str, now: float) -> None:
        """Records that the link is back."""
        if node in self._nodes:
            self._nodes[node].broken = False
            self._nodes[node].heard = now

    def lost(self, now: float) -> list[tuple[str, str]]:
        """Returns the nodes to give up now, with reasons; each once."""
        self._forgive(now)
        found = [(node, why) for node, evidence in self._nodes.items() if (why := self._why(evidence, now))]
        for node, _ in found:
            del self._nodes[node]
        return found

    def _forgive(self, now: float) -> None:
        """Resets silences if this process itself stood still: messages sent meanwhile have not been read yet."""
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
