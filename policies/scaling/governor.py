"""The governor: limits a policy's decisions to the settings, before they become plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral

from policies.observation import History
from policies.scaling.decision import Decision, Policy
from policies.scaling.settings import Bounds, ScalingSettings
from primitives.errors import SeepError, UserError
from primitives.graph import Kind


@dataclass(frozen=True, slots=True)
class Governor:
    """Consults a policy, and passes decisions within bounds and cool-down: at most one per operator."""

    policy: Policy
    settings: ScalingSettings
    most: Mapping[str, int]  #: operator -> the most instances that it can have: its slots

    def decide(self, history: History) -> list[Decision]:
        """Returns the changes to make now, in flow order: allowed decisions, and operators outside of their bounds."""
        wishes = self._wishes(history)
        found = (self._allowed(history, operator, wishes.get(operator)) for operator in history.graph.order)
        return [decision for decision in found if decision]

    def _wishes(self, history: History) -> dict[str, Decision]:
        """Returns the policy's decisions by operator; of several for one operator, the largest number."""
        decisions = self._asked(history)
        for each in decisions:
            if each.operator not in history.graph.operators:
                raise UserError(
                    f"policy {self._name} decides on {each.operator!r}, which the query does not have; "
                    f"its operators are {', '.join(history.graph.order)}"
                )
        return {each.operator: each for each in sorted(decisions, key=lambda each: each.parallelism)}

    def _asked(self, history: History) -> list[Decision]:
        try:
            decided: object = self.policy.decide(history)
        except SeepError:
            raise
        except Exception as reason:
            raise UserError(
                f"policy {self._name} fails at {history.now:.1f} s: {type(reason).__name__}: {reason}"
            ) from reason
        if not isinstance(decided, Iterable):
            raise UserError(f"policy {self._name} decides {decided!r}; decide must return a list of Decision")
        return [self._checked(each) for each in decided]

    def _checked(self, decision: object) -> Decision:
        if not isinstance(decision, Decision):
            raise UserError(f"policy {self._name} decides {decision!r}, which is no policies.scaling.decision.Decision")
        number: object = decision.parallelism
        if not isinstance(number, Integral):
            raise UserError(f"policy {self._name} decides on {number!r} instances of {decision.operator}")
        return decision

    @property
    def _name(self) -> str:
        return type(self.policy).__name__

    def _allowed(self, history: History, operator: str, wish: Decision | None) -> Decision | None:
        present = history.parallelism(operator)
        if not present or not self._may_scale(history, operator) or self._rests(history, operator):
            return None
        wish = wish or Decision(operator, present, f"{operator}: {present} instances")
        least, most = self._bounds(history, operator)
        wanted = min(max(wish.parallelism, least), most)
        if wanted == present:
            return None
        return wish if wanted == wish.parallelism else replace(wish, parallelism=wanted, why=_bounded(wish, wanted))

    def _may_scale(self, history: History, operator: str) -> bool:
        """Whether the operator may scale: sources and sinks only if named, or if all of their kind are allowed."""
        named = operator in self.settings.operators
        of_kind = {Kind.SOURCE: self.settings.sources, Kind.SINK: self.settings.sinks}
        return self._said(operator).scale and (named or of_kind.get(history.graph.kind(operator), True))

    def _rests(self, history: History, operator: str) -> bool:
        """Whether the operator is changing, or has changed within the cool-down."""
        done = (change.done for change in history.changes if change.operator == operator and change.done is not None)
        return history.is_changing(operator) or any(history.now < moment + self.settings.cooldown for moment in done)

    def _bounds(self, history: History, operator: str) -> tuple[int, int]:
        said = self._said(operator)
        slots = self.most.get(operator, 1 << history.graph.operators[operator].slot_bits)
        most = min(slots, said.max or slots)
        return min(said.min, most), most

    def _said(self, operator: str) -> Bounds:
        return self.settings.operators.get(operator, self.settings.default)


def _bounded(wish: Decision, wanted: int) -> str:
    return f"{wish.why}; {'at least' if wanted > wish.parallelism else 'at most'} {wanted} are allowed"
