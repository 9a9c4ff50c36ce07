"""The page of the dashboard in a real browser: a finished run that is looked back at, and a live one that changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import seep
from seep.dashboard.access import Access
from seep.dashboard.server import DashboardServer
from seep.dashboard.settings import DashboardSettings
from seep.reports import figures
from seep.running.remote_control import find
from seep.spark.session import Host
from tests.dashboard.browsing import NARROW, WIDE, WatchedPage, chromium, served
from tests.dashboard.made_reports import HOSTILE, KILLED, RECOVERED, made_report, with_a_loss
from tests.runtime.counting import committed, counting, expected, found, start

#: Rows per second that leave a loaded machine time for the browser.
CALM = 2000
TABS = ["Overview", "Slots", "Checkpoints", "Pool", "Dead letters", "State", "Logs"]
OPERATORS = ("lines", "counter", "out")
#: Five seconds apart, in a run of 30 s: the scalings of the report; the loss is between the first and the second.
SCALINGS = (5.0, 15.0, 25.0)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        expect.set_options(timeout=60_000)
        yield browser


@pytest.fixture(scope="module")
def finished() -> Iterator[DashboardServer]:
    """A run of which the counter was scaled three times, and a node was lost and came back."""
    with served(with_a_loss(made_report(OPERATORS), "counter", node="n1", to="n3")) as server:
        yield server


@pytest.fixture
def page(browser: Browser, finished: DashboardServer) -> Iterator[Page]:
    """The page of the finished run, which has no errors and asks no other host."""
    with WatchedPage(browser, finished.login_url()) as watched:
        yield watched.page
        assert watched.complaints == []


def seek(page: Page, at: float) -> None:
    """Moves the slider of time."""
    page.locator(".slider").evaluate(
        "(slider, at) => { slider.value = at; slider.dispatchEvent(new Event('input')); }", at
    )
    expect(page.locator(".time")).to_have_text(f"{at:.1f} s of 29.5 s")


def verdict(page: Page) -> str:
    return page.locator(".verdict").inner_text()


def answer(page: Page, question: str) -> str:
    return page.locator(".short .pair", has_text=question).locator("dd").inner_text()


# -- a run that is over ------------------------------------------------------------------------------------------------


def test_the_four_questions_of_a_person_on_call_are_answered_in_sentences(page: Page) -> None:
    assert "The highest latency was 3.00 s at 10.0 s, during “Lost node n1, recovered counter[0]”" in answer(
        page, "What is slow?"
    )
    assert "Scaled counter 3 → 4 at 25.0 s (the last of 3 scalings). The reason: counter is busy." in answer(
        page, "Why did it scale?"
    )
    assert answer(page, "Did it lose anything?").startswith(
        "No: each of 59,000 rows counts once, also through the loss of 1 node."
    )
    cost = answer(page, "What did the loss of a node cost?")
    assert "Node n1 was lost at 10.0 s; counter[0] recovered in 2.50 s" in cost
    assert "detected in 500 ms, restored in 500 ms, replayed in 1.50 s" in cost
    assert "up to 3.00 s, 100 ms in the middle before" in cost


def test_the_slider_shows_a_moment_as_it_was(page: Page) -> None:
    assert "Finished" in verdict(page)
    seek(page, KILLED + 0.7)
    assert "node n1 was lost 700 ms before; 1 instance not recovered yet: counter[0]" in verdict(page)
    expect(page.locator("[data-operator=counter] .cell.waiting")).to_have_count(1)
    expect(page.locator(".node.lost")).to_contain_text("n1 on vm-n1")
    seek(page, RECOVERED + 0.5)
    expect(page.locator("[data-operator=counter] .cell.waiting")).to_have_count(0)
    expect(page.locator(".node.used", has_text="n3 on vm-n3")).to_contain_text("counter[0]")
    assert "not recovered" not in verdict(page)
    page.get_by_role("button", name="End", exact=True).click()
    expect(page.locator(".verdict")).to_contain_text("Finished")


def test_steps_go_from_mark_to_mark_and_open_their_cards(page: Page) -> None:
    seek(page, 0.5)
    for at, title in (
        (SCALINGS[0], "Scaled counter 1 → 2"),
        (KILLED, "Lost node n1"),
        (SCALINGS[1], "Scaled counter 2 → 3"),
    ):
        page.get_by_role("button", name="Next mark").click()
        expect(page.locator(".time")).to_have_text(f"{at:.1f} s of 29.5 s")
        expect(page.locator(".change.selected h3")).to_contain_text(title)
    page.keyboard.press("[")
    expect(page.locator(".change.selected h3")).to_contain_text("Lost node n1")


def test_enter_on_a_mark_opens_its_card_with_phases_and_cost(page: Page) -> None:
    page.get_by_role("button", name="10.0 s: Lost node n1").press("Enter")
    card = page.locator(".change.selected")
    expect(card.get_by_role("button")).to_be_focused()
    assert card.locator(".phases").inner_text().split() == [
        "detected",
        "500",
        "ms",
        "restored",
        "500",
        "ms",
        "replayed",
        "1.50",
        "s",
    ]
    assert "connection refused" in card.inner_text()
    assert "No row: state came back from a backup" in card.inner_text()


def test_play_goes_through_the_run_by_itself_until_its_end(page: Page) -> None:
    page.get_by_label("Speed").select_option("60")
    page.get_by_role("button", name="Play", exact=True).click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    expect(page.locator(".time")).to_have_text("29.5 s of 29.5 s")


def test_enter_on_an_operator_shows_its_instances_on_their_nodes_and_vms(page: Page) -> None:
    page.get_by_role("button", name="counter, stateful").press("Enter")
    rows = page.get_by_role("region", name="Instances of the selected operator").get_by_role("row")
    expect(rows).to_have_count(2)
    assert rows.nth(1).inner_text().split("\t")[:3] == ["vm-n3", "n3", "counter[0]"]
    expect(page.locator(".node.highlight")).to_have_count(1)


def test_all_views_are_reached_with_the_keyboard_alone(page: Page) -> None:
    assert page.locator("[role=tab]").all_inner_texts() == TABS
    page.locator("[role=tab]").first.focus()
    for title in (*TABS[1:], TABS[0]):
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name=title, exact=True)).to_be_focused()
        expect(page.get_by_role("tabpanel", name=title)).to_be_visible()
    page.keyboard.press("3")
    expect(page.get_by_role("tabpanel", name="Checkpoints")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("go to the mark before")


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_view_is_accessible_and_fits_its_window(
    browser: Browser, finished: DashboardServer, width: int, scheme: str
) -> None:
    with WatchedPage(browser, finished.login_url(), width=width, scheme=scheme) as watched:
        seek(watched.page, KILLED + 0.7)
        watched.page.locator("[data-operator=counter]").press("Enter")
        for title in TABS:
            watched.open_tab(title)
            watched.settle()
            assert (title, watched.violations(), watched.too_wide()) == (title, [], [])
            assert watched.overlapping_texts() == []
            watched.shoot(f"{title}-{width}-{scheme}")
        assert watched.complaints == []


def test_hostile_names_are_text_and_nothing_else(browser: Browser) -> None:
    report = made_report(HOSTILE, instances=3)
    with served(report) as server, WatchedPage(browser, server.login_url(), width=NARROW) as watched:
        page = watched.page
        page.on("dialog", lambda dialog: watched.complaints.append(f"a script ran: {dialog.message}"))
        expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE[0])
        assert page.locator(".operator").evaluate_all("(all) => all.map((each) => each.dataset.operator)") == list(
            HOSTILE
        )
        for title in TABS:
            watched.open_tab(title)
            watched.settle()
            assert (title, watched.too_wide()) == (title, [])
        assert page.locator("img, body script, iframe").count() == 0
        assert watched.overlapping_texts() == []
        assert watched.complaints == []


def test_more_instances_than_can_be_cells_are_drawn_on_a_canvas(browser: Browser) -> None:
    report = made_report(OPERATORS, instances=334, points=10)
    with served(report) as server, WatchedPage(browser, server.login_url()) as watched:
        expect(watched.page.locator("[data-operator=counter] canvas")).to_have_count(1)
        name = watched.page.locator("[data-operator=counter]").get_attribute("aria-label") or ""
        assert name.startswith("counter, stateful: 334 instances")
        assert (watched.violations(), watched.overlapping_texts(), watched.complaints) == ([], [], [])


# -- a run that goes on ------------------------------------------------------------------------------------------------


def cells(page: Page, operator: str) -> Locator:
    return page.locator(f"[data-operator={operator}] .cell:not(.leaving)")


def test_the_graph_grows_when_an_operator_is_scaled_and_a_card_tells_why(browser: Browser, host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(CALM), spare=1, dashboard=True) as run:
        with WatchedPage(browser, run.dashboard_url or "") as watched:
            page = watched.page
            expect(page.locator(".connection")).to_have_text("live")
            expect(page.locator(".operator")).to_have_count(4)
            expect(cells(page, "counter")).to_have_count(1)
            run.scale("counter", 2)
            expect(cells(page, "counter")).to_have_count(2)
            card = page.locator(".change", has_text="Scaled counter 1 → 2")
            expect(card).to_contain_text("done")
            assert {"decided", "sealed", "effective"} <= set(card.locator(".phases").inner_text().split())
            assert "Scaled counter 1 → 2" in answer(page, "Why did it scale?")
            watched.shoot("live-scaled")
            run.finish()
            expect(page.locator(".verdict")).to_contain_text("Finished: all input is processed and committed")
            assert watched.complaints == []
        assert run.wait(120)
        assert found(run) == expected(run)


def test_a_killed_node_is_shown_as_lost_and_then_as_healed(browser: Browser, host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(CALM), spare=2, dashboard=True) as run:
        with WatchedPage(browser, run.dashboard_url or "") as watched:
            page, node = watched.page, run.placement["counter[0]"]
            expect(page.locator(".node.used", has_text=f"{node} on ")).to_contain_text("counter[0]")
            committed(run, 20)
            run.kill(node)
            expect(page.locator(".node.lost")).to_contain_text("had counter[0]")
            expect(page.locator(".change", has_text=f"Lost node {node}, recovered counter[0]")).to_contain_text(
                "replayed"
            )
            expect(page.locator(".node.used", has_text=f"{run.placement['counter[0]']} on ")).to_contain_text(
                "counter[0]"
            )
            expect(page.locator("[data-operator=counter] .cell.waiting")).to_have_count(0)
            assert f"Node {node} was lost" in answer(page, "What did the loss of a node cost?")
            assert "also through the loss of 1 node" in answer(page, "Did it lose anything?")
            watched.shoot("live-healed")
            assert watched.complaints == []
        run.finish()
        assert run.wait(120)
        assert found(run) == expected(run)


def test_the_page_says_since_when_it_has_lost_its_connection_and_finds_it_again(browser: Browser, host: Host) -> None:
    access = Access()
    with start(host, counting(), rate=seep.Rate(CALM)) as run:
        first = DashboardServer(DashboardSettings(port=0), find(run.id), access)
        with WatchedPage(browser, first.login_url()) as watched:
            expect(watched.page.locator(".connection")).to_have_text("live")
            first.close()
            expect(watched.page.locator(".connection")).to_contain_text("connection lost since")
            expect(watched.page.locator(".verdict")).to_contain_text("Not known")
            again = DashboardServer(DashboardSettings(port=first.port), find(run.id), access)
            expect(watched.page.locator(".connection")).to_have_text("live")
            assert watched.page.locator(".verdict").inner_text() != ""
            again.close()


# -- figures -----------------------------------------------------------------------------------------------------------

SECONDS = [0.0, 4e-7, 0.00123, 0.0456, 0.41, 0.9996, 1.0, 9.996, 12.34, 1234.6]
BYTES = [0, 512, 1023, 1024, 3 << 20, 5 << 40]


def test_the_page_writes_figures_as_the_command_line_does(page: Page) -> None:
    shown = page.evaluate(
        "async ([seconds, bytes]) => { const format = await import('/static/format.js');"
        "return [seconds.map(format.seconds), bytes.map(format.bytes)]; }",
        [SECONDS, BYTES],
    )
    assert shown == [list(map(figures.time, SECONDS)), list(map(figures.size, BYTES))]
