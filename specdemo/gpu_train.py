"""``make gpu-train``: corpus, features and all three trainings in one go, for a GPU at hand for a
quarter of an hour.

Needs torch, transformers, safetensors and gguf, and the embedded model's GGUF file (in the cache, or
named by ``SPECDEMO_GGUF``). Every stage has a share of ``--minutes``; a stage that is stopped by its
clock leaves a checkpoint, and a second call goes on. ``--rehearse`` does the same work in small on a
CPU. Results: ``OUT/heads/{eagle3,medusa,draft_model}`` and ``OUT/report.json``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import embedded
from .catalog import DEFAULT
from .loading import load_model
from .train import corpus, draft_model, eagle3, features, medusa, publish
from .train.commands import head_sizes
from .train.data import FeatureStore
from .train.loop import Stopped

LAYERS = (8, 15, 29)
SHARES = {"corpus": 0.33, "features": 0.04, "eagle3": 0.38, "medusa": 0.1, "draft_model": 0.15}


@dataclass
class Job:
    """One call: the model, where things go, how much of everything, the clock of each stage."""

    model: Any
    tokenizer: Any
    out: Path
    minutes: float
    small: bool
    report: dict[str, Any] = field(default_factory=dict)

    def stage(self, name: str, work: Callable[[Callable[..., None]], Any]) -> None:
        """Run ``work(tick)``; ``tick`` raises ``Stopped`` when the stage's time is over."""
        started, limit = time.monotonic(), self.minutes * 60.0 * SHARES[name]

        def tick(*_: Any) -> None:
            if time.monotonic() - started > limit:
                raise Stopped

        try:
            result = work(tick)
        except Stopped:
            result = "stopped by its clock"
        seconds = round(time.monotonic() - started, 1)
        self.report[name] = {"seconds": seconds, "result": result}
        print(f"{name}: {seconds} s, {result}", flush=True)
        (self.out / "report.json").write_text(json.dumps(self.report, indent=2) + "\n")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/gpu-train"))
    parser.add_argument("--minutes", type=float, default=11.0, help="of work in all (default: 11)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rehearse", action="store_true", help="tiny, on the CPU")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    device = "cpu" if args.rehearse else args.device
    embedded.ensure(embedded.terminal_progress())
    model, tokenizer = load_model(DEFAULT, "fp32" if device == "cpu" else "bf16", device)
    run(Job(model, tokenizer, args.out, args.minutes, args.rehearse))
    return 0


def run(job: Job) -> None:
    """All stages in order. ``job.small``: sizes for a rehearsal."""
    small, model, out = job.small, job.model, job.out
    texts, states = out / "corpus", out / "features"
    batch, longest = (4, 24) if small else (768, 320)
    wanted = 1_200 if small else 6_000_000
    job.stage(
        "corpus",
        lambda tick: corpus.write_corpus(
            model, job.tokenizer, texts, wanted, batch, longest, seed=1, progress=tick
        ),
    )
    last = model.config.num_hidden_layers
    layers = LAYERS if last > max(LAYERS) else (last // 4, last // 2, last - 1)
    size = 512 if small else 32_768
    job.stage(
        "features",
        lambda tick: features.extract(model, DEFAULT, texts, states, [*layers, last], size, tick),
    )
    store = FeatureStore(texts, states, held_out_every=5 if small else 25)
    embedding = model.get_input_embeddings().weight.detach().float()
    output = model.get_output_embeddings().weight.detach().float()
    stops = model.generation_config.eos_token_id
    eos = stops if isinstance(stops, list) else [stops]
    limit = 1_500 if small else 10**12  # on a GPU the clock ends a training
    common: dict[str, Any] = {"tokens": limit, "batch_tokens": 256 if small else 8_192}
    common["evaluate_every"] = 700 if small else 2_000_000
    vocab = min(512 if small else 4096, model.config.vocab_size)

    def train_eagle3(tick: Callable[..., None]) -> Any:
        schedule = ((0, 1), (600, 2)) if small else ((0, 1), (6_000_000, 2), (15_000_000, 3))
        plan = eagle3.Plan(layers=layers, draft_vocab=vocab, schedule=schedule, rate=8e-4, **common)
        sizes = head_sizes(model.config, store.info, layers, vocab)
        weights = {"embedding": embedding, "head": output}
        trainer = eagle3.Trainer(store, weights, plan, out / "eagle3", sizes, model.device, eos)
        figures = finish(trainer, tick)
        folder = out / "heads" / "eagle3"
        publish.eagle3(folder, trainer.published(), sizes, DEFAULT)
        write_card(folder, "EAGLE-3 head", store, trainer.seen, figures)
        return figures

    def train_medusa(tick: Callable[..., None]) -> Any:
        plan = medusa.Plan(draft_vocab=vocab, rate=1e-3, **common)
        trainer = medusa.Trainer(store, output, plan, out / "medusa", model.device, eos)
        figures = finish(trainer, tick)
        folder = out / "heads" / "medusa"
        publish.medusa(folder, trainer.published(), plan.heads, DEFAULT, figures["accuracies"])
        write_card(folder, "Medusa heads", store, trainer.seen, figures)
        return figures

    def train_draft(tick: Callable[..., None]) -> Any:
        hidden = min(192, model.config.hidden_size // 2)
        plan = draft_model.Plan(hidden=hidden, frequent=vocab, **common)
        trainer = draft_model.Trainer(
            store, embedding, model.config, plan, out / "draft_model", model.device, eos
        )
        figures = finish(trainer, tick)
        folder = out / "heads" / "draft_model"
        trainer.publish(folder, job.tokenizer)
        write_card(folder, "Draft model", store, trainer.seen, figures)
        return figures

    job.stage("eagle3", train_eagle3)
    job.stage("medusa", train_medusa)
    job.stage("draft_model", train_draft)


def finish(trainer: Any, tick: Callable[..., None]) -> dict[str, Any]:
    """Train until done or out of time; the held-out figures of the weights there are then."""
    try:
        trainer.run(tick)
    except Stopped:
        trainer.save()
    figures: dict[str, Any] = trainer.evaluate()
    return figures


def write_card(folder: Path, what: str, store: FeatureStore, seen: int, figures: dict[str, Any]) -> None:
    facts = publish.facts(store, seen, json.dumps(figures))
    publish.card(folder, f"{what} for {DEFAULT}", "Trained by `make gpu-train`.", facts)


if __name__ == "__main__":
    sys.exit(main())
