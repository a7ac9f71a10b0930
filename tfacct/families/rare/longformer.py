"""Longformer, and the sliding-chunk attention that it shares with LED."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.blocks import Block, Stack, stacks
from tfacct.architecture.parts import Attention
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.families.bert import ENCODING, Roberta
from tfacct.families.family import submodules
from tfacct.families.fields import PositiveIntOrList
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import FULL_WINDOW, HALF, LONGEST, Line, Matmul, Pointwise, Unused
from tfacct.ledger.workload import HALVES, OVERLAPPING


@record(kw_only=True)
class SlidingChunkAttention(Attention):
    """Sliding-chunk attention of an encoder: Beltagy et al., "Longformer" (arXiv 2004.05150), section 3.1, with the
    matmuls of transformers' LEDEncoderSelfAttention.

    Each token attends to a window around it, `half` of it on either side. Scores are computed in windows of two halves,
    each of which overlaps the next by a half; the queries of one half then read the values of three. The text is padded
    to a multiple of `longest`, the longest window of any layer. Global tokens have separate query, key and value
    projections, which never run here.
    """

    half: Size
    longest: Size

    mesh_unsupported: ClassVar[str] = "attention in windows that overlap"
    axis_names: ClassVar[dict[str, str]] = {**Attention.axis_names, "half": HALF, "longest": LONGEST}
    legend: ClassVar[dict[str, str]] = {
        **{axis: Attention.legend[axis] for axis in "DNKGH"},
        HALF: "half of an overlapping window",
        FULL_WINDOW: f"tokens of such a window, 2 · {HALF}",
        "Wg": f"the same tokens, as keys, 2 · {HALF}",
        "Wv": f"values that half a window reads, 3 · {HALF}",
        "Ws": f"scores of a query, 2 · {HALF} + 1",
        LONGEST: "tokens of the longest window; texts are padded to a multiple of it",
    }
    windows: ClassVar[dict[str, str]] = {
        FULL_WINDOW: f"2 · {HALF}", "Wg": f"2 · {HALF}", "Wv": f"3 · {HALF}", "Ws": f"2 · {HALF} + 1"
    }  # fmt: skip

    @property
    def padded_to(self) -> Size:
        """Tokens of the longest window."""
        return self.longest

    def derived(self) -> dict[str, str]:
        """Query heads, and sizes of windows."""
        return self.made | self.windows

    def lines(self, at: str) -> Iterator[Line]:
        """Four projections, QKᵀ in windows, PV in halves of them, and three projections that never run."""
        sizes = {"q": "N H", "k": "K H", "v": "K H"}
        pairs, window = f"{FULL_WINDOW} Wg", f"B {OVERLAPPING}"
        for which, size in sizes.items():
            yield Matmul(f"{at}.{which}_proj", f"B T D, D {size} -> B T {size}", bias=self.qkv_bias)
        yield Matmul(f"{at}.scores", f"{window} {FULL_WINDOW} K G H, {window} Wg K H -> B K G {OVERLAPPING} {pairs}")
        yield Pointwise(f"{at}.softmax", "B K G T Ws", kind="softmax")
        yield Matmul(f"{at}.values", f"B K G {HALVES} {HALF} Wv, B {HALVES} Wv K H -> B {HALVES} {HALF} K G H")
        yield Matmul(f"{at}.o_proj", "B T N H, N H D -> B T D", bias=self.out_bias)
        for which, size in sizes.items():
            yield Unused(Matmul(f"{at}.{which}_global_proj", f"B T D, D {size} -> B T {size}", bias=self.qkv_bias))


def chunk_attention_modules(module: str) -> dict[str, str]:
    """Modules of attention except the output projection; global tokens have separate projections."""
    names = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "scores": "", "values": ""}
    of_global = {"q_global_proj": "query_global", "k_global_proj": "key_global", "v_global_proj": "value_global"}
    return submodules("attn", module, **names, **of_global)


def window_sizes(attention_window: int | list[int], layers: int, field: str, padded: str) -> list[int]:
    """The window of each layer; `field` has the number of layers, `padded` is what is padded. Raises ConfigError."""
    windows = attention_window if isinstance(attention_window, list) else [attention_window] * layers
    if len(windows) != layers:
        raise ConfigError(f"attention_window has {len(windows)} entries for {field} = {layers:,}")
    longest = max(windows)
    for window in windows:
        if window % 2:
            raise ConfigError(f"attention_window = {window:,} must be even: half of it is on each side of a token")
        if window == 2:
            raise ConfigError("attention_window = 2: the class needs at least 4")
        if longest % window:
            raise ConfigError(
                f"attention_window has {window:,} and {longest:,}: {padded} is padded to a multiple of the longest"
                " window, which must be a multiple of the others"
            )
    return windows


def with_windows(block: Block, windows: Sequence[int]) -> tuple[Stack, ...]:
    """Layers like this one, with attention in these windows."""
    attention, *others = block.sublayers

    def windowed(window: int) -> Block:
        part = SlidingChunkAttention.of(attention.part, half=window // 2, longest=max(windows))
        return replace(block, sublayers=(replace(attention, part=part), *others))

    blocks = {window: windowed(window) for window in windows}
    return stacks([blocks[window] for window in windows])


class Longformer(Roberta):
    """Longformer: RoBERTa's encoder with overlapping attention windows, over texts padded to whole windows."""

    sizes = dict(vocab=30522)
    attention_window: PositiveIntOrList = 512
    ignored_fields = "attention_mode ignore_attention_mask onnx_export"
    task_heads = {name: ENCODING[name] for name in ("ForMaskedLM", "Model", "ForTokenClassification")}
    base_model_prefix = "longformer"
    layer_module_names = chunk_attention_modules("attention.self")

    def architecture(self) -> Transformer:
        windows = window_sizes(self.attention_window, self.num_hidden_layers, "num_hidden_layers", "a text")
        model = super().architecture()
        return replace(model, stacks=with_windows(model.stacks[0].block, windows))
