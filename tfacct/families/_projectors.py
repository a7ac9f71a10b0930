"""Projectors: the steps between an encoder and a language model, for each multimodal class.

Sizes and names are those of the classes in transformers 5.23; a field that a config leaves out has its class's default.
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
from tfacct.base.complaints import format_value
from tfacct.base.errors import ConfigError
from tfacct.families import _embedders, _ernie_vl
from tfacct.families._parts import AUDIOS, VISIONS
from tfacct.families.fields import MOST_LAYERS, divide_exactly
from tfacct.ledger.workload import LARGEST

Steps: TypeAlias = Iterator[Step]


VIP_LLAVA_LAYERS = (-2, -5, -8, -11, 6)
"""Layers of the encoder that VipLlava reads, where its config does not say."""


class Side(NamedTuple):
    """The language model or the encoder of a whole: which part it is, its checked config, its fields as given, and its
    transformer."""

    part: str
    config: Any
    fields: Mapping[str, Any]
    shape: Transformer


class Whole(NamedTuple):
    """A config of several models, and what was read of those that a projector joins."""

    raw: Mapping[str, Any]
    text: Side
    encoder: Side

    @property
    def text_hidden(self) -> int:
        """Hidden size of the language model."""
        return int(self.text.shape.embed.hidden)

    @property
    def encoder_hidden(self) -> int:
        """Hidden size of the encoder."""
        return int(self.encoder.shape.embed.hidden)

    @property
    def layers(self) -> int:
        """Layers of the encoder that are read, side by side."""
        default = VIP_LLAVA_LAYERS if self.raw.get("model_type") == "vipllava" else None
        read = self.raw.get("vision_feature_layer", default)
        return len(read) if isinstance(read, (list, tuple)) and read else 1

    def size(self, name: str, default: int, most: int = LARGEST) -> int:
        """A field that holds a size. Raises ConfigError."""
        value = self.raw.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
            raise ConfigError(f"{name} = {format_value(value)} must be a whole number from 1 to {most:,}")
        return value

    def switch(self, name: str, default: bool) -> bool:
        """A field that holds true or false. Raises ConfigError."""
        value = self.raw.get(name, default)
        if not isinstance(value, bool):
            raise ConfigError(f"{name} = {format_value(value)} must be true or false: it decides what a projector has")
        return value


def _read(side: Side, name: str) -> int:
    """A size in the config of one side. Raises ConfigError where that has none."""
    value = getattr(side.config, name, None)
    if not isinstance(value, int):
        raise ConfigError(f"the {side.part} model has no single {name}, which decides the sizes of the projector")
    return value


def _two(first: str, second: str, inputs: int, between: int, outputs: int, bias: bool, act: str = "act") -> Steps:
    """Two products with an activation between them."""
    yield Linear(first, inputs, between, bias)
    yield Activated(act, between)
    yield Linear(second, between, outputs, bias)


def _mlp(whole: Whole, inputs: int, *, bias: bool, between: int | None = None) -> Steps:
    """linear_1 and linear_2, to the language model's hidden size."""
    return _two("linear_1", "linear_2", inputs, between or whole.text_hidden, whole.text_hidden, bias)


def _selected(whole: Whole, default: str) -> Steps:
    """The first row is dropped where the config selects so, whether it is a class token or not."""
    how = whole.raw.get("vision_feature_select_strategy", default)
    if how not in ("default", "full"):
        raise ConfigError(f"vision_feature_select_strategy = {format_value(how)} is not understood: default or full")
    if how == "default":
        yield Dropped()


def _joined(whole: Whole, name: str, default: int = 2) -> Steps:
    """Squares of rows side by side."""
    yield Joined(whole.size(name, default) ** 2)


def _llava(whole: Whole, select: str = "default") -> Steps:
    yield from _selected(whole, select)
    yield from _mlp(whole, whole.encoder_hidden * whole.layers, bias=whole.switch("multimodal_projector_bias", True))


def _llava_next(whole: Whole, select: str = "default") -> Steps:
    yield from _llava(whole, select)
    yield Learned("image_newline", (whole.text_hidden,))


def _onevision(whole: Whole) -> Steps:
    return _llava_next(whole, "full")


def _vipllava(whole: Whole) -> Steps:
    inputs = whole.encoder_hidden * whole.layers
    yield Dropped()
    yield Scaling("projector_layernorm", inputs, bias=True)
    yield from _mlp(whole, inputs, bias=True)


def _aya(whole: Whole) -> Steps:
    inputs = whole.encoder_hidden * whole.size("downsample_factor", 2) ** 2
    yield from _selected(whole, "full")
    yield from _joined(whole, "downsample_factor")
    yield Scaling("layernorm", inputs, bias=True)
    yield from _gated(whole, inputs, whole.size("alignment_intermediate_size", whole.text_hidden))


def _cohere2(whole: Whole) -> Steps:
    inputs = whole.encoder_hidden * whole.size("downsample_factor", 2) ** 2
    yield from _joined(whole, "downsample_factor")
    yield from _gated(whole, inputs, whole.size("alignment_intermediate_size", 36864))


def _gated(whole: Whole, inputs: int, width: int) -> Steps:
    """linear_1 gives the gate and what it lets through."""
    yield Linear("linear_1", inputs, width)
    yield Activated("act", width, gated=True)
    yield Linear("linear_2", width // 2, whole.text_hidden)


def _deepseek_vl(whole: Whole) -> Steps:
    return _two("linear1", "linear2", whole.encoder_hidden, whole.text_hidden, whole.text_hidden, True)


def _embedder(whole: Whole) -> Steps:
    yield Linear("embedding_projection", whole.encoder_hidden, whole.text_hidden, bias=False)


def _gemma3(whole: Whole) -> Steps:
    """Rows are averaged to a square of mm_tokens_per_image."""
    raw = whole.raw.get("encoder", whole.raw)
    side = math.isqrt(whole._replace(raw=raw).size("mm_tokens_per_image", 256))
    patches = _read(whole.encoder, "image_size") // _read(whole.encoder, "patch_size")
    yield Joined(max(patches // side, 1) ** 2, averaged=whole.encoder_hidden)
    yield Scaling("mm_soft_emb_norm", whole.encoder_hidden)
    yield Linear("mm_input_projection", whole.encoder_hidden, whole.text_hidden, bias=False)


def _paligemma(whole: Whole) -> Steps:
    yield Linear("linear", whole.encoder_hidden, whole.size("projection_dim", 2048))


def _linear(whole: Whole) -> Steps:
    yield Linear("linear", whole.encoder_hidden, whole.text_hidden)


def _hyperclovax(whole: Whole) -> Steps:
    yield Linear("linear", _read(whole.encoder, "out_hidden_size"), whole.text_hidden)


def _llama4(whole: Whole) -> Steps:
    yield Linear(
        "linear_1",
        whole._replace(raw=whole.encoder.fields).size("vision_output_dim", 7680),
        whole.text_hidden,
        bias=False,
    )


def _idefics3(whole: Whole) -> Steps:
    yield from _joined(whole, "scale_factor")
    inputs = whole.encoder_hidden * whole.size("scale_factor", 2) ** 2
    yield Linear("modality_projection.proj", inputs, whole.text_hidden, bias=False)


def _idefics2(whole: Whole) -> Steps:
    width = _read(whole.text, "intermediate_size")
    yield from _network("modality_projection", whole.encoder_hidden, width, whole.text_hidden)
    inside = whole.raw.get("perceiver_config") or {}
    if not isinstance(inside, Mapping):
        raise ConfigError(f"perceiver_config = {format_value(inside)} must be an object of fields")
    own = whole._replace(raw=inside)
    hidden, heads, size = whole.text_hidden, own.size("resampler_n_heads", 16), own.size("resampler_head_dim", 96)
    kv_heads = own.size("num_key_value_heads", 4)
    yield Learned("perceiver_resampler.latents", (own.size("resampler_n_latents", 64), hidden))
    for layer in range(own.size("resampler_depth", 3, MOST_LAYERS)):
        at = f"perceiver_resampler.layers.{layer}"
        for name in ("input_latents_norm", "input_context_norm"):
            yield Scaling(f"{at}.{name}", hidden)
        yield Linear(f"{at}.self_attn.q_proj", hidden, heads * size, bias=False)
        for name in ("k_proj", "v_proj"):
            yield Linear(f"{at}.self_attn.{name}", hidden, kv_heads * size, bias=False)
        yield Linear(f"{at}.self_attn.o_proj", heads * size, hidden, bias=False)
        yield Scaling(f"{at}.post_attention_layernorm", hidden)
        yield from _network(f"{at}.mlp", hidden, 4 * hidden, hidden)
    yield Scaling("perceiver_resampler.norm", hidden)


def _network(at: str, inputs: int, width: int, outputs: int) -> Steps:
    """A gated MLP without biases."""
    for name in ("gate_proj", "up_proj"):
        yield Linear(f"{at}.{name}", inputs, width, bias=False)
    yield Linear(f"{at}.down_proj", width, outputs, bias=False)


def _internvl(whole: Whole) -> Steps:
    ratio = whole.raw.get("downsample_ratio", 0.5)
    if not isinstance(ratio, float) or not 0 < ratio <= 1:
        raise ConfigError(f"downsample_ratio = {format_value(ratio)} must be above 0 and at most 1")
    count = int(1 / ratio) ** 2
    inputs = whole.encoder_hidden * count
    yield from _selected(whole, "default")
    yield Joined(count)
    yield Scaling("layer_norm", inputs, bias=True)
    yield from _mlp(whole, inputs, bias=True)


def _kimi(whole: Whole) -> Steps:
    rows, columns = whole.encoder.config.merge_kernel_size
    inputs = whole.encoder_hidden * rows * columns
    yield Scaling("pre_norm", whole.size("projection_hidden_size", 1152), bias=True)
    yield Joined(rows * columns)
    yield from _two("in_proj", "out_proj", inputs, inputs, whole.text_hidden, True)


def _lfm2(whole: Whole) -> Steps:
    inputs = whole.encoder_hidden * whole.size("downsample_factor", 2) ** 2
    yield from _joined(whole, "downsample_factor")
    if whole.switch("projector_use_layernorm", True):
        yield Scaling("layer_norm", inputs, bias=True)
    width = whole.size("projector_hidden_size", 2560)
    yield from _mlp(whole, inputs, bias=whole.switch("projector_bias", True), between=width)


def _mistral3(whole: Whole) -> Steps:
    yield from _patch_merger(whole)
    yield from _mlp(whole, whole.encoder_hidden * whole.layers, bias=whole.switch("multimodal_projector_bias", False))


def _lighton(whole: Whole) -> Steps:
    yield from _patch_merger(whole)
    yield from _mlp(whole, whole.encoder_hidden, bias=False)


def _patch_merger(whole: Whole) -> Steps:
    """A norm, and a product that joins neighbouring patches."""
    yield Scaling("norm", whole.encoder_hidden)
    inputs = whole.encoder_hidden * whole.size("spatial_merge_size", 2) ** 2
    yield from _joined(whole, "spatial_merge_size")
    yield Linear("patch_merger.merging_layer", inputs, whole.encoder_hidden, bias=False)


def _minimax(whole: Whole) -> Steps:
    width = whole.size("projector_hidden_size", 6144)
    yield from _mlp(whole, whole.encoder_hidden, bias=True, between=width)
    count = _read(whole.encoder, "spatial_merge_size") ** 2
    yield Joined(count)
    yield from _two(
        "merge_linear_1", "merge_linear_2", count * whole.text_hidden, width, whole.text_hidden, True, "merge_act"
    )


def _ernie(whole: Whole) -> Steps:
    joined = whole.encoder_hidden * _read(whole.encoder, "spatial_merge_size") ** 2
    for name, frames in (("spatial_linear", 1), ("temporal_linear", _read(whole.encoder, "temporal_merge_size"))):
        yield from _two(f"{name}.fc1", f"{name}.fc2", joined * frames, joined, joined, True)
        yield Scaling(f"{name}.ln", joined, bias=True)
    yield Linear("mlp", joined, whole.text_hidden)
    yield Scaling("after_norm", whole.text_hidden)


def _phi4(whole: Whole) -> Steps:
    yield from _two(
        "img_projection_up", "img_projection_down", whole.encoder_hidden, whole.text_hidden, whole.text_hidden, True
    )
    for name in ("global_img_feature_extensor", "sub_img_feature_extensor"):
        yield Learned(name, (whole.encoder_hidden,))


def _audio(whole: Whole) -> Steps:
    return _mlp(whole, whole.encoder_hidden, bias=whole.switch("projector_bias", True))


def _voxtral(whole: Whole) -> Steps:
    inputs = _read(whole.encoder, "intermediate_size")
    yield Joined(divide_exactly(inputs, whole.encoder_hidden, "intermediate_size by hidden_size of the encoder"))
    yield from _mlp(whole, inputs, bias=False)


PROJECTORS: Mapping[str, Callable[[Whole], Steps]] = {
    "audioflamingo3": _audio,
    "aya_vision": _aya,
    "cohere2_vision": _cohere2,
    "deepseek_vl": _deepseek_vl,
    "embedding_gemma2": _embedder,
    "ernie4_5_vl_moe": _ernie,
    "gemma3": _gemma3,
    "gemma4": _embedder,
    "hyperclovax_vision_v2": _hyperclovax,
    "idefics2": _idefics2,
    "idefics3": _idefics3,
    "internvl": _internvl,
    "kimi_k25": _kimi,
    "lfm2_vl": _lfm2,
    "lighton_ocr": _lighton,
    "llama4": _llama4,
    "llava": _llava,
    "llava_next": _llava_next,
    "llava_next_video": _llava_next,
    "llava_onevision": _onevision,
    "minimax_m3_vl": _minimax,
    "mistral3": _mistral3,
    "mistral_large4": _mistral3,
    "musicflamingo": _audio,
    "paligemma": _paligemma,
    "phi4_multimodal": _phi4,
    "qwen2_audio": _linear,
    "smolvlm": _idefics3,
    "t5gemma2": _gemma3,
    "vipllava": _vipllava,
    "voxtral": _voxtral,
}
"""By the `model_type` of the whole."""
ROWS_UNKNOWN = frozenset(("ernie4_5_vl_moe", "idefics2", "phi4_multimodal"))
"""Those whose steps are not all of rows alike: their parameters are counted, and not their work."""


class Between(NamedTuple):
    """The projector behind an encoder, None where it has none that is described, and the names of what it includes."""

    part: Projector | NamedTensors | None = None
    names: frozenset[str] = frozenset()


def between(raw: Mapping[str, Any], text: Side, encoder: Side, work: bool) -> Between:
    """The projector between an encoder and a language model, in the config of the whole: its tensors alone, or with the
    `work` that they do, where its rows are known. Raises ConfigError."""
    raw = _embedders.told(_ernie_vl.told(raw))
    model_type = str(raw.get("model_type"))
    row = (AUDIOS if encoder.part == "audio" else VISIONS).get(model_type)
    known = PROJECTORS.keys() - (ROWS_UNKNOWN if work else frozenset())
    if row is None or row.between is None or model_type not in known:
        return Between()
    whole, names = Whole(raw, text, encoder), frozenset((row.between, "perceiver_config"))
    steps = tuple(PROJECTORS[model_type](whole))
    if not work:
        return Between(NamedTensors(tuple(one for one in steps if isinstance(one, Linear | Scaling | Learned))), names)
    merged = encoder.shape.merger is not None
    if merged and any(isinstance(one, Joined) for one in steps):
        return Between()  # of which rows the class joins is not known
    return Between(Projector(steps, merged, whole.layers), names)
