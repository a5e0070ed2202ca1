"""Any transformers causal LM as a target: the general path, behind the same interface as ``lean``.

The cache is a ``DynamicCache`` of full layers whatever the model's own choice: sliding windows are
put into the mask instead, so that a rollback past the window stays exact. The tree goes into a 4-D
mask and into positions by depth.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from .errors import InputError
from .proposal import depths, tree_mask
from .target import Session, Shape, Target, eos_ids

PREFILL_CHUNK = 512
_RECURRENT = {"mamba", "mamba2", "jamba", "rwkv", "recurrent_gemma", "falcon_mamba", "bamba", "zamba2"}
_ATTENTION = {"full_attention", "sliding_attention"}


class HFTarget(Target):
    """Wraps a loaded model. ``dtype_name``: "bf16" or "fp32", the dtype the model was loaded in.

    Raises ``InputError("unsupported_model")`` for models whose state is not a KV cache."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        dtype_name: str = "fp32",
    ) -> None:
        config = model.config.get_text_config()
        if config.model_type in _RECURRENT or config.is_encoder_decoder:
            raise InputError("unsupported_model", name=name, why="its state cannot be rolled back")
        if set(getattr(config, "layer_types", None) or ()) - _ATTENTION:
            raise InputError(
                "unsupported_model", name=name, why="not all its layers are plain attention"
            )
        self.model, self.tokenizer, self.name, self.dtype_name = (
            model.eval(),
            tokenizer,
            name,
            dtype_name,
        )
        self.device = model.device
        self.config = config
        output = model.get_output_embeddings()
        if not isinstance(output, nn.Linear):
            raise InputError("unsupported_model", name=name, why="it has no output head")
        self.output = output
        self.shape = Shape(
            vocab=output.weight.shape[0],
            hidden=output.weight.shape[1],
            layers=config.num_hidden_layers,
            context=int(getattr(config, "max_position_embeddings", 0) or 1_000_000),
        )
        self.eos_ids = eos_ids(model, tokenizer)
        self._shallow: dict[int, PreTrainedModel] = {}

    def open(self, capacity: int, hidden_layers: Sequence[int] = ()) -> HFSession:
        return HFSession(self, capacity, hidden_layers)

    def embedding(self) -> Tensor:
        return self.model.get_input_embeddings().weight

    def head(self, hidden: Tensor) -> Tensor:
        with torch.inference_mode():
            return self.output(hidden)

    def shallow(self, layers: int) -> PreTrainedModel:
        """The same model cut after ``layers`` layers, sharing all weights (self-speculation)."""
        if layers not in self._shallow:
            model = copy.copy(self.model)
            model._modules = dict(self.model._modules)
            base = copy.copy(self.model.base_model)
            base._modules = dict(base._modules)
            name = next(
                key
                for key, module in base._modules.items()
                if isinstance(module, nn.ModuleList) and len(module) == self.shape.layers
            )
            base._modules[name] = base._modules[name][:layers]
            base.config = copy.copy(base.config)
            base.config.num_hidden_layers = layers
            model._modules[model.base_model_prefix] = base
            self._shallow[layers] = model
        return self._shallow[layers]


class HFSession(Session):
    def __init__(self, target: HFTarget, capacity: int, hidden_layers: Sequence[int]) -> None:
        self.target, self.capacity, self.length = target, capacity, 0
        self.hidden_layers = sorted(set(hidden_layers))
        self.hidden: dict[int, Tensor] = {}
        self.cache = DynamicCache()

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int]) -> None:
        parts: dict[int, list[Tensor]] = {layer: [] for layer in self.hidden_layers}
        for start in range(0, len(ids), PREFILL_CHUNK):
            chunk = list(ids[start : start + PREFILL_CHUNK])
            self._run(self.target.model, self.cache, chunk, range(-1, len(chunk) - 1), logits=1)
            self.length += len(chunk)
            for layer, part in parts.items():
                part.append(self.hidden[layer])
        self.hidden = {layer: torch.cat(part) for layer, part in parts.items() if part}

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], parents: Sequence[int]) -> Tensor:
        self._trim(self.cache, self.length)
        return self._run(self.target.model, self.cache, tokens, parents)

    @torch.inference_mode()
    def early(self, tokens: Sequence[int], parents: Sequence[int], layers: int) -> Tensor:
        self._trim(self.cache, self.length)
        scratch = DynamicCache()  # shares the kept rows; appending makes its own copy
        for index in range(layers if self.length else 0):
            layer: Any = self.cache.layers[index]
            scratch.update(layer.keys, layer.values, index)
        captured, self.hidden = self.hidden, {}
        logits = self._run(self.target.shallow(layers), scratch, tokens, parents, capture=False)
        self.hidden = captured
        return logits

    @torch.inference_mode()
    def keep(self, rows: Sequence[int]) -> None:
        start, count = self.length, len(rows)
        if list(rows) != list(range(count)):
            index = torch.tensor(rows, device=self.target.device) + start
            layers: list[Any] = self.cache.layers
            for layer in layers:
                for states in (layer.keys, layer.values):
                    states[:, :, start : start + count] = states[:, :, index]
        self.length = start + count
        self._trim(self.cache, self.length)

    def crop(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"Cannot roll back to {length} rows of {self.length}.")
        self.length = length
        self._trim(self.cache, length)

    def close(self) -> None:
        self.cache, self.hidden = DynamicCache(), {}

    @staticmethod
    def _trim(cache: DynamicCache, length: int) -> None:
        """Drop rows behind ``length``. Done by hand: what ``crop`` takes differs between releases."""
        layers: list[Any] = cache.layers
        for layer in layers:
            if layer.is_initialized and layer.keys.shape[-2] > length:
                layer.keys = layer.keys[..., :length, :]
                layer.values = layer.values[..., :length, :]

    def _run(
        self,
        model: PreTrainedModel,
        cache: DynamicCache,
        tokens: Sequence[int],
        parents: Sequence[int],
        logits: int = 0,
        capture: bool = True,
    ) -> Tensor:
        device = self.target.device
        depth = torch.tensor(depths(parents), device=device)
        positions = depth + self.length  # [T]
        output = model(
            input_ids=torch.tensor([list(tokens)], device=device),
            attention_mask=self._mask(parents, positions),
            position_ids=positions[None],
            cache=cache,
            use_cache=True,
            output_hidden_states=bool(self.hidden_layers) and capture,
            logits_to_keep=logits,
        )
        if self.hidden_layers and capture:
            states = output.hidden_states
            self.hidden = {layer: states[layer][0] for layer in self.hidden_layers}
        return output.logits[0]  # [T, V]

    def _mask(self, parents: Sequence[int], positions: Tensor) -> Any:
        """Additive mask ``[1, 1, T, length + T]``, per kind of layer where windows slide."""
        device, past, size = self.target.device, self.length, len(parents)
        if size == 1 and not self._window():
            return None
        seen = torch.ones(size, past + size, dtype=torch.bool, device=device)
        seen[:, past:] = tree_mask(parents, device)
        full = self._additive(seen)
        window = self._window()
        if not window:
            return full
        keys = torch.cat([torch.arange(past, device=device), positions])
        near = positions[:, None] - keys[None, :] < window
        sliding = self._additive(seen & near)
        kinds = getattr(self.target.config, "layer_types", None)
        if not kinds:
            return sliding
        both = {"full_attention": full, "sliding_attention": sliding}
        return both if set(kinds) <= set(both) and len(set(kinds)) > 1 else both[kinds[0]]

    def _window(self) -> int:
        config = self.target.config
        kinds = getattr(config, "layer_types", None)
        if kinds is not None and "sliding_attention" not in kinds:
            return 0
        if kinds is None and getattr(config, "use_sliding_window", True) is False:
            return 0
        return int(getattr(config, "sliding_window", 0) or 0)

    def _additive(self, seen: Tensor) -> Tensor:
        dtype = self.target.output.weight.dtype
        mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
        return mask.masked_fill_(~seen, torch.finfo(dtype).min)[None, None]


__all__ = ["HFSession", "HFTarget", "eos_ids"]
