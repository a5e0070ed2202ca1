"""Mean accepted length of one EAGLE-3 head in vLLM and here: chain of 3, greedy, the same questions.

    python -m tests.servers.eagle3_length --questions FILE [--head FOLDER] [--json FILE]

Two engines, two implementations of the head and of the target in bf16 (or fp32): a difference above a
few percent is a fault in one of them. Ours runs in fp32 as well, to tell its rounding apart."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from specdemo import embedded
from specdemo.bench import read_questions
from specdemo.drafters import create
from specdemo.drafters.eagle3 import Eagle3
from specdemo.engine import Engine
from specdemo.events import Verified
from specdemo.loading import load_target
from specdemo.remote import parse_server
from specdemo.remote.client import metrics_of
from specdemo.run import Run
from specdemo.sampling import SamplingParams

from . import vllm
from .run import COUNTER, HEAD, PATIENT, run

DRAFTS = "spec_decode_num_drafts_total"
STEPS = 3


def of_vllm(prompts: list[str], params: SamplingParams, head: Path, log: Path) -> dict[str, Any]:
    config = {"method": "eagle3", "model": str(head.resolve()), "num_speculative_tokens": STEPS}
    model = vllm.model_folder(embedded.ensure())
    with vllm.running(vllm.install(), model, config, log) as url:
        server = parse_server(f"vllm={url},kind=vllm", {})
        run(server, "Warm up.", SamplingParams(max_new_tokens=8))
        before = metrics_of(server, "vllm:", PATIENT)
        texts = [run(server, prompt, params)[1].text for prompt in prompts]
        after = metrics_of(server, "vllm:", PATIENT)
    accepted, drafts = (int(after[name] - before[name]) for name in (COUNTER, DRAFTS))
    return {"accepted": accepted, "drafts": drafts, "length": 1 + accepted / drafts, "texts": texts}


def of_ours(prompts: list[str], params: SamplingParams, head: Path, dtype: str) -> dict[str, Any]:
    target = load_target(dtype=dtype, device="cpu")
    engine, accepted, drafts, texts = Engine(target), 0, 0, []
    settings = {"chain": True, "depth": STEPS, "adaptive": False}
    for prompt in prompts:
        drafter = create("eagle3", target, dict(settings), head=str(head))
        assert isinstance(drafter, Eagle3) and drafter.layer is not None
        drafter.layer.open = False  # the other side names no tokens of the prompt
        made = Run.of(engine.generate(prompt, drafter, params))
        judged = [e for e in made.verified if isinstance(e, Verified) and e.verdicts]
        accepted += sum(verdict.judgement == "accepted" for e in judged for verdict in e.verdicts)
        drafts += len(judged)
        texts.append(made.text)
    return {"accepted": accepted, "drafts": drafts, "length": 1 + accepted / drafts, "texts": texts}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--questions", type=Path, required=True, help="Spec-Bench rows, JSON lines")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--head", type=Path, default=HEAD)
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    rows = read_questions(args.questions)
    prompts = [row["turns"][0] for row in rows[:: len(rows) // args.count][: args.count]]
    params = SamplingParams(max_new_tokens=args.tokens)
    found = {f"specdemo {kind}": of_ours(prompts, params, args.head, kind) for kind in ("bf16", "fp32")}
    found["vllm"] = of_vllm(prompts, params, args.head, Path("out/vllm-eagle3.log"))
    texts = {name: one.pop("texts") for name, one in found.items()}
    for one, mine in zip(found.values(), texts.values(), strict=True):
        one["same_texts_as_vllm"] = sum(a == b for a, b in zip(mine, texts["vllm"], strict=True))
        one["to_vllm"] = round(one["length"] / found["vllm"]["length"], 4)
        one["length"] = round(one["length"], 4)
    report = {"questions": len(prompts), "tokens": args.tokens, "steps": STEPS, "engines": found}
    print(json.dumps(report, indent=1))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
