"""Log lines: their two forms, the level of each event, and that nothing is configured by an import."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.event import event_kinds
from primitives.graph import InstanceId
from seep.channels.wire import decode, encode
from seep.driver.run_logs import node_settings
from seep.logs.event_lines import EventLines
from seep.logs.handlers import LineFormatter, is_configured, lines_on_stderr
from seep.logs.levels import EVENT_LEVELS, LogFormat, LogLevel
from seep.logs.line import FIELDS, LONGEST_EXCEPTION, LONGEST_MESSAGE, LogLine
from seep.logs.run_log import LogContext, RunLog
from seep.logs.settings import LogSettings
from seep.protocol.events import MoveAnnounced, NodeLost, StateRestored
from seep.record.events import NodeJoined, RunFailed, ScaledOut, ScalingOut, ScalingRefused
from tests.runtime.test_run_page import EVENTS

LINE = LogLine(
    at=1.25,
    level=logging.ERROR,
    logger="seep.node",
    message="failed: no luck",
    fields={"run": "ab12", "node": "n2", "instance": "counter[0]", "epoch": 7},
    exception="Traceback:\nValueError: no luck",
)


@pytest.fixture
def kept() -> list[LogLine]:
    return []


@pytest.fixture
def log(kept: list[LogLine]) -> RunLog:
    return RunLog("seep.tests", LogContext(kept.append), {"run": "ab12"})


@pytest.fixture
def heard() -> Iterator[list[logging.LogRecord]]:
    """Records that a handler of the user gets, from debug on."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("seep.tests")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_a_line_of_text_has_the_fields_that_are_known_and_its_trace_indented() -> None:
    assert LINE.text().split("\n") == [
        "1970-01-01T00:00:01.250Z ERROR seep.node run=ab12 node=n2 instance=counter[0] epoch=7: failed: no luck",
        "    Traceback:",
        "    ValueError: no luck",
    ]


def test_a_line_of_json_is_one_object_with_the_exception_as_one_string() -> None:
    written = LINE.written(LogFormat.JSON)
    assert "\n" not in written
    assert json.loads(written) == {
        "time": "1970-01-01T00:00:01.250Z",
        "level": "ERROR",
        "logger": "seep.node",
        "message": "failed: no luck",
        "run": "ab12",
        "node": "n2",
        "instance": "counter[0]",
        "epoch": 7,
        "exception": "Traceback:\nValueError: no luck",
    }


@given(st.text(), st.text())
def test_whatever_a_message_says_each_of_its_lines_but_the_first_is_indented(message: str, name: str) -> None:
    line = LogLine(at=0.0, level=20, logger="seep", message=message, fields={"instance": name})
    first, *rest = line.text().splitlines() or [""]
    assert first.startswith("1970-01-01T00:00:00.000Z INFO seep instance=")
    assert all(each.startswith("    ") for each in rest)
    assert len(line.written(LogFormat.JSON).split("\n")) == 1


def test_a_line_travels_between_processes_as_it_is() -> None:
    assert decode(encode(LINE)) == LINE


def test_a_log_keeps_its_lines_though_nobody_has_configured_logging(log: RunLog, kept: list[LogLine]) -> None:
    log.bound(node="n1").info("%d rows of %s", 3, "x", extra={"epoch": 4, "instance": None})
    assert [(line.message, line.fields) for line in kept] == [
        ("3 rows of x", {"run": "ab12", "node": "n1", "epoch": 4})
    ]


def test_a_record_for_handlers_of_the_user_has_all_fields_and_says_where_it_comes_from(
    log: RunLog, heard: list[logging.LogRecord]
) -> None:
    log.warning("so it is", extra={"epoch": 4})
    (record,) = heard
    text = logging.Formatter("%(name)s %(module)s %(seep_run)s %(seep_epoch)s <%(seep_node)s> %(message)s")
    assert text.format(record) == "seep.tests test_lines ab12 4 <> so it is"
    assert all(hasattr(record, f"seep_{name}") for name in FIELDS)
    assert LineFormatter("json").format(record) == LogLine.of(record).written(LogFormat.JSON)


def test_a_handler_of_the_user_gets_the_trace_of_an_exception(log: RunLog, heard: list[logging.LogRecord]) -> None:
    try:
        raise ValueError("no luck")
    except ValueError:
        log.exception("failed")
    text = logging.Formatter("%(message)s").format(heard[0])
    assert text.startswith("failed\nTraceback (most recent call last)")
    assert text.endswith("ValueError: no luck")


def test_lines_below_the_wanted_level_are_not_even_formatted(log: RunLog, kept: list[LogLine]) -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("it was formatted")

    log.debug("%s", Costly())
    assert kept == []
    assert not log.isEnabledFor(logging.DEBUG)


def test_a_message_that_does_not_fit_its_arguments_is_logged_all_the_same(log: RunLog, kept: list[LogLine]) -> None:
    log.info("%d of %d", "some")
    assert kept[0].message == "%d of %d ('some',)"


def test_a_line_with_characters_that_cannot_be_encoded_is_written_and_sent(
    log: RunLog, kept: list[LogLine], caplog: pytest.LogCaptureFixture
) -> None:
    log.error("no file a\udcff", exc_info=OSError("b\udcfe"), extra={"instance": "c\udcfd", "epoch": True})
    assert decode(encode(kept[0])) == kept[0]
    assert kept[0].message == "no file a\\udcff"
    (record,) = caplog.records
    assert record.getMessage() == kept[0].message, "handlers of the user can write it, too"
    assert record.__dict__["seep_instance"] == "c\\udcfd"
    kept[0].written(LogFormat.JSON).encode()
    kept[0].written(LogFormat.TEXT).encode()


def test_long_messages_and_traces_lose_their_middle(log: RunLog, kept: list[LogLine]) -> None:
    log.error("x" * 100_000, exc_info=ValueError("y" * 1_000_000))
    assert len(kept[0].message) < LONGEST_MESSAGE + 100
    assert len(kept[0].exception) < LONGEST_EXCEPTION + 100
    assert "characters left out" in kept[0].message
    assert kept[0].exception.endswith("y")


# -- events ------------------------------------------------------------------------------------------------------------


def test_every_kind_of_event_has_a_level_and_there_is_none_of_another() -> None:
    kinds = {kind for kind, cls in event_kinds().items() if cls.__module__ in EVENTS}
    assert EVENT_LEVELS.keys() == kinds


def test_events_that_tell_of_a_failure_are_errors() -> None:
    failures = {kind for kind in EVENT_LEVELS if kind.endswith("failed")}
    assert {kind for kind, level in EVENT_LEVELS.items() if level == logging.ERROR} == failures


def test_each_event_is_one_line_with_what_it_is_about(log: RunLog, kept: list[LogLine]) -> None:
    tell = EventLines(log)
    tell(NodeJoined(node="n1"))
    tell(NodeLost(node="n1", why="silent for 3 s"))
    tell(StateRestored(subject=InstanceId("counter", 0), epoch=7))
    tell(RunFailed(why="no luck"))
    assert [(line.level, line.message, line.fields) for line in kept] == [
        (logging.INFO, "node joined n1", {"run": "ab12", "node": "n1"}),
        (logging.WARNING, "node lost n1 silent for 3 s", {"run": "ab12", "node": "n1"}),
        (logging.INFO, "restored counter[0] at epoch 7", {"run": "ab12", "instance": "counter[0]", "epoch": 7}),
        (logging.ERROR, "failed no luck", {"run": "ab12"}),
    ]


def test_only_the_steps_of_migrations_which_may_come_with_every_epoch_are_left_to_debug() -> None:
    steps = {kind for kind, level in EVENT_LEVELS.items() if level == logging.DEBUG}
    assert steps == {"move announced", "move sealed", "move effective", "move complete", "state taken in"}


def test_events_of_a_decision_have_its_number_until_it_ends(kept: list[LogLine]) -> None:
    tell = EventLines(RunLog("seep.tests", LogContext(kept.append, least=logging.DEBUG)))
    begun = {"before": 1, "after": 2, "why": "full"}
    ended = {"before": 1, "after": 2, "seconds": 1.0, "waited": 0.0, "latency_peak": 0.1}
    for operator in ("map", "counter"):
        tell(ScalingOut(operator=operator, **begun))
    tell(MoveAnnounced(operator="counter", plan=3, first=9, slots=4, view=1))
    tell(ScalingRefused(operator="counter", why="to 4: it is being scaled to 2", meanwhile=2))
    tell(ScaledOut(operator="counter", **ended))
    tell(MoveAnnounced(operator="counter", plan=4, first=12, slots=4, view=1))
    assert [line.fields.get("decision") for line in kept] == [1, 2, 2, 2, 2, None]


# -- what is configured ------------------------------------------------------------------------------------------------

#: What is configured after an import of all that a program uses, printed.
_IMPORTED = """
import logging
before = dict(vars(logging.getLogger()))
import seep, seep.cli.app, seep.node.main, seep.running.run, seep.workloads.wordcount, seep.driver.run_logs
assert vars(logging.getLogger()) == before, "the root logger has changed"
ours = [each for name, each in logging.getLogger().manager.loggerDict.items() if name.split(".")[0] == "seep"]
loggers = [each for each in ours if isinstance(each, logging.Logger)]
assert loggers
assert all(each.level == logging.NOTSET and each.propagate and not each.filters for each in loggers)
assert {type(handler) for each in loggers for handler in each.handlers} == {logging.NullHandler}
print("nothing is configured")
"""


def test_an_import_of_seep_configures_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", _IMPORTED], capture_output=True, text=True, timeout=200, check=False)
    assert (done.stdout, done.stderr) == ("nothing is configured\n", "")


#: Lines from within and after the block, with a configuration of the user or without.
_WRITING = """
import logging, logging.config, sys
from seep.logs.handlers import lines_on_stderr
from seep.logs.run_log import LogContext, RunLog
from seep.logs.settings import LogSettings
if "configured" in sys.argv:
    form = {"mine": {"format": "MINE %(seep_run)s %(levelname)s %(message)s"}}
    handler = {"class": "logging.StreamHandler", "formatter": "mine", "stream": "ext://sys.stdout"}
    root = {"handlers": ["err"], "level": "WARNING"}
    logging.config.dictConfig({"version": 1, "formatters": form, "handlers": {"err": handler}, "root": root})
log = RunLog("seep.tests", LogContext(lambda line: None), {"run": "ab12"})
with lines_on_stderr(LogSettings(format="json", level="info")):
    log.info("usual")
    log.warning("worse")
log.warning("later")
"""


def written(*arguments: str) -> tuple[str, str]:
    command = [sys.executable, "-c", _WRITING, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    return done.stdout, done.stderr


def test_a_process_of_ours_writes_its_lines_to_stderr_as_long_as_it_is_ours() -> None:
    out, err = written()
    lines = [json.loads(line) for line in err.splitlines()]
    assert (out, [line["message"] for line in lines]) == ("", ["usual", "worse"])
    assert {line["run"] for line in lines} == {"ab12"}


def test_what_the_user_has_configured_is_respected() -> None:
    assert written("configured") == ("MINE ab12 WARNING worse\nMINE ab12 WARNING later\n", "")


def test_nodes_write_lines_if_asked_for_and_on_a_cluster_always() -> None:
    chosen = LogSettings(format=LogFormat.JSON)
    assert node_settings(chosen, is_local=True) is node_settings(chosen, is_local=False) is chosen
    assert not node_settings(LogSettings(), is_local=True).is_written
    assert node_settings(LogSettings(), is_local=False) == LogSettings(level=LogLevel.INFO)


def test_what_is_collected_has_info_at_least() -> None:
    assert LogSettings(level=LogLevel.ERROR).kept == LogSettings().kept == logging.INFO
    assert LogSettings(level=LogLevel.DEBUG).kept == logging.DEBUG


def test_no_handler_is_added_where_nothing_was_asked_for() -> None:
    assert is_configured(), "pytest has configured the root logger"
    before = logging.getLogger("seep").handlers[:]
    with lines_on_stderr(LogSettings()):
        assert logging.getLogger("seep").handlers == before
    with lines_on_stderr(LogSettings(level=LogLevel.DEBUG)):
        assert logging.getLogger("seep").handlers == before
