"""A run in a notebook: what its cell shows while it runs and afterwards, and a cell that is run again."""

from __future__ import annotations

import pytest

import seep
from seep.reports.page import page
from seep.spark.session import Host
from tests.reports.test_notebook import Seen
from tests.runtime.counting import RATE, awaited, committed, counting, expected, found, start


def test_a_cell_shows_a_run_and_its_migration_while_they_last_and_when_they_are_over(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE), spare=1) as run:
        committed(run, 20)
        awaited(run, lambda: any(each.rows_in_per_second for each in run.status().operators if each.name == "counter"))
        seen = Seen(run._repr_html_())
        for words in (f"run {run.id} of query counting: running", "rows read", "committed", "1 instance, busy"):
            assert words in seen.text
        assert "svg" in seen.tags
        handle = run.migrate("counter", 2)
        assert handle.wait(120)
        assert "counter: done" in Seen(handle._repr_html_()).text
        run.finish()
        assert run.wait(120)
        assert "finished" in Seen(run._repr_html_()).text
        report = run.report()
        assert report["graph"]["operators"]["counter"] == "stateful"
        assert report["graph"]["edges"] == [["numbers", "map"], ["map", "counter"], ["counter", "out"]]
        assert sorted(set(report["slots"]["counter"]["owners"])) == [0, 1]
        for title in ("query graph: numbers, map, counter, out", "Slots of counter", "Phases"):
            assert f'aria-label="{title}"' in page(report)
        assert "iframe" in Seen(report._repr_html_()).tags
        assert found(run) == expected(run)
    over = Seen(run._repr_html_()).text
    assert f"run {run.id} of query counting: finished" in over
    assert "scaled" in over or "migrated" in over


def test_a_cell_that_is_run_again_replaces_the_run_if_it_is_to(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE)) as first:
        committed(first, 5)
        told: list[str] = []
        with start(host, counting(), rate=seep.Rate(RATE), replace=True, progress=told.append) as second:
            assert first.phase == "stopped"
            assert seep.runs() == [second]
            assert f"stopping run {first.id}, which is to be replaced" in told
            committed(second, 5)


def test_a_cell_that_is_run_again_says_which_run_is_still_there(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE)) as first:
        committed(first, 5)
        with pytest.warns(UserWarning, match=f"run {first.id} of query 'counting', which this program has launched"):
            second = seep.launch(counting(), host.context, rate=seep.Rate(RATE), epoch=0.02)
        with second:
            committed(second, 5)
        committed(first, 5)
