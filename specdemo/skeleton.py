"""The embedded model's weights in bare modules with transformers' names, for the lean path.

Importing transformers' modelling code takes longer than reading the weights: at a warm start it is
left out. Only for the folder that ``embedded`` made itself; everything else is loaded by transformers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn

from . import tensor_file


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

    owns_memory = True  # no weight is a view of a mapped file

    def __init__(self, config: dict[str, Any], generation: dict[str, Any]) -> None:
        super().__init__()
        self.config = SimpleNamespace(**config)
        self.generation_config = SimpleNamespace(**generation)

    @property
    def device(self) -> torch.device:
        return self.get_parameter("model.embed_tokens.weight").device

    def get_output_embeddings(self) -> nn.Module:
        return self.get_submodule("lm_head")


def read(folder: Path, dtype: torch.dtype, device: torch.device, projections: bool = True) -> Any:
    """The checkpoint in ``folder`` as a ``Skeleton``, which passes for a transformers model where
    only its parts are wanted; None when it is not a Llama model with plain rotary positions.

    ``projections``: read the layers' matrices too; without them they are empty until a layer's
    ``fill`` is called, so that no more than one layer need be in memory twice."""
    config = json.loads((folder / "config.json").read_text())
    rope = config.get("rope_parameters") or {}
    if config.get("model_type") != "llama" or rope.get("rope_type") != "default":
        return None
    model = Skeleton(config, json.loads((folder / "generation_config.json").read_text()))
    with torch.inference_mode():
        path = folder / "model.safetensors"
        names = tensor_file.header(path)
        names.pop("__metadata__", None)
        for name in sorted(names, key=_by_number):
            _put(model, name, torch.empty(0, dtype=dtype, device=device))
        wanted = set(names) if projections else {n for n in names if not n.endswith("_proj.weight")}
        _read_into(model, path, wanted)
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
    if not projections:
        late = names.keys() - wanted
        for index, layer in enumerate(model.get_submodule("model.layers").children()):
            own = {name for name in late if name.startswith(f"model.layers.{index}.")}
            cast(Any, layer).fill = partial(_read_into, model, path, own)
    return model.eval()


@torch.inference_mode()
def _read_into(model: nn.Module, path: Path, names: Container[str]) -> None:
    for name, tensor in tensor_file.read(path, names.__contains__):
        place = model.get_parameter(name)
        place.data = tensor.to(place.device, place.dtype)


def _by_number(name: str) -> tuple[int, str]:
    """Layer 2 before layer 10: a list of modules keeps the order in which it is filled."""
    number = re.search(r"\.(\d+)\.", name)
    return (int(number[1]) if number else -1, name)


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
