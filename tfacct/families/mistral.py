"""Mistral AI's dense models and Mixtral, and StarCoder2, which shares Mistral's window."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from pydantic import Field

from tfacct.architecture.parts import Scales, Temperature
from tfacct.families.decoder import AnyAttention, Decoder, ExpertsInEveryLayer, Layer, Window
from tfacct.families.family import mlp_modules
from tfacct.families.fields import PositiveFloat, PositiveInt, StrictBool, is_positive
from tfacct.families.layer_kinds import LayerTypes
from tfacct.families.llama import SIZES
from tfacct.families.task_heads import LABELLING


def read_temperature(rope: Mapping[str, Any]) -> Temperature | None:
    """Scaling of queries with their position, if rope_parameters has its constants."""
    beta, length = rope.get("llama_4_scaling_beta"), rope.get("original_max_position_embeddings")
    return Temperature(float(beta), float(length), 0) if is_positive(beta) and is_positive(length) else None


class Mistral(Decoder):
    """Mistral: Llama's layer, with a window in every layer in the first releases, none in later ones."""

    sizes = dict(mlp=14336, kv_heads=8, context=131072)
    sliding_window: Window | None = 4096
    nested_defaults = SIZES
    task_heads = LABELLING

    def layers(self) -> list[Layer]:
        return [Layer(self.sliding_window)] * self.num_hidden_layers


class Mixtral(ExpertsInEveryLayer, Mistral):
    """Mixtral: Mistral's attention, and experts in every layer."""

    defaults = dict(sliding_window=None, rms_norm_eps=1e-5, rope_theta=1_000_000.0)


class Ministral(Mistral):
    """Ministral 8B: Mistral's layer, with the window in the layers that layer_types names."""

    sizes = dict(vocab=32000, hidden=4096, layers=32, heads=32)
    head_dim: PositiveInt = Field()  # required
    sliding_window: Window = 4096
    layer_types: LayerTypes | None = None
    null_means = {"num_key_value_heads": "num_attention_heads"}

    def layers(self) -> list[Layer]:
        return [Layer(window) for window in self.windows(lambda _: True, self.sliding_window)]


class Ministral3(Mistral):
    """Ministral 3: Mistral's layer without a window; queries grow with their position."""

    sizes = dict(vocab=131072, hidden=4096, layers=34, heads=32, head_dim=128, context=262144)
    defaults = dict(
        sliding_window=None,
        rms_norm_eps=1e-5,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 1_000_000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 16384,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale_all_dim": 1.0,
            "mscale": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    )

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        rope = self.rope_parameters or self.defaults["rope_parameters"]
        return super().attention(layer, scales=Scales(read_temperature(rope)))


class Starcoder2(Mistral):
    """StarCoder2: Llama's attention, with biases and a window; LayerNorm, an MLP of two matrices, a tied head."""

    sizes = dict(mlp=12288, kv_heads=2, context=4096)
    defaults = dict(sliding_window=None, tie_word_embeddings=True, hidden_act="gelu_pytorch_tanh")
    use_bias: StrictBool = True
    norm_epsilon: PositiveFloat = 1e-5
    nested_defaults = {}
    dropouts = dict(
        embedding=("embedding_dropout", 0.0), residual=("residual_dropout", 0.0), attention=("attention_dropout", 0.0)
    )
    drops_in_attention = True
    ignored_fields = "attention_softmax_in_fp32 scale_attention_softmax_in_fp32 scale_attn_weights mlp_type norm_type"
    layer_module_names = mlp_modules("mlp", up="c_fc", down="c_proj")
    norm_kind, eps_field, mlp_gated = "layer", "norm_epsilon", False
    attention_bias = mlp_bias = property(attrgetter("use_bias"))
