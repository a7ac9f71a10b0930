"""FlauBERT: XLM's encoder, for French; its large models have the norms in front of the sublayers."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.blocks import Order
from tfacct.architecture.transformer import Transformer
from tfacct.families import xlm
from tfacct.families._base import Switch

RELEASED = "2019-12"


class Config(xlm.Config):
    """`FlaubertConfig`, with its class's defaults: `FlaubertWithLMHeadModel`, or what `architectures` names."""

    pre_norm: Switch = False

    stems: ClassVar = ("Flaubert",)
    heads: ClassVar = xlm.Config.heads
    harmless: ClassVar = xlm.Config.harmless | {"layerdrop"}
    hf_paths: ClassVar = xlm.Config.hf_paths

    @property
    def order(self) -> Order:  # type: ignore[override]
        """How its blocks run."""
        return "pre" if self.pre_norm else "post"

    def architecture(self) -> Transformer:
        """XLM's, without a norm behind the last block."""
        return replace(super().architecture(), final_norm=None)

    def class_cannot(self) -> str | None:
        """It looks for a past of each layer in one that has none."""
        return "it does not run with pre_norm = true" if self.pre_norm else None
