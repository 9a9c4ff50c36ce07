"""The views of the dashboard's page on a live run: state, SQL, slots, dead letters, logs, actions, and who may act."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import seep
from policies.backup import BackupSection, BackupSettings, BackupStrategy
from seep.dashboard.finished import FinishedRun
from seep.dashboard.server import DashboardServer
from seep.dashboard.settings import DashboardSettings
from seep.dashboard.tokens import access_of
from seep.running.run import Run
from seep.spark.session import Host
from seep.storage.settings import StorageSettings
from tests.dashboard.browsing import NARROW, WIDE, WatchedPage, chromium
from tests.runtime.counting import awaited, start

#: A key, an error and a row that would run a script if they were read as markup.
HOSTILE = "<img src=x onerror=\"document.title='taken over'\">"
WORDS = (*(f"word{n:03}" for n in range(100)), HOSTILE)
#: The user's function fails on one row of so many.
FAILS = 1000
SCHEMA = pa.schema([("n", pa.int64())])
WORD = pa.schema([("word", pa.string())])
#: The views, and a text that each shows when it has its answer.
VIEWS = {
    "Slots": "Rows of the last",
    "Checkpoints": "counter[0]",
    "Pool": "node joined",
    "Dead letters": "no word for this",
    "State": "word007",
    "Logs": "run of words begins",
}
VIEWER = "a-token-for-those-who-only-look-0123456789"


def numbers(_: int, first: int, count: int) -> dict[str, Any]:
    return {"n": np.arange(first, first + count, dtype=np.int64)}


def worded(batch: pa.RecordBatch) -> dict[str, Any]:
    numbers = batch["n"].to_pylist()
    if any(n % FAILS == FAILS - 1 for n in numbers):
        raise ValueError(f"no word for this: {HOSTILE}")
    return {"word": [WORDS[n % len(WORDS)] for n in numbers]}


def words() -> seep.Query:
    """source -> word, which fails on some rows -> count -> collect"""
    query = seep.Query("words", on_error="dead-letters")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA))
    counted = source.map("word", worded, WORD).key_by("word").aggregate("counter", n=seep.count(), emit="end")
    counted.sink("out", seep.sinks.collect())
    return query


def expected(run: Run) -> Counter[str]:
    """The counts, computed without the engine from what the source log says was read."""
    (read,) = [position[1] for position in run.positions("numbers").values()]
    return Counter(WORDS[n % len(WORDS)] for n in range(read) if n % FAILS != FAILS - 1)


@pytest.fixture(scope="module")
def run(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run with a dead letter, storage and replicas, at which all tests of this file look that do not end it."""
    storage = StorageSettings(location=str(tmp_path_factory.mktemp("stored")))
    backup = BackupSection(default=BackupSettings(strategy=BackupStrategy.REPLICAS, replicas=1))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SEEP_VIEWER_TOKEN", VIEWER)
        options = {"storage": storage, "backup": backup, "rate": seep.Rate(2000), "dashboard": True}
        with start(host, words(), **options) as run:
            awaited(run, lambda: bool(run.manager_process.record.dead_letters(None)[0]))
            yield run


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        expect.set_options(timeout=60_000)
        yield browser


@pytest.fixture
def page(browser: Browser, run: Run) -> Iterator[Page]:
    """The page of the run, as its operator sees it; its scripts have no errors, and ask no other host."""
    with WatchedPage(browser, run.dashboard_url) as watched:
        yield watched.page
        refused = "Failed to load resource"  # the console's words for an answer that is a refusal
        assert [each for each in watched.complaints if refused not in each] == []


def tab(page: Page, name: str) -> Locator:
    """Opens a view; returns its panel."""
    page.get_by_role("tab", name=name, exact=True).click()
    return page.get_by_role("tabpanel", name=name)


# -- state -------------------------------------------------------------------------------------------------------------


def test_a_key_is_looked_up_and_its_row_is_shown(page: Page) -> None:
    state = tab(page, "State")
    state.get_by_label("Key: word").fill("word007")
    state.get_by_label("Key: word").press("Enter")
    expect(state.get_by_text("1 row of key word007")).to_be_visible()
    rows = state.get_by_role("region", name="Rows of").get_by_role("row")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("word007")
    state.get_by_label("Key: word").fill("nobody has said this")
    state.get_by_role("button", name="Look up").click()
    expect(state.get_by_text("no state of key nobody has said this")).to_be_visible()


def test_the_rows_of_an_operator_are_read_page_by_page(page: Page) -> None:
    state = tab(page, "State")
    earlier, further = (state.get_by_role("button", name=f"{which} rows") for which in ("Earlier", "Further"))
    expect(state.get_by_text(f"rows 1 to 50 of {len(WORDS)}")).to_be_visible()
    expect(earlier).to_be_disabled()
    seen = shown_words(state)
    further.click()
    expect(state.get_by_text(f"rows 51 to 100 of {len(WORDS)}")).to_be_visible()
    seen |= shown_words(state)
    further.click()
    expect(state.get_by_text(f"rows 101 to 101 of {len(WORDS)}")).to_be_visible()
    expect(further).to_be_disabled()
    assert seen | shown_words(state) == set(WORDS)
    earlier.click()
    expect(state.get_by_text(f"rows 51 to 100 of {len(WORDS)}")).to_be_visible()


def shown_words(state: Locator) -> set[str]:
    return set(state.get_by_role("region", name="Rows of").locator("tbody td:first-child").all_inner_texts())


def test_sql_answers_with_rows_and_a_keystroke_asks(page: Page, run: Run) -> None:
    (container,) = run.state("counter").containers
    state = tab(page, "State")
    query = state.get_by_label("SQL query")
    expect(state.get_by_text(f'Tables: {container} (word, "count()")')).to_be_visible()
    query.fill(f"SELECT word, \"count()\" > 0 AS seen FROM {container} WHERE word LIKE 'word00%' ORDER BY word")
    query.press("Control+Enter")
    result = state.get_by_role("region", name="Result of the query")
    expect(result.get_by_role("row")).to_have_count(11)
    expect(result.get_by_role("row").nth(1)).to_contain_text("word000")
    expect(state.get_by_text("10 rows, in")).to_be_visible()


@pytest.mark.parametrize("statement", ["COPY totals TO '/tmp/taken.csv'", "INSTALL httpfs", "ATTACH '/tmp/other.db'"])
def test_sql_that_does_more_than_read_is_refused_in_a_sentence(page: Page, statement: str) -> None:
    state = tab(page, "State")
    state.get_by_label("SQL query").fill(statement)
    state.get_by_role("button", name="Ask").click()
    expect(state.locator(".refused")).to_contain_text("a query over state is one SELECT over its tables")
    expect(state.get_by_role("region", name="Result of the query")).to_have_count(0)


# -- slots, letters, logs, checkpoints, pool ---------------------------------------------------------------------------


def test_the_map_of_slots_tells_owner_and_rows_of_each_by_pointer_and_by_keyboard(page: Page) -> None:
    slots = tab(page, "Slots")
    expect(slots.get_by_text("counter has 256 slots, owned by 1 instance.")).to_be_visible()
    expect(slots.get_by_text("Rows of the last")).to_be_visible()
    drawn = slots.get_by_role("slider", name="Slots of counter")
    drawn.focus()
    page.keyboard.press("ArrowRight")
    expect(slots.get_by_text("slot 1: owned by counter[0],")).to_be_visible()
    page.keyboard.press("End")
    assert drawn.get_attribute("aria-valuetext").startswith("slot 255: owned by counter[0],")
    drawn.hover(position={"x": 3, "y": 3})
    expect(slots.get_by_text("slot 0: owned by counter[0],")).to_be_visible()
    expect(slots.get_by_role("region", name="Slots with most rows").get_by_role("row")).to_have_count(11)


def test_loads_of_65536_slots_add_up_to_those_of_their_owners(page: Page) -> None:
    """The arithmetic of the map, as the browser does it: owners by search, and rows of buckets that owners share."""
    found = page.evaluate(
        """async () => {
            const { SlotLoads } = await import("/static/parts/slot_map.js");
            const starts = Array.from({ length: 1000 }, (_, at) => Math.floor((at * 65536) / 1000));
            const rows = Array.from({ length: 4096 }, (_, at) => (at * 7919) % 1000);
            const owners = starts.map((_, at) => at % 40);
            const loads = new SlotLoads({ slots: 65536, starts, owners, rows });
            const plain = (slot) => owners[starts.findLastIndex((start) => start <= slot)];
            const slots = Array.from({ length: 65536 }, (_, slot) => slot);
            return {
                rows: rows.reduce((sum, each) => sum + each), byOwner: loads.byOwner(),
                wrong: slots.filter((slot) => loads.ownerOf(slot) !== plain(slot)),
                hottest: loads.hottestBuckets(3).map(({ rows, first, last }) => [rows, last - first + 1]),
            };
        }"""
    )
    assert found["wrong"] == []
    assert sum(each["slots"] for each in found["byOwner"]) == 65536
    assert sum(each["rows"] for each in found["byOwner"]) == pytest.approx(found["rows"])
    assert found["hottest"] == [[999, 16]] * 3


def test_hostile_keys_errors_and_rows_are_shown_as_text(page: Page) -> None:
    letters = tab(page, "Dead letters")
    expect(letters.get_by_role("region", name="Dead letters, newest first")).to_contain_text(HOSTILE)
    state = tab(page, "State")
    state.get_by_label("Key: word").fill(HOSTILE)
    state.get_by_role("button", name="Look up").click()
    expect(state.get_by_role("region", name="Rows of")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0
    assert page.title() == "words – seep"


def test_dead_letters_are_counted_by_operator_and_shown_with_function_error_and_row(page: Page) -> None:
    letters = tab(page, "Dead letters")
    row = letters.get_by_role("region", name="Dead letters, newest first").get_by_role("row").nth(1)
    expect(row).to_contain_text("word[0]")
    expect(row).to_contain_text(f"no word for this: {HOSTILE}")
    expect(row).to_contain_text('{"n": ')
    counted = letters.get_by_role("region", name="Rows that were not processed as usual").locator("tr", has_text="word")
    expect(counted.locator("td").nth(1)).not_to_have_text("–")
    letters.get_by_label("Operator").select_option("counter")
    expect(letters.get_by_text("No sample of a dead letter is kept.")).to_be_visible()


def test_log_lines_are_followed_and_chosen_by_level_and_node(page: Page) -> None:
    logs = tab(page, "Logs")
    lines = logs.get_by_role("region", name="Log lines").get_by_role("listitem")
    expect(lines.filter(has_text="run of words begins")).to_be_visible()
    logs.get_by_label("Node").select_option("n1")
    expect(lines.filter(has_text="run of words begins")).to_have_count(0)
    expect(lines.filter(has_text="n1").first).to_be_visible()
    logs.get_by_label("Node").select_option("all nodes")
    logs.get_by_label("Level").select_option("error")
    expect(logs.get_by_text("No line of this level")).to_be_visible()


def test_a_savepoint_is_taken_by_a_button_and_is_among_the_checkpoints(page: Page, run: Run) -> None:
    page.get_by_role("button", name="Savepoint …").click()
    page.get_by_role("button", name="Take a savepoint").click()
    expect(page.locator("#notices")).to_contain_text("is complete.")
    (savepoint,) = run.events.of("savepoint")
    stored = tab(page, "Checkpoints").get_by_role("region", name="Checkpoints in storage")
    row = stored.get_by_role("row").filter(has=page.get_by_role("cell", name=str(savepoint.id), exact=True))
    expect(row).to_contain_text("savepoint, kept until it is disposed of")
    expect(row.get_by_role("cell").last).to_have_text("unknown")


def test_the_holders_of_backups_and_the_instances_on_nodes_are_shown(page: Page, run: Run) -> None:
    awaited(run, lambda: bool(run.events.of("replicas placed")))
    (holder,) = next(iter(run.events.of("replicas placed")[-1].groups.values()))
    backups = tab(page, "Checkpoints").get_by_role("region", name="Backups of instances")
    row = backups.get_by_role("row").filter(has_text="counter[0]")
    expect(row.get_by_role("cell").nth(5)).to_have_text(holder)
    nodes = tab(page, "Pool").get_by_role("region", name="Nodes", exact=True)
    for node in run.nodes:
        expect(nodes.get_by_role("cell", name=node, exact=True)).to_be_visible()


# -- actions -----------------------------------------------------------------------------------------------------------


def test_an_operator_is_scaled_and_migrated_by_buttons_and_all_counts_stay_exact(host: Host, browser: Browser) -> None:
    with start(host, words(), rate=seep.Rate(2000), spare=1, dashboard=True) as run:
        with WatchedPage(browser, run.dashboard_url) as watched:
            page = watched.page
            page.get_by_role("button", name="Scale …").click()
            dialog = page.get_by_role("dialog", name="Scale")
            dialog.get_by_label("Operator").select_option("counter")
            dialog.get_by_label("Instances").fill("2")
            expect(dialog.get_by_text("counter goes from 1 to 2 instances.")).to_be_visible()
            dialog.get_by_role("button", name="Scale counter to 2").click()
            expect(page.locator("#notices")).to_contain_text("counter: scaled out")
            assert {"counter[0]", "counter[1]"} <= run.placement.keys()
            slots = tab(page, "Slots")
            expect(slots.get_by_role("region", name="Who owns how much").get_by_role("row")).to_have_count(3)
            page.get_by_role("button", name="Migrate …").click()
            dialog = page.get_by_role("dialog", name="Migrate")
            dialog.get_by_label("Operator").select_option("counter")
            dialog.get_by_label("Instances").fill("1")
            dialog.get_by_label("Strategy").select_option("fluid")
            expect(dialog.get_by_text("one slot at a time")).to_be_visible()
            dialog.get_by_role("button", name="Migrate counter to 1").click()
            moves = page.get_by_role("list", name="What moves now")
            expect(moves.get_by_text("counter is moving: ")).to_be_visible()
            expect(moves.get_by_role("progressbar", name="Slots of counter moved")).to_be_visible()
            page.get_by_role("button", name="Finish …").click()
            page.get_by_role("button", name="Finish the run").click()
            assert run.wait(120)
            expect(page.get_by_text("The run is over (finished), so there is nothing to do with it.")).to_be_visible()
            expect(page.get_by_role("group", name="Actions").get_by_role("button")).to_have_count(0)
            expect(slots.get_by_text("The run is over: these are the last owners")).to_be_visible()
            expect(tab(page, "State").get_by_text("The run is over: its state is gone from memory.")).to_be_visible()
        report = json.loads(json.dumps(run.report()))
        found = {row["word"]: row["n"] for row in run.result("out").to_pylist()}
        assert found == expected(run)
    look_at_report(browser, report)


def look_at_report(browser: Browser, report: dict[str, Any]) -> None:
    """Of a report, each view shows what it has, and says what it has not."""
    settings = DashboardSettings(port=0)
    server = DashboardServer(settings, FinishedRun(report, "words"), access_of(settings))
    try:
        with WatchedPage(browser, server.login_url()) as watched:
            page = watched.page
            expect(tab(page, "Slots").get_by_text("The run is over: these are the last owners")).to_be_visible()
            expect(tab(page, "Checkpoints").get_by_text("No checkpoint was stored in this run")).to_be_visible()
            cost = sum(report["summary"]["vms"].values())
            expect(tab(page, "Pool").get_by_text(f"{cost:,.0f} VM seconds")).to_be_visible()
            letters = tab(page, "Dead letters")
            expect(letters.get_by_text(f"In the whole run: {letters_of(report)},")).to_be_visible()
            expect(letters.get_by_text("which has nothing for 'dead-letters'")).to_be_visible()
            expect(tab(page, "State").get_by_text("The run is over: its state is gone from memory.")).to_be_visible()
            expect(tab(page, "Logs").get_by_text("which has nothing for 'logs'")).to_be_visible()
            for name in VIEWS:
                tab(page, name)
                watched.shoot(f"report {name}")
                assert watched.too_wide() == []
                assert watched.violations() == []
    finally:
        server.close()


def letters_of(report: dict[str, Any]) -> str:
    number = report["summary"]["counters"].get("dead_letters", 0)
    return f"{number:,} dead letter{'' if number == 1 else 's'}"


def test_a_refused_action_says_why(page: Page) -> None:
    page.get_by_role("button", name="Balance …").click()
    page.get_by_role("dialog").get_by_label("Operator").select_option("numbers")
    page.get_by_role("button", name="Balance numbers").click()
    expect(page.locator("#notices .bad")).to_contain_text("Balance was refused: ")


def test_who_only_looks_has_no_buttons_and_cannot_act_without_them(browser: Browser, run: Run) -> None:
    where = urlsplit(run.dashboard_url)
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{where.scheme}://{where.netloc}/login")
        page.get_by_label("Token").fill(VIEWER)
        page.keyboard.press("Enter")
        expect(page.get_by_text("You may look, and not act: for that, log in as an operator.")).to_be_visible()
        expect(page.get_by_role("button", name="Scale …")).to_have_count(0)
        refused = page.evaluate(
            """async () => {
                const run = await (await fetch("/api/v1/run")).json();
                const headers = { "Content-Type": "application/json", "X-Seep-Csrf": run.csrf };
                const body = JSON.stringify({ operator: "counter", to: 2 });
                const answer = await fetch("/api/v1/scale", { method: "POST", headers, body });
                return [answer.status, await answer.text()];
            }"""
        )
    assert refused[0] == 403
    assert json.loads(refused[1])["error"]
    assert not run.events.of("scaling out")


def test_views_and_actions_are_reached_by_keyboard_alone(page: Page) -> None:
    page.get_by_role("tab", name="Overview").focus()
    for name in ("Slots", "Checkpoints", "Pool"):
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name=name)).to_be_focused()
        expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
    drain = page.get_by_role("button", name="Drain …")
    while not drain.evaluate("node => node === document.activeElement"):
        assert page.evaluate("document.activeElement !== document.body"), "the buttons come before the tabs"
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Drain")
    for _ in range(5):
        assert dialog.evaluate("node => node.contains(document.activeElement)"), "the focus stays in the dialog"
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):  # the browser's own bar, between last and first
            page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(drain).to_be_focused()


# -- looks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "width"), [("dark", WIDE), ("light", NARROW), ("light", WIDE), ("dark", NARROW)])
def test_each_view_is_accessible_and_fits_wide_and_narrow_dark_and_light(
    browser: Browser, run: Run, scheme: str, width: int
) -> None:
    with WatchedPage(browser, run.dashboard_url, scheme=scheme, width=width) as watched:
        for name, shown in VIEWS.items():
            expect(tab(watched.page, name).get_by_text(shown).first).to_be_visible()
            watched.settle()
            watched.shoot(f"{name} {scheme} {width}")
            assert watched.too_wide() == []
            assert watched.violations() == []


def test_the_dialog_of_an_action_is_accessible_and_fits_a_narrow_screen(browser: Browser, run: Run) -> None:
    with WatchedPage(browser, run.dashboard_url, width=NARROW) as watched:
        watched.page.get_by_role("button", name="Migrate …").click()
        watched.shoot(f"migrate {NARROW}")
        assert watched.too_wide() == []
        assert watched.violations() == []
