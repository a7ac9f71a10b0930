"""Mamba: no attention; each block is a short convolution and a recurrence over a state of fixed size."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationInfo

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Embedding, Head, Mamba, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.base.complaints import shown
from tfacct.base.errors import ConfigError
from tfacct.base.spelling import setting
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, Word
from tfacct.families._endings import DECODER
from tfacct.families._mixing import convolved_more
from tfacct.ledger.workload import Workload

RELEASED = "2023-12"

AUTO = "auto"
"""A rank of a sixteenth of the hidden size, rounded up."""


def _rank(given: object, info: ValidationInfo) -> object:
    """A number, or `auto`. Raises ConfigError."""
    if given == AUTO or (isinstance(given, int) and not isinstance(given, bool) and given >= 1):
        return given
    raise ConfigError(f'{info.field_name} must be a whole number from 1 or "auto", not {shown(given)}')


Rank = Annotated[Count | str, BeforeValidator(_rank)]


def ranked(given: int | str, hidden: int) -> int:
    """A rank; auto is a sixteenth of the hidden size, rounded up."""
    return given if isinstance(given, int) else -(-hidden // 16)


class Config(FamilyConfig):
    """`MambaConfig`, with its class's defaults. The head is tied unless the config says otherwise."""

    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Layers
    state_size: Count = 16
    expand: Count = 2
    intermediate_size: Count = Field(default_factory=lambda fields: fields["expand"] * fields["hidden_size"])
    conv_kernel: Count = 4
    time_step_rank: Rank = AUTO
    use_bias: Switch = False
    use_conv_bias: Switch = True
    tie_word_embeddings: Switch = True
    hidden_act: Word = "silu"
    layer_norm_epsilon: Real = 1e-5
    rms_norm: Switch | None = None
    pad_vocab_size_multiple: Count | None = None

    stems: ClassVar = ("Mamba",)
    uncounted: ClassVar = frozenset({"hidden_act", "layer_norm_epsilon", "rms_norm", "pad_vocab_size_multiple"})
    harmless: ClassVar = frozenset(
        """
        residual_in_fp32 rescale_prenorm_residual time_step_scale time_step_min time_step_max time_step_floor
        time_step_init_scheme use_mambapy use_associative_scan fused_add_norm
        """.split()
    )
    heads: ClassVar = DECODER
    body: ClassVar = "backbone."
    hf_paths: ClassVar = {
        "embed": "backbone.embeddings",
        "blocks.*.mamba_norm": "backbone.layers.*.norm",
        "blocks.*.mamba.in_proj": "backbone.layers.*.mixer.in_proj",
        "blocks.*.mamba.conv": "backbone.layers.*.mixer",
        "blocks.*.mamba.x_proj": "backbone.layers.*.mixer.x_proj",
        "blocks.*.mamba.dt_proj": "backbone.layers.*.mixer",
        "blocks.*.mamba.read_out": "backbone.layers.*.mixer",
        "blocks.*.mamba.out_proj": "backbone.layers.*.mixer.out_proj",
        "final_norm": "backbone.norm_f",
        "lm_head": "lm_head",
    }
    hf_tensors: ClassVar = {
        "blocks.*.mamba.conv.weight": "backbone.layers.*.mixer.conv1d.weight",
        "blocks.*.mamba.conv.bias": "backbone.layers.*.mixer.conv1d.bias",
        "blocks.*.mamba.dt_proj.weight": "backbone.layers.*.mixer.dt_proj.weight",
        "blocks.*.mamba.dt_proj.bias": "backbone.layers.*.mixer.dt_proj.bias",
        "blocks.*.mamba.recurrence.weight": "backbone.layers.*.mixer.A_log",
        "blocks.*.mamba.skip.weight": "backbone.layers.*.mixer.D",
    }
    class_extra: ClassVar = "it convolves more positions than there are new tokens, and drops what it padded"
    class_chunks: ClassVar = "its recurrence starts from zero in a chunk after a past"

    @property
    def context(self) -> int:
        """2,048: what the published models were trained with; no field says so, and the recurrence sets no end."""
        return 2048

    @property
    def rank(self) -> int:
        """time_step_rank; auto is a sixteenth of the hidden size, rounded up."""
        return ranked(self.time_step_rank, self.hidden_size)

    def architecture(self) -> Transformer:
        """Equal blocks of one Mamba layer behind an RMSNorm."""
        self._check_repeated()
        hidden = self.hidden_size
        norm = Norm(hidden=hidden, kind="rms", eps=self.layer_norm_epsilon)
        mamba = Mamba(
            hidden=hidden,
            inner=self.intermediate_size,
            state=self.state_size,
            kernel=self.conv_kernel,
            rank=self.rank,
            bias=self.use_bias,
            conv_bias=self.use_conv_bias,
            activation=self.hidden_act,
            **self._of_mixer(),
        )
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            stacks=stacks([Block.of(mamba, norm=norm)] * self.num_hidden_layers),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """The class convolves what it pads, too."""
        return {"blocks.*.mamba.conv": convolved_more(self.conv_kernel, work.tokens, work.context)}

    def _of_mixer(self) -> dict[str, Any]:
        """What a relative has beside Mamba's sizes."""
        return {}

    def _check_width(self) -> None:
        """Refuse a width that is given twice with different values."""
        wide = self.expand * self.hidden_size
        default = type(self).model_fields["expand"].default  # which the class writes beside any width
        if self.expand != default and "intermediate_size" in self.model_fields_set and self.intermediate_size != wide:
            raise ConfigError(
                f"intermediate_size = {self.intermediate_size:,} contradicts expand · hidden_size = {wide:,}",
                f"drop one: {setting('intermediate_size')} takes expand",
            )

    def _check_repeated(self) -> None:
        self._check_width()
        if self.vocab_size % (self.pad_vocab_size_multiple or 1):
            raise ConfigError(
                f"vocab_size = {self.vocab_size:,} is not a multiple of pad_vocab_size_multiple ="
                f" {self.pad_vocab_size_multiple:,}: the stored table has more rows",
                "give vocab_size as it is stored, rounded up",
            )
        if self.rms_norm is False:
            raise self.refused("rms_norm", self.rms_norm)
