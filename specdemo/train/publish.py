"""Writing trained heads in the published formats: safetensors, ``config.json`` and a card."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from .data import FeatureStore
from .eagle3_model import HeadSizes

LARGEST = 25_000_000  # bytes a head may take in this repository
Layout = Literal["classic", "speculators"]


def eagle3(
    folder: Path,
    tensors: dict[str, Tensor],
    sizes: HeadSizes,
    verifier: str,
    layout: Layout = "classic",
    extra: dict[str, Any] | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Write an EAGLE-3 head. ``tensors``: classic names, as ``Trainer.published`` gives them.

    ``layout`` "classic" is that of the first EAGLE-3 checkpoints, "speculators" that of the library
    of this name: the layer under ``layers.0`` and its configuration nested."""
    layer = {
        "model_type": "llama",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "num_hidden_layers": 1,
        "rms_norm_eps": sizes.eps,
        "rope_theta": sizes.rope_theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "vocab_size": sizes.vocab,
        "max_position_embeddings": 8192,
    }
    common = {
        "draft_vocab_size": sizes.draft_vocab,
        "target_hidden_size": sizes.target_hidden,
        "eagle_aux_hidden_state_layer_ids": list(sizes.layers),
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    if layout == "classic":
        config = {"architectures": ["LlamaForCausalLMEagle3"], **layer, **common}
    else:
        config = {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "transformer_layer_config": layer,
            "norm_before_residual": False,
            "speculators_config": {
                "algorithm": "eagle3",
                "default_proposal_method": "greedy",
                "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
                "verifier": {"name_or_path": verifier, "architectures": ["LlamaForCausalLM"]},
            },
            **common,
        }
        tensors = {k.replace("midlayer.", "layers.0."): v for k, v in tensors.items()}
    write(folder, "model.safetensors", tensors, {**config, **(extra or {})}, dtype)


def medusa(
    folder: Path,
    tensors: dict[str, Tensor],
    heads: int,
    verifier: str,
    accuracies: Sequence[Sequence[float]],
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Write Medusa heads. Two things extend the published format: ``d2t`` among the tensors (a
    reduced vocabulary, as EAGLE-3 has it) and ``medusa_accuracies`` in the configuration (what the
    sparse tree is chosen by)."""
    config = {
        "medusa_num_heads": heads,
        "medusa_num_layers": 1,
        "base_model_name_or_path": verifier,
        "draft_vocab_size": len(tensors["d2t"]),
        "medusa_accuracies": [list(row) for row in accuracies],
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    write(folder, "medusa_lm_head.safetensors", tensors, config, dtype)


def write(
    folder: Path, name: str, tensors: dict[str, Tensor], config: dict[str, Any], dtype: torch.dtype
) -> None:
    """Floating-point tensors in ``dtype``, index and mask tensors as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {k: (v.to(dtype) if v.is_floating_point() else v).contiguous() for k, v in tensors.items()}
    save_file(stored, folder / name, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def card(folder: Path, title: str, what: str, facts: dict[str, str]) -> None:
    """``README.md`` of a head: what it is, and a table of data, steps, figures and licence."""
    rows = [f"| {key} | {value} |" for key, value in facts.items()]
    text = "\n".join([f"# {title}", "", what, "", "| | |", "|---|---|", *rows, ""])
    (folder / "README.md").write_text(text, encoding="utf-8")


def facts(store: FeatureStore, seen: int, held_out: str) -> dict[str, str]:
    """The rows of a card that every training knows."""
    rows = len(store.train)
    return {
        "Data": f"{store.tokens:,} tokens that {store.info.model} wrote itself, in {rows} rows",
        "Tokens seen": f"{seen:,}",
        "Held-out rows": f"{len(store.held_out)}, figures: {held_out}",
        "Licence": "Apache-2.0, as its target",
    }
