"""The page of the dashboard with 1,000 instances and 2^16 slots: how long a frame takes when the moment shown changes.

Real headless Chromium without a processor for graphics, on a report of a run that never was. A frame is all that the
page does from the change of the moment until it is drawn.
"""

from __future__ import annotations

import sys
from pathlib import Path

# As a script, this folder is first on the path, and hides the package that is named like one of its files.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
from playwright.sync_api import Browser, Page

from benchmarks.script import parser_of, progress, tell
from benchmarks.table import Target
from tests.dashboard.browsing import WatchedPage, chromium, served
from tests.dashboard.made_reports import made_report

TARGETS = {
    "painted_p99_ms": Target("frame of the Overview, 3 operators with 334 instances, p99", "ms", 1.0, 50.0),
    "wide_p99_ms": Target("frame of the Overview, 50 operators with 20 instances, p99", "ms", 1.0, 50.0),
    "shapes_p99_ms": Target("frame of the Overview, 4 operators with 50 instances, p99", "ms", 1.0, 50.0),
    "slots_p99_ms": Target("frame of the map of 65,536 slots, p99", "ms", 1.0, 50.0),
}
#: Operators, instances of each, and the view.
CASES = {
    "painted": (3, 334, "Overview"),
    "wide": (50, 20, "Overview"),
    "shapes": (4, 50, "Overview"),
    "slots": (3, 334, "Slots"),
}
SLOTS = 1 << 16

#: Shows one moment after the other; returns the milliseconds of each frame. The first two may compile.
_FRAMES = """async (moments) => {
  const slider = document.querySelector(".slider");
  const frame = () => new Promise((done) => requestAnimationFrame((start) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done(performance.now() - start);
    channel.port2.postMessage(null);
  }));
  const taken = [];
  for (const at of moments) {
    const began = performance.now();
    slider.value = at;
    slider.dispatchEvent(new Event("input"));
    const before = performance.now() - began;
    taken.push(before + await frame());
  }
  return taken.slice(2);
}"""


def frames(page: Page, count: int) -> list[float]:
    """The milliseconds of so many frames, each of another moment."""
    end = float(page.locator(".slider").get_attribute("max") or 0)
    taken: list[float] = page.evaluate(_FRAMES, np.linspace(0.5, end - 0.5, count + 2).tolist())
    return taken


def measure(browser: Browser, count: int) -> dict[str, float]:
    found = {}
    for name, (operators, instances, view) in CASES.items():
        progress(name)
        names = [f"operator-{number}" for number in range(operators)]
        with (
            served(made_report(names, instances, points=120, slots=SLOTS)) as server,
            WatchedPage(browser, server.login_url()) as watched,
        ):
            watched.open_tab(view)
            watched.settle()
            taken = frames(watched.page, count)
        found |= {f"{name}_p{p}_ms": float(np.percentile(taken, p)) for p in (50, 99)}
        found[f"{name}_max_ms"] = max(taken)
    return found


def main() -> None:
    parser = parser_of(__doc__, "benchmarks/dashboard_page.py --frames 200")
    parser.add_argument("--frames", type=int, default=120, help="in each case (120)")
    given = parser.parse_args()
    with chromium() as browser:
        tell(measure(browser, given.frames), TARGETS, given.json)


if __name__ == "__main__":
    main()
