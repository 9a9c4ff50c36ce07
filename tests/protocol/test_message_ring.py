"""The ring of a machine: its newest messages and answers in words, without holding on to rows or state."""

from __future__ import annotations

import gc
import weakref

from primitives.checkpoint import Checkpoint
from seep.protocol.effects import Post, Wake
from seep.protocol.message_ring import MessageRing, dumped
from seep.protocol.messages import Data, StateMoved, StoreBackup, Tick, Trim
from seep.protocol.view import MANAGER
from tests.protocol.staging import ALL, NUMBERS, PASS, SUM, life
from tests.protocol.test_manager import KEEPER, Desk


class Rows:
    """Something large."""


def test_messages_and_answers_are_told_in_the_order_in_which_they_came() -> None:
    ring = MessageRing()
    ring.took(MANAGER, Tick(life(NUMBERS), 5, False))
    ring.took("", Data(life(NUMBERS), life(PASS), 5, {}, 7))
    ring.answered([Post("n1", Trim(life(SUM), 3)), Wake(life(PASS), life(SUM), "n2")])
    assert ring.texts() == [
        "← manager: Tick(numbers[0]#0, 5, False, 0)",
        "← Data(numbers[0]#0, pass[0]#0, 5, 7)",
        "→ n1: Trim(sum[0]#0, 3, 0)",
        "→ Wake(pass[0]#0, sum[0]#0, n2)",
    ]


def test_only_the_newest_are_kept() -> None:
    ring = MessageRing(size=3)
    for epoch in range(10):
        ring.took(MANAGER, Trim(life(SUM), epoch))
    assert ring.texts() == [f"← manager: Trim(sum[0]#0, {epoch}, 0)" for epoch in (7, 8, 9)]


def test_neither_rows_nor_state_are_kept_alive() -> None:
    ring, rows = MessageRing(), [Rows(), Rows(), Rows()]
    known = [weakref.ref(each) for each in rows]
    ring.took("", Data(life(NUMBERS), life(PASS), 5, {0: rows[0]}, 7))
    ring.took("", StateMoved(life(SUM), life(SUM, 1), 5, None, (rows[1],)))
    ring.answered([Post("n1", StoreBackup(Checkpoint(SUM, 0, 0, 5, None, ALL, (rows[2],), (), 0)))])  # type: ignore[arg-type]
    rows.clear()
    gc.collect()
    assert [each() for each in known] == [None, None, None]
    assert len(ring.texts()) == 3


def test_what_is_dumped_has_room_in_a_report() -> None:
    ring = MessageRing()
    for epoch in range(1_000):
        ring.took("x" * 500, Trim(life(SUM), epoch))
    (lines,) = dumped({"sum[0]": ring}).values()
    assert 0 < sum(len(line.encode()) for line in lines) <= 16 << 10
    assert lines[-1] == ring.texts()[-1]


def test_the_manager_keeps_what_it_heard_and_what_it_answered() -> None:
    desk = Desk()
    desk.back_up(SUM, 0)
    lines = desk.manager.ring.texts()
    assert f"← {KEEPER}: BackupStored(sum[0]#0, 0, (0, 0), ())" in lines
    assert any(line.startswith("→") and "BackupCounted(sum[0]#0, 0" in line for line in lines)
