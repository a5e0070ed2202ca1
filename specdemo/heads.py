"""Published draft heads: EAGLE-3 (classic and speculators layout) and Medusa, checked against a target.

Whatever the layout, ``Eagle3Head`` and ``MedusaHeads`` hold the same tensors under the same names, in
fp32 or the stored dtype. A head that does not fit its target is refused with a sentence that names
both numbers: a wrong guess would not crash, it would quietly ruin the acceptance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from . import checkpoints
from .checkpoints import Checkpoint
from .errors import InputError
from .target import Shape

EAGLE3_FILES = ("model.safetensors", "pytorch_model.bin")
MEDUSA_FILES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt", "model.safetensors")
_PROJECTIONS = [f"self_attn.{p}_proj" for p in "qkvo"] + [
    f"mlp.{p}_proj" for p in ("gate", "up", "down")
]
_LAYER = (*_PROJECTIONS, "hidden_norm", "input_layernorm", "post_attention_layernorm")
_MEDUSA_KEY = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.(linear\.weight|linear\.bias|weight)")


@dataclass(frozen=True, slots=True)
class Eagle3Head:
    """An EAGLE-3 head. ``tensors``: classic names without ``.weight`` (``fc``, ``norm``, ``lm_head``,
    ``midlayer.self_attn.q_proj`` ...). ``layers``: the target's ``hidden_states`` it fuses.
    ``ids`` int64 ``[draft V]``: the target's id of each draft token, None when they are the same.
    ``inv_freq`` ``[head_dim / 2]`` and ``rope_scale``: rotary frequencies and their factor.
    ``norm_before_residual``: the residual is the normed state (some speculators checkpoints)."""

    name: str
    layers: tuple[int, ...]
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    inv_freq: Tensor
    rope_scale: float
    norm_before_residual: bool
    tensors: dict[str, Tensor]
    ids: Tensor | None
    embedding: Tensor | None

    @property
    def hidden(self) -> int:
        return self.tensors["fc"].shape[0]


@dataclass(frozen=True, slots=True)
class MedusaHeads:
    """Medusa heads. ``blocks[i]``: head i's residual blocks as (weight ``[H, H]``, bias ``[H]``).
    ``outputs[i]``: its output head ``[V', H]``.
    ``ids`` int64 ``[V']``: the target's ids of a reduced vocabulary, None for the whole.
    ``accuracies[i][r]``: measured share of places where head i's choice of rank r is the target's
    (this project's extension of the configuration), empty when unknown."""

    name: str
    blocks: tuple[tuple[tuple[Tensor, Tensor], ...], ...]
    outputs: tuple[Tensor, ...]
    ids: Tensor | None
    accuracies: tuple[tuple[float, ...], ...] = ()


def load_eagle3(source: str, target_name: str, shape: Shape) -> Eagle3Head:
    """Read and check a head. ``source``: folder or Hub id; ``shape``: the target's sizes.

    Raises ``InputError``: ``head_unreadable``, ``head_misfit``."""
    found = checkpoints.read(source, EAGLE3_FILES)
    fit = _Fit(found.name, target_name)
    config, outer = found.config, found.config
    if isinstance(config.get("transformer_layer_config"), dict):  # speculators nest the layer's fields
        config = {**config["transformer_layer_config"]}
    tensors = _eagle3_tensors(found)
    fused, hidden = tensors["fc"].shape[1], tensors["fc"].shape[0]
    wanted = int(outer.get("target_hidden_size") or config.get("target_hidden_size") or shape.hidden)
    fit.equal("a hidden size of", wanted, shape.hidden)
    layers = _layer_ids(outer, shape)
    if fused != len(layers) * shape.hidden:
        fit.equal("fused states of size", fused, len(layers) * shape.hidden)
    for layer in layers:
        if not 0 <= layer <= shape.layers:
            raise fit.error("a target with layer", layer, f"one of {shape.layers} layers")
    vocab = int(config.get("vocab_size") or outer.get("vocab_size") or shape.vocab)
    offsets, known = found.tensors.get("d2t"), found.tensors.get("t2d")
    size = tensors["lm_head"].shape[0]
    vocab = known.shape[0] if known is not None else vocab
    if vocab > shape.vocab or (offsets is None and size > shape.vocab):
        raise fit.error("a vocabulary of", max(vocab, size), shape.vocab)
    ids = None
    if offsets is not None:
        if offsets.shape[0] != size:
            raise found.refuse(f"d2t has {offsets.shape[0]} entries, its output head {size} rows")
        ids = checkpoints.draft_ids(offsets)
        if int(ids.min()) < 0 or int(ids.max()) >= shape.vocab:
            raise fit.error("a token with id", int(ids.max()), f"{shape.vocab} ids")
    elif size < vocab:
        raise found.refuse(f"its output head has {size} rows for {vocab} tokens and there is no d2t")
    embedding = found.tensors.get("embed_tokens.weight", found.tensors.get("model.embed_tokens.weight"))
    if embedding is None and hidden != shape.hidden:
        raise fit.error("embeddings of size", hidden, shape.hidden)
    heads = int(config["num_attention_heads"])
    dim = int(config.get("head_dim") or hidden // heads)
    frequencies, scale = _rope(config, hidden, heads, dim)
    head = Eagle3Head(
        found.name,
        layers,
        heads,
        int(config.get("num_key_value_heads") or heads),
        dim,
        float(config.get("rms_norm_eps", 1e-6)),
        frequencies,
        scale,
        bool(outer.get("norm_before_residual", False)),
        tensors,
        ids,
        embedding,
    )
    _check_shapes(found, head)
    return head


class _Fit:
    """Sentences about what does not fit."""

    def __init__(self, head: str, model: str) -> None:
        self.head, self.model = head, model

    def error(self, what: str, theirs: Any, ours: Any) -> InputError:
        return InputError(
            "head_misfit", head=self.head, model=self.model, what=what, theirs=theirs, ours=ours
        )

    def equal(self, what: str, theirs: int, ours: int) -> None:
        if theirs != ours:
            raise self.error(what, theirs, ours)


def _layer_ids(config: dict[str, Any], shape: Shape) -> tuple[int, ...]:
    """Which states are fused, as indices of ``hidden_states``: the checkpoint's word, else 2, n // 2,
    n - 3 (Li et al. 2025). At the top level (vLLM, speculators) the ids are such indices, under
    ``eagle_config`` (SpecForge, SGLang) they count layer outputs, one less."""
    given = config.get("eagle_aux_hidden_state_layer_ids")
    if given:
        return tuple(int(i) for i in given)
    nested = config.get("eagle_config")
    given = nested.get("eagle_aux_hidden_state_layer_ids") if isinstance(nested, dict) else None
    if given:
        return tuple(int(i) + 1 for i in given)
    return (2, shape.layers // 2, shape.layers - 3)


def _eagle3_tensors(found: Checkpoint) -> dict[str, Tensor]:
    """Tensors by classic name, whatever the layout. Raises for missing or unknown ones."""
    result: dict[str, Tensor] = {}
    for key, value in found.tensors.items():
        name = re.sub(r"^(?:model\.)?(?:midlayer|layers\.0)\.", "midlayer.", key)
        if name.removesuffix(".weight") != name:
            result[re.sub(r"^model\.", "", name).removesuffix(".weight")] = value
        elif name not in ("d2t", "t2d"):
            raise found.refuse(f"it holds {key}, which no known layout has")
    needed = ["fc", "norm", "lm_head", *(f"midlayer.{part}" for part in _LAYER)]
    missing = [name for name in needed if name not in result]
    if missing:
        raise found.refuse(f"it lacks {len(missing)} of its tensors, such as {missing[0]}.weight")
    unknown = sorted(set(result) - {*needed, "embed_tokens"})
    if unknown:
        raise found.refuse(f"it holds {unknown[0]}.weight, which no known layout has")
    return {name: result[name] for name in needed}


def _rope(config: dict[str, Any], hidden: int, heads: int, dim: int) -> tuple[Tensor, float]:
    """Frequencies as transformers computes them for a Llama of this configuration (all scalings)."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    names = ("rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings")
    chosen = {name: config[name] for name in names if config.get(name) is not None}
    llama = LlamaConfig(hidden_size=hidden, num_attention_heads=heads, head_dim=dim, **chosen)
    rotary = LlamaRotaryEmbedding(llama)
    return rotary.inv_freq.float(), float(rotary.attention_scaling)


def _check_shapes(found: Checkpoint, head: Eagle3Head) -> None:
    h, q, kv = head.hidden, head.heads * head.head_dim, head.kv_heads * head.head_dim
    inner = head.tensors["midlayer.mlp.gate_proj"].shape[0]
    expected = {
        "midlayer.self_attn.q_proj": (q, 2 * h),
        "midlayer.self_attn.k_proj": (kv, 2 * h),
        "midlayer.self_attn.v_proj": (kv, 2 * h),
        "midlayer.self_attn.o_proj": (h, q),
        "midlayer.mlp.up_proj": (inner, h),
        "midlayer.mlp.down_proj": (h, inner),
        "lm_head": (head.tensors["lm_head"].shape[0], h),
        "norm": (h,),
    }
    for name, shape in expected.items():
        if tuple(head.tensors[name].shape) != shape:
            got, want = list(head.tensors[name].shape), list(shape)
            raise found.refuse(f"{name}.weight is {got} where its configuration says {want}")


def load_medusa(source: str, target_name: str, shape: Shape) -> MedusaHeads:
    """Read and check Medusa heads. The number of heads is that of the file: configurations of
    version 0.1 name another. Raises ``InputError``: ``head_unreadable``, ``head_misfit``."""
    found = checkpoints.read(source, MEDUSA_FILES)
    fit = _Fit(found.name, target_name)
    parts: dict[int, dict[tuple[int, str], Tensor]] = {}
    for key, value in found.tensors.items():
        match = _MEDUSA_KEY.fullmatch(key)
        if match:
            parts.setdefault(int(match[1]), {})[int(match[2]), match[3]] = value
        elif key != "d2t":
            raise found.refuse(f"it holds {key}, which no known layout has")
    if not parts or sorted(parts) != list(range(len(parts))):
        raise found.refuse("its heads are not numbered from 0 without a gap")
    offsets = found.tensors.get("d2t")
    ids = None if offsets is None else checkpoints.draft_ids(offsets)
    width = shape.vocab if ids is None else len(ids)
    if ids is not None and not 0 <= int(ids.min()) <= int(ids.max()) < shape.vocab:
        raise fit.error("a token with id", int(ids.max()), f"{shape.vocab} ids")
    blocks, outputs = [], []
    for index in range(len(parts)):
        head = parts[index]
        count = sum(1 for _, kind in head if kind == "linear.weight")
        residual = []
        for layer in range(count):
            weight, bias = head.get((layer, "linear.weight")), head.get((layer, "linear.bias"))
            if weight is None or bias is None:
                raise found.refuse(f"block {layer} of head {index} is incomplete")
            fit.equal("a hidden size of", weight.shape[0], shape.hidden)
            residual.append((weight, bias))
        output = head.get((count, "weight"))
        if output is None:
            raise found.refuse(f"head {index} lacks its output layer")
        fit.equal("a hidden size of", output.shape[1], shape.hidden)
        if output.shape[0] > width or (ids is not None and output.shape[0] != width):
            raise fit.error("a vocabulary of", output.shape[0], width)
        blocks.append(tuple(residual))
        outputs.append(output)
    rates = found.config.get("medusa_accuracies") or ()
    accuracies = tuple(tuple(float(rate) for rate in row) for row in rates)
    return MedusaHeads(found.name, tuple(blocks), tuple(outputs), ids, accuracies)
