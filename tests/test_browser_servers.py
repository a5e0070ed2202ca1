"""The page over serving engines: a real llama.cpp server, and a stream that breaks off."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Open, Site, run, serve, set_number, store, tab
from playwright.sync_api import Page, expect
from servers import llama
from servers.replay import broken_after, load, replaying

from specdemo import embedded
from specdemo.engine import Engine
from specdemo.errors import InputError
from specdemo.remote import parse_server
from specdemo.ui.backend import Backend, Progress
from specdemo.ui.text import TEXTS

pytest_plugins = ("browser",)


def no_model(progress: Progress) -> Engine:
    raise InputError("not_loaded", why="this page only shows servers")


@pytest.fixture(scope="module")
def llama_site() -> Iterator[Site]:
    """A page without a model of its own, on a llama.cpp server with a draft model and one without."""
    model = embedded.gguf_path()
    with (
        llama.running(model, spec="draft", synth="2.5", slots="2") as url,
        llama.running(model, slots="2") as plain,
    ):
        site, demo = serve(
            Backend(no_model, [parse_server(f"room={url},kind=llamacpp,baseline={plain}")])
        )
        site.backend.start().wait()
        yield site
        demo.close(verbose=False)


def choose(page: Page, field: str, name: str) -> None:
    page.click(f"#field-{field} input")
    page.get_by_role("option", name=name, exact=True).click()


def test_a_run_on_a_server_says_what_it_does_not_know(llama_site: Site, open_page: Open) -> None:
    page = open_page(llama_site.url, wait=False)
    choose(page, "engine", "room")
    run(page, "Repeat the word hello twelve times.", length=16)
    assert store(page, "main.started.environment.server") == "room"
    accepted = page.locator(".lane-main .token.o-accepted")
    check = store(page, "main.finished.summary.check")
    assert check["outcome"] == "confirmed" and check["inferred_accepted"] > 0
    expect(accepted).to_have_count(check["inferred_accepted"])
    note = page.locator("#view-live .server-note")
    expect(note).to_contain_text("agree with the server's own count")
    expect(note).to_contain_text("Not reported by this server: q, refused draft tokens")
    for cell in ("draft", "verify", "overhead"):
        expect(page.locator(f".f-{cell} dd")).to_have_text("–")
        expect(page.locator(f".f-{cell} dt")).to_have_attribute("title", "not reported by this server")
    expect(page.locator(".badge")).to_contain_text("precision not reported · ")
    expect(page.locator(".badge")).to_contain_text("losslessness not reported")
    expect(page.locator("#speedup-value")).to_contain_text("×")  # the baseline endpoint was measured
    accepted.first.click()
    expect(page.locator(".inspector")).to_contain_text("not reported by this server")
    tab(page, "One round")
    expect(page.locator(".round-words")).to_contain_text("sends only the tokens that a step committed")
    tab(page, "Why is it fast?")
    expect(page.locator(".part-waterfall")).to_contain_text("Not reported by this server")


def test_filling_a_server_gives_a_row_a_level(llama_site: Site, open_page: Open) -> None:
    page = open_page(llama_site.url, wait=False, locale="zh-CN")
    tab(page, TEXTS["zh"]["tab_load"])
    set_number(page, "field-load_most", 2)
    set_number(page, "field-load_length", 8)
    page.click("#do-load-run")
    rows = page.locator("#view-load tbody tr")
    expect(rows).to_have_count(2, timeout=200_000)
    data = store(page, "data.get('load')")
    assert [row["concurrency"] for row in data["rows"]] == [1, 2]
    for i, row in enumerate(data["rows"]):
        assert row["failed"] == 0 and row["speedup"] > 0
        expect(rows.nth(i)).to_contain_text(f"{row['speedup']:.2f}×")
    expect(page.locator("#view-load svg.plot")).to_have_count(2)
    expect(page.locator("#view-load")).to_contain_text("接受计数已核对")


def test_a_stream_that_breaks_off_keeps_what_came(open_page: Open) -> None:
    recording = load("vllm_ngram_count")
    with replaying(recording, play=broken_after(0.5)) as server:
        entry = parse_server(f"far={server.url},kind=vllm")
        site, demo = serve(Backend(no_model, [entry]))
        site.backend.start().wait()
        page = open_page(site.url, wait=False, locale="zh-CN")
        choose(page, "engine", "far")
        choose(page, "mode", TEXTS["zh"]["mode_raw"])  # as the stream was recorded
        page.fill("#field-prompt textarea", "Count.")
        page.click("#do-run")
        error = page.locator("#view-live .error")
        expect(error).to_have_text("服务器 far 在回答完成之前中断了。")
        assert store(page, "main.finished.reason") == "cut"
        assert store(page, "main.tokens.length") > 0
        expect(page.locator("#view-live .server-note")).to_contain_text("回答不完整")
        assert page.input_value("#field-prompt textarea") == "Count."
        page.close()  # or what it still asks for finds no server
        demo.close(verbose=False)
