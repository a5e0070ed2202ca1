"""The peer to beat: Hugging Face ``generate`` on the same model, in the same process.

Decode time is taken from a streamer: the first call of ``put`` behind the prompt ends the prefill, so
prefill is apart here as it is in our own figures.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer

from .bench import Result, Runner
from .catalog import DEFAULT
from .loading import load_model
from .prompt import encode
from .resources import resources
from .sampling import SamplingParams
from .target import Target


class Clock(BaseStreamer):
    """Notes when tokens arrive."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.counts: list[int] = []

    def put(self, value: torch.Tensor) -> None:
        self.times.append(time.perf_counter())
        self.counts.append(value.numel())

    def end(self) -> None:
        """Nothing to flush."""


def peer_runners(target: Target, args: argparse.Namespace, params: SamplingParams) -> dict[str, Runner]:
    """``hf``, ``hf-ngram`` and, where a draft model is configured, ``hf-assisted``.

    Same dtype as the target; for q4, which transformers cannot run from these blocks, bf16."""
    name = args.model or DEFAULT
    dtype = "bf16" if target.dtype_name == "q4" else target.dtype_name
    if dtype != target.dtype_name:
        print(f"Peers run in {dtype}: transformers has no {target.dtype_name} here.", file=sys.stderr)
    model, _ = load_model(name, dtype, target.device.type)
    result = {
        "hf": _runner(target, model, params, {}),
        "hf-ngram": _runner(target, model, params, {"prompt_lookup_num_tokens": 8}),
    }
    draft = resources(target, "draft_model", args.draft).get("draft")
    if draft is None:
        print("hf-assisted is left out: no draft model is configured.", file=sys.stderr)
    else:
        assistant, _ = load_model(_source(draft, args.draft), dtype, target.device.type)
        result["hf-assisted"] = _runner(target, model, params, {"assistant_model": assistant})
    return result


def _source(draft: Target, named: str) -> str:
    """What the assistant is loaded from: as named, else the folder or key of the usual pair."""
    from .resources import HEADS_FOLDER

    if named and named != "target":
        return named
    folder = HEADS_FOLDER / "draft_model"
    return str(folder) if draft.name.endswith("draft_model") and folder.exists() else draft.name


def _runner(target: Target, model: Any, params: SamplingParams, options: dict[str, Any]) -> Runner:
    def one(turns: list[dict[str, str]]) -> Result:
        ids = encode(target, turns)
        clock = Clock()
        torch.manual_seed(params.seed)  # generate knows no generator of its own
        sampling: dict[str, Any] = {"do_sample": not params.greedy}
        if not params.greedy:
            sampling |= {"temperature": params.temperature, "top_k": 0, "top_p": 1.0}
        with torch.inference_mode():
            inputs = torch.tensor([ids], device=model.device)
            output = model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=params.max_new_tokens,
                streamer=clock,
                pad_token_id=model.config.eos_token_id,
                **sampling,
                **options,
            )
        new = output[0, len(ids) :].tolist()
        # puts: the prompt, then one a step; the first step holds the prefill.
        return {
            "ids": new,
            "text": target.tokenizer.decode(new, skip_special_tokens=True),
            "tokens": len(new),
            "rounds": len(clock.times) - 1,
            "accepted": None,
            "rejected": None,
            "decode_tokens": sum(clock.counts[2:]),
            "decode_ms": 1000.0 * (clock.times[-1] - clock.times[1]),
            "draft_ms": None,
            "overhead_ms": None,
        }

    return one
