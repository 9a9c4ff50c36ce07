"""A browser on the page of a dashboard: real headless Chromium, and checks of what it shows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from seep.dashboard.access import Access
from seep.dashboard.finished import FinishedRun
from seep.dashboard.server import DashboardServer
from seep.dashboard.settings import DashboardSettings

#: Where pictures of the views are put, to be looked at.
SCREENS = Path(__file__).parents[2] / "build" / "screens"
WIDE, NARROW = 1280, 360
_HEIGHT = 900
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_NO_BROWSER = "there is no Chromium: install it with the system's package manager (apt-get install chromium)"
#: It is root in a container, has no graphics, and does not talk to its maker.
_ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

#: The console's words for an answer that is a refusal, which the page shows in a sentence.
_REFUSED = "the server responded with a status of 400"

#: Waits for the end of all animations that have one.
_AT_REST = """() => Promise.all(document.getAnimations()
  .filter((each) => each.effect.getTiming().iterations !== Infinity)
  .map((each) => each.finished.catch(() => null))).then(() => null)"""

#: Returns texts of the graph that lie over each other.
_OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll(".graph-drawing text")]
    .filter((each) => each.textContent).map((each) => [each.textContent, each.getBoundingClientRect()]);
  const found = [];
  boxes.forEach(([text, one], place) => boxes.slice(place + 1).forEach(([other, two]) => {
    const across = Math.min(one.right, two.right) - Math.max(one.left, two.left);
    const down = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
    if (across > 1 && down > 3) found.push(`${text} / ${other}`);
  }));
  return found;
}"""

#: Returns what reaches beyond the window, if the page can be scrolled sideways.
_TOO_WIDE = """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")]
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
  .map((each) => `${each.tagName} ${each.getAttribute("class")}`).slice(0, 9)"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; skips, and says how to install one, if this machine has none."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip(_NO_BROWSER)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGS)
        yield browser
        browser.close()


@contextmanager
def served(report: Mapping[str, Any]) -> Iterator[DashboardServer]:
    """The dashboard of a run that is over."""
    server = DashboardServer(DashboardSettings(port=0), FinishedRun(report, "a-run"), Access())
    try:
        yield server
    finally:
        server.close()


class WatchedPage:
    """A page, with everything that it should not do."""

    def __init__(self, browser: Browser, url: str, *, width: int = WIDE, scheme: Any = "light") -> None:
        self.complaints: list[str] = []  #: errors of its scripts or in its console, and requests to other hosts
        self._host = urlsplit(url).netloc
        self._context = browser.new_context(viewport={"width": width, "height": _HEIGHT}, color_scheme=scheme)
        self._context.set_default_timeout(60_000)
        self.page: Page = self._context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._check)
        self.page.goto(url)
        self.page.wait_for_selector("[role=tab][aria-selected=true]")

    def __enter__(self) -> WatchedPage:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def _hear(self, told: ConsoleMessage) -> None:
        if told.type == "error" and _REFUSED not in told.text:
            self.complaints.append(told.text)

    def _check(self, request: Request) -> None:
        if urlsplit(request.url).netloc != self._host and not request.url.startswith("data:"):
            self.complaints.append(f"a request to {request.url}")

    def tabs(self) -> list[str]:
        return self.page.locator("[role=tab]").all_inner_texts()

    def open_tab(self, title: str) -> None:
        self.page.get_by_role("tab", name=title, exact=True).click()
        self.page.wait_for_selector("[role=tabpanel]:not([hidden])")

    def settle(self) -> None:
        """Waits until all that moves has come to rest."""
        self.page.evaluate(_AT_REST)

    def shoot(self, name: str) -> None:
        """Puts a picture of the whole page to where it can be looked at."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        name = re.sub("[^a-z0-9]+", "-", name.lower())
        (SCREENS / f"{name}.png").write_bytes(self.page.screenshot(full_page=True))

    def violations(self) -> list[str]:
        """Returns how the view that is shown breaks the rules of accessibility: the rule, and where."""
        found = Axe().run(self.page).response["violations"]
        return [f"{each['id']}: {node['target']} {node['failureSummary']}" for each in found for node in each["nodes"]]

    def overlapping_texts(self) -> list[str]:
        return self.page.evaluate(_OVERLAPS)

    def too_wide(self) -> list[str]:
        return self.page.evaluate(_TOO_WIDE)
