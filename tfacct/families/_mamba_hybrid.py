"""Shared by Bamba, Granite 4.0 and Falcon-H1: Mamba-2 and attention, each in layers of its own or both in one, with
fields of the same names."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from tfacct.architecture.parts import Mamba2
from tfacct.base.complaints import shown
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Switch, share
from tfacct.families._llama_like import LlamaLike
from tfacct.families._mixing import MAMBA2_EXTRA, mamba2_more, mamba2_paths, mamba2_tensors, passed
from tfacct.ledger.workload import Workload

AUTO = "auto"
MAMBA, FULL = "linear_attention", "full_attention"
OLDER = {"mamba": MAMBA, "attention": FULL, "hybrid": FULL}
"""Kinds of layers as older files name them."""


def _size(given: object) -> object:
    """A number, or `auto`. Raises ConfigError."""
    if given == AUTO or (isinstance(given, int) and not isinstance(given, bool) and given >= 1):
        return given
    raise ConfigError(f'mamba_d_head must be a whole number from 1 or "auto", not {shown(given)}')


HeadSize = Annotated[Count | str, BeforeValidator(_size)]


class MambaHybrid(LlamaLike):
    """The fields of Mamba-2 that all spell alike, with their classes' defaults."""

    mamba_n_heads: Count = 128
    mamba_d_head: HeadSize = AUTO
    mamba_n_groups: Count = 1
    mamba_d_state: Count = 256
    mamba_d_conv: Count = 4
    mamba_expand: Count = 2
    mamba_chunk_size: Count = 256
    mamba_conv_bias: Switch = True
    mamba_proj_bias: Switch = False

    harmless: ClassVar = frozenset({"num_logits_to_keep", "z_loss_coefficient", "time_step_limit", "use_mamba_kernels"})
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        "blocks.*.mamba_norm": "model.layers.*.input_layernorm",
        **mamba2_paths("model.layers.*.mamba"),
    }
    hf_tensors: ClassVar[Mapping[str, str]] = mamba2_tensors("model.layers.*.mamba")
    class_extra: ClassVar = MAMBA2_EXTRA

    def mixer(self) -> Mamba2:
        """The mixer of a layer without attention. Raises ConfigError."""
        heads, (wide, named) = self.mamba_n_heads, self.width()
        even = share(wide, heads, f"{named} by mamba_n_heads")
        if self.mamba_d_head not in (AUTO, even):
            raise ConfigError(
                f"mamba_n_heads · mamba_d_head = {heads:,} · {self.mamba_d_head:,} contradicts {named} = {wide:,}"
            )
        return Mamba2(
            hidden=self.hidden_size,
            groups=self.mamba_n_groups,
            group=share(heads, self.mamba_n_groups, "mamba_n_heads by mamba_n_groups"),
            head_dim=even,
            state=self.mamba_d_state,
            kernel=self.mamba_d_conv,
            chunk=self.mamba_chunk_size,
            bias=self.mamba_proj_bias,
            conv_bias=self.mamba_conv_bias,
            **self.of_mixer(),
        )

    def width(self) -> tuple[int, str]:
        """Number of channels of all heads, and the fields that say it."""
        return self.mamba_expand * self.hidden_size, "mamba_expand · hidden_size"

    def of_mixer(self) -> dict[str, Any]:
        """What a family says of its mixer beside the sizes."""
        return {"activation": self.hidden_act, "eps": self.rms_norm_eps}

    def kinds(self) -> list[str]:
        """What each layer has in front of its network."""
        raise NotImplementedError

    def class_cannot(self) -> str | None:
        """It needs a layer with attention, whose cache tells it how many tokens came before."""
        return None if self.transformer().attentions else "it does not run without a layer that has attention"

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """The class convolves what it pads, too."""
        return mamba2_more(self.mamba_d_conv, work)

    def class_adds(self, work: Workload) -> Mapping[str, int]:
        """States passed by a product over all pairs of chunks."""
        return passed(self.mixer(), work)
