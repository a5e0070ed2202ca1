"""Which models the lean path can run, and the sizes it needs of them: read off the loaded model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Same modules does not mean same arithmetic (Granite has Llama's modules and multiplies in four
# places), so a model must be of a family whose forward was compared with ours, and look like it.
FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
ROPES = frozenset({"default", "linear", "llama3"})
_BASE = {"embed_tokens", "layers", "norm", "rotary_emb"}
_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_MLP = {"gate_proj", "up_proj", "down_proj"}
_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of a Llama-like model. ``group``: query heads to a key head; ``head_norms``: Qwen3's
    normalised queries and keys; ``scale``: of the attention scores; ``epsilon``: of the norms."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    epsilon: float
    scale: float
    head_norms: bool

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads


def supports(model: PreTrainedModel) -> bool:
    """Whether the lean forward computes what this model computes."""
    config: Any = model.config
    if config.model_type not in FAMILIES or not isinstance(getattr(model, "model", None), nn.Module):
        return False
    base: Any = model.model
    if set(dict(base.named_children())) != _BASE or len(base.layers) < 1:
        return False
    if not isinstance(model.get_output_embeddings(), nn.Linear):
        return False
    if model.get_output_embeddings().bias is not None:
        return False
    return _plain_positions(config, base) and all(_plain_layer(config, layer) for layer in base.layers)


def _plain_positions(config: Any, base: Any) -> bool:
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    sliding = getattr(config, "sliding_window", None)
    if set(kinds) != {"full_attention"} or (sliding and config.model_type == "mistral"):
        return False
    rotary = base.rotary_emb
    head_dim = base.layers[0].self_attn.head_dim
    kind = getattr(rotary, "rope_type", None)
    return kind in ROPES and rotary.inv_freq.numel() * 2 == head_dim


def _plain_layer(config: Any, layer: Any) -> bool:
    attention = set(dict(layer.self_attn.named_children()))
    norms = {"q_norm", "k_norm"} if config.model_type == "qwen3" else set()
    return (
        set(dict(layer.named_children())) == _LAYER
        and attention == _ATTENTION | norms
        and _MLP <= set(dict(layer.mlp.named_children())) <= _MLP | {"act_fn"}
        and config.hidden_act == "silu"
        and _adds_nothing(layer.self_attn.o_proj.bias)
        and layer.mlp.down_proj.bias is None
        and layer.mlp.gate_proj.bias is None
    )


def plan_of(model: PreTrainedModel) -> Plan:
    """Sizes of a model that ``supports`` accepted."""
    config: Any = model.config
    base: Any = model.model
    head: Any = model.get_output_embeddings()
    attention = base.layers[0].self_attn
    return Plan(
        hidden=config.hidden_size,
        inner=config.intermediate_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=attention.head_dim,
        vocab=head.weight.shape[0],
        context=config.max_position_embeddings,
        epsilon=config.rms_norm_eps,
        scale=attention.scaling,
        head_norms=config.model_type == "qwen3",
    )


def _adds_nothing(bias: Any) -> bool:
    """No bias, or one of zeros (a layout that has biases everywhere or nowhere)."""
    return bias is None or not bool(bias.any())
