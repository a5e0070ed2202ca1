"""What the training commands do: the pieces put together, the same on CPU and GPU."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import cache
from ..catalog import DEFAULT
from ..errors import InputError
from ..lean.plan import supports
from ..loading import load_model, load_target
from . import corpus, draft_model, eagle3, features, medusa, publish
from .answers import EngineAnswers
from .data import FeatureInfo, FeatureStore
from .eagle3_model import HeadSizes
from .loop import Progress
from .precision import half_pays


def run(args: argparse.Namespace) -> int:
    """Run one command. Exit code 0; raises ``InputError`` for what cannot be done."""
    if args.threads:
        torch.set_num_threads(args.threads)
    work = {
        "corpus": _corpus,
        "features": _features,
        "eagle3": _eagle3,
        "medusa": _medusa,
        "draft-model": _draft_model,
    }
    try:
        work[args.kind](args)
    except FileNotFoundError as error:
        raise InputError("training_data", why=str(error).rstrip(".")) from error
    return 0


def folder(given: Path | None, name: str) -> Path:
    return given or cache.root() / "train" / name


def _load(args: argparse.Namespace) -> tuple[Any, Any]:
    """The target and its tokenizer; ``auto``: in bf16 where that is faster, else in fp32."""
    gpu = args.device == "cuda" or (args.device == "auto" and torch.cuda.is_available())
    quick = "bf16" if half_pays("cuda" if gpu else "cpu") else "fp32"
    dtype = quick if args.dtype == "auto" else args.dtype
    return load_model(args.model or DEFAULT, dtype, args.device)


def _corpus(args: argparse.Namespace) -> None:
    kinds = tuple(part.strip() for part in args.kinds.split(",") if part.strip()) or corpus.KINDS
    if unknown := [kind for kind in kinds if kind not in corpus.KINDS]:
        why = f"--kinds must be of {', '.join(corpus.KINDS)}, not {unknown[0][:40]!r}"
        raise InputError("training_data", why=why)
    model, tokenizer = _load(args)
    out, line = folder(args.out, "corpus"), Progress(args.tokens)
    done = corpus.write_corpus(
        model,
        tokenizer,
        out,
        args.tokens,
        args.batch,
        args.longest,
        args.seed,
        kinds,
        _engine(args, model),
        lambda have, _: line.show(have),
    )
    print(f"{done:,} tokens in {out}")


def _engine(args: argparse.Namespace, model: Any) -> EngineAnswers | None:
    """On a CPU, for a model that the lean forward takes; it holds the weights a second time."""
    if model.device.type != "cpu" or not supports(model):
        return None
    dtype = "fp32" if model.dtype == torch.float32 else "bf16"
    return EngineAnswers(load_target(args.model or DEFAULT, dtype, "cpu"))


def _features(args: argparse.Namespace) -> None:
    model, _ = _load(args)
    last = model.config.num_hidden_layers
    layers = sorted({*(layer_ids(args.layers) or (last // 4, last // 2, last - 1)), last})
    source, out = folder(args.corpus, "corpus"), folder(args.out, "features")
    line: Progress | None = None

    def show(done: int, total: int) -> None:
        nonlocal line
        line = line or Progress(total)
        line.show(done)

    name = args.model or DEFAULT
    count = features.extract(model, name, source, out, layers, args.batch_tokens, show)
    print(f"{count:,} tokens computed, layers {layers} in {out}", file=sys.stderr)


def layer_ids(text: str) -> tuple[int, ...]:
    """ "8,15,29" as numbers; empty for none. Raises ``InputError``."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise InputError("training_data", why=f"--layers must be numbers, not {text[:40]!r}") from error


def _plan(kind: Any, args: argparse.Namespace, **more: Any) -> Any:
    """A plan from the arguments of the same names."""
    known = {f.name for f in fields(kind)}
    given = {key: value for key, value in vars(args).items() if key in known and key not in more}
    return kind(**given, **more)


def _store(args: argparse.Namespace) -> FeatureStore:
    store = FeatureStore(folder(args.corpus, "corpus"), folder(args.features, "features"))
    if len(store.train) < 2 or not store.held_out:
        raise FileNotFoundError(f"There are no features in {store.folder}.")
    return store


def _weights(model: Any) -> dict[str, Tensor]:
    """Embeddings and output head, fp32."""
    return {
        "embedding": model.get_input_embeddings().weight.detach().float(),
        "head": model.get_output_embeddings().weight.detach().float(),
    }


def head_sizes(config: Any, info: FeatureInfo, layers: tuple[int, ...], draft_vocab: int) -> HeadSizes:
    """An EAGLE-3 head as wide as its target, with as many key heads as heads (the warm start needs
    them), over ``layers``."""
    heads = config.num_attention_heads
    return HeadSizes(
        hidden=config.hidden_size,
        target_hidden=config.hidden_size,
        heads=heads,
        kv_heads=heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        intermediate=config.intermediate_size,
        vocab=config.vocab_size,
        draft_vocab=min(draft_vocab, config.vocab_size),
        layers=layers,
        rope_theta=rope_theta(config),
    )


def rope_theta(config: Any) -> float:
    """The base of the rotary frequencies, wherever this version of transformers keeps it."""
    parameters = getattr(config, "rope_parameters", None) or {}
    return float(parameters.get("rope_theta") or getattr(config, "rope_theta", None) or 10000.0)


def _stops(model: Any) -> list[int]:
    found = model.generation_config.eos_token_id
    return list(found) if isinstance(found, list) else [] if found is None else [found]


@contextmanager
def _fitting(start: Path | None) -> Iterator[None]:
    """A published head that is none, or of other sizes, is one sentence."""
    try:
        yield
    except Exception as error:  # every library that reads a part of it has errors of its own
        if start is None:
            raise
        why = f"{start.name} holds no head of these sizes to go on from"
        raise InputError("training_data", why=why) from error


def _eagle3(args: argparse.Namespace) -> None:
    store = _store(args)
    model, _ = _load(args)
    layers = layer_ids(args.layers) or store.info.layers[:-1][-3:]
    missing = [layer for layer in layers if layer not in store.info.layers]
    if missing:
        raise InputError("training_data", why=f"the features hold no layer {missing[0]}")
    plan = _plan(eagle3.Plan, args, layers=layers, intermediate=model.config.intermediate_size)
    if args.start:
        plan.schedule = ((0, plan.schedule[-1][1]),)  # it has learned its first steps
    sizes = head_sizes(model.config, store.info, layers, args.draft_vocab)
    with _fitting(args.start):
        trainer = eagle3.Trainer(
            *(store, _weights(model), plan, folder(args.out, "eagle3"), sizes),
            *(model.device, _stops(model), args.start),
        )
    figures = trainer.run()
    print(trainer.short(figures))
    if args.export:
        name = args.model or DEFAULT
        publish.eagle3(args.export, trainer.published(), sizes, name)
        publish.card(
            args.export,
            f"EAGLE-3 head for {name}",
            "Trained by `specdemo train eagle3`.",
            publish.facts(store, trainer.seen, trainer.short(figures)),
        )


def _medusa(args: argparse.Namespace) -> None:
    store = _store(args)
    model, _ = _load(args)
    plan = _plan(medusa.Plan, args)
    plan.draft_vocab = min(plan.draft_vocab, model.config.vocab_size)
    with _fitting(args.start):
        trainer = medusa.Trainer(
            *(store, _weights(model)["head"], plan, folder(args.out, "medusa")),
            *(model.device, _stops(model), args.start),
        )
    figures = trainer.run()
    print(trainer.short(figures))
    if args.export:
        name = args.model or DEFAULT
        publish.medusa(args.export, trainer.published(), args.heads, name, figures["accuracies"])
        publish.card(
            args.export,
            f"Medusa heads for {name}",
            "Trained by `specdemo train medusa`.",
            publish.facts(store, trainer.seen, trainer.short(figures)),
        )


def _draft_model(args: argparse.Namespace) -> None:
    store = _store(args)
    model, tokenizer = _load(args)
    plan = _plan(draft_model.Plan, args)
    plan.frequent = min(plan.frequent, model.config.vocab_size)
    with _fitting(args.start):
        trainer = draft_model.Trainer(
            *(store, _weights(model)["embedding"], model.config, plan),
            *(folder(args.out, "draft_model"), model.device, _stops(model), args.start),
        )
    figures = trainer.run()
    print(trainer.short(figures))
    if args.export:
        name = args.model or DEFAULT
        trainer.publish(args.export, tokenizer)
        publish.card(
            args.export,
            f"Draft model for {name}",
            "Trained by `specdemo train draft-model`.",
            publish.facts(store, trainer.seen, trainer.short(figures)),
        )
