"""A long run in the browser: processor share, memory, the time of a step, export and replay.

A real run of the embedded model is shown by the page in Chromium. Processor times are those of the
browser's own processes, memory is the page's JavaScript heap after a collection. A step is timed from
the key's press to the frame in which the changed picture has been drawn.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import timing
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import browser
from install_browser import system_browser

from specdemo.ui.backend import Backend, default_loader

STEPS = 8  # presses at each place
PROMPT = (
    "Chapter 1\n\nThe harbour lay quiet under the first snow of the year, and nobody but the keeper of "
    "the old lighthouse saw the ship."
)
# From the press to the frame after the one in which the view has changed: that one is on the screen.
WATCH_STEPS = """() => {
  window.steps = [];
  const view = document.querySelector('.sd-view.round');
  addEventListener('keydown', () => {
    const began = performance.now();
    const watch = new MutationObserver(() => {
      watch.disconnect();
      requestAnimationFrame(() => setTimeout(() => window.steps.push(performance.now() - began)));
    });
    watch.observe(view, {childList: true, subtree: true, attributes: true, characterData: true});
  }, true);
}"""

# How late a timer of a tenth of a second fires: as late would the page hear of a key or a scroll.
WATCH_DELAY = """() => {
  window.delays = [];
  let due = performance.now() + 100;
  const beat = () => {
    window.delays.push(Math.max(0, performance.now() - due));
    due = performance.now() + 100;
    setTimeout(beat, 100);
  };
  setTimeout(beat, 100);
}"""


def one_level() -> None:
    """Give the browser's threads the priority of this process, which the engine has: Chromium sets the
    priority of its pages itself, and where this script was given another one they would not share the
    processors as they do on a usual machine."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    level = os.getpriority(os.PRIO_PROCESS, 0)
    for pid in found[1:]:
        for task in Path(f"/proc/{pid}/task").glob("*"):
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, int(task.name), level)


class Meter:
    """Processor seconds of the browser's processes, and the heap of a page."""

    def __init__(self, chromium: Browser, page: Page) -> None:
        self._all: CDPSession = chromium.new_browser_cdp_session()
        self._page: CDPSession = page.context.new_cdp_session(page)
        self._page.send("Performance.enable")

    def seconds(self) -> dict[str, float]:
        found = self._all.send("SystemInfo.getProcessInfo")["processInfo"]
        return {
            "renderer": sum(one["cpuTime"] for one in found if one["type"] == "renderer"),
            "all": sum(one["cpuTime"] for one in found),
        }

    def metric(self, name: str) -> float:
        metrics = self._page.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == name))

    def heap_mb(self) -> float:
        self._page.send("HeapProfiler.collectGarbage")
        return round(self.metric("JSHeapUsedSize") / 1e6, 1)


def figures(values: list[float]) -> dict[str, float]:
    most = sorted(values)[int(0.95 * len(values))]
    return {
        "median": round(statistics.median(values), 1),
        "p95": round(most, 1),
        "largest": round(max(values), 1),
    }


def long_run(page: Page, meter: Meter, tokens: int) -> dict[str, Any]:
    """The run itself, its plain run before it, and what the browser took meanwhile."""
    heap = meter.heap_mb()
    page.evaluate(WATCH_DELAY)
    cpu, began = meter.seconds(), time.perf_counter()
    browser.run(page, PROMPT, tokens)
    wall = time.perf_counter() - began
    delays = page.evaluate("() => window.delays")
    used = {name: value - cpu[name] for name, value in meter.seconds().items()}
    return {
        "tokens": browser.store(page, "main.tokens.length"),
        "plain_tokens": browser.store(page, "plain.tokens.length"),
        "rounds": browser.store(page, "main.rounds.length"),
        "seconds": round(wall, 1),
        "browser_share_of_a_core": round(used["all"] / wall, 3),
        "page_share_of_a_core": round(used["renderer"] / wall, 3),
        "delay_ms": figures(delays),
        "heap_mb_before": heap,
        "heap_mb_after": meter.heap_mb(),
    }


def steps(page: Page, key: str, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of a step by ``key`` at the beginning, in the middle and at the end of the run."""
    page.evaluate(WATCH_STEPS)
    result = {}
    for name, at in {"start": 0, "middle": rounds // 2, "end": rounds - STEPS - 2}.items():
        page.locator(".round-nav input").first.fill(str(max(0, at)))
        page.locator(".stage-step").nth(3).focus()
        page.evaluate("() => { window.steps.length = 0; }")
        for count in range(1, STEPS + 1):
            page.keyboard.press(key)
            due = time.monotonic() + 10
            while page.evaluate("() => window.steps.length") < count:
                assert time.monotonic() < due, f"{key} at {name} changed nothing"
                page.wait_for_timeout(5)
        result[name] = figures(page.evaluate("() => window.steps"))
    return result


def exported(page: Page, folder: Path) -> tuple[Path, dict[str, Any]]:
    result: dict[str, Any] = {}
    file = folder / "run.html"
    for name, button, path in (
        ("html", "Save as HTML page", file),
        ("jsonl", "Save recording (JSONL)", folder / "run.jsonl"),
    ):
        began = time.perf_counter()
        with page.expect_download() as download:
            page.get_by_role("button", name=button).click()
        download.value.save_as(path)
        result[f"{name}_ms"] = round(1e3 * (time.perf_counter() - began))
        result[f"{name}_kb"] = round(path.stat().st_size / 1e3)
    return file, result


def replayed(chromium: Browser, file: Path, rounds: int) -> dict[str, Any]:
    """The exported file in a window of its own: until its first tokens, its heap, a step."""
    page = chromium.new_page(viewport={"width": 1200, "height": 900})
    meter = Meter(chromium, page)
    began = time.perf_counter()
    one_level()
    page.goto(file.as_uri())
    page.wait_for_selector(".lane-main .token, .lane-plain .token")
    opened = time.perf_counter() - began
    cpu, start = meter.seconds(), time.perf_counter()
    page.locator(".play", has_text="Replay").wait_for()  # at the recorded pace, to its end
    wall = time.perf_counter() - start
    share = (meter.seconds()["all"] - cpu["all"]) / wall
    result = {
        "first_tokens_ms": round(1e3 * opened),
        "replay_seconds": round(wall, 1),
        "replay_share_of_a_core": round(share, 3),
        "step_ms": steps(page, "ArrowRight", rounds),
        "heap_mb": meter.heap_mb(),
    }
    page.close()
    return result


def main() -> None:
    args = timing.arguments(__doc__ or "", tokens=600, drafter="eagle3")
    backend = Backend(default_loader())
    site, demo = browser.serve(backend)
    backend.start().wait()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        chromium = playwright.chromium.launch(executable_path=system_browser(), args=browser.ARGUMENTS)
        page = chromium.new_page(viewport={"width": 1200, "height": 900})
        page.set_default_timeout(110_000)
        values = {"prompt": PROMPT, "mode": "raw", "drafter": args.drafter, "temperature": "0.8"}
        page.goto(f"{site.url}?{urlencode({**values, 'seed': '4', 'lang': 'en'})}")
        page.wait_for_function("document.querySelector('#model-state')?.dataset.state === 'live'")
        meter = Meter(chromium, page)
        one_level()
        run = long_run(page, meter, args.tokens)
        browser.tab(page, "One round")
        page.locator(".tree").first.wait_for()
        by_round = steps(page, "PageDown", run["rounds"])
        by_stage = steps(page, "ArrowRight", run["rounds"])
        browser.tab(page, "Live")
        file, files = exported(page, Path(folder))
        result = {
            "drafter": args.drafter,
            "run": run,
            "step_ms": {"to_the_next_round": by_round, "to_the_next_stage": by_stage},
            "export": files,
            "exported_page": replayed(chromium, file, run["rounds"]),
            "heap_mb_at_the_end": meter.heap_mb(),
        }
        chromium.close()
    demo.close(verbose=False)
    timing.finish(args, result)


if __name__ == "__main__":
    main()
