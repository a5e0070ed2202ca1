"""The Live tab in Chromium: stream, colours, chart, Stop, two tabs, hostile text, bad input."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from browser import Open, Site, fill, run, serve, set_number, store, tab
from playwright.sync_api import Page, expect

from specdemo.events import Drafted, DraftNode, Finished, NodeVerdict, Started, Token, Verified, to_json
from specdemo.ui.backend import Backend

pytest_plugins = ("browser",)

HOSTILE = [
    "<img src=x onerror=window.hacked=1>",
    "${window.hacked=2}",
    "{{window.hacked=3}}",
    "</script><script>window.hacked=4</script>",
    "javascript:alert(5)",
    "\u202e\u0000?\u2028",
]


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


def hostile_recording() -> str:
    """A correct recording in which every text is an attack."""
    events: list[Any] = [
        Started(
            1,
            HOSTILE[0],
            HOSTILE[1],
            "".join(HOSTILE),
            3,
            {"temperature": 0.0, "x": HOSTILE[0]},
            "cpu",
            "fp32",
            0,
            True,
            {"device_name": HOSTILE[0]},
        )
    ]
    for number, text in enumerate(HOSTILE):
        nodes = (DraftNode(number, text, -1, 0.5), DraftNode(9, text, 0, 0.5))
        verdicts = (NodeVerdict("accepted", 0.5, 1.0), NodeVerdict("rejected", 0.1, 0.2, 0.9))
        tokens = (Token(number, text, "accepted", 0.5, 0.5, 0), Token(7, text, "corrected", 0.9))
        events += [Drafted(number, nodes, 1.0), Verified(number, verdicts, tokens, 2.0, 0.1)]
    text = "".join(each * 2 for each in HOSTILE)
    events.append(Finished("length", text, (), {"tokens": 12, "rounds": 6}))
    return "\n".join(map(to_json, events))


def upload(page: Page, path: Path, button: str = "#do-open-file") -> None:
    with page.expect_file_chooser() as chooser:
        page.click(button)
    chooser.value.set_files(path)


def test_a_recorded_run_plays_before_the_model_is_loaded(open_page: Open) -> None:
    released = threading.Event()

    def load(progress: Any) -> Any:
        released.wait()
        raise RuntimeError("not needed here")

    backend = Backend(load)
    served, demo = serve(backend)
    job = backend.start()
    try:
        page = open_page(served.url, wait=False)
        page.wait_for_selector(".lane-main .token")
        expect(page.locator(".badge")).to_contain_text("recorded on")
        assert page.get_attribute("#model-state", "data-state") == "loading"
        page.wait_for_function("window.specdemo.store.time === Infinity")
        shown = page.locator(".lane-main .stream > .token").count()
        assert shown == store(page, "main.tokens.length") > 0
    finally:
        released.set()
        job.wait(10)
        demo.close(verbose=False)
    assert backend.state == "failed"


def test_a_run_streams_into_spans_with_the_colour_of_their_origin(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    run(page, "Count: one, two, three, one, two, three, one, two,", length=24)
    tokens = store(page, "main.tokens.map(t => [t.text, t.origin])")
    spans = page.eval_on_selector_all(
        ".lane-main .stream > .token",
        "all => all.map(e => [e.textContent, e.className.match(/o-(\\w+)/)[1]])",
    )
    assert spans == tokens and len(tokens) > 0
    assert "".join(text for text, _ in tokens) == store(page, "main.finished.text")
    plain = page.eval_on_selector_all(".lane-plain .stream > .token", "all => all.map(e => e.className)")
    assert plain and all("o-target" in name for name in plain)
    lines = page.eval_on_selector_all(
        ".lane-main .stream > .token", "all => all.map(e => getComputedStyle(e).textDecorationStyle)"
    )
    styles = {origin: line for (_, origin), line in zip(tokens, lines, strict=True)}
    assert len(set(styles.values())) == len(styles), "each origin has an underline of its own"


def test_speedup_chart_and_figures_come_from_the_measured_runs(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    run(page, "Say the word yes ten times: yes yes yes yes", length=24)
    # The chart gives way on a slow machine: its last points may come a while after the tokens.
    page.wait_for_function(
        "document.querySelector('.chart').data.slice(0, 2).every((trace, i) => trace.x.length === "
        "window.specdemo.store[['main', 'plain'][i]].rounds.length + 1)",
        timeout=60_000,
    )
    rates = [store(page, f"{slot}.finished.summary.tokens_per_second") for slot in ("main", "plain")]
    shown = page.inner_text("#speedup-value")
    assert shown == f"{rates[0] / rates[1]:.2f}×"
    slower = "slower" in (page.get_attribute("#speedup-value", "class") or "")
    assert slower == (rates[0] / rates[1] < 1.0)
    points = page.evaluate("document.querySelector('.chart').data.map(t => [t.x.length, t.y.at(-1)])")
    for (count, last), slot in zip(points, ("main", "plain"), strict=False):
        assert count == store(page, f"{slot}.rounds.length") + 1
        assert last == store(page, f"{slot}.tokens.length")
    figures = page.locator(".figures").inner_text()
    assert str(store(page, "main.rounds.length")) in figures
    expect(page.locator("#view-live .state")).to_contain_text("Done:")


def test_a_token_is_explained_by_keyboard_and_refused_drafts_can_be_shown(
    site: Site, open_page: Open
) -> None:
    page = open_page(site.url)
    page.click("#field-drafter input")
    page.get_by_role("option", name="early exit (self-speculation)").click()
    run(page, "Write about the sea.", length=20)
    page.focus(".lane-main .stream")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.token") == "1"
    expect(page.locator(".inspector")).to_contain_text("round")
    refused = store(
        page, "main.rounds.flatMap(r => r.verdicts).filter(v => v.judgement !== 'accepted').length"
    )
    assert page.locator(".ghost").count() == 0
    page.get_by_label("show refused drafts").check()
    assert page.locator(".ghost").count() == refused > 0


def test_stop_ends_the_run_within_a_round_and_the_page_goes_on(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    run(page, "Write a very long story about the sea.", length=600, wait=False)
    page.wait_for_function("window.specdemo.store.plain?.rounds.length > 3")
    page.click("#do-stop")
    page.wait_for_function("window.specdemo.store.plain?.finished?.reason === 'cancelled'")
    wait_until(lambda: site.idle)
    expect(page.locator("#view-live .state")).to_contain_text("Stopped.")
    assert page.input_value("#field-prompt textarea") == "Write a very long story about the sea."
    page.reload()
    page.wait_for_selector("#view-live .live")
    page.wait_for_function("document.querySelector('#model-state')?.dataset.state === 'live'")
    run(page, "Hello", length=8)


def test_a_closed_page_ends_its_run(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    run(page, "Write a very long story about a mountain.", length=900, wait=False)
    page.wait_for_function("window.specdemo.store.plain?.rounds.length > 3")
    page.close()
    wait_until(lambda: site.idle, 20)


def test_two_pages_take_turns_and_get_their_own_text(site: Site, open_page: Open) -> None:
    first, second = open_page(site.url), open_page(site.url)
    run(first, "Tell me about apples.", length=40, wait=False)
    run(second, "Tell me about bridges.", length=16, wait=False)
    for page, prompt in ((first, "Tell me about apples."), (second, "Tell me about bridges.")):
        page.wait_for_function(
            f"(({{ main }}) => main?.started?.prompt === '{prompt}' && main.finished)"
            "(window.specdemo.store)"
        )
        assert store(page, "plain.started.prompt") == prompt
        texts = page.eval_on_selector_all(
            ".lane-main .stream > .token", "all => all.map(e => e.textContent)"
        )
        assert "".join(texts) == store(page, "main.finished.text")


def test_hostile_text_stays_text_everywhere(site: Site, open_page: Open, tmp_path: Path) -> None:
    page = open_page(site.url)
    file = tmp_path / "hostile.jsonl"
    file.write_text(hostile_recording(), encoding="utf-8")
    upload(page, file)
    page.wait_for_function("window.specdemo.store.main?.started?.model.includes('onerror')")
    page.wait_for_timeout(300)
    shown = page.eval_on_selector_all(
        ".lane-main .stream > .token", "all => all.map(e => e.textContent)"
    )
    assert shown == [text for each in HOSTILE for text in (each, each)]
    page.get_by_label("show refused drafts").check()
    page.locator(".lane-main .stream > .token").first.click()
    tab(page, "One round")
    expect(page.locator(".tree").first).to_be_visible()
    for name in ("Is it lossless?", "Why is it fast?", "Compare"):
        tab(page, name)
        page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    assert page.locator("#view-live img").count() == 0
    tab(page, "Live")
    run(page, " ".join(HOSTILE[:5]), length=8)
    assert page.evaluate("window.hacked") is None


def test_bad_input_gives_one_sentence_and_keeps_prompt_and_text(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    run(page, "Hello there", length=8)
    kept = store(page, "main.finished.text")
    error = page.locator("#view-live .error")
    for prompt, sentence in (
        ("   ", "The prompt is empty"),
        ("x" * 1_200_000, "has 1200000 characters, at most"),
        ("bad \u0007 bell", "U+0007"),
        ("word " * 9000, "tokens, but the model holds"),
    ):
        fill(page, prompt)
        page.click("#do-run")
        expect(error).to_contain_text(sentence)
        assert page.input_value("#field-prompt textarea") == prompt
    fill(page, "Hello again")
    page.click("#more > button")
    set_number(page, "field-seed", -5)
    page.click("#do-run")
    expect(error).to_contain_text("seed must be a number from 0")
    assert store(page, "main?.finished?.text ?? ''") in (kept, "")
    set_number(page, "field-seed", 3)
    run(page, "Hello again", length=8)
    expect(error).to_be_hidden()


def test_malformed_and_foreign_files_get_a_sentence(site: Site, open_page: Open, tmp_path: Path) -> None:
    page = open_page(site.url)
    good = hostile_recording().splitlines()
    cases = {
        "empty.jsonl": b"",
        "text.jsonl": b"hello",
        "binary.jsonl": bytes(range(256)),
        "two.jsonl": "\n".join([*good, *good]).encode(),
        "deep.jsonl": (b"[" * 100_000),
        "cut.html": b"<html><script type='application/json'>{}</script></html>",
        "page.html": b'<script type="application/json" id="specdemo-data">{"runs": [1]}</script>',
    }
    for name, content in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        upload(page, path)
        expect(page.locator("#view-live .error")).to_contain_text(
            "The file could not be opened", timeout=20_000
        )
        page.evaluate("window.specdemo.store.statuses.clear()")
    json.loads(good[0])
