"""Mamba-2: no attention; a short convolution, and a recurrence in chunks over a state of fixed size."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Embedding, Head, Mamba2, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, Word
from tfacct.families._endings import DECODER
from tfacct.families._mixing import MAMBA2_EXTRA, mamba2_more, mamba2_paths, mamba2_tensors, passed
from tfacct.ledger.workload import Workload

RELEASED = "2024-05"


class Config(FamilyConfig):
    """`Mamba2Config`, with its class's defaults, sizes too."""

    vocab_size: Count = 32768
    hidden_size: Count = 4096
    num_hidden_layers: Layers = 64
    num_heads: Count = 128
    head_dim: Count = 64
    state_size: Count = 128
    n_groups: Count = 8
    expand: Count = 2
    conv_kernel: Count = 4
    chunk_size: Count = 256
    use_bias: Switch = False
    use_conv_bias: Switch = True
    tie_word_embeddings: Switch = False
    hidden_act: Word = "silu"
    layer_norm_epsilon: Real = 1e-5
    rms_norm: Switch | None = None

    stems: ClassVar = ("Mamba2",)
    uncounted: ClassVar = frozenset({"hidden_act", "layer_norm_epsilon", "rms_norm"})
    harmless: ClassVar = frozenset(
        """
        residual_in_fp32 rescale_prenorm_residual time_step_rank time_step_min time_step_max time_step_floor
        time_step_limit norm_before_gate
        """.split()
    )
    heads: ClassVar = DECODER
    body: ClassVar = "backbone."
    hf_paths: ClassVar = {
        "embed": "backbone.embeddings",
        "blocks.*.mamba_norm": "backbone.layers.*.norm",
        **mamba2_paths("backbone.layers.*.mixer"),
        "final_norm": "backbone.norm_f",
        "lm_head": "lm_head",
    }
    hf_tensors: ClassVar = mamba2_tensors("backbone.layers.*.mixer")
    class_extra: ClassVar = MAMBA2_EXTRA

    @property
    def context(self) -> int:
        """2,048: what the published models were trained with; no field says so, and the recurrence sets no end."""
        return 2048

    def mixer(self) -> Mamba2:
        """The mixer of every layer. Raises ConfigError."""
        inner, wide = self.num_heads * self.head_dim, self.expand * self.hidden_size
        if inner != wide:
            raise ConfigError(f"num_heads · head_dim = {inner:,} contradicts expand · hidden_size = {wide:,}")
        if self.num_heads % self.n_groups:
            raise ConfigError(f"num_heads by n_groups: {self.num_heads:,} is not divisible by {self.n_groups:,}")
        return Mamba2(
            hidden=self.hidden_size,
            groups=self.n_groups,
            group=self.num_heads // self.n_groups,
            head_dim=self.head_dim,
            state=self.state_size,
            kernel=self.conv_kernel,
            chunk=self.chunk_size,
            bias=self.use_bias,
            conv_bias=self.use_conv_bias,
            activation=self.hidden_act,
            eps=self.layer_norm_epsilon,
        )

    def architecture(self) -> Transformer:
        """Equal blocks of one Mamba-2 layer behind an RMSNorm."""
        if self.rms_norm is False:
            raise self.refused("rms_norm", self.rms_norm)
        hidden = self.hidden_size
        norm = Norm(hidden=hidden, kind="rms", eps=self.layer_norm_epsilon)
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            stacks=stacks([Block.of(self.mixer(), norm=norm)] * self.num_hidden_layers),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """The class convolves what it pads, too."""
        return mamba2_more(self.conv_kernel, work)

    def class_adds(self, work: Workload) -> Mapping[str, int]:
        """States passed by a product over all pairs of chunks."""
        return passed(self.mixer(), work)
