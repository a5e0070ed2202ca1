"""Text that the target writes itself: its own user turns, then its answers to them.

Answers of the target are what a draft has to guess, so they teach it better than other text. Half of
the answers are greedy, half drawn at temperature 0.8. Answers that run into a loop are cut. What the
turns ask for: ``tasks``."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from .answers import EngineAnswers
from .data import Row, Shard, read_shard, write_shard
from .tasks import KINDS, open_turn

SHORTEST_TEXT = 60  # tokens of an answer that later turns may quote
LOOP, TIMES = 24, 3  # a loop: a piece of up to LOOP tokens, TIMES times in a row at the end


def loop_start(ids: Sequence[int]) -> int | None:
    """Where the second repetition of a loop at the end of ``ids`` begins, None if there is none."""
    for size in range(1, LOOP + 1):
        times = TIMES if size > 3 else TIMES + 3
        piece = list(ids[-size:])
        if len(ids) >= size * times and all(
            list(ids[-size * (n + 1) : len(ids) - size * n]) == piece for n in range(1, times)
        ):
            start = len(ids) - size * times
            while start >= size and list(ids[start - size : start]) == piece:
                start -= size
            return start + size
    return None


class Writer:
    """Writes conversations with a transformers causal LM and its tokenizer."""

    def __init__(
        self, model: Any, tokenizer: Any, longest: int, seed: int, engine: EngineAnswers | None = None
    ) -> None:
        """``engine``: writes the answers; without one they are decoded side by side."""
        self.model, self.tokenizer, self.longest = model, tokenizer, longest
        self.engine, self.seed = engine, seed
        self.random = random.Random(seed)
        mark = "\u241fmark\u241f"
        rendered = self._render(mark)
        self.before = rendered[: rendered.index(mark)]
        stops = model.generation_config.eos_token_id
        self.stops = set(stops if isinstance(stops, list) else [stops])

    def _render(self, text: str) -> str:
        turns = [{"role": "user", "content": text}]
        rendered: str = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
        return rendered

    @torch.inference_mode()
    def _continue(self, prompts: list[list[int]], longest: int, **how: Any) -> list[list[int]]:
        """Continuations, ended by (and with) an end token where the model wrote one."""
        width, fill = max(map(len, prompts)), next(iter(self.stops))
        ids = torch.full((len(prompts), width), fill, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        device = self.model.device
        made = self.model.generate(
            ids.to(device),
            attention_mask=mask.to(device),
            max_new_tokens=longest,
            pad_token_id=fill,
            **how,
        )
        return [self._ended(row) for row in made[:, width:].tolist()]

    def _ended(self, ids: list[int]) -> list[int]:
        end = next((i for i, token in enumerate(ids) if token in self.stops), None)
        return ids if end is None else ids[: end + 1]

    def write(
        self, count: int, greedy: bool, kind: str = "free", texts: Sequence[str] = ()
    ) -> list[Row]:
        """``count`` conversations or a few less (empty turns and answers are left out). ``kind``: one
        of ``tasks.KINDS``; ``texts``: passages for those that need some."""
        sampled = {"do_sample": True, "temperature": 1.0, "top_k": 80, "top_p": 1.0}
        opened = [open_turn(kind, self.random, texts) for _ in range(count)]
        said = [opening.text for opening in opened]
        more = max(opening.more for opening in opened)
        if more:
            begun = [self._encode(self.before + text) for text in said]
            said = [
                text + self.tokenizer.decode(ids, skip_special_tokens=True)
                for text, ids in zip(said, self._continue(begun, more, **sampled), strict=True)
            ]
        turns = [text for text in map(typed, said) if text]
        prompts = [self._encode(self._render(turn)) for turn in turns]
        how = {"do_sample": False} if greedy else {**sampled, "temperature": 0.8, "top_k": 50}
        if self.engine is not None:
            answers = self.engine(turns, self.longest, greedy, self.seed)
        else:
            answers = self._continue(prompts, self.longest, **how)
        return [
            Row(torch.tensor([*prompt, *cut(answer)]), len(prompt), greedy)
            for prompt, answer in zip(prompts, answers, strict=True)
            if len(cut(answer)) > 4
        ]

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))


def typed(text: str) -> str:
    """``text`` without the characters that nobody types and no prompt may hold."""
    kept = (c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs"))
    return "".join(kept).strip()


def cut(ids: list[int]) -> list[int]:
    start = loop_start(ids)
    return ids if start is None else ids[:start]


def write_corpus(
    model: Any,
    tokenizer: Any,
    out: Path,
    tokens: int,
    batch: int = 32,
    longest: int = 320,
    seed: int = 0,
    kinds: Sequence[str] = KINDS,
    engine: EngineAnswers | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Shards in ``out`` until they hold ``tokens`` tokens; those already there count. Returns the
    tokens there are. Every shard has its own seed, so that a resumed corpus does not repeat itself.
    ``kinds`` take turns; passages are answers of the shards that are there (free turns until then)."""
    out.mkdir(parents=True, exist_ok=True)
    shards = [read_shard(path) for path in sorted(out.glob("*.npz"))]
    done = sum(shard.tokens for shard in shards)
    texts = [text for shard in shards for text in answers_in(shard, tokenizer)]
    number = len(list(out.glob(f"s{seed}_*.npz")))
    while done < tokens:
        shard_seed = seed * 100_003 + number
        torch.manual_seed(shard_seed)  # transformers' generate draws from the global generator
        writer = Writer(model, tokenizer, longest, shard_seed, engine)
        greedy = number % 2 == 0
        kind = kinds[number // 2 % len(kinds)]
        rows = writer.write(batch, greedy, kind if texts else "free", texts)
        if rows:
            write_shard(path := out / f"s{seed}_{number:04d}.npz", rows, greedy)
            texts += answers_in(read_shard(path), tokenizer)
        done += sum(len(row.ids) for row in rows)
        number += 1
        if progress is not None:
            progress(done, tokens)
    return done


def answers_in(shard: Shard, tokenizer: Any) -> list[str]:
    """The answers of a shard that are long enough to be somebody's passage, as text."""
    answers = [row.ids[row.response_start :] for row in shard.rows]
    return [
        tokenizer.decode(ids.tolist(), skip_special_tokens=True)
        for ids in answers
        if len(ids) >= SHORTEST_TEXT
    ]


__all__ = ["KINDS", "Writer", "answers_in", "cut", "loop_start", "write_corpus"]
