"""Plain decoding and pass costs of the embedded model, side by side with Hugging Face ``generate``.

The contestants take turns within each repetition, so that a machine whose speed drifts slows all of
them; ratios are medians over repetitions. Prefill is left out on both sides. A bf16 product of a fixed
size is timed in every repetition: on virtual machines the units that compute it may be shared.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import timing
import torch

from specdemo import embedded
from specdemo.cost import cost_curve
from specdemo.drafters import create
from specdemo.engine import Engine
from specdemo.loading import load_target
from specdemo.prompt import encode
from specdemo.run import Run
from specdemo.sampling import SamplingParams
from specdemo.target import Target

#: Who is compared with whom stands side by side.
ORDER = (
    "specdemo q4",
    "transformers bf16",
    "specdemo bf16",
    "transformers fp32",
    "specdemo fp32",
)


def bf16_product_ms() -> float:
    """Median time of a square bf16 product of 512."""
    a, times = torch.ones(512, 512, dtype=torch.bfloat16), []
    for _ in range(15):
        began = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def engine_ms(target: Target, prompt: str, tokens: int) -> tuple[float, float]:
    """Milliseconds a token of our plain decoding, and the share of it outside the target's pass."""
    params = SamplingParams(max_new_tokens=tokens, ignore_eos=True)
    run = Run.of(Engine(target).generate(prompt, create("none", target), params))
    assert run.finished is not None
    s = run.finished.summary
    total = s["draft_ms"] + s["verify_ms"] + s["overhead_ms"]
    passes = sum(v.target_ms or 0.0 for v in run.verified)
    return total / s["tokens"], 1.0 - passes / total


def peer_ms(model: Any, ids: list[int], tokens: int) -> float:
    """Milliseconds a token of ``generate`` behind the first: a long run less a run of one token."""

    def seconds(count: int) -> float:
        x = torch.tensor([ids])
        began = time.perf_counter()
        with torch.inference_mode():
            model.generate(
                input_ids=x,
                attention_mask=torch.ones_like(x),
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
                pad_token_id=2,
            )
        return time.perf_counter() - began

    short = seconds(1)
    return (seconds(tokens) - short) / (tokens - 1) * 1e3


def main() -> None:
    args = timing.arguments(__doc__ or "", tokens=16, repeats=15)
    from transformers import AutoModelForCausalLM

    targets = {kind: load_target(dtype=kind, device="cpu") for kind in ("q4", "bf16", "fp32")}
    peers = {
        kind: AutoModelForCausalLM.from_pretrained(embedded.ensure(), dtype=dtype).eval()
        for kind, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32))
    }
    ids = encode(targets["q4"], timing.PROMPTS[0])
    for target in targets.values():
        target.settle()
        engine_ms(target, timing.PROMPTS[0], 4)
    for peer in peers.values():
        peer_ms(peer, ids, 2)
    if args.realtime:
        timing.priority(True)
    times: dict[str, list[float]] = {}
    outside: dict[str, list[float]] = {}
    product: list[float] = []
    for turn in range(args.repeats):
        prompt = timing.PROMPTS[turn % len(timing.PROMPTS)]
        ids = encode(targets["q4"], prompt)
        product.append(bf16_product_ms())
        for kind in ORDER:
            name, dtype = kind.split()
            if name == "transformers":
                times.setdefault(kind, []).append(peer_ms(peers[dtype], ids, args.tokens))
            else:
                ms, share = engine_ms(targets[dtype], prompt, args.tokens)
                times.setdefault(kind, []).append(ms)
                outside.setdefault(dtype, []).append(share)
    curves = {kind: cost_curve(target).plain() for kind, target in targets.items()}
    if args.realtime:
        timing.priority(False)

    def ratio(ours: str, theirs: str) -> float:
        return round(
            statistics.median(b / a for a, b in zip(times[ours], times[theirs], strict=True)), 3
        )

    timing.finish(
        args,
        {
            "tokens": args.tokens,
            "ms_per_token": {k: [round(x, 2) for x in v] for k, v in times.items()},
            "bf16_product_ms": [round(x, 3) for x in product],
            "tokens_per_second": {k: round(1e3 / statistics.median(v), 1) for k, v in times.items()},
            "ratios": {
                "q4 to transformers bf16": ratio("specdemo q4", "transformers bf16"),
                "bf16 to transformers bf16": ratio("specdemo bf16", "transformers bf16"),
                "fp32 to transformers fp32": ratio("specdemo fp32", "transformers fp32"),
            },
            "outside_the_pass": {k: round(statistics.median(v), 4) for k, v in outside.items()},
            "curves": curves,
        },
    )


if __name__ == "__main__":
    main()
