"""MVP: BART, without the prompts that its class can have."""

from typing import ClassVar

from tfacct.families import plbart
from tfacct.families._base import Count, Layers, Switch, UpTo

RELEASED = "2022-06"


class Config(plbart.Config):
    """`MvpConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 50267
    d_model: Count = 1024
    encoder_layers: Layers = 12
    encoder_attention_heads: Count = 16
    encoder_ffn_dim: Count = 4096
    decoder_layers: Layers = 12
    decoder_attention_heads: Count = 16
    decoder_ffn_dim: Count = 4096
    scale_embedding: Switch = False
    use_prompt: Switch = False
    prompt_length: UpTo = 100
    prompt_mid_dim: UpTo = 800

    stems: ClassVar = ("Mvp",)
    uncounted: ClassVar = plbart.Config.uncounted | {"use_prompt", "prompt_length", "prompt_mid_dim"}
    understood: ClassVar = {**plbart.Config.understood, "use_prompt": False}
    gotchas: ClassVar = (
        "As BART wherever nothing else is said: tables, heads, what is refused.",
        "use_prompt = true is refused: each layer would then read learned keys and values too.",
    )
