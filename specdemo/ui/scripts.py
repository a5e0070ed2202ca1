"""The scripts that Gradio's ``js=`` takes, as texts: each calls into assets/js."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

MOST_SENT = 250_000  # characters of a prompt; more than any prompt may have
FIRST = 2  # values that come before the fields: the language and the conversation


def from_page(fields: Mapping[str, str]) -> str:
    """Fills the hidden fields from the page just before a press is sent, and keeps a huge prompt back:
    its size alone is enough to refuse it. ``fields``: by name the function that gives the value."""
    names = list(fields)
    lines = [
        f"all[{FIRST + names.index(name)}] = window.specdemo.{function}(all);"
        for name, function in fields.items()
        if function
    ]
    prompt = FIRST + names.index("prompt")
    lines.append(f"all[{prompt}] = String(all[{prompt}] ?? '').slice(0, {MOST_SENT});")
    return f"(...all) => {{ {' '.join(lines)} return all; }}"


def share(names: Sequence[str]) -> str:
    """Copies a link with the values of the fields ``names``."""
    return f"(...all) => window.specdemo.share({json.dumps(list(names))}, all)"


def tell_language(result: str) -> str:
    """Tells the page its language, and gives ``result`` back to Gradio."""
    tell = "(window.specdemoWaiting ??= []).push((page) => page.setLanguage(lang));"
    return f"(lang) => {{ {tell} return {result}; }}"
