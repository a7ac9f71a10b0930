"""Projectors: the steps between a tower and the text model of each composite type.

Sizes and names are those of the classes in transformers 5.23; missing fields have the defaults of the class.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from tfacct.architecture.parts.projector import (
    Activated,
    Dropped,
    Joined,
    Learned,
    Linear,
    NamedTensors,
    Projector,
    Scaling,
    Step,
)
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.families import multimodal
from tfacct.families.fields import MOST_LAYERS, divide_exactly
from tfacct.ledger.workload import LARGEST

Steps: TypeAlias = Iterator[Step]

VIP_LLAVA_LAYERS = (-2, -5, -8, -11, 6)
"""Tower layers that VipLlava reads by default."""


class Model(NamedTuple):
    """A text model or a tower: part of the composite, checked config, given fields, and transformer."""

    part: str
    config: Any
    fields: Mapping[str, Any]
    transformer: Transformer

    @property
    def hidden(self) -> int:
        """Its hidden size."""
        return int(self.transformer.embed.hidden)

    def size(self, name: str) -> int:
        """A size in its config. Raises ConfigError if it is missing."""
        value = getattr(self.config, name, None)
        if not isinstance(value, int):
            raise ConfigError(f"the {self.part} model has no single {name}, which decides the sizes of the projector")
        return value


class Between(NamedTuple):
    """A composite config, and the two models that its projector joins."""

    raw: Mapping[str, Any]
    text: Model
    tower: Model

    @property
    def layers(self) -> int:
        """Number of tower layers whose outputs are concatenated."""
        default = VIP_LLAVA_LAYERS if self.raw.get("model_type") == "vipllava" else None
        read = self.raw.get("vision_feature_layer", default)
        return len(read) if isinstance(read, (list, tuple)) and read else 1

    def size(self, name: str, default: int, most: int = LARGEST) -> int:
        """A field with a size. Raises ConfigError."""
        value = self.raw.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
            raise ConfigError(f"{name} = {format_value(value)} must be a whole number from 1 to {most:,}")
        return value

    def switch(self, name: str, default: bool) -> bool:
        """A field with true or false. Raises ConfigError."""
        value = self.raw.get(name, default)
        if not isinstance(value, bool):
            raise ConfigError(
                f"{name} = {format_value(value)} must be true or false, because the projector depends on it"
            )
        return value

    def square(self, name: str) -> int:
        """Number of tower rows that are merged: a square with its side in a field. Raises ConfigError."""
        return self.size(name, 2) ** 2

    def selected(self, default: str) -> Steps:
        """Number of selected rows; one strategy drops the first row, even if it is not a class token. Raises
        ConfigError."""
        how = self.raw.get("vision_feature_select_strategy", default)
        if how not in ("default", "full"):
            raise ConfigError(f"vision_feature_select_strategy = {format_value(how)} must be default or full")
        if how == "default":
            yield Dropped()

    def mlp(self, inputs: int, *, bias: bool, width: int | None = None) -> Steps:
        """linear_1 and linear_2, to the hidden size of the text model."""
        return _mlp("linear_1", "linear_2", inputs, width or self.text.hidden, self.text.hidden, bias)

    def glu(self, inputs: int, width: int) -> Steps:
        """The same, with linear_1 also computing the gate."""
        yield Linear("linear_1", inputs, width)
        yield Activated("act", width, gated=True)
        yield Linear("linear_2", width // 2, self.text.hidden)


def _mlp(first: str, second: str, inputs: int, width: int, outputs: int, bias: bool = True, act: str = "act") -> Steps:
    """Two linear modules with an activation between them."""
    yield Linear(first, inputs, width, bias)
    yield Activated(act, width)
    yield Linear(second, width, outputs, bias)


def _gated_mlp(at: str, inputs: int, width: int, outputs: int) -> Steps:
    """A gated MLP without biases."""
    for name in ("gate_proj", "up_proj"):
        yield Linear(f"{at}.{name}", inputs, width, bias=False)
    yield Linear(f"{at}.down_proj", width, outputs, bias=False)


def _llava(own: Between, select: str = "default") -> Steps:
    yield from own.selected(select)
    yield from own.mlp(own.tower.hidden * own.layers, bias=own.switch("multimodal_projector_bias", True))


def _llava_next(own: Between, select: str = "default") -> Steps:
    yield from _llava(own, select)
    yield Learned("image_newline", (own.text.hidden,))


def _vipllava(own: Between) -> Steps:
    inputs = own.tower.hidden * own.layers
    yield Dropped()
    yield Scaling("projector_layernorm", inputs, bias=True)
    yield from own.mlp(inputs, bias=True)


def _aya(own: Between) -> Steps:
    count = own.square("downsample_factor")
    yield from own.selected("full")
    yield Joined(count)
    yield Scaling("layernorm", own.tower.hidden * count, bias=True)
    yield from own.glu(own.tower.hidden * count, own.size("alignment_intermediate_size", own.text.hidden))


def _cohere2(own: Between) -> Steps:
    count = own.square("downsample_factor")
    yield Joined(count)
    yield from own.glu(own.tower.hidden * count, own.size("alignment_intermediate_size", 36864))


def _linear(name: str, own: Between, inputs: int, bias: bool = True) -> Steps:
    yield Linear(name, inputs, own.text.hidden, bias)


def _gemma3(own: Between) -> Steps:
    """Rows are averaged to a square of mm_tokens_per_image."""
    side = math.isqrt(own._replace(raw=own.raw.get("encoder", own.raw)).size("mm_tokens_per_image", 256))
    patches = own.tower.size("image_size") // own.tower.size("patch_size")
    yield Joined(max(patches // side, 1) ** 2, averaged=own.tower.hidden)
    yield Scaling("mm_soft_emb_norm", own.tower.hidden)
    yield Linear("mm_input_projection", own.tower.hidden, own.text.hidden, bias=False)


def _idefics3(own: Between) -> Steps:
    count = own.square("scale_factor")
    yield Joined(count)
    yield Linear("modality_projection.proj", own.tower.hidden * count, own.text.hidden, bias=False)


def _idefics2(own: Between) -> Steps:
    width, hidden = own.text.size("intermediate_size"), own.text.hidden
    yield from _gated_mlp("modality_projection", own.tower.hidden, width, hidden)
    inside = own.raw.get("perceiver_config") or {}
    if not isinstance(inside, Mapping):
        raise ConfigError(f"perceiver_config = {format_value(inside)} must be an object with fields")
    own = own._replace(raw=inside)
    heads, size = own.size("resampler_n_heads", 16), own.size("resampler_head_dim", 96)
    kv_heads = own.size("num_key_value_heads", 4)
    yield Learned("perceiver_resampler.latents", (own.size("resampler_n_latents", 64), hidden))
    for layer in range(own.size("resampler_depth", 3, MOST_LAYERS)):
        at = f"perceiver_resampler.layers.{layer}"
        for name in ("input_latents_norm", "input_context_norm"):
            yield Scaling(f"{at}.{name}", hidden)
        for name, outputs in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
            yield Linear(f"{at}.self_attn.{name}", hidden, outputs * size, bias=False)
        yield Linear(f"{at}.self_attn.o_proj", heads * size, hidden, bias=False)
        yield Scaling(f"{at}.post_attention_layernorm", hidden)
        yield from _gated_mlp(f"{at}.mlp", hidden, 4 * hidden, hidden)
    yield Scaling("perceiver_resampler.norm", hidden)


def _internvl(own: Between) -> Steps:
    ratio = own.raw.get("downsample_ratio", 0.5)
    if not isinstance(ratio, float) or not 0 < ratio <= 1:
        raise ConfigError(f"downsample_ratio = {format_value(ratio)} must be above 0 and at most 1")
    count = int(1 / ratio) ** 2
    yield from own.selected("default")
    yield Joined(count)
    yield Scaling("layer_norm", own.tower.hidden * count, bias=True)
    yield from own.mlp(own.tower.hidden * count, bias=True)


def _kimi(own: Between) -> Steps:
    count = math.prod(own.tower.config.merge_kernel_size)
    inputs = own.tower.hidden * count
    yield Scaling("pre_norm", own.size("projection_hidden_size", 1152), bias=True)
    yield Joined(count)
    yield from _mlp("in_proj", "out_proj", inputs, inputs, own.text.hidden)


def _lfm2(own: Between) -> Steps:
    count = own.square("downsample_factor")
    inputs = own.tower.hidden * count
    yield Joined(count)
    if own.switch("projector_use_layernorm", True):
        yield Scaling("layer_norm", inputs, bias=True)
    width = own.size("projector_hidden_size", 2560)
    yield from own.mlp(inputs, bias=own.switch("projector_bias", True), width=width)


def _mistral3(own: Between) -> Steps:
    yield from _patch_merger(own)
    yield from own.mlp(own.tower.hidden * own.layers, bias=own.switch("multimodal_projector_bias", False))


def _lighton(own: Between) -> Steps:
    yield from _patch_merger(own)
    yield from own.mlp(own.tower.hidden, bias=False)


def _patch_merger(own: Between) -> Steps:
    """A norm, and a linear module over concatenated neighboring patches."""
    yield Scaling("norm", own.tower.hidden)
    count = own.square("spatial_merge_size")
    yield Joined(count)
    yield Linear("patch_merger.merging_layer", own.tower.hidden * count, own.tower.hidden, bias=False)


def _minimax(own: Between) -> Steps:
    width, hidden = own.size("projector_hidden_size", 6144), own.text.hidden
    yield from own.mlp(own.tower.hidden, bias=True, width=width)
    count = own.tower.size("spatial_merge_size") ** 2
    yield Joined(count)
    yield from _mlp("merge_linear_1", "merge_linear_2", count * hidden, width, hidden, act="merge_act")


def _ernie(own: Between) -> Steps:
    joined = own.tower.hidden * own.tower.size("spatial_merge_size") ** 2
    for name, frames in (("spatial_linear", 1), ("temporal_linear", own.tower.size("temporal_merge_size"))):
        yield from _mlp(f"{name}.fc1", f"{name}.fc2", joined * frames, joined, joined)
        yield Scaling(f"{name}.ln", joined, bias=True)
    yield Linear("mlp", joined, own.text.hidden)
    yield Scaling("after_norm", own.text.hidden)


def _phi4(own: Between) -> Steps:
    yield from _mlp("img_projection_up", "img_projection_down", own.tower.hidden, own.text.hidden, own.text.hidden)
    for name in ("global_img_feature_extensor", "sub_img_feature_extensor"):
        yield Learned(name, (own.tower.hidden,))


def _audio(own: Between) -> Steps:
    return own.mlp(own.tower.hidden, bias=own.switch("projector_bias", True))


def _voxtral(own: Between) -> Steps:
    inputs = own.tower.size("intermediate_size")
    yield Joined(divide_exactly(inputs, own.tower.hidden, "intermediate_size by hidden_size of the encoder"))
    yield from own.mlp(inputs, bias=False)


def _embedder(own: Between) -> Steps:
    return _linear("embedding_projection", own, own.tower.hidden, bias=False)


PROJECTORS: Mapping[str, Callable[[Between], Steps]] = {
    "audioflamingo3": _audio,
    "aya_vision": _aya,
    "cohere2_vision": _cohere2,
    "deepseek_vl": lambda own: _mlp("linear1", "linear2", own.tower.hidden, own.text.hidden, own.text.hidden),
    "embedding_gemma2": _embedder,
    "ernie4_5_vl_moe": _ernie,
    "gemma3": _gemma3,
    "gemma4": _embedder,
    "hyperclovax_vision_v2": lambda own: _linear("linear", own, own.tower.size("out_hidden_size")),
    "idefics2": _idefics2,
    "idefics3": _idefics3,
    "internvl": _internvl,
    "kimi_k25": _kimi,
    "lfm2_vl": _lfm2,
    "lighton_ocr": _lighton,
    "llama4": lambda own: _linear(
        "linear_1", own, own._replace(raw=own.tower.fields).size("vision_output_dim", 7680), bias=False
    ),
    "llava": _llava,
    "llava_next": _llava_next,
    "llava_next_video": _llava_next,
    "llava_onevision": lambda own: _llava_next(own, "full"),
    "minimax_m3_vl": _minimax,
    "mistral3": _mistral3,
    "mistral_large4": _mistral3,
    "musicflamingo": _audio,
    "paligemma": lambda own: iter([Linear("linear", own.tower.hidden, own.size("projection_dim", 2048))]),
    "phi4_multimodal": _phi4,
    "qwen2_audio": lambda own: _linear("linear", own, own.tower.hidden),
    "smolvlm": _idefics3,
    "t5gemma2": _gemma3,
    "vipllava": _vipllava,
    "voxtral": _voxtral,
}
"""Projectors by composite type."""
ROWS_UNKNOWN = frozenset(("ernie4_5_vl_moe", "idefics2", "phi4_multimodal"))
"""Projectors with steps over different numbers of rows: their parameters are counted, but not their FLOPs."""


class Described(NamedTuple):
    """A projector, None if it is not described, and the names of its parts."""

    part: Projector | NamedTensors | None = None
    names: frozenset[str] = frozenset()


def projector(raw: Mapping[str, Any], text: Model, tower: Model, work: bool) -> Described:
    """The projector between a tower and a text model: only its tensors, or also its `work`, if the number of rows is
    known. Raises ConfigError."""
    raw = multimodal.canonical(raw)
    model_type = str(raw.get("model_type"))
    row = multimodal.towers("audio" if tower.part == "audio" else "vision").get(model_type)
    known = PROJECTORS.keys() - (ROWS_UNKNOWN if work else frozenset())
    if row is None or row.projector is None or model_type not in known:
        return Described()
    own, names = Between(raw, text, tower), frozenset((row.projector, "perceiver_config"))
    steps = tuple(PROJECTORS[model_type](own))
    if not work:
        tensors = tuple(step for step in steps if isinstance(step, Linear | Scaling | Learned))
        return Described(NamedTensors(tensors), names)
    merged = tower.transformer.merger is not None
    if merged and any(isinstance(step, Joined) for step in steps):
        return Described()  # it is not known which rows the class merges
    return Described(Projector(steps, merged, own.layers), names)
