"""StarCoder and SantaCoder: GPT-2 with one key/value head for all queries."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, Word, share
from tfacct.families._endings import CLASSIFYING, TOKENS_CLASSIFIED
from tfacct.families.gpt2 import Config as Gpt2

RELEASED = "2023-01"


class Config(FamilyConfig):
    """`GPTBigCodeConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 50257
    n_embd: Count = 768
    n_layer: Layers = 12
    n_head: Count = 12
    n_positions: Count = 1024
    n_inner: Count = Field(default_factory=lambda fields: 4 * fields["n_embd"])
    multi_query: Switch = True
    num_key_value_heads: Count | None = None
    tie_word_embeddings: Switch = True
    activation_function: Word = "gelu_pytorch_tanh"
    layer_norm_epsilon: Real = 1e-5

    dropouts: ClassVar = Gpt2.dropouts
    stems: ClassVar = ("GPTBigCode",)
    uncounted: ClassVar = frozenset({"activation_function", "layer_norm_epsilon"})
    harmless: ClassVar = frozenset(
        """
        n_ctx scale_attn_weights attention_softmax_in_fp32 scale_attention_softmax_in_fp32 inference_runner
        pad_key_length pre_allocate_kv_cache validate_runner_input max_batch_size max_sequence_length
        summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
        """.split()
    )
    aliases: ClassVar = Gpt2.aliases
    heads: ClassVar = {**CLASSIFYING, "ForTokenClassification": TOKENS_CLASSIFIED}
    body: ClassVar = "transformer."
    hf_paths: ClassVar = Gpt2.hf_paths

    @property
    def context(self) -> int:
        """n_positions."""
        return self.n_positions

    def architecture(self) -> Transformer:
        """Equal pre-norm blocks; one key/value head, or one per query head."""
        hidden, kv_heads = self.n_embd, 1 if self.multi_query else self.n_head
        if self.num_key_value_heads not in (None, kv_heads):
            said = "true" if self.multi_query else "false"
            raise ConfigError(
                f"num_key_value_heads = {self.num_key_value_heads:,}, but multi_query = {said} means {kv_heads:,}"
            )
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_epsilon)
        attention = Attention(
            hidden=hidden,
            kv_heads=kv_heads,
            group=self.n_head // kv_heads,
            head_dim=share(hidden, self.n_head, "n_embd by n_head"),
            qkv_bias=True,
            out_bias=True,
        )
        network = FeedForward(hidden=hidden, width=self.n_inner, bias=True, activation=self.activation_function)
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            positions=Positions(rows=self.n_positions, hidden=hidden),
            stacks=(Stack(Block.of(attention, network, norm=norm), self.n_layer),),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )
