"""GLM-5.3-Flash: KDA in three layers of four, latent attention without rotation that an indexer of groups of tokens
chooses for, and several residual streams."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.blocks import Added, Block, Sublayer, stacks
from tfacct.architecture.parts import DeltaNet, Embedding, Head, HyperConnection, HyperHead, LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families import glm_moe_dsa
from tfacct.families._base import Count, Fields, Layers, Real, Switch, UpTo, shown
from tfacct.families._delta_like import FORGET_IN_FILES, KDA_PATHS, KDA_TENSORS, LINEAR, DeltaLike
from tfacct.families._endings import inside
from tfacct.families._experts import beside_shared, check_first_dense
from tfacct.families._indexed import INDEXED
from tfacct.families._layers import FULL, kinds_of_layers
from tfacct.families.deepseek_v4 import LAYER, MIXED_IN_FILES, OF_STREAMS, STREAM_TENSORS
from tfacct.ledger.workload import Workload

RELEASED = "2026-08"

OF_DELTA = {"head_dim": "linear_head_dim", "num_heads": "linear_num_heads"}
OF_DELTA |= {"short_conv_kernel_size": "linear_conv_kernel_dim", "gate_lower_bound": "linear_lower_bound"}
"""Fields of linear_attn_config, and those of the class."""
UNREAD = ("full_attn_layers", "kda_layers", "safe_gate")


def _of_delta(paths: Mapping[str, str]) -> dict[str, str]:
    """What weighs the streams around attention, and around DeltaNet in its place."""
    return {**paths, **{ours.replace(".hc.attn.", ".hc.delta."): theirs for ours, theirs in paths.items()}}


class Config(glm_moe_dsa.Config, DeltaLike):
    """`Glm5NextTextConfig`, with its class's defaults, sizes too."""

    hidden_size: Count = 4096
    num_hidden_layers: Layers = 45
    max_position_embeddings: Count = 1048576
    q_lora_rank: Count = 1536
    qk_nope_head_dim: Count = 256
    qk_rope_head_dim: UpTo = 0
    head_dim: UpTo | None = None  # type: ignore[assignment]  # the rotated part, as the class writes it
    n_routed_experts: Count = 288
    first_k_dense_replace: UpTo | None = None  # type: ignore[assignment]
    index_kpool: Count = 16
    index_kpool_always_select_tail: Switch = True
    linear_head_dim: Count = 128
    linear_num_heads: Count = 64
    linear_conv_kernel_dim: Count = 4
    linear_lower_bound: float | None = -5.0
    linear_attn_config: Fields | None = None
    hc_mult: Count = 4
    hc_sinkhorn_iters: Count = 20
    hc_eps: Real = 1e-6

    stems: ClassVar = ("Glm5Next", "Glm5NextText")
    in_files: ClassVar = (FORGET_IN_FILES, MIXED_IN_FILES)
    heads: ClassVar = inside("Glm5NextForConditionalGeneration", "Glm5NextTextModel")
    fixed: ClassVar = DeltaLike.fixed | {"Gd", "Xf"}
    uncounted: ClassVar = glm_moe_dsa.Config.uncounted | {
        "first_k_dense_replace",
        "index_kpool_always_select_tail",
        "linear_lower_bound",
        "hc_sinkhorn_iters",
        "hc_eps",
    }
    harmless: ClassVar = glm_moe_dsa.Config.harmless | {"swiglu_limit", "norm_topk_prob", "mhc", "index_topk_freq"}
    hf_paths: ClassVar = {
        **glm_moe_dsa.Config.hf_paths,
        **KDA_PATHS,
        "blocks.*.attn.indexer.gate_proj": "model.layers.*.self_attn.indexer",
        **_of_delta(OF_STREAMS),
        **{f"blocks.*.hc.{ours}.mix": LAYER for ours in ("attn", "delta", "mlp")},
    }
    hf_tensors: ClassVar = {
        **glm_moe_dsa.Config.hf_tensors,
        **KDA_TENSORS,
        "blocks.*.attn.indexer.gate_proj.weight": "model.layers.*.self_attn.indexer.index_kpool_compress_gate",
        "blocks.*.attn.indexer.position_bias.bias": "model.layers.*.self_attn.indexer.index_kpool_compress_ape",
        **_of_delta(STREAM_TENSORS),
    }

    @property
    def kernel(self) -> int:
        """Tokens that the convolution sees."""
        return int(self.of_delta("linear_conv_kernel_dim"))

    def of_delta(self, field: str) -> Any:
        """A size of DeltaNet, as linear_attn_config says it, or else the field. Raises ConfigError."""
        name = next(name for name, own in OF_DELTA.items() if own == field)
        said = (self.linear_attn_config or {}).get(name, getattr(self, field))
        whole = isinstance(said, int) and not isinstance(said, bool) and said >= 1
        if field != "linear_lower_bound" and not whole:
            raise ConfigError(f"linear_attn_config.{name} must be a whole number from 1, not {shown(said)}")
        return said

    def kinds(self) -> list[str]:
        """The kind of each layer. Raises ConfigError."""
        layers = self.num_hidden_layers
        if self.layer_types is None:
            return [INDEXED[0] if number % 4 == 3 else LINEAR for number in range(layers)]
        found = kinds_of_layers(self.layer_types, layers, (LINEAR, *INDEXED, FULL))
        return [kind if kind == LINEAR else INDEXED[0] for kind in found]

    def routed(self) -> list[bool]:
        """Booleans, one for each layer: whether it has experts. Raises ConfigError."""
        found = [number >= 3 for number in range(self.num_hidden_layers)]
        found = found if self.mlp_layer_types is None else super().routed()
        check_first_dense(self.first_k_dense_replace, found)
        return found

    def delta(self) -> DeltaNet:
        """DeltaNet with a decay for each channel of a key, which has a floor."""
        heads, size = self.of_delta("linear_num_heads"), self.of_delta("linear_head_dim")
        floor = self.of_delta("linear_lower_bound")
        return self.deltas(
            heads,
            heads,
            key_dim=size,
            value_dim=size,
            rank=size,
            kernel=self.kernel,
            floor=floor,
            gate="sigmoid",
            eps=self.rms_norm_eps,
        )

    def refuse(self) -> None:
        """Refuse what the class does not have. Raises ConfigError."""
        for name in self.linear_attn_config or {}:
            if name not in (*OF_DELTA, *UNREAD):
                raise self.refused(f"linear_attn_config.{name}", (self.linear_attn_config or {})[name])
        if self.qk_rope_head_dim:
            raise self.refused("qk_rope_head_dim", self.qk_rope_head_dim)
        if self.index_topk % self.index_kpool:
            raise ConfigError(
                f"index_topk: {self.index_topk:,} is not divisible by {self.index_kpool:,}, the tokens of a group"
            )

    def chosen(self) -> dict[bool, LatentAttention]:
        """Attention of a layer that chooses keys, and of one that follows."""
        plain = replace(
            self.latent(),
            rotary=None,
            eps=self.rms_norm_eps,
            index_heads=self.index_n_heads,
            index_dim=self.index_head_dim,
        )
        own: dict[str, Any] = {"index_top": self.index_topk, "index_pool": self.index_kpool}
        own["index_tail"] = self.index_kpool_always_select_tail
        return {chooses: replace(plain, **own, follows=not chooses) for chooses in (True, False)}

    def mixers(self) -> list[DeltaNet | LatentAttention]:
        """DeltaNet or attention of each layer. Raises ConfigError where none chose what one reads."""
        delta, attentions = self.delta(), self.chosen()
        found: list[DeltaNet | LatentAttention] = []
        chooses = self.listed()
        if len(chooses) < self.num_hidden_layers:
            raise ConfigError(
                f"indexers of {len(chooses):,} layers, and num_hidden_layers is {self.num_hidden_layers:,}"
            )
        kinds = self.kinds()
        for number, kind in enumerate(kinds):
            before = number and kinds[number - 1] != LINEAR and chooses[number - 1]
            if kind != LINEAR and not chooses[number] and not before:
                raise ConfigError(f"layer {number} reads keys that the layer before it chose, and that has no indexer")
            found.append(delta if kind == LINEAR else attentions[chooses[number]])
        return found

    def architecture(self) -> Transformer:
        """DeltaNet or attention and a network in each layer, between several streams and their mean."""
        self.refuse()
        how: dict[str, Any] = {"hidden": self.hidden_size, "streams": self.hc_mult, "eps": self.hc_eps}
        how["norm_eps"] = self.rms_norm_eps
        hyper, norm = HyperConnection(**how, rounds=self.hc_sinkhorn_iters), self.norm()
        experts = beside_shared(self, self.n_routed_experts, self.n_shared_experts)
        networks: dict[bool, Added] = {True: experts, False: self.feed_forward()}
        made: dict[tuple[int, bool], Block] = {}
        per_layer = list(zip(self.mixers(), self.routed(), strict=True))
        for mixer, routed in per_layer:
            if (id(mixer), routed) not in made:
                made[id(mixer), routed] = Block((Sublayer(mixer, norm), Sublayer(networks[routed], norm)), hyper=hyper)
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=self.hidden_size),
            stacks=stacks([made[id(mixer), routed] for mixer, routed in per_layer]),
            hyper=HyperHead(**how, weighs=False),
            final_norm=norm,
            head=Head(hidden=self.hidden_size, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )

    def class_cannot(self) -> str | None:
        """Reason why the class cannot be asked."""
        return glm_moe_dsa.Config.class_cannot(self) or DeltaLike.class_cannot(self)

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """The class convolves what it pads, too."""
        return DeltaLike.class_runs_more(self, work)
