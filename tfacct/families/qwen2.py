"""Qwen2 and Qwen2.5: Llama's block with biases on q, k and v, which the config does not mention."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.parts import Pooler
from tfacct.architecture.transformer import Transformer
from tfacct.families._endings import LABELLING, REWARD, STEPS, Ending
from tfacct.families._qwen_like import QwenLike

RELEASED = "2024-07"


class Config(QwenLike):
    """`Qwen2Config`, with its class's defaults."""

    inside: ClassVar[Mapping[str, int]] = {
        "vocab_size": 151936,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    }
    stems: ClassVar[tuple[str, ...]] = ("Qwen2",)
    heads: ClassVar[Mapping[str, Ending]] = {**LABELLING, "ForRewardModel": REWARD, "ForProcessRewardModel": STEPS}
    harmless: ClassVar = frozenset(
        {"attention_bias", "qkv_bias", "dual_chunk_attention_config"}
    )  # none is read by the class

    def pooler(self, hidden: Any) -> Pooler:
        """The first product of a reward model's two."""
        return Pooler(hidden=hidden, reads="each", activation="relu")

    def class_cannot(self) -> str | None:
        """Reason why the class cannot be asked."""
        return None if self.ending.auto else "there is none of that name, for its files have code of their own"

    def architecture(self) -> Transformer:
        """Biases on q, k and v; none on o and in the feed-forward network."""
        network = self.feed_forward()
        per_layer = self.windows()
        kinds = {
            window: self.block(self.attention(qkv_bias=True, window=window), network)
            for window in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[window] for window in per_layer])
