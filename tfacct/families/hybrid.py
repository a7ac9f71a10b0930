"""Models with short convolutions, and decoders with attention in some layers and another mixer in the others."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.families.decoder import Decoder, Layer
from tfacct.families.family import Family
from tfacct.families.layer_kinds import FULL
from tfacct.ledger.workload import Workload

PADS = "it convolves more positions than there are new tokens, and drops what it padded"


def extra_conv_positions(kernel: int, work: Workload) -> int:
    """Positions over which a class runs a convolution, beyond the new tokens.

    It pads both ends of a prefill by kernel − 1, and a prefill shorter than the kernel to its length. A decode step
    convolves kernel + 1 tokens, so two positions. A chunk comes after the last kernel tokens, padded at both ends.
    """
    tokens: int = work.tokens
    if tokens == work.context:
        return max(kernel - tokens, 0) + kernel - 1
    return 1 if tokens == 1 else 2 * kernel - 1


class ConvolutionFamily(Family):
    """A family whose class also runs its short convolution over padding."""

    conv_module: ClassVar[str] = "mamba.conv"
    conv_kernel_field: ClassVar[str] = "mamba_d_conv"
    hf_extra_note = PADS

    @property
    def conv_kernel_size(self) -> int:
        size: int = getattr(self, self.conv_kernel_field)
        return size

    def hf_extra_positions(self, work: Workload) -> Mapping[str, int]:
        return {f"blocks.*.{self.conv_module}": extra_conv_positions(self.conv_kernel_size, work)}


class HybridFamily(ConvolutionFamily):
    """The same with attention in some layers."""

    def hf_unsupported(self) -> str | None:
        """It needs a layer with attention, whose cache has the number of past tokens."""
        reason = super().hf_unsupported()
        if reason or self.transformer().attentions:
            return reason
        return "it does not run without a layer that has attention"


class HybridDecoder(HybridFamily, Decoder):
    """Attention in layers whose kind is full_attention, a mixer with a convolution in all others."""

    def mixer(self) -> Any:
        """The mixer of a layer without attention. Raises ConfigError."""
        raise NotImplementedError

    def attention(self, layer: Layer, **own: Any) -> Any:
        return super().attention(layer, **own) if layer.kind == FULL else self.mixer()
