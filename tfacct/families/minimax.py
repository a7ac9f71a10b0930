"""MiniMax-Text-01 and MiniMax-M1: lightning attention in most layers, softmax attention in others, experts."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Attention, Experts, LightningAttention
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Real, even
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._layers import FULL, LayerTypes, kinds_of
from tfacct.families._llama_like import OWN_SHARE, LlamaLike
from tfacct.families.mistral import Window
from tfacct.ledger.einsum import chunks, one_by_one
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD
from tfacct.ledger.workload import Workload

RELEASED = "2025-01"

LINEAR = "linear_attention"
MIXER = "model.layers.*.self_attn"
FACTORS = frozenset(
    f"{part}_{which}_factor" for part in ("full_attn", "linear_attn", "mlp") for which in ("alpha", "beta")
)


class Config(LlamaLike):
    """`MiniMaxConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 32000
    hidden_size: Count = 4096
    intermediate_size: Count = 14336
    num_hidden_layers: Count = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 8
    max_position_embeddings: Count = 131072
    rms_norm_eps: Real = 1e-5
    rope_theta: Real | None = 1_000_000.0
    sliding_window: Window | None = None
    num_local_experts: Count = 8
    num_experts_per_tok: Count = 2
    layer_types: LayerTypes | None = None
    block_size: Count = 256
    full_attn_alpha_factor: Real = 1
    full_attn_beta_factor: Real = 1
    linear_attn_alpha_factor: Real = 1
    linear_attn_beta_factor: Real = 1
    mlp_alpha_factor: Real = 1
    mlp_beta_factor: Real = 1

    stems: ClassVar[tuple[str, ...]] = ("MiniMax",)
    aliases: ClassVar = {"num_experts": "num_local_experts"}
    nulls: ClassVar = {"head_dim": OWN_SHARE["head_dim"]}
    uncounted: ClassVar = LlamaLike.uncounted | FACTORS
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **ROUTED_PATHS,
        "blocks.*.lightning_norm": "model.layers.*.input_layernorm",
        **{f"blocks.*.lightning.{name}_proj": f"{MIXER}.qkv_proj" for name in "qkv"},
        **{
            f"blocks.*.lightning.{name}": MIXER
            for name in ("chunk_scores", "chunk_values", "state_read", "state_write", "read_out")
        },
        "blocks.*.lightning.out_norm": f"{MIXER}.norm",
        "blocks.*.lightning.gate_proj": f"{MIXER}.output_gate",
        "blocks.*.lightning.out_proj": f"{MIXER}.out_proj",
    }
    hf_tensors: ClassVar = ROUTED_TENSORS
    class_extra: ClassVar = (
        "it pads no chunk of lightning attention, and takes tokens behind others one by one, each with a product that "
        "writes"
    )

    def kinds(self) -> list[str]:
        """What each layer has in front of its experts. Raises ConfigError."""
        layers = self.num_hidden_layers
        return kinds_of(self.layer_types, layers, lambda number: LINEAR if number % 2 else FULL, (FULL, LINEAR))

    def of_attention(self) -> dict[str, Any]:
        """What softmax attention has beside its sizes."""
        return {}

    def mixer(self) -> LightningAttention:
        """The mixer of a layer without softmax attention."""
        return LightningAttention(
            hidden=self.hidden_size,
            heads=self.num_attention_heads,
            head_dim=self.head_dim,
            activation=self.activation,
            chunk=self.block_size,
        )

    def architecture(self) -> Transformer:
        """Blocks of two kinds. Raises ConfigError."""
        check_active(self.num_experts_per_tok, self.num_local_experts, ("num_experts_per_tok", "num_local_experts"))
        even(self.head_dim)  # its class makes angles even where no layer uses them
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_local_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            activation=self.activation,
        )
        kinds = self.kinds()
        if self.sliding_window is not None:
            raise self.refused("sliding_window", self.sliding_window)
        parts: dict[str, Attention | LightningAttention] = {}
        if FULL in kinds:
            parts[FULL] = self.attention(**self.of_attention())
        if LINEAR in kinds:
            parts[LINEAR] = self.mixer()
        factors: Mapping[str, tuple[float, float]] = {
            FULL: (self.full_attn_alpha_factor, self.full_attn_beta_factor),
            LINEAR: (self.linear_attn_alpha_factor, self.linear_attn_beta_factor),
        }
        mlp = self.sublayer(experts, self.mlp_alpha_factor, self.mlp_beta_factor)
        blocks = {kind: Block((self.sublayer(part, *factors[kind]), mlp)) for kind, part in parts.items()}
        return self.decoder([blocks[kind] for kind in kinds])

    def sublayer(self, part: Any, stream: float, factor: float) -> Sublayer:
        """A part whose result is added to the norm's."""
        return Sublayer(part, self.norm(), factor=factor, normed=True, stream=stream)

    def class_adds(self, work: Workload) -> Mapping[str, int]:
        """What the class multiplies where it pads no chunk, and where it takes token by token, less what is counted."""
        if LINEAR not in self.kinds():
            return {}
        size, chunk = self.head_dim, self.block_size
        tokens, context = work.tokens, work.context
        counted = chunks(tokens, context, chunk) * (2 * chunk**2 + 2 * chunk * size)
        counted += one_by_one(tokens, context) * size
        run = 2 * tokens * size
        if tokens == context:
            whole, rest = divmod(tokens, chunk)
            run += 2 * (whole * chunk**2 + rest**2)
        more = FLOPS_PER_MULTIPLY_ADD * work.batch * self.num_attention_heads * size * (run - counted)
        return {"blocks.*.lightning.state_read": more}
