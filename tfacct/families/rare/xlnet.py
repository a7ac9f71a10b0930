"""XLNet, its relative attention, and its embedding."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention, Embedding, Head, Pooler
from tfacct.architecture.parts.attention import DIRECTIONS
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.families.bert import CLASSES, BertLike
from tfacct.families.family import ABSENT, attention_modules, mlp_modules, submodules
from tfacct.families.fields import LayerCount, NonNegativeInt, PositiveFloat, PositiveInt, StrictBool, StrictStr
from tfacct.families.task_heads import BODY, CAUSAL_MODEL, SCORED, TOKENS_CLASSIFIED
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD, Line, Matmul, Pointwise, Table, Unused
from tfacct.ledger.workload import Workload


@record(kw_only=True)
class RelativeAttention(Attention):
    """Relative attention: Dai et al., "Transformer-XL" (arXiv 1901.02860), section 3.3, and "XLNet" (1906.08237), with
    the matmuls of transformers' XLNetRelativeAttention.

    Queries plus one learned vector per head are multiplied with the keys of tokens, and queries plus another one with
    the keys of distances: projections of sines and cosines, two per token, recomputed in each layer. Segment embeddings
    are stored, but not read without segments.
    """

    mesh_unsupported: ClassVar[str] = "attention with relative-position score matmuls"
    legend: ClassVar[dict[str, str]] = {
        **{axis: Attention.legend[axis] for axis in "DNKGH"},
        "Xd": DIRECTIONS,
        "Vt": "segments of a pair, 2",
    }

    def derived(self) -> dict[str, str]:
        """Query heads, both directions of a distance, and both texts of a pair."""
        return self.made | {"Xd": "2", "Vt": "2"}

    def _query_key_lines(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.r_proj", "B Xd S D, D N H -> B Xd S N H")
        yield Pointwise(f"{at}.content", "B T N H", bias="N H", kind="sum")
        yield Pointwise(f"{at}.position", "B T N H", bias="N H", kind="sum")
        yield Table(f"{at}.segments", "Vt N H", embedding=False)
        yield Unused(Pointwise(f"{at}.segment", "B T N H", bias="N H", kind="sum"))

    def _score_lines(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}.positions", "B T N H, B Xd S N H -> B N T Xd S")
        yield Pointwise(f"{at}.position_add", "B K G T S", kind="sum")
        yield from Attention._score_lines(self, at)


@record(kw_only=True)
class MaskedEmbedding(Embedding):
    """Token embedding with an additional row for masked tokens, which is stored but not read here (XLNetModel)."""

    def lines(self, at: str) -> Iterator[Line]:
        """The embedding, and the additional row."""
        yield from Embedding.lines(self, at)
        yield Unused(Pointwise(f"{at}.mask", "B T D", weight="D"))


class XLNet(BertLike):
    """XLNet: post-norm layers like BERT's; attention also scores distances, by projections of sines and cosines."""

    defaults = dict(vocab_size=32000)
    d_model: PositiveInt = 1024
    n_layer: LayerCount = 24
    n_head: PositiveInt = 16
    d_inner: PositiveInt = 4096
    d_head: PositiveInt | None = None
    ff_activation: StrictStr = "gelu"
    layer_norm_eps: PositiveFloat = 1e-12
    attn_type: StrictStr = "bi"
    bi_data: StrictBool = False
    clamp_len: int = -1
    mem_len: NonNegativeInt | None = 512
    summary_type: StrictStr = "last"
    summary_use_proj: StrictBool = True
    summary_activation: StrictStr | None = "tanh"

    intermediate_size = property(lambda self: self.d_inner)
    hidden_act = property(lambda self: self.ff_activation)
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
        "n_token": "vocab_size",
    }
    required_values = {"attn_type": "bi", "bi_data": False}
    reference_only = "clamp_len mem_len summary_use_proj"
    ignored_fields = """same_length reuse_len use_mems_eval use_mems_train untie_r init init_range
        summary_last_dropout start_n_top end_n_top ff_inner"""
    constant_axes = frozenset({"G", "Xd", "Vt"})
    norm_after_embeddings = False
    hf_no_cache = True
    hf_extra_note = "with one token, its values are not a matmul"
    task_heads = {
        "LMHeadModel": replace(CAUSAL_MODEL, gives=False),
        "Model": BODY,
        CLASSES: replace(
            SCORED,
            pooler=True,
            bias=True,
            paths={"pooler": "sequence_summary.summary", "classifier": "logits_proj"},
            gives=False,
            picks=False,
        ),
        "ForTokenClassification": TOKENS_CLASSIFIED,
    }
    base_model_prefix = "transformer"
    layer_path = ".layer.*"
    module_names = {
        **dict.fromkeys(("pos_embed", "type_embed", "embed_norm"), ABSENT),
        "embed": ".word_embedding",
        "lm_head": "lm_loss",
    }
    layer_module_names = {
        **attention_modules("rel_attn", "", "", "", ""),
        **submodules("attn", "rel_attn", r_proj="", positions=""),
        **mlp_modules("ff", "layer_1", "layer_2", None),
        "attn_norm": "rel_attn.layer_norm",
        "mlp_norm": "ff.layer_norm",
    }
    tensor_names = {"embed.mask.weight": ".mask_emb"}
    layer_tensor_names = {
        **{f"attn.{name}_proj.weight": f"rel_attn.{name}" for name in "qkvor"},
        "attn.segment.bias": "rel_attn.r_s_bias",
        "attn.content.bias": "rel_attn.r_w_bias",
        "attn.position.bias": "rel_attn.r_r_bias",
        "attn.segments.weight": "rel_attn.seg_embed",
    }
    transposed_weights = tuple(f"blocks.*.attn.{name}_proj" for name in "qkvr")
    context = 512  # training context of the published models

    def check(self) -> None:
        if self.task_head.head == "classes" and self.task_head.pooler:
            self.require({"summary_type": "last", "summary_use_proj": True})
        if self.d_model % 2:
            raise ConfigError(f"d_model = {self.d_model:,} is odd: half of it are sines of a distance, half cosines")
        super().check()

    def attention(self, **overrides: Any) -> RelativeAttention:
        """Without biases on the projections. Raises ConfigError."""
        size = self.head_dim
        self.require_if_given({"d_head": size})
        return RelativeAttention(hidden=self.d_model, kv_heads=self.n_head, group=1, head_dim=size, causal=False)

    def embedding(self) -> Embedding:
        return MaskedEmbedding.of(super().embedding())

    def positions(self) -> None:
        return

    def head(self) -> Head:
        return Head(hidden=self.d_model, vocab=self.vocab_size, tied=True, bias=True)

    def pooler(self, hidden: Any) -> Pooler:
        """Projection of the last token before a classifier of sequences."""
        return Pooler(hidden=hidden, reads="end", activation=self.summary_activation or "linear")

    def hf_extra_flops(self, work: Workload) -> Mapping[str, int]:
        """The class multiplies values elementwise if there is one key."""
        if work.context > 1:
            return {}
        return {"blocks.*.attn.values": -FLOPS_PER_MULTIPLY_ADD * work.batch * self.d_model}
