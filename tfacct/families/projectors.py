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


class CompositeConfig(NamedTuple):
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


def _llava(config: CompositeConfig, select: str = "default") -> Steps:
    yield from config.selected(select)
    yield from config.mlp(config.tower.hidden * config.layers, bias=config.switch("multimodal_projector_bias", True))


def _llava_next(config: CompositeConfig, select: str = "default") -> Steps:
    yield from _llava(config, select)
    yield Learned("image_newline", (config.text.hidden,))


def _vipllava(config: CompositeConfig) -> Steps:
    inputs = config.tower.hidden * config.layers
    yield Dropped()
    yield Scaling("projector_layernorm", inputs, bias=True)
    yield from config.mlp(inputs, bias=True)


def _aya(config: CompositeConfig) -> Steps:
    count = config.square("downsample_factor")
    yield from config.selected("full")
    yield Joined(count)
    yield Scaling("layernorm", config.tower.hidden * count, bias=True)
    yield from config.glu(config.tower.hidden * count, config.size("alignment_intermediate_size", config.text.hidden))


def _cohere2(config: CompositeConfig) -> Steps:
    count = config.square("downsample_factor")
    yield Joined(count)
    yield from config.glu(config.tower.hidden * count, config.size("alignment_intermediate_size", 36864))


def _linear(name: str, config: CompositeConfig, inputs: int, bias: bool = True) -> Steps:
    yield Linear(name, inputs, config.text.hidden, bias)


def _gemma3(config: CompositeConfig) -> Steps:
    """Rows are averaged to a square of mm_tokens_per_image."""
    side = math.isqrt(config._replace(raw=config.raw.get("encoder", config.raw)).size("mm_tokens_per_image", 256))
    patches = config.tower.size("image_size") // config.tower.size("patch_size")
    yield Joined(max(patches // side, 1) ** 2, averaged=config.tower.hidden)
    yield Scaling("mm_soft_emb_norm", config.tower.hidden)
    yield Linear("mm_input_projection", config.tower.hidden, config.text.hidden, bias=False)


def _idefics3(config: CompositeConfig) -> Steps:
    count = config.square("scale_factor")
    yield Joined(count)
    yield Linear("modality_projection.proj", config.tower.hidden * count, config.text.hidden, bias=False)


def _idefics2(config: CompositeConfig) -> Steps:
    width, hidden = config.text.size("intermediate_size"), config.text.hidden
    yield from _gated_mlp("modality_projection", config.tower.hidden, width, hidden)
    inside = config.raw.get("perceiver_config") or {}
    if not isinstance(inside, Mapping):
        raise ConfigError(f"perceiver_config = {format_value(inside)} must be an object with fields")
    config = config._replace(raw=inside)
    heads, size = config.size("resampler_n_heads", 16), config.size("resampler_head_dim", 96)
    kv_heads = config.size("num_key_value_heads", 4)
    yield Learned("perceiver_resampler.latents", (config.size("resampler_n_latents", 64), hidden))
    for layer in range(config.size("resampler_depth", 3, MOST_LAYERS)):
        at = f"perceiver_resampler.layers.{layer}"
        for name in ("input_latents_norm", "input_context_norm"):
            yield Scaling(f"{at}.{name}", hidden)
        for name, outputs in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
            yield Linear(f"{at}.self_attn.{name}", hidden, outputs * size, bias=False)
        yield Linear(f"{at}.self_attn.o_proj", heads * size, hidden, bias=False)
        yield Scaling(f"{at}.post_attention_layernorm", hidden)
        yield from _gated_mlp(f"{at}.mlp", hidden, 4 * hidden, hidden)
    yield Scaling("perceiver_resampler.norm", hidden)


def _internvl(config: CompositeConfig) -> Steps:
    ratio = config.raw.get("downsample_ratio", 0.5)
    if not isinstance(ratio, float) or not 0 < ratio <= 1:
        raise ConfigError(f"downsample_ratio = {format_value(ratio)} must be above 0 and at most 1")
    count = int(1 / ratio) ** 2
    yield from config.selected("default")
    yield Joined(count)
    yield Scaling("layer_norm", config.tower.hidden * count, bias=True)
    yield from config.mlp(config.tower.hidden * count, bias=True)


def _kimi(config: CompositeConfig) -> Steps:
    count = math.prod(config.tower.config.merge_kernel_size)
    inputs = config.tower.hidden * count
    yield Scaling("pre_norm", config.size("projection_hidden_size", 1152), bias=True)
    yield Joined(count)
    yield from _mlp("in_proj", "out_proj", inputs, inputs, config.text.hidden)


def _lfm2(config: CompositeConfig) -> Steps:
    count = config.square("downsample_factor")
    inputs = config.tower.hidden * count
    yield Joined(count)
    if config.switch("projector_use_layernorm", True):
        yield Scaling("layer_norm", inputs, bias=True)
    width = config.size("projector_hidden_size", 2560)
    yield from config.mlp(inputs, bias=config.switch("projector_bias", True), width=width)


def _mistral3(config: CompositeConfig) -> Steps:
    yield from _patch_merger(config)
    yield from config.mlp(config.tower.hidden * config.layers, bias=config.switch("multimodal_projector_bias", False))


def _lighton(config: CompositeConfig) -> Steps:
    yield from _patch_merger(config)
    yield from config.mlp(config.tower.hidden, bias=False)


def _patch_merger(config: CompositeConfig) -> Steps:
    """A norm, and a linear module over concatenated neighboring patches."""
    yield Scaling("norm", config.tower.hidden)
    count = config.square("spatial_merge_size")
    yield Joined(count)
    yield Linear("patch_merger.merging_layer", config.tower.hidden * count, config.tower.hidden, bias=False)


def _minimax(config: CompositeConfig) -> Steps:
    width, hidden = config.size("projector_hidden_size", 6144), config.text.hidden
    yield from config.mlp(config.tower.hidden, bias=True, width=width)
    count = config.tower.size("spatial_merge_size") ** 2
    yield Joined(count)
    yield from _mlp("merge_linear_1", "merge_linear_2", count * hidden, width, hidden, act="merge_act")


def _ernie(config: CompositeConfig) -> Steps:
    joined = config.tower.hidden * config.tower.size("spatial_merge_size") ** 2
    for name, frames in (("spatial_linear", 1), ("temporal_linear", config.tower.size("temporal_merge_size"))):
        yield from _mlp(f"{name}.fc1", f"{name}.fc2", joined * frames, joined, joined)
        yield Scaling(f"{name}.ln", joined, bias=True)
    yield Linear("mlp", joined, config.text.hidden)
    yield Scaling("after_norm", config.text.hidden)


def _phi4(config: CompositeConfig) -> Steps:
    yield from _mlp(
        "img_projection_up", "img_projection_down", config.tower.hidden, config.text.hidden, config.text.hidden
    )
    for name in ("global_img_feature_extensor", "sub_img_feature_extensor"):
        yield Learned(name, (config.tower.hidden,))


def _audio(config: CompositeConfig) -> Steps:
    return config.mlp(config.tower.hidden, bias=config.switch("projector_bias", True))


def _voxtral(config: CompositeConfig) -> Steps:
    inputs = config.tower.size("intermediate_size")
    yield Joined(divide_exactly(inputs, config.tower.hidden, "intermediate_size by hidden_size of the encoder"))
    yield from config.mlp(inputs, bias=False)


def _embedder(config: CompositeConfig) -> Steps:
    return _linear("embedding_projection", config, config.tower.hidden, bias=False)


PROJECTORS: Mapping[str, Callable[[CompositeConfig], Steps]] = {
    "audioflamingo3": _audio,
    "aya_vision": _aya,
    "cohere2_vision": _cohere2,
    "deepseek_vl": lambda config: _mlp(
        "linear1", "linear2", config.tower.hidden, config.text.hidden, config.text.hidden
    ),
    "embedding_gemma2": _embedder,
    "ernie4_5_vl_moe": _ernie,
    "gemma3": _gemma3,
    "gemma4": _embedder,
    "hyperclovax_vision_v2": lambda config: _linear("linear", config, config.tower.size("out_hidden_size")),
    "idefics2": _idefics2,
    "idefics3": _idefics3,
    "internvl": _internvl,
    "kimi_k25": _kimi,
    "lfm2_vl": _lfm2,
    "lighton_ocr": _lighton,
    "llama4": lambda config: _linear(
        "linear_1", config, config._replace(raw=config.tower.fields).size("vision_output_dim", 7680), bias=False
    ),
    "llava": _llava,
    "llava_next": _llava_next,
    "llava_next_video": _llava_next,
    "llava_onevision": lambda config: _llava_next(config, "full"),
    "minimax_m3_vl": _minimax,
    "mistral3": _mistral3,
    "mistral_large4": _mistral3,
    "musicflamingo": _audio,
    "paligemma": lambda config: iter([Linear("linear", config.tower.hidden, config.size("projection_dim", 2048))]),
    "phi4_multimodal": _phi4,
    "qwen2_audio": lambda config: _linear("linear", config, config.tower.hidden),
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
    if row is None or not row.projector or model_type not in known:
        return Described()
    config, names = CompositeConfig(raw, text, tower), frozenset((row.projector, "perceiver_config"))
    steps = tuple(PROJECTORS[model_type](config))
    if not work:
        tensors = tuple(step for step in steps if isinstance(step, Linear | Scaling | Learned))
        return Described(NamedTensors(tensors), names)
    merged = tower.transformer.merger is not None
    if merged and any(isinstance(step, Joined) for step in steps):
        return Described()  # it is not known which rows the class merges
    return Described(Projector(steps, merged, config.layers), names)
