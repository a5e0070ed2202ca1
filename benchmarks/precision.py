"""What 4-bit weights lose on the kernels in use: mean KL from the fp32 forward of the same weights.

Over the benchmarks' prompts and the greedy answers of the fp32 weights. ``SPECDEMO_KERNELS=torch``
measures torch's int4 kernel in place of ours, whose activations have 8 bits. Both are held against
transformers' fp32 forward over the weights that the 4-bit blocks stand for."""

from __future__ import annotations

import timing
import torch
from torch import Tensor

from specdemo import embedded
from specdemo.drafters import create
from specdemo.engine import Engine
from specdemo.loading import load_target
from specdemo.prompt import encode
from specdemo.run import Run
from specdemo.sampling import SamplingParams
from specdemo.target import Target

BLOCK = 8  # rows of a pass: bits do not depend on it


def log_probs(target: Target, ids: list[int]) -> Tensor:
    """``[T, V]`` fp64 log-probabilities behind every token of ``ids``."""
    session, parts = target.open(len(ids) + BLOCK), []
    try:
        for start in range(0, len(ids), BLOCK):
            block = ids[start : start + BLOCK]
            parts.append(session.forward(block, range(-1, len(block) - 1)).double().log_softmax(-1))
            session.keep(range(len(block)))
    finally:
        session.close()
    return torch.cat(parts)


@torch.inference_mode()
def exact_log_probs(model: torch.nn.Module, ids: list[int]) -> Tensor:
    return model(torch.tensor([ids])).logits[0].double().log_softmax(-1)


def main() -> None:
    args = timing.arguments(__doc__ or "", tokens=400, dtype="q4")
    from transformers import AutoModelForCausalLM

    exact = AutoModelForCausalLM.from_pretrained(embedded.ensure(), dtype=torch.float32).eval()
    target = load_target(dtype=args.dtype, device="cpu")
    writer = Engine(load_target(dtype="fp32", device="cpu"))
    params = SamplingParams(max_new_tokens=args.tokens, ignore_eos=True)
    divergences, same = [], []
    for prompt in timing.PROMPTS:
        run = Run.of(writer.generate(prompt, create("none", target), params))
        assert run.finished is not None
        ids = [*encode(target, prompt), *run.finished.token_ids]
        p, q = exact_log_probs(exact, ids), log_probs(target, ids)
        divergences.append((p.exp() * (p - q)).sum(-1))
        same.append(p.argmax(-1) == q.argmax(-1))
    kl, equal = torch.cat(divergences), torch.cat(same)
    timing.finish(
        args,
        {
            "dtype": args.dtype,
            "kernels": target.kernels,
            "tokens": len(kl),
            "mean_kl_nats": round(float(kl.mean()), 6),
            "median_kl_nats": round(float(kl.median()), 6),
            "argmax_equal": round(float(equal.double().mean()), 4),
        },
    )


if __name__ == "__main__":
    main()
