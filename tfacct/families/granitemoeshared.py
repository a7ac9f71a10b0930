"""Granite with experts beside a shared network of a width of its own."""

from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Experts
from tfacct.families import granitemoe
from tfacct.families._base import UpTo

RELEASED = "2025-02"


class Config(granitemoe.Config):
    """`GraniteMoeSharedConfig`, with its class's defaults, sizes too. intermediate_size is the width of one expert."""

    shared_intermediate_size: UpTo = 0

    stems: ClassVar = ("GraniteMoeShared",)
    hf_paths: ClassVar = {
        **granitemoe.Config.hf_paths,
        "blocks.*.mlp.shared.gate_proj": "model.layers.*.shared_mlp.input_linear",
        "blocks.*.mlp.shared.up_proj": "model.layers.*.shared_mlp.input_linear",
        "blocks.*.mlp.shared.down_proj": "model.layers.*.shared_mlp.output_linear",
    }

    def granite_block(self, network: Experts | None = None, *, post_norm: bool = False, **own: Any) -> Block:
        """The shared network beside the experts."""
        if network is not None and self.shared_intermediate_size:
            network = replace(network, shared=self.shared_intermediate_size)
        return super().granite_block(network, post_norm=post_norm, **own)
