"""What must not harm the page, in Chromium: hostile text, bad input, malformed and foreign files."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from browser import Open, Site, drawn, fill, run, set_number, store, tab
from playwright.sync_api import Page, expect

from specdemo.events import Drafted, DraftNode, Finished, NodeVerdict, Started, Token, Verified, to_json
from specdemo.ui.views import bus as bus_module
from specdemo.ui.views.bus import Bus

pytest_plugins = ("browser",)

RECORDINGS = Path(__file__).resolve().parent.parent / "assets" / "recordings"
HOSTILE = [
    "<img src=x onerror=window.hacked=1>",
    "${window.hacked=2}",
    "{{window.hacked=3}}",
    "</script><script>window.hacked=4</script>",
    "javascript:alert(5)",
    "\u202e\u0000?\u2028",
]


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


def refused(page: Page, path: Path, view: str, button: str = "#do-open-file") -> None:
    """Upload a file that cannot be opened; the sentence is seen, and gone again before the next one.

    A sentence left on show would be taken for the next file's, and the test would run ahead of uploads.
    """
    error = page.locator(f"{view} .error")
    expect(error).to_be_hidden()
    upload(page, path, button)
    expect(error).to_contain_text("The file could not be opened")
    page.evaluate("() => { window.specdemo.store.statuses.clear(); window.specdemo.store.changed(); }")
    expect(error).to_be_hidden()


def test_hostile_text_stays_text_everywhere(site: Site, open_page: Open, tmp_path: Path) -> None:
    page = open_page(site.url)
    file = tmp_path / "hostile.jsonl"
    file.write_text(hostile_recording(), encoding="utf-8")
    upload(page, file)
    page.wait_for_function("window.specdemo.store.main?.started?.model.includes('onerror')")
    drawn(page)
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
        refused(page, path, "#view-live")
    json.loads(good[0])


def test_a_page_that_misses_updates_has_every_line_in_the_end(
    site: Site, open_page: Open, monkeypatch: Any
) -> None:
    """Texts of a long run, which begin anew from time to time; of three updates the page sees one, and
    for a while none at all."""
    page = open_page(site.url)
    clock = [0.0]
    monkeypatch.setattr(bus_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    lines = (RECORDINGS / "repeat.jsonl").read_text(encoding="utf-8").splitlines()
    bus = Bus(["main", "plain"], windowed=True, kind="live").page("open", slot="main")
    texts = []
    for line in [lines[0], *lines[1:-1] * 4, lines[-1]]:
        clock[0] += 0.1
        texts.append(bus.lines([line]).text)
    count = len(lines[1:-1]) * 4 + 2
    assert "more" in texts[-1][:40]
    seen = texts[: len(texts) // 2 : 3]
    feed = "texts => texts.forEach(text => window.specdemo.bus(text))"
    page.evaluate(feed, seen)
    read = "main.lines"
    have = store(page, read)
    assert have == [lines[0], *lines[1:-1] * 4][: len(have)] and len(have) > count * 0.4
    page.evaluate(feed, texts[-5:])  # there is a hole before these: they have to wait
    assert store(page, read) == have
    page.evaluate(feed, [bus.whole, bus.whole])
    assert store(page, read) == [lines[0], *lines[1:-1] * 4, lines[-1]]


def test_two_recordings_are_compared_and_a_bad_third_takes_nothing_away(
    site: Site, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(site.url)
    page.evaluate("window.specdemo.player.stop()")
    with page.expect_download() as download:  # the recorded pair that plays first
        page.get_by_role("button", name="Save as HTML page").click()
    exported = tmp_path / "poem.html"
    download.value.save_as(exported)
    tab(page, "Compare")
    names = page.locator(".compare tbody th")
    upload(page, RECORDINGS / "medusa.jsonl", "#do-open-second")
    expect(names).to_have_text(["medusa (medusa.jsonl)"])
    upload(page, exported, "#do-open-second")
    expect(names).to_have_text(["medusa (medusa.jsonl)", f"ngram ({exported.name})"])
    cells = [row.locator("td").all_inner_texts() for row in page.locator(".compare tbody tr").all()]
    events = [json.loads(line) for line in (RECORDINGS / "medusa.jsonl").read_text("utf-8").splitlines()]
    summary = events[-1]["summary"]
    assert cells[0][0] == str(summary["tokens"])
    assert cells[0][1] == f"{summary['mean_accepted_length']:.2f}"
    speedup = store(page, "main.figures().rate / window.specdemo.store.plain.figures().rate")
    assert cells[0][5] == "n/a" and cells[1][5] == f"{speedup:.2f}×", "against the plain run it holds"
    expect(page.locator(".compare > .hint")).to_contain_text("also differ in the prompt")
    expect(page.locator(".compare svg")).to_be_visible()
    before = page.locator(".compare table").inner_text()
    contents = (b"not a recording", b"[" * 100_000, hostile_recording().encode()[:-40])
    for number, content in enumerate(contents):
        bad = tmp_path / f"bad{number}.jsonl"  # a browser refuses to send a file that was written anew
        bad.write_bytes(content)
        refused(page, bad, "#view-compare", "#do-open-second")
        assert page.locator(".compare table").inner_text() == before
    third = tmp_path / "third.jsonl"
    third.write_text(hostile_recording(), encoding="utf-8")
    upload(page, third, "#do-open-second")
    expect(names).to_have_count(3)
    assert page.evaluate("window.hacked") is None and page.locator("#view-compare img").count() == 0
    with page.expect_download() as download:
        page.get_by_role("button", name="Save table (CSV)").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").strip().split("\n")
    assert len(lines) == 4 and lines[1].startswith("medusa (medusa.jsonl),smollm2-135m,")
