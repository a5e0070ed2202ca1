"""The embedded model's weights in bare modules with transformers' names, for the lean path.

Importing transformers' modelling code takes longer than reading the weights: at a warm start it is
left out. Only for the folder that ``embedded`` made itself; everything else is loaded by transformers.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn


class Bare(nn.Module):
    """A module that holds a weight."""

    bias = None


class BareLinear(nn.Linear):
    """An ``nn.Linear`` by type, without the initialisation that would be overwritten (``meta``
    tensors cost seconds of imports)."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.register_parameter("bias", None)


class Skeleton(nn.Module):
    """A Llama-like checkpoint without a forward: modules, weights and configuration."""

    def __init__(self, config: dict[str, Any], generation: dict[str, Any]) -> None:
        super().__init__()
        self.config = SimpleNamespace(**config)
        self.generation_config = SimpleNamespace(**generation)

    @property
    def device(self) -> torch.device:
        return self.get_parameter("model.embed_tokens.weight").device

    def get_output_embeddings(self) -> nn.Module:
        return self.get_submodule("lm_head")


def read(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """The checkpoint in ``folder`` as a ``Skeleton``, which passes for a transformers model where
    only its parts are wanted; None when it is not a Llama model with plain rotary positions."""
    config = json.loads((folder / "config.json").read_text())
    rope = config.get("rope_parameters") or {}
    if config.get("model_type") != "llama" or rope.get("rope_type") != "default":
        return None
    model = Skeleton(config, json.loads((folder / "generation_config.json").read_text()))
    with torch.inference_mode():
        for name, tensor in sorted(load_file(folder / "model.safetensors").items(), key=_by_number):
            _put(model, name, tensor.to(device, dtype))
        if config.get("tie_word_embeddings"):
            _put(model, "lm_head.weight", model.get_parameter("model.embed_tokens.weight"))
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        steps = torch.arange(0, size, 2, dtype=torch.float32, device=device) / size
        rotary: Any = nn.Module()
        rotary.rope_type, rotary.attention_scaling = "default", 1.0
        rotary.register_buffer("inv_freq", 1.0 / rope["rope_theta"] ** steps, persistent=False)
        model.get_submodule("model").add_module("rotary_emb", rotary)
    for layer in model.get_submodule("model.layers").children():
        attention: Any = layer.get_submodule("self_attn")
        attention.head_dim, attention.scaling = size, size**-0.5
    return model.eval()


def _by_number(item: tuple[str, Tensor]) -> tuple[int, str]:
    """Layer 2 before layer 10: a list of modules keeps the order in which it is filled."""
    number = re.search(r"\.(\d+)\.", item[0])
    return (int(number[1]) if number else -1, item[0])


def _put(model: nn.Module, name: str, tensor: Tensor) -> None:
    """Hang a weight in at its dotted name; what is missing on the way is made."""
    at = model
    *path, leaf = name.split(".")
    for step in path:
        if step not in at._modules:
            at.add_module(step, _made(step))
        at = at.get_submodule(step)
    at.register_parameter(leaf, nn.Parameter(tensor, requires_grad=False))


def _made(name: str) -> nn.Module:
    if name == "layers":
        return nn.ModuleList()
    return BareLinear() if name.endswith(("_proj", "lm_head")) else Bare()
