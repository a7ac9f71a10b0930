"""JetMoE, and its mixture of attention."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Self

from tfacct.architecture.parts import Attention, Experts
from tfacct.base.record import record
from tfacct.families.decoder import Decoder, Layer
from tfacct.families.family import ABSENT, submodules
from tfacct.families.fields import PositiveInt, require_even
from tfacct.families.task_heads import CLASSIFYING
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State

EXPERT_TENSORS = {
    "attn.experts.q_proj": "self_attention.experts.input_linear",
    "attn.experts.o_proj": "self_attention.experts.output_linear",
    "mlp.experts.gate_proj": "mlp.input_linear",
    "mlp.experts.up_proj": "mlp.input_linear",
    "mlp.experts.down_proj": "mlp.output_linear",
}


@record(kw_only=True)
class MixtureOfAttention(Attention):
    """Attention whose query and output projections are experts: Zhang et al., "Mixture of Attention Heads" (arXiv
    2210.05144), section 3; Shen et al., "JetMoE" (2404.07413), section 2.2, with the matmuls of transformers'
    JetMoeAttention.

    A router sends each token to `group` of `experts`. Each of these projects the token to one query per key/value head,
    and the result of these queries to the hidden size. The weighted results are summed, and a bias is added. All
    experts share keys and values.
    """

    experts: Size

    mesh_unsupported: ClassVar[str] = "attention with queries from experts"
    axis_names: ClassVar[dict[str, str]] = {**Attention.axis_names, "group": "A", "experts": "E"}
    legend: ClassVar[dict[str, str]] = {
        **{axis: Attention.legend[axis] for axis in "DKH"},
        **{axis: Experts.legend[axis] for axis in "AE"},
        "N": "query heads, K · A",
    }
    made: ClassVar[dict[str, str]] = {"N": "K · A"}
    cases: ClassVar[frozenset[str]] = frozenset("KA")
    at_most: ClassVar[dict[str, str]] = {"A": "E"}
    dealt: ClassVar[str | None] = "E"

    def with_kv_heads(self, kv_heads: Size) -> Self:
        """The part with another number of key/value heads: each expert has one query per key/value head."""
        return replace(self, kv_heads=kv_heads)

    def lines(self, at: str) -> Iterator[Line]:
        """Router, experts' queries, keys and values, QKᵀ and PV, experts' output projections, and both caches."""
        pairs = "B K A T S"
        yield Matmul(f"{at}.router", "B T D, D E -> B T E")
        yield Pointwise(f"{at}.routing", "B T E", kind="softmax")
        yield Matmul(f"{at}.experts.q_proj", "B T A D, D K H -> B T A K H", expert_axis="E")
        for which in "kv":
            yield Matmul(f"{at}.{which}_proj", "B T D, D K H -> B T K H")
        yield Pointwise(f"{at}.q_rotary", "B T N H", kind="rotary")
        yield Pointwise(f"{at}.k_rotary", "B T K H", kind="rotary")
        yield Matmul(f"{at}.scores", f"B T K A H, B S K H -> {pairs}", mask="causal")
        yield Pointwise(f"{at}.softmax", pairs, kind="softmax")
        yield Matmul(f"{at}.values", f"{pairs}, B S K H -> B T K A H", mask="causal")
        yield Matmul(f"{at}.experts.o_proj", "B T A K H, K H D -> B T A D", expert_axis="E")
        yield Pointwise(f"{at}.weighting", "B T A D", kind="weighting")
        yield Pointwise(f"{at}.sum", "B T D", bias="D", kind="sum")
        for which in "kv":
            yield State(f"{at}.{which}_cache", "B S K H")


class JetMoe(Decoder):
    """JetMoE: experts in the MLP, and in attention for the projections of queries and outputs."""

    sizes = dict(vocab=32000, hidden=2048, mlp=5632, layers=12, kv_heads=16, head_dim=128, context=4096)
    defaults = dict(tie_word_embeddings=True)
    num_attention_heads: PositiveInt | None = None  # type: ignore[assignment]  # follows from the next two
    num_experts_per_tok: PositiveInt = 2
    num_local_experts: PositiveInt = 8

    attribute_map = {"kv_channels": "head_dim", "activation_function": "hidden_act"}
    ignored_fields = "aux_loss_coef"
    task_heads = CLASSIFYING
    layer_module_names = {
        **dict.fromkeys(("attn.q_proj", "attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), ABSENT),
        "attn.router": "self_attention.experts.router.layer",
        **submodules("attn", "self_attention", k_proj="kv_proj", v_proj="kv_proj", scores="", values=""),
        "mlp.router": "mlp.router.layer",
        **EXPERT_TENSORS,
    }
    layer_tensor_names = {
        **{f"{name}.weight": f"{hf_name}.weight" for name, hf_name in EXPERT_TENSORS.items()},
        "attn.sum.bias": "self_attention.experts.bias",
        "mlp.sum.bias": "mlp.bias",
    }
    all_layers_have_experts = True
    expert_count, expert_width = "num_local_experts", "intermediate_size"
    experts_options = dict(sum_bias=True)

    def check(self) -> None:
        heads = self.num_key_value_heads * self.num_experts_per_tok
        self.agrees("num_attention_heads", heads, "num_key_value_heads · num_experts_per_tok")

    def attention(self, layer: Layer, **overrides: Any) -> Any:
        return MixtureOfAttention(
            hidden=self.hidden_size,
            kv_heads=self.num_key_value_heads,
            group=self.num_experts_per_tok,
            head_dim=require_even(self.head_dim),
            experts=self.num_local_experts,
            rotary=self.rope(),
        )
