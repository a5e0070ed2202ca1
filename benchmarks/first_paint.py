"""How soon the page shows a run: from opening the address to the first coloured tokens on the screen.

Cold: a browser started anew with an empty cache; warm: the same browser opens the page again. The
server has just started and no model is loaded, as when the app starts: a recorded run is on show.
"""

from __future__ import annotations

import statistics
import sys
import threading
from pathlib import Path
from typing import Any

import timing
from playwright.sync_api import BrowserContext, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import browser
from install_browser import system_browser

from specdemo.ui.backend import Backend

# Milliseconds since the navigation began: when the first tokens stood on the stage, in a drawn frame.
WATCH = """addEventListener('DOMContentLoaded', () => new MutationObserver((_, watch) => {
  if (window.shown || !document.querySelector('.lane-main .token, .lane-plain .token')) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.shown = performance.now(); }));
}).observe(document, {childList: true, subtree: true}))"""


def opened(context: BrowserContext, url: str) -> dict[str, float]:
    page = context.new_page()
    page.goto(url, wait_until="commit")
    page.wait_for_function("window.shown")
    tokens = page.evaluate("window.shown")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null")
    page.wait_for_function("document.querySelector('#view-live .live')")
    built = page.evaluate("performance.now()")
    page.wait_for_timeout(500)  # until nothing of this page is still at work
    page.close()
    return {"first_paint": paint, "first_tokens": tokens, "gradio_built": built}


def main() -> None:
    args = timing.arguments(__doc__ or "", repeats=5)
    released = threading.Event()

    def load(progress: Any) -> Any:
        released.wait()
        raise RuntimeError("not needed here")

    backend = Backend(load)
    site, demo = browser.serve(backend)
    backend.start()
    times: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    with sync_playwright() as playwright:
        for _ in range(args.repeats):
            chromium = playwright.chromium.launch(
                executable_path=system_browser(), args=browser.ARGUMENTS
            )
            context = chromium.new_context(viewport={"width": 1200, "height": 900})
            context.add_init_script(WATCH)
            times["cold"].append(opened(context, site.url))
            times["warm"].append(opened(context, site.url))
            chromium.close()
    released.set()
    demo.close(verbose=False)

    def figures(turns: list[dict[str, float]]) -> dict[str, Any]:
        names = list(turns[0])
        return {
            name: {
                "median_ms": round(statistics.median(turn[name] for turn in turns)),
                "all_ms": [round(turn[name]) for turn in turns],
            }
            for name in names
        }

    timing.finish(args, {name: figures(turns) for name, turns in times.items()})


if __name__ == "__main__":
    main()
