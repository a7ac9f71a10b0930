"""CodeGen: GPT-J's block, with q, k and v in one matrix."""

from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._endings import DECODER
from tfacct.families._gptj_like import GPTJLike

RELEASED = "2022-03"

SPLIT = 4
"""Number of parts in which the class keeps the heads of its matrix for q, k and v."""


class Config(GPTJLike):
    """`CodeGenConfig`, with its class's defaults, sizes too."""

    dropouts: ClassVar = {
        "embedding": ("embd_pdrop", 0.0),
        "residual": ("resid_pdrop", 0.0),
        "attention": ("attn_pdrop", 0.0),
    }
    stems: ClassVar = ("CodeGen",)
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **GPTJLike.hf_paths,
        "blocks.*.attn.q_proj": "transformer.h.*.attn.qkv_proj",
        "blocks.*.attn.k_proj": "transformer.h.*.attn.qkv_proj",
        "blocks.*.attn.v_proj": "transformer.h.*.attn.qkv_proj",
    }

    def architecture(self) -> Transformer:
        """GPT-J's. Raises ConfigError where the class cannot split its heads."""
        if self.n_head % SPLIT:
            raise ConfigError(f"n_head = {self.n_head:,}: the class splits the heads into {SPLIT} equal parts")
        return GPTJLike.architecture(self)
