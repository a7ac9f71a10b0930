"""Shared by Gemma 2 and 3: windowed layers between full ones, four norms in a block, bounded scores."""

from typing import Any, ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, FeedForward, Head
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Real, Switch, Word
from tfacct.families._gemma_like import GemmaLike
from tfacct.families._layers import LayerTypes, windows
from tfacct.families.mistral import Window


class GemmaWindows(GemmaLike):
    """The fields that Gemma 2 and 3 spell alike."""

    intermediate_size: Count = 9216
    num_key_value_heads: Count = 4
    hidden_activation: Word = "gelu_pytorch_tanh"
    query_pre_attn_scalar: Real = 256
    sliding_window: Window | None = 4096
    layer_types: LayerTypes | None = None
    final_logit_softcapping: Real | None = None
    attn_logit_softcapping: Real | None = None
    use_bidirectional_attention: Switch | None = None

    uncounted: ClassVar = GemmaLike.uncounted | {
        "hidden_activation",
        "query_pre_attn_scalar",
        "final_logit_softcapping",
        "attn_logit_softcapping",
    }
    harmless: ClassVar = frozenset({"sliding_window_size"})
    hf_paths: ClassVar = {
        **GemmaLike.hf_paths,
        "blocks.*.attn_post_norm": "model.layers.*.post_attention_layernorm",
        "blocks.*.mlp_norm": "model.layers.*.pre_feedforward_layernorm",
        "blocks.*.mlp_post_norm": "model.layers.*.post_feedforward_layernorm",
    }

    @property
    def activation(self) -> str:
        """hidden_activation."""
        return self.hidden_activation

    def slides(self, number: int) -> bool:
        """True if a layer has the window, where layer_types does not say."""
        raise NotImplementedError

    def of_layer(self, window: int | None) -> dict[str, Any]:
        """Fields that attention has of its own in a layer with this window."""
        return {"window": window}

    def windowed_block(self, attention: Attention, network: FeedForward) -> Block:
        """Norms before and behind attention and network."""
        norm = self.norm()
        return Block.of(attention, network, norm=norm, post_norm=norm)

    def architecture(self) -> Transformer:
        """Blocks of two kinds, and bounded logits."""
        network, capped = self.feed_forward(), self.attn_logit_softcapping
        common = {"softcap": capped, "scale": self.query_pre_attn_scalar**-0.5}
        per_layer = windows(self.layer_types, self.num_hidden_layers, self.sliding_window, self.slides)
        kinds = {
            window: self.windowed_block(self.attention(**common, **self.of_layer(window)), network)
            for window in dict.fromkeys(per_layer)
        }
        head = Head(
            hidden=self.hidden_size,
            vocab=self.vocab_size,
            tied=self.tie_word_embeddings,
            softcap=self.final_logit_softcapping,
        )
        return self.decoder([kinds[window] for window in per_layer], head=head)
