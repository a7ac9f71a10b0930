"""Zamba, and its Mamba with heads."""

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts import Mamba, Mixer
from tfacct.architecture.parts.part import STATE_BITS
from tfacct.base.record import record
from tfacct.families.fields import NonNegativeInt, PositiveInt, StrictBool, StrictStr, divide_exactly
from tfacct.families.mamba import (
    AUTO,
    HYBRID,
    MAMBA,
    PositiveIntOrAuto,
    ZambaDecoder,
    dt_rank,
    mamba_modules,
    mamba_tensors,
    shared_layer_modules,
)
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State


@record(kw_only=True)
class HeadedMamba(Mixer):
    """Mamba with heads: Glorioso et al., "Zamba" (arXiv 2405.16712), section 3, with the matmuls of transformers'
    ZambaMambaMixer.

    The channels are those of `heads` heads of `head_dim`. Each head has its own matrices for step size, B and C, and
    its own vectors B and C.
    """

    hidden: Size
    heads: Size
    head_dim: Size
    state: Size
    kernel: Size
    rank: Size
    bias: bool = False
    conv_bias: bool = True
    activation: str = "silu"

    name: ClassVar[str] = Mamba.name
    label: ClassVar[str] = "Mamba with heads"
    norms: ClassVar[str] = "none"
    axis_names: ClassVar[dict[str, str]] = {
        **{field: axis for field, axis in Mamba.axis_names.items() if field != "inner"},
        "heads": "Nh",
        "head_dim": "Hh",
    }
    legend: ClassVar[dict[str, str]] = {**Mamba.legend, "Nh": "heads of Mamba", "Hh": "channels of a head of Mamba"}
    made: ClassVar[dict[str, str]] = {"Dx": "Nh · Hh", "Dz": "2 · Nh · Hh", "Rx": "Rt + 2 · Ns"}
    cases: ClassVar[frozenset[str]] = Mamba.cases | {"Nh"}
    recurs: ClassVar[bool] = True
    recurrence: ClassVar[str] = Mamba.recurrence

    @property
    def inner(self) -> Size:
        """Channels of all heads."""
        return self.heads * self.head_dim

    def lines(self, at: str) -> Iterator[Line]:
        """Lines of Mamba, those after the convolution per head."""
        yield Matmul(f"{at}.in_proj", "B T D, D Dz -> B T Dz", bias=self.bias)
        yield Matmul(f"{at}.conv", "B T Dx Kc, Dx Kc -> B T Dx", bias=self.conv_bias)
        yield Pointwise(f"{at}.conv_act", "B T Dx", kind="activation", function=self.activation)
        yield Matmul(f"{at}.x_proj", "B T Nh Hh, Nh Hh Rx -> B T Nh Rx")
        yield Matmul(f"{at}.dt_proj", "B T Nh Rt, Nh Rt Hh -> B T Nh Hh", bias=True)
        yield Pointwise(f"{at}.dt_softplus", "B T Nh Hh")
        yield Pointwise(f"{at}.recurrence", "B T Nh Hh Ns", weight="Nh Hh Ns")
        yield Matmul(f"{at}.read_out", "B T Nh Hh Ns, B T Nh Ns -> B T Nh Hh")
        yield Pointwise(f"{at}.skip", "B T Dx", weight="Dx")
        yield Pointwise(f"{at}.gate", "B T Dx", kind="gate")
        yield Matmul(f"{at}.out_proj", "B T Dx, Dx D -> B T D", bias=self.bias)
        yield State(f"{at}.conv_state", "B Dx Kc")
        yield State(f"{at}.scan_state", "B Nh Hh Ns", STATE_BITS)


class Zamba(ZambaDecoder):
    """Zamba: Mamba with heads in every layer; some have attention and an MLP before it, with shared weights."""

    sizes = dict(vocab=32000, hidden=3712, mlp=14848, layers=76, heads=16, kv_heads=16, context=4096)
    hidden_mamba_act: StrictStr = "silu"
    attn_layer_period: PositiveInt = 6
    attn_layer_offset: NonNegativeInt = 4
    mamba_dt_rank: PositiveIntOrAuto = AUTO
    mamba_conv_bias: StrictBool = True
    mamba_proj_bias: StrictBool = False

    ignored_fields = """num_logits_to_keep time_step_floor time_step_max time_step_min use_associative_scan
        use_mamba_kernels"""
    layer_module_names = {
        **shared_layer_modules("shared_transf"),
        **mamba_modules("mamba", "conv x_proj dt_proj read_out", in_proj="in_proj", out_proj="out_proj"),
    }
    layer_tensor_names = mamba_tensors(
        "mamba",
        **{f"{name}.weight": f"{name}_weight" for name in ("x_proj", "dt_proj")},
        **{"dt_proj.bias": "dt_proj_bias", "recurrence.weight": "A_log"},
    )

    def default_layer_types(self) -> list[str]:
        """Hybrid layers at a period, counted after the first three layers."""
        first = [MAMBA, MAMBA, HYBRID]
        period, offset = self.attn_layer_period, self.attn_layer_offset
        others = range(self.num_hidden_layers - len(first))
        return [*first, *(HYBRID if number % period == offset else MAMBA for number in others)]

    def mixer(self) -> HeadedMamba:
        heads, inner = self.n_mamba_heads, self.mamba_expand * self.hidden_size
        return HeadedMamba(
            hidden=self.hidden_size,
            heads=heads,
            head_dim=divide_exactly(inner, heads, "mamba_expand · hidden_size by n_mamba_heads"),
            state=self.mamba_d_state,
            kernel=self.mamba_d_conv,
            rank=dt_rank(self.mamba_dt_rank, self.hidden_size),
            bias=self.mamba_proj_bias,
            conv_bias=self.mamba_conv_bias,
            activation=self.hidden_mamba_act,
        )

    def hf_unsupported(self) -> str | None:
        """It ties the second hybrid layer to the first."""
        return None if len(self.hybrid_layers()) > 1 else "it needs at least two attention layers"
