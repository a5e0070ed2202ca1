"""What the page costs the engine: the same run with a browser that shows it, and with none.

Both runs go through the page's own worker and come to the server by Gradio; only the first one's
events are drawn. Times are those of the engine's rounds (draft, verify, overhead), so a slowdown here
is what streaming takes from the engine on a machine whose processors it shares with the browser.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import timing
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import browser
from install_browser import system_browser

from specdemo.run import Run
from specdemo.sampling import SamplingParams
from specdemo.ui.backend import Backend, Order, default_loader


def figures(summary: dict[str, Any]) -> float:
    """Milliseconds a token."""
    return (summary["draft_ms"] + summary["verify_ms"] + summary["overhead_ms"]) / summary["tokens"]


def shown(page: Page, prompt: str, tokens: int) -> float:
    browser.run(page, prompt, tokens)
    return figures(dict(browser.store(page, "main.finished.summary")))


def unseen(backend: Backend, prompt: str, tokens: int, drafter: str) -> float:
    order = Order(prompt, drafter, params=SamplingParams(max_new_tokens=tokens))
    job = backend.worker.submit(lambda: backend.generate(order))
    job.wait()
    run = Run.of(job.drain())
    assert run.finished is not None
    return figures(dict(run.finished.summary))


def main() -> None:
    args = timing.arguments(__doc__ or "", tokens=96, repeats=7, drafter="ngram")
    backend = Backend(default_loader())
    site, demo = browser.serve(backend)
    backend.start().wait()
    times: dict[str, list[float]] = {"with a browser": [], "without": []}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=system_browser(), args=browser.ARGUMENTS)
        page = chromium.new_page()
        page.goto(site.url)
        page.wait_for_function("document.querySelector('#model-state')?.dataset.state === 'live'")
        shown(page, timing.PROMPTS[0], 8)
        for turn in range(args.repeats):
            prompt = timing.PROMPTS[turn % len(timing.PROMPTS)]
            times["with a browser"].append(shown(page, prompt, args.tokens))
            times["without"].append(unseen(backend, prompt, args.tokens, args.drafter))
        chromium.close()
    demo.close(verbose=False)
    pairs = zip(times["with a browser"], times["without"], strict=True)
    timing.finish(
        args,
        {
            "tokens": args.tokens,
            "drafter": args.drafter,
            "ms_per_token": {k: [round(x, 2) for x in v] for k, v in times.items()},
            "ratio": round(statistics.median(a / b for a, b in pairs), 3),
        },
    )


if __name__ == "__main__":
    main()
