"""Hostile text in a real browser: shown as text, never run, and nothing is asked of another host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import run, target_of
from hosted import Hosted, hosted
from hostile import SCRIPTS
from playwright.sync_api import Browser, Page

from specdemo.events import to_json

pytest_plugins = ("browser",)


@pytest.fixture(scope="module")
def served(tiny_llama: Any) -> Iterator[Hosted]:
    with hosted(tiny_llama) as page:
        yield page


@pytest.fixture
def browser_page(served: Hosted, chromium: Browser) -> Iterator[tuple[Page, list[str]]]:
    """The loaded page, and what went wrong on it: errors, violations of the policy, other hosts."""
    trouble: list[str] = []
    with chromium.new_context() as context:
        page = context.new_page()

        def asked(route: Any) -> None:
            if route.request.url.startswith((served.url, "data:", "blob:")):
                route.continue_()
                return
            trouble.append(f"request to {route.request.url[:100]}")
            route.abort()

        page.route("**/*", asked)
        page.on("pageerror", lambda error: trouble.append(f"error {error}"))
        page.on("dialog", lambda dialog: (trouble.append("dialog"), dialog.dismiss()))
        page.on("console", lambda m: trouble.append(m.text) if "Content Security" in m.text else None)
        page.goto(served.url)
        page.wait_for_selector("#do-run", timeout=60_000)
        yield page, trouble


def test_model_text_and_all_names_of_a_recording_are_only_text(
    browser_page: tuple[Page, list[str]], tiny_llama: Any, tmp_path: Path
) -> None:
    page, trouble = browser_page
    made = run(target_of(tiny_llama), "ngram", trace=True)
    lines = [json.loads(to_json(made.started))]
    for one in made.rounds:
        lines += [json.loads(to_json(one.drafted)), json.loads(to_json(one.verified))]
    scripts = iter(SCRIPTS * 100)
    for line in lines:
        for part in [*line.get("nodes", []), *line.get("tokens", [])]:
            part["text"] = next(scripts)
            for alternative in part.get("alternatives", []):
                alternative["text"] = next(scripts)
    for name in ("model", "drafter", "prompt", "device", "dtype", "note"):
        lines[0][name] = next(scripts)
    lines[0]["settings"] = {next(scripts): next(scripts)}
    lines[0]["environment"] = {"device_name": next(scripts), next(scripts): next(scripts)}
    text = "".join(token["text"] for line in lines for token in line.get("tokens", []))
    end = json.loads(to_json(made.finished))
    lines.append({**end, "text": text, "message": next(scripts)})
    file = tmp_path / f"{SCRIPTS[1]}.jsonl".replace("/", "_")
    file.write_text("\n".join(json.dumps(line) for line in lines))
    page.locator("#do-open input[type=file], input[type=file]").first.set_input_files(file)
    page.wait_for_function("document.body.textContent.includes('<script>window.hacked')", timeout=60_000)
    for tab in page.locator("#tabs button[role=tab]").all():
        tab.click()
        page.wait_for_timeout(300)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src=x], iframe[srcdoc], svg[onload]").count() == 0
    assert trouble == []


def test_a_prompt_is_only_text(browser_page: tuple[Page, list[str]]) -> None:
    page, trouble = browser_page
    page.locator("#field-prompt textarea").fill("".join(SCRIPTS))
    page.locator("#do-run").click()
    page.wait_for_function("document.body.textContent.length > 0")
    page.wait_for_timeout(4000)
    assert page.evaluate("window.hacked") is None
    assert trouble == []


def test_a_link_cannot_carry_script(browser_page: tuple[Page, list[str]], served: Hosted) -> None:
    from urllib.parse import quote

    page, trouble = browser_page
    for script in SCRIPTS[:6]:
        value = quote(script)
        page.goto(
            f"{served.url}/?prompt={value}&drafter={value}&lang={value}&mode={value}&view={value}#{value}"
        )
        page.wait_for_selector("#do-run", timeout=60_000)
    page.wait_for_timeout(500)
    assert page.evaluate("window.hacked") is None
    assert trouble == []
