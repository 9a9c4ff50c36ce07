"""The story of a run: converts its events to chains of causes, and these to text.

Events are in the form of `to_json`, so that a live run and a report give the same text. A chain begins with a decision
or the loss of a node, and has everything that followed from it, including plans and their steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from primitives.errors import UserError

Told = Mapping[str, Any]

#: The kinds of event that begin a decision.
DECIDED = ("scaling out", "scaling in", "migration begun", "balancing")
#: The kinds of event that end a decision, by the kind that begins it.
ENDS: dict[str, tuple[str, ...]] = {
    "scaling out": ("scaled out", "scaling refused", "scaling called off", "scaling given up", "scaling replaced"),
    "scaling in": ("scaled in", "scaling refused", "scaling called off", "scaling given up", "scaling replaced"),
    "migration begun": ("migrated", "migration cancelled", "migration refused"),
    "balancing": ("balanced", "balancing called off", "balancing failed"),
}
_PLANNED = ("move announced", "split begun")
_PLAN_ENDS = ("move complete", "split effective", "split aborted")
_LOST = ("killed", "node lost")
#: Seconds before a decision in which its reasons occurred.
_REASONS = 60.0


@dataclass(slots=True)
class CauseChain:
    """The consequences of one decision, plan or loss, in order."""

    number: int | None  #: number of a decision: 1 for the first in the record
    events: list[Told] = field(default_factory=list)
    plans: set[int] = field(default_factory=set)

    @property
    def first(self) -> Told:
        return self.events[0]

    @property
    def at(self) -> float:
        return float(self.first.get("at", 0.0))

    def instances(self) -> set[str]:
        """Returns all instances that the chain concerns."""
        named = {event["instance"] for event in self.events if "instance" in event}
        return named.union(*(event.get("instances", ()) for event in self.events)).union(
            *(event.get("hosted", ()) for event in self.events), (e["origin"] for e in self.events if "origin" in e)
        )

    def epochs(self) -> set[int]:
        """Returns the epochs at which a plan of the chain took effect."""
        return {int(event[name]) for event in self.events for name in ("first", "epoch") if name in event}


def story(
    events: Sequence[Told], *, instance: str | None = None, decision: int | None = None, epoch: int | None = None
) -> list[str]:
    """Returns the chains in words, all or those of an instance, a decision or an epoch.

    Raises UserError if there is none.

    >>> began = {"kind": "scaling out", "at": 2.0, "operator": "counter", "before": 1, "after": 2, "why": "full"}
    >>> done = {"kind": "scaled out", "at": 5.0, "operator": "counter", "seconds": 2.5, "why": "full"}
    >>> for line in story([began, done | {"numbers": {"before": 1, "after": 2}}]):
    ...     print(line)
    decision 1: scaled counter 1 → 2 because full
       2.000 s  decided: counter 1 → 2
       5.000 s  done in 2.50 s
    """
    chains = chains_of(events)
    chosen = [chain for chain in chains if _is_asked_for(chain, instance, decision)]
    if epoch is not None:
        chosen = _of_epoch(chosen, epoch)
    if not chosen:
        raise UserError(_nothing(chains, instance, decision, epoch))
    return [line for chain in chosen for line in _lines(chain)]


def _is_asked_for(chain: CauseChain, instance: str | None, decision: int | None) -> bool:
    return (instance is None or instance in chain.instances()) and (decision is None or chain.number == decision)


def _of_epoch(chains: list[CauseChain], epoch: int) -> list[CauseChain]:
    """Returns the chains that took effect at the epoch; if there is none, the last one before it."""
    at_it = [chain for chain in chains if epoch in chain.epochs()]
    before = [chain for chain in chains if any(each < epoch for each in chain.epochs())]
    return at_it or sorted(before, key=lambda chain: max(e for e in chain.epochs() if e < epoch))[-1:]


def _nothing(chains: list[CauseChain], instance: str | None, decision: int | None, epoch: int | None) -> str:
    asked = (("instance", instance), ("decision", decision), ("epoch", epoch))
    wanted = " and ".join(f"{name} {value}" for name, value in asked if value is not None)
    if not wanted:
        return "there is no story: nothing was decided, moved or lost in this run"
    decided = [chain.number for chain in chains if chain.number is not None]
    told = f"decisions 1 to {decided[-1]}" if decided else "no decision"
    named = ", ".join(sorted({name for chain in chains for name in chain.instances()})) or "none"
    return f"there is no story of {wanted}: the record has {told}, and of instances {named}"


# -- from events to chains ---------------------------------------------------------------------------------------------


def chains_of(events: Sequence[Told]) -> list[CauseChain]:
    """Returns all chains, by the time at which they began."""
    ordered = sorted(events, key=lambda event: float(event.get("at", 0.0)))
    chains = [*_decisions(ordered), *_losses(ordered)]
    taken = {id(event) for chain in chains for event in chain.events}
    chains += _lone_plans([event for event in ordered if id(event) not in taken], ordered)
    return sorted(chains, key=lambda chain: chain.at)


def _decisions(events: list[Told]) -> Iterator[CauseChain]:
    """Yields the chains of decisions. An operator has at most one open decision, to which all its events belong."""
    begun = [i for i, event in enumerate(events) if event["kind"] in DECIDED]
    known: set[int] = set()
    for number, place in enumerate(begun, start=1):
        first = events[place]
        operator, ends = first.get("operator"), ENDS[first["kind"]]
        later = [event for event in events[place + 1 :] if event.get("operator") == operator]
        stop = next((i for i, each in enumerate(later) if _ends(each, ends) or each["kind"] in DECIDED), len(later))
        is_ended = stop < len(later) and later[stop]["kind"] in ends
        chain = CauseChain(number, [*_reasons(events[:place], first), first, *later[: stop + is_ended]])
        chain.plans = _plans_before(events[:place], operator) - known
        _follow_plans(chain, events)
        known |= chain.plans
        yield chain


def _ends(event: Told, ends: Sequence[str]) -> bool:
    """Whether an event ends a decision; a refusal does not if it is of another decision."""
    return event["kind"] in ends and "meanwhile" not in event


def _plans_before(before: list[Told], operator: str | None) -> set[int]:
    """Returns the open plans of an operator: the first plan of a decision may be announced before it is told."""
    ours = [event for event in before if event.get("operator") == operator and "plan" in event]
    return {event["plan"] for event in ours} - {event["plan"] for event in ours if event["kind"] in _PLAN_ENDS}


def _reasons(before: list[Told], decided: Told) -> Iterator[Told]:
    """Yields the reasons of a decision: the newest event of each such kind since the operator's last decision ended."""
    since = float(decided.get("at", 0.0)) - _REASONS
    ours = [event for event in before if event.get("operator") == decided.get("operator") and event["at"] >= since]
    last_end = max((i for i, e in enumerate(ours) if any(e["kind"] in ends for ends in ENDS.values())), default=-1)
    kinds = ("bottleneck", "waiting for VMs", "hot slot")
    latest = {event["kind"]: event for event in ours[last_end + 1 :] if event["kind"] in kinds}
    return iter(sorted(latest.values(), key=lambda event: float(event["at"])))


def _follow_plans(chain: CauseChain, events: list[Told]) -> None:
    """Adds the events of a chain's plans; some come after the decision itself has ended."""
    chain.plans |= {event["plan"] for event in chain.events if event["kind"] in _PLANNED}
    known = {id(event) for event in chain.events}
    late = [event for event in events if event.get("plan") in chain.plans and id(event) not in known]
    firsts = {event["first"] for event in events if event.get("plan") in chain.plans and "first" in event}
    operators = {event.get("operator") for event in chain.events}
    states = [
        event
        for event in events
        if event["kind"] == "state taken in"
        and event["first"] in firsts
        and event.get("operator") in operators
        and id(event) not in known
    ]
    chain.events = sorted([*chain.events, *late, *states], key=lambda event: float(event.get("at", 0.0)))


def _losses(events: list[Told]) -> Iterator[CauseChain]:
    """Yields the chain of each lost node: the loss, and the recovery of its instances."""
    nodes = dict.fromkeys(event["node"] for event in events if event["kind"] in _LOST)
    for node in nodes:
        chain = CauseChain(None, [event for event in events if event["kind"] in _LOST and event["node"] == node])
        rebound = [event for event in events if event["kind"] == "rebound" and event.get("lost") == node]
        for event in rebound:
            chain.events += _recovery(event, events)
        chain.events.sort(key=lambda event: float(event.get("at", 0.0)))
        yield chain


def _recovery(rebound: Told, events: list[Told]) -> Iterator[Told]:
    """Yields the events from the rebind of an instance until it has recovered, or is lost again."""
    yield rebound
    ours = [event for event in events if event.get("instance") == rebound["instance"]]
    for event in ours[ours.index(rebound) + 1 :]:
        if event["kind"] == "rebound":
            return
        if event["kind"] in ("restored", "stood ready", "recovered"):
            yield event
        if event["kind"] == "recovered":
            return


def _lone_plans(left: list[Told], events: list[Told]) -> Iterator[CauseChain]:
    """Yields the chains of plans without a recorded decision: made by hand, for a drain, or for a split from backup."""
    for event in left:
        if event["kind"] in _PLANNED:
            chain = CauseChain(None, [event])
            _follow_plans(chain, events)
            yield chain


# -- from chains to words ----------------------------------------------------------------------------------------------


def _lines(chain: CauseChain) -> list[str]:
    number = f"decision {chain.number}: " if chain.number is not None else ""
    effective = {event["first"]: float(event["at"]) for event in chain.events if event["kind"] == "move effective"}
    lines = [f"{number}{_headline(chain)}"]
    for event in chain.events:
        line = f"{float(event.get('at', 0.0)):8.3f} s  {_step(event, effective)}"
        if line != lines[-1]:
            lines.append(line)
    return lines


def _headline(chain: CauseChain) -> str:
    heads = [event for kinds in (DECIDED, (*_LOST, *_PLANNED)) for event in chain.events if event["kind"] in kinds]
    first = heads[0] if heads else chain.first
    last = chain.events[-1] if first["kind"] not in DECIDED else _end_of(chain, first)
    match first["kind"]:
        case "scaling out" | "scaling in":
            done = "scaled" if last is not None and last["kind"].startswith("scaled") else _unfinished(last)
            return f"{done} {first['operator']} {_figures(first)} because {_why(first)}"
        case "migration begun":
            done = "migrated" if last is not None and last["kind"] == "migrated" else _unfinished(last)
            return f"{done} {first['operator']} ({first.get('strategy')}) because {_why(first)}"
        case "balancing":
            done = "balanced" if last is not None and last["kind"] == "balanced" else _unfinished(last)
            return f"{done} {first['operator']} because {_why(first)}"
        case "killed" | "node lost":
            lost = sorted({event["instance"] for event in chain.events if event["kind"] == "rebound"})
            return f"lost node {first['node']}" + (f" with {', '.join(lost)}" if lost else "")
        case "move announced":
            return f"moved slots of {first['operator']} by plan {first['plan']}"
    return f"split {first.get('instance')} by plan {first.get('plan')}"


def _end_of(chain: CauseChain, first: Told) -> Told | None:
    return next((event for event in reversed(chain.events) if event["kind"] in ENDS[first["kind"]]), None)


def _unfinished(last: Told | None) -> str:
    return "is changing" if last is None else f"did not change ({last['kind']}: {_why(last)})"


def _figures(event: Told) -> str:
    numbers = {**event.get("numbers", {}), **event}
    return f"{int(numbers['before'])} → {int(numbers['after'])}" if "before" in numbers else ""


def _why(event: Told) -> str:
    """Returns the reason of an event, without the figures before it."""
    return str(
        event.get("why") or event.get("detail", "").partition(": ")[2] or event.get("detail", "") or "nobody said"
    )


def _step(event: Told, effective: Mapping[int, float]) -> str:
    words = _WORDS.get(event["kind"])
    if event["kind"] == "state taken in":
        return _state(event, effective)
    return words(event) if words is not None else _plainly(event)


def _state(event: Told, effective: Mapping[int, float]) -> str:
    size = _size(int(event.get("numbers", {}).get("bytes", 0)))
    began = effective.get(event["first"])
    took = f" in {_time(max(0.0, float(event['at']) - began))}" if began is not None else ""
    return f"{event['instance']} has {size} of state from {event.get('origin')}{took}"


def _announced(event: Told) -> str:
    concerned = f", between {', '.join(event['instances'])}" if event.get("instances") else ""
    plan, slots = f"plan {event['plan']}, view {event.get('view')}", f"{event.get('slots')} slots"
    return f"{plan}: {slots} from epoch {event['first']} on{concerned}"


def _plainly(event: Told) -> str:
    """Returns the event in the words of the log."""
    parts = (event["kind"], event.get("instance") or event.get("node"), event.get("detail"))
    return " ".join(str(part) for part in parts if part)


def _recovered(event: Told) -> str:
    parts = ", ".join(f"{name} {_time(seconds)}" for name, seconds in event.get("parts", {}).items())
    return f"{event['instance']} recovered in {_time(event['seconds'])}" + (f" ({parts})" if parts else "")


_WORDS: dict[str, Callable[[Told], str]] = {
    "bottleneck": lambda e: f"bottleneck {e['instance']}: {e.get('detail')}",
    "waiting for VMs": lambda e: f"waited for VMs, {e.get('detail')}",
    "scaling out": lambda e: f"decided: {e['operator']} {_figures(e)}",
    "scaling in": lambda e: f"decided: {e['operator']} {_figures(e)}",
    "scaled out": lambda e: f"done in {_time(e['seconds'])}",
    "scaled in": lambda e: f"done in {_time(e['seconds'])}",
    "migration begun": lambda e: f"decided: {e.get('slots')} slots in {e.get('steps')} steps",
    "move announced": _announced,
    "move sealed": lambda e: f"plan {e['plan']} sealed by view {e['view']}",
    "move effective": lambda e: f"plan {e['plan']} in effect: epoch {e['first']} is open",
    "move complete": lambda e: f"plan {e['plan']} safe: both sides are backed up beyond it",
    "split begun": lambda e: f"plan {e['plan']}: the backup of {e['instance']} is divided among {e.get('shares')}",
    "split effective": lambda e: f"plan {e['plan']} in effect from epoch {e['first']} on",
    "split aborted": lambda e: f"plan {e['plan']} did not work out; nothing has changed",
    "killed": lambda e: f"{e['node']} was killed on purpose {e.get('detail', '')}".rstrip(),
    "node lost": lambda e: f"{e['node']} was given up: {e.get('detail') or 'nobody said why'}",
    "rebound": lambda e: f"{e['instance']} starts on {e['to']}",
    "restored": lambda e: f"{e['instance']} has its state of epoch {e['epoch']}",
    "stood ready": lambda e: f"{e['instance']} finds its state of epoch {e['epoch']} ready there",
    "recovered": _recovered,
    "retired": lambda e: f"{e['instance']} owns nothing any more, and ends",
}


def _size(nbytes: int) -> str:
    """
    >>> _size(12_300_000), _size(800)
    ('12.3 MB', '800 B')
    """
    amount, units = float(nbytes), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.3g} {units[0]}"


def _time(seconds: float) -> str:
    """
    >>> _time(0.0801), _time(2.5)
    ('80 ms', '2.50 s')
    """
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
