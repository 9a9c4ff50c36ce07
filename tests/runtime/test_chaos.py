"""Chaos: how strikes are written, what of them is refused, and that they are dealt."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from primitives.errors import UserError
from seep.record.log import EventLog
from seep.running.chaos import Chaos, Strike, StrikeKind, check_chaos, parse_chaos


class FakeRun:
    """Remembers what was done to it."""

    def __init__(self, expected: int = 1) -> None:
        self.events = EventLog(time.monotonic)
        self.placement = {"counter[0]": "n1", "counter[1]": "n2", "splitter[0]": "n3"}
        self.done: list[tuple[str, object]] = []
        self.gone: set[str] = set()
        self._expected = expected
        self.all_done = threading.Event()

    def kill(self, target: str) -> None:
        self._note("kill", target)
        if target in self.gone:
            raise UserError(f"there is no {target}")

    def signal(self, node: str, number: int) -> None:
        self._note(node, number)

    def scale(self, operator: str, parallelism: int) -> None:
        self._note("scale", (operator, parallelism))

    def migrate(self, operator: str, target: object, strategy: str) -> None:
        self._note("migrate", (operator, target if isinstance(target, int) else "another owner", strategy))

    def handover(self, instance: str) -> None:
        self._note("handover", instance)

    def _note(self, what: str, detail: object) -> None:
        self.done.append((what, detail))
        if len(self.done) == self._expected:
            self.all_done.set()


def deal(run: FakeRun, text: str) -> Chaos:
    """Opens chaos until all that is expected was done."""
    with Chaos(run, parse_chaos(text)) as chaos:
        assert run.all_done.wait(10)
    return chaos


def test_strikes_are_read_and_put_in_order_of_time() -> None:
    assert parse_chaos("kill:splitter@8s, kill:counter[0]+splitter[1]@500ms,stop:my-op.2@1m") == (
        Strike(StrikeKind.KILL, ("counter[0]", "splitter[1]"), 0.5),
        Strike(StrikeKind.KILL, ("splitter",), 8.0),
        Strike(StrikeKind.STOP, ("my-op.2",), 60.0),
    )


def test_a_strike_written_out_reads_back_as_itself() -> None:
    strikes = parse_chaos("stop:a@1s,cont:a@2500ms,kill:b[3]+c@3s")
    assert parse_chaos(",".join(map(str, strikes))) == strikes


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "''"),
        ("kill:counter", "'kill:counter'"),
        ("kill:a@1s,counter@5s", "'counter@5s'"),
        ("hit:counter@5s", "'hit' is not an act; choose from kill, stop, cont"),
        ("kill:counter@5", "'kill:counter@5'"),
        ("kill:counter@soon", "'soon'"),
        ("kill:counter@-1s", "before the query begins"),
        ("kill:counter[x]@5s", r"'counter\[x\]'"),
        ("kill:a++b@5s", "''"),
        ("kill:a@1s,,kill:b@2s", "''"),
        ("scale:counter@5s", "'counter' is not a number of instances; write counter=3"),
        ("scale:counter=0@5s", "'counter=0' is not a number of instances"),
        ("migrate:counter=quick@5s", r"'counter=quick' is not a strategy \(all-at-once, fluid, batched, optimised\)"),
        ("migrate:counter=fluid->0@5s", "'counter=fluid->0' is not a strategy"),
        ("handover:counter[x]@5s", r"'counter\[x\]' is neither"),
        ("balance:counter[0]@5s", r"'counter\[0\]' is not an operator"),
        ("cont:counter@5s", "counter is not stopped by then"),
        ("cont:counter@5s,stop:counter@6s", "counter is not stopped by then"),
    ],
)
def test_a_text_that_makes_no_sense_is_refused_with_the_part_at_fault(text: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        parse_chaos(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kill:other@1s", "no operator 'other'; it has lines, counter"),
        ("kill:counter[2]@1s", r"counter has 2 instances, counter\[0\] to counter\[1\]"),
        ("kill:lines[1]@1s", r"lines has 1 instance, only lines\[0\]"),
        ("scale:other=2@1s", "no operator 'other'; it has lines, counter"),
        ("migrate:other=fluid@1s", "no operator 'other'"),
        ("kill:counter@30s", "comes too late: the input ends after 30 s"),
    ],
)
def test_a_target_or_time_that_the_run_will_not_have_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_chaos(parse_chaos(text), {"lines": 1, "counter": 2}, 30)


def test_strikes_that_fit_the_query_pass() -> None:
    check_chaos(parse_chaos("kill:counter[1]+lines@29s"), {"lines": 1, "counter": 2}, 30)
    check_chaos(parse_chaos("kill:counter@1h"), {"counter": 1}, None)
    check_chaos(parse_chaos("scale:counter=3@1s,kill:counter[2]@2s"), {"counter": 1}, None)


def test_kills_are_dealt_in_order_and_all_targets_of_one_at_once() -> None:
    run = FakeRun(expected=3)
    chaos = deal(run, "kill:splitter@20ms,kill:counter[0]+lines@1ms")
    assert run.done == [("kill", "counter[0]"), ("kill", "lines"), ("kill", "splitter")]
    assert chaos.pending == []


def test_slots_are_moved_in_every_way_that_there_is() -> None:
    run = FakeRun(expected=4)
    deal(run, "scale:a=3@1ms,migrate:a=batched+b=fluid->3@2ms,handover:a[1]@3ms")
    assert run.done == [
        ("scale", ("a", 3)),
        ("migrate", ("a", "another owner", "batched")),
        ("migrate", ("b", 3, "fluid")),
        ("handover", "a[1]"),
    ]


class Balancing(FakeRun):
    def balance(self, operator: str) -> None:
        self._note("balance", operator)


def test_a_run_that_can_balance_does() -> None:
    run = Balancing()
    deal(run, "balance:counter@1ms")
    assert run.done == [("balance", "counter")]


def test_a_run_that_cannot_balance_says_so() -> None:
    run = FakeRun()
    deal(run, "balance:counter@1ms,kill:counter@2ms")
    assert [str(event) for event in run.events] == [
        "strike failed balance:counter@0.001s: this run cannot balance its operators"
    ]


class Recovering(FakeRun):
    """Its instances have other nodes as soon as one is stopped."""

    def signal(self, node: str, number: int) -> None:
        self.placement = {"counter[0]": "n8", "counter[1]": "n9"}
        super().signal(node, number)


def test_all_nodes_of_an_operator_are_stopped_and_the_same_go_on_later() -> None:
    run = Recovering(expected=4)
    deal(run, "stop:counter@0s,cont:counter@20ms")
    assert run.done == [("n1", signal.SIGSTOP), ("n2", signal.SIGSTOP), ("n1", signal.SIGCONT), ("n2", signal.SIGCONT)]
    assert [event.kind for event in run.events] == ["stopped", "stopped", "continued", "continued"]


def test_a_target_that_is_gone_is_told_and_the_others_are_still_struck() -> None:
    run = FakeRun(expected=2)
    run.gone.add("counter[1]")
    deal(run, "kill:counter[1]@1ms,kill:splitter@2ms")
    assert [str(event) for event in run.events] == ["strike failed kill:counter[1]@0.001s: there is no counter[1]"]
    assert run.done[-1] == ("kill", "splitter")


def test_what_is_due_after_the_end_of_the_run_stays_pending() -> None:
    run = FakeRun()
    with Chaos(run, parse_chaos("kill:counter@1h")) as chaos:
        pass
    assert [str(strike) for strike in chaos.pending] == ["kill:counter@3600s"]
    assert run.done == []
