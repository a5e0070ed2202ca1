"""The kinds of user turns a corpus is written for.

Free turns are short and English. What a person also asks of a model is a task on a long text (its
answer copies from the text) and a translation (its tokens are rare elsewhere); a draft that never saw
either fails at both. The long texts are earlier answers of the target itself, so that nothing but the
target's own words is needed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

SUMMARISED, ASKED = (120, 550), (120, 600)  # words of the texts
KINDS = ("free", "summary", "question", "translation")
OPENINGS = (
    "", "", "", "Write", "Write a", "Explain", "Explain how", "What is", "What are", "Why", "How do I",
    "How many", "Give me", "List", "Describe", "Summarize the following text:\n\n", "Translate",
    "Translate to English:", "Compare", "Create", "Can you", "Could you help me", "I want to",
    "I am writing", "Is it", "Who", "When did", "Which", "Solve", "Calculate", "A train", "If a",
    "Read the passage and answer:\n\n", "Based on the context below,", "Rewrite",
    "Correct this sentence:", "Classify", "Suggest", "Tell me about", "Imagine", "def ",
    "Write a Python function", "Context:", "Question:", "Tom has", "Make a plan", "What would happen if",
    "Draft an email", "Extract",
)  # fmt: skip
SUMMARIES = (
    "Summarize: ",
    "Summarize the text below.\n\n",
    "Give a short summary of this:\n\n",
    "TL;DR: ",
)
ANSWERS = ("\n\nQuestion: ", "\n\n", " Answer from the text: ", "\n\nUsing the passages, ")
QUESTIONS = ("Who", "What", "When", "Where", "Why", "Which", "How", "How many", "In what", "Is", "Did")
TRANSLATIONS = ("Translate German to English: ", "Translate to English: ", "What does this mean: ")
GERMAN = (
    "Die", "Der", "Das", "Ein", "Eine", "In", "Im", "Nach", "Wir", "Ich", "Es", "Sie", "Er", "Mit",
    "Für", "Auf", "Bei", "Am", "Als", "Wenn", "Auch", "Seit", "Zum", "Unter", "Viele", "Heute", "Man",
    "Zwei", "Diese", "Unsere", "Alle", "Nur", "Bis", "Über", "Durch", "Dort", "Neue", "Deutschland",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Opening:
    """The beginning of a user turn; the target goes on for up to ``more`` tokens."""

    text: str
    more: int


def passage(pick: random.Random, texts: Sequence[str], words: int) -> str:
    """Texts one after the other until there are about ``words`` words."""
    parts: list[str] = []
    while sum(len(part.split()) for part in parts) < words:
        parts.append(pick.choice(texts).strip())
    return "\n".join(parts)


def open_turn(kind: str, pick: random.Random, texts: Sequence[str]) -> Opening:
    """``kind``: one of ``KINDS``; ``texts``: what "summary" and "question" are about."""
    if kind == "summary":
        return Opening(pick.choice(SUMMARIES) + passage(pick, texts, pick.randint(*SUMMARISED)), 0)
    if kind == "question":
        asked = pick.choice(ANSWERS) + pick.choice(QUESTIONS)
        return Opening(passage(pick, texts, pick.randint(*ASKED)) + asked, 24)
    if kind == "translation":
        return Opening(pick.choice(TRANSLATIONS) + pick.choice(GERMAN), 48)
    return Opening(pick.choice(OPENINGS), 160)
