"""Zamba2: Mamba-2 in every layer; in some, a transformer block in front of it, whose weights those layers share."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Attention, FeedForward, Mamba2, Norm, SharedOutput
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Real, Switch, UpTo, Word, share
from tfacct.families._endings import CLASSIFYING
from tfacct.families._layers import LayerTypes
from tfacct.families._llama_like import LlamaLike
from tfacct.families._mixing import MAMBA2_EXTRA, mamba2_more, mamba2_paths, mamba2_tensors, passed
from tfacct.families._zamba_like import HYBRID, MAMBA, ZambaLike, head_dim_from
from tfacct.ledger.workload import Workload

RELEASED = "2024-11"

DEFAULT_KINDS = [HYBRID if number in (6, 12, 18, 24, 30, 36, 42, 47, 51) else MAMBA for number in range(54)]
LONG = 16_384
"""Positions with use_long_context."""
LAYER = "model.layers.*"
BLOCK = f"{LAYER}.shared_transformer"


def width_from(fields: dict[str, Any]) -> int:
    """4 · hidden_size."""
    width: int = 4 * fields["hidden_size"]
    return width


def heads_from(fields: dict[str, Any]) -> int:
    """As many key heads as query heads."""
    heads: int = fields["num_attention_heads"]
    return heads


class Config(ZambaLike):
    """`Zamba2Config`, with its class's defaults, sizes too."""

    vocab_size: Count = 32000
    hidden_size: Count = 2560
    num_hidden_layers: Layers = 54
    num_attention_heads: Count = 32
    num_key_value_heads: Count = Field(default_factory=heads_from)
    intermediate_size: Count = Field(default_factory=width_from)
    head_dim: Count = Field(default_factory=head_dim_from)
    attention_hidden_size: Count | None = None
    max_position_embeddings: Count = 4096
    use_long_context: Switch = False
    tie_word_embeddings: Switch = True
    hidden_act: Word = "gelu"
    rms_norm_eps: Real = 1e-5
    layers_block_type: LayerTypes | None = None
    hybrid_layer_ids: list[UpTo] | None = None
    num_mem_blocks: Count = 1
    adapter_rank: Count = 128
    use_shared_attention_adapter: Switch = False
    use_mem_rope: Switch = False
    add_bias_linear: Switch = False
    n_mamba_heads: Count = 8
    mamba_headdim: Count | None = None
    mamba_ngroups: Count = 1
    mamba_d_state: Count = 64
    mamba_d_conv: Count = 4
    mamba_expand: Count = 2
    chunk_size: Count = 256
    time_step_min: Real = 0.001

    stems: ClassVar = ("Zamba2",)
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}
    aliases: ClassVar = {"layer_types": "layers_block_type", "attention_head_dim": "head_dim"}
    uncounted: ClassVar = LlamaLike.uncounted | {"time_step_min", "use_mem_rope"}
    harmless: ClassVar = frozenset(
        """
        kv_channels num_query_groups num_logits_to_keep time_step_floor time_step_max use_conv_bias use_mamba_kernels
        use_mem_eff_path
        """.split()
    )
    heads: ClassVar = CLASSIFYING
    hf_paths: ClassVar = {
        "embed": "model.embed_tokens",
        "blocks.*.attn_norm": f"{BLOCK}.input_layernorm",
        **{f"blocks.*.attn.{name}_proj": f"{BLOCK}.self_attn.{name}_proj" for name in "qkvo"},
        "blocks.*.attn.scores": f"{BLOCK}.self_attn",
        "blocks.*.attn.values": f"{BLOCK}.self_attn",
        "blocks.*.mlp_norm": f"{BLOCK}.pre_ff_layernorm",
        **{f"blocks.*.mlp.{name}_proj": f"{BLOCK}.feed_forward.gate_up_proj" for name in ("gate", "up")},
        "blocks.*.mlp.down_proj": f"{BLOCK}.feed_forward.down_proj",
        "blocks.*.shared_out.proj": f"{LAYER}.linear",
        "blocks.*.mamba_norm": f"{LAYER}.input_layernorm",
        **mamba2_paths(f"{LAYER}.mamba"),
        "final_norm": "model.final_layernorm",
        "lm_head": "lm_head",
    }
    hf_tensors: ClassVar[Mapping[str, str]] = mamba2_tensors(f"{LAYER}.mamba")
    class_extra: ClassVar = MAMBA2_EXTRA

    @property
    def context(self) -> int:
        """max_position_embeddings, or what the class puts in its place for long contexts."""
        return LONG if self.use_long_context else self.max_position_embeddings

    def listed(self) -> list[str]:
        """layers_block_type, by default the class's."""
        return DEFAULT_KINDS if self.layers_block_type is None else self.layers_block_type

    def kinds(self) -> list[str]:
        """What each layer is. Raises ConfigError."""
        kinds = super().kinds()
        if self.hybrid_layer_ids not in (None, hybrid := [n for n, kind in enumerate(kinds) if kind == HYBRID]):
            raise ConfigError(
                f"hybrid_layer_ids = {self.hybrid_layer_ids} contradicts layers_block_type, by which they are {hybrid}"
            )
        return kinds

    def turns(self) -> list[list[int]]:
        """Numbers of the layers that call each shared block, by turns."""
        calls = self.calls()
        return [calls[first :: self.num_mem_blocks] for first in range(min(self.num_mem_blocks, len(calls)))]

    def mixer(self) -> Mamba2:
        """The mixer of every layer. Raises ConfigError."""
        inner = self.mamba_expand * self.hidden_size
        size = share(inner, self.n_mamba_heads, "mamba_expand · hidden_size by n_mamba_heads")
        if self.mamba_headdim not in (None, size):
            raise ConfigError(
                f"mamba_headdim = {self.mamba_headdim:,} contradicts mamba_expand · hidden_size / n_mamba_heads ="
                f" {size:,}"
            )
        return Mamba2(
            hidden=self.hidden_size,
            groups=self.mamba_ngroups,
            group=share(self.n_mamba_heads, self.mamba_ngroups, "n_mamba_heads by mamba_ngroups"),
            head_dim=size,
            state=self.mamba_d_state,
            kernel=self.mamba_d_conv,
            chunk=self.chunk_size,
            bias=self.add_bias_linear,
            least_step=self.time_step_min,
        )

    def attention(self, **own: Any) -> Attention:
        """Attention of a shared block. Raises ConfigError."""
        adapted = self.use_shared_attention_adapter
        if adapted and self.num_key_value_heads != self.num_attention_heads:
            raise self.refused("num_key_value_heads", self.num_key_value_heads)
        return self.of_both(
            self.attention_hidden_size,
            rotary=self.rotary() if self.use_mem_rope else None,
            adapter=self.adapter_rank if adapted else None,
            **own,
        )

    def hybrid(self) -> Block:
        """A layer with a shared block in front of Mamba-2."""
        both = Norm(hidden=self.hidden_size, kind="rms", eps=self.rms_norm_eps, joined=True)
        network = FeedForward(
            hidden=self.hidden_size,
            width=self.intermediate_size,
            gated=True,
            bias=self.add_bias_linear,
            activation=self.hidden_act,
            adapter=self.adapter_rank,
        )
        return Block(
            (
                Sublayer(self.attention(), both, gives="next"),
                Sublayer(network, self.norm(), gives="next"),
                Sublayer(SharedOutput(hidden=self.hidden_size), gives="sum"),
                Sublayer(self.mixer(), self.norm()),
            )
        )

    def class_paths(self) -> Mapping[str, str]:
        """Hybrid layers have their mixer elsewhere, and an adapter goes by the number of its call."""
        table = dict(self.hf_paths)
        for call, number in enumerate(self.calls()):
            layer = f"model.layers.{number}"
            for ours, theirs in mamba2_paths(f"{layer}.mamba_decoder.mamba").items():
                table[ours.replace("*", str(number))] = theirs
            table[f"blocks.{number}.mamba_norm"] = f"{layer}.mamba_decoder.input_layernorm"
            table |= _adapters(number, call, f"{layer}.shared_transformer")
        return table

    def tensors(self) -> dict[str, str]:
        """The same; an adapter is stored in the first layer that uses its block."""
        table, calls = dict(self.hf_tensors), self.calls()
        for call, number in enumerate(calls):
            for ours, theirs in mamba2_tensors(f"model.layers.{number}.mamba_decoder.mamba").items():
                table[ours.replace("*", str(number))] = theirs
            owner = f"model.layers.{calls[call % self.num_mem_blocks]}.shared_transformer"
            adapters = _adapters(number, call, owner).items()
            table |= {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in adapters}
        return self.ending.renamed(table, self.body)

    def class_cannot(self) -> str | None:
        """It needs a layer with attention, whose cache tells it how many tokens came before."""
        return None if self.calls() else "it does not run without a layer that has attention"

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """The class convolves what it pads, too."""
        return mamba2_more(self.mamba_d_conv, work)

    def class_adds(self, work: Workload) -> Mapping[str, int]:
        """States passed by a product over all pairs of chunks."""
        return passed(self.mixer(), work)


def _adapters(number: int, call: int, block: str) -> dict[str, str]:
    """Modules of one call's adapters, ours → the class's, which has them in a list in the block."""
    found = {}
    for name in "qkv":
        for place, which in enumerate(("down", "up")):
            theirs = f"{block}.self_attn.linear_{name}_adapter_list.{call}.{place}"
            found[f"blocks.{number}.attn.{name}_adapter_{which}"] = theirs
    network = f"{block}.feed_forward.gate_up_proj_adapter_list.{call}"
    found[f"blocks.{number}.mlp.adapter_down"] = f"{network}.0"
    return found | {f"blocks.{number}.mlp.{which}_adapter_up": f"{network}.1" for which in ("gate", "up")}
