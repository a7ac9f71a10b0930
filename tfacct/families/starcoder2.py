"""StarCoder2: Llama's attention, with biases and a window; LayerNorm, a network of two matrices, a tied head."""

from typing import ClassVar

from tfacct.architecture.parts import FeedForward, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Real, Switch, Word
from tfacct.families._llama_like import LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2024-02"


class Config(LlamaLike):
    """`Starcoder2Config`, with its class's defaults. The head is tied unless the config says otherwise."""

    intermediate_size: Count = 12288
    num_key_value_heads: Count = 2
    max_position_embeddings: Count = 4096
    sliding_window: Window | None = None
    use_bias: Switch = True
    tie_word_embeddings: Switch = True
    hidden_act: Word = "gelu_pytorch_tanh"
    norm_epsilon: Real = 1e-5

    dropouts: ClassVar = {
        "embedding": ("embedding_dropout", 0.0),
        "residual": ("residual_dropout", 0.0),
        "attention": ("attention_dropout", 0.0),
    }
    stems: ClassVar = ("Starcoder2",)
    uncounted: ClassVar = LlamaLike.uncounted | {"norm_epsilon"}
    harmless: ClassVar = frozenset(
        """
        embedding_dropout attention_softmax_in_fp32 scale_attention_softmax_in_fp32 scale_attn_weights mlp_type
        norm_type
        """.split()
    )
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        "blocks.*.mlp.up_proj": "model.layers.*.mlp.c_fc",
        "blocks.*.mlp.down_proj": "model.layers.*.mlp.c_proj",
    }

    def norm(self) -> Norm:
        """LayerNorm over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="layer", eps=self.norm_epsilon)

    def architecture(self) -> Transformer:
        """use_bias is on every product but the head; the window, where there is one, in every layer."""
        biased = self.use_bias
        attention = self.attention(qkv_bias=biased, out_bias=biased, window=self.sliding_window)
        network = FeedForward(
            hidden=self.hidden_size, width=self.intermediate_size, bias=biased, activation=self.activation
        )
        return self.decoder(self.equal_blocks(self.block(attention, network)))
