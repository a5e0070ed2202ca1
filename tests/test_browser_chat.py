"""A conversation on the page, and what a reload leaves of it."""

from __future__ import annotations

from browser import Open, Site, run, store, tab
from playwright.sync_api import expect

pytest_plugins = ("browser",)


def test_a_conversation_keeps_its_turns_until_a_new_one_begins(site: Site, open_page: Open) -> None:
    page = open_page(site.url)
    page.click("#field-mode input")
    page.get_by_role("option", name="A conversation", exact=True).click()
    new_chat = page.locator("#do-new-chat")
    expect(new_chat).to_be_visible()
    turns = page.locator("#view-live .turns li")

    run(page, "My name is Ada. Say hello.", length=12)
    first = store(page, "main.finished.text")
    alone = store(page, "main.started.prompt_tokens")
    expect(turns).to_have_count(0)

    run(page, "What is my name?", length=12)
    expect(turns).to_have_text(["My name is Ada. Say hello.", first])
    assert store(page, "main.started.prompt_tokens") > alone  # the model was given what was said
    assert store(page, "plain.started.prompt_tokens") == store(page, "main.started.prompt_tokens")

    new_chat.click()
    run(page, "My name is Ada. Say hello.", length=12)
    expect(turns).to_have_count(0)
    assert store(page, "main.started.prompt_tokens") == alone
    assert store(page, "main.finished.text") == first


def test_a_reloaded_page_begins_anew_and_works(site: Site, open_page: Open) -> None:
    page = open_page(site.url, left=True)
    run(page, "Name a colour.", length=8)
    text = store(page, "main.finished.text")
    # Long enough for a fast machine: a page that is short of time looks at its runs now and then only.
    run(page, "Count to one hundred in words.", length=1000, wait=False)
    page.wait_for_function("window.specdemo.store.main?.started?.prompt.startsWith('Count')")
    page.reload()
    page.wait_for_function("document.querySelector('#model-state')?.dataset.state === 'live'")
    # The run that the old page had asked for ends, and the new page's runs at once after it.
    run(page, "Name a colour.", length=8)
    assert store(page, "main.finished.text") == text
    tab(page, "One round")
    expect(page.locator(".round-name")).to_contain_text("Round")
