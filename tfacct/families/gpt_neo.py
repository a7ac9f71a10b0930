"""GPT-Neo: GPT-2 without biases on q, k and v, with unscaled scores and a window in every other layer."""

from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic_core import core_schema

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Checked, Count, FamilyConfig, Layers, Real, Switch, Word, share, shown
from tfacct.families._endings import CLASSIFYING, TOKENS_CLASSIFIED
from tfacct.families._layers import one_each
from tfacct.families.gpt2 import Config as Gpt2

RELEASED = "2021-03"

Listed = Annotated[list[Any], Checked(core_schema.list_schema(strict=True))]
GLOBAL, LOCAL = "global", "local"


def listed(types: list[Any]) -> list[str]:
    """Kinds of all layers, of a list of kinds and how often they repeat. Raises ConfigError.

    >>> listed([[["global", "local"], 2]])
    ['global', 'local', 'global', 'local']
    """
    kinds: list[str] = []
    for item in types:
        pair = item if isinstance(item, list) and len(item) == 2 else [None, None]
        names, times = pair
        if not isinstance(names, list) or type(times) is not int or not 0 <= times <= 100_000:
            raise ConfigError(f'attention_types must be a list as [[["global", "local"], 12]], not {shown(types)}')
        kinds += names * times
    return kinds


class Config(FamilyConfig):
    """`GPTNeoConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 50257
    hidden_size: Count = 2048
    num_layers: Layers = 24
    num_heads: Count = 16
    intermediate_size: Count = Field(default_factory=lambda fields: 4 * fields["hidden_size"])
    max_position_embeddings: Count = 2048
    attention_types: Listed | None = None
    attention_layers: Listed | None = None
    window_size: Count = 256
    tie_word_embeddings: Switch = True
    activation_function: Word = "gelu_new"
    layer_norm_epsilon: Real = 1e-5

    dropouts: ClassVar = {
        "embedding": ("embed_dropout", 0.0),
        "residual": ("resid_dropout", 0.0),
        "attention": ("attention_dropout", 0.0),
    }
    stems: ClassVar = ("GPTNeo",)
    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = frozenset({"activation_function", "layer_norm_epsilon"})
    harmless: ClassVar = frozenset(
        "summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj".split()
    )
    class_differs: ClassVar = "it keeps all keys in layers with a window too"
    class_extra: ClassVar = "it multiplies all keys in layers with a window too, and masks those outside it"
    aliases: ClassVar = {"num_hidden_layers": "num_layers", "num_attention_heads": "num_heads"}
    heads: ClassVar = {**CLASSIFYING, "ForTokenClassification": TOKENS_CLASSIFIED}
    body: ClassVar = "transformer."
    hf_paths: ClassVar = {
        **Gpt2.hf_paths,
        "blocks.*.attn.q_proj": "transformer.h.*.attn.attention.q_proj",
        "blocks.*.attn.k_proj": "transformer.h.*.attn.attention.k_proj",
        "blocks.*.attn.v_proj": "transformer.h.*.attn.attention.v_proj",
        "blocks.*.attn.scores": "transformer.h.*.attn.attention",
        "blocks.*.attn.values": "transformer.h.*.attn.attention",
        "blocks.*.attn.o_proj": "transformer.h.*.attn.attention.out_proj",
    }

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    def windows(self) -> list[int | None]:
        """Window of each layer, None where it sees everything. Raises ConfigError."""
        kinds = listed([[[GLOBAL, LOCAL], 12]] if self.attention_types is None else self.attention_types)
        if self.attention_layers not in (None, kinds):
            raise ConfigError("attention_layers contradicts attention_types", "drop it: attention_layers=null")
        one_each("attention_types", kinds, self.num_layers, of="num_layers")
        for number, kind in enumerate(kinds):
            if kind not in (GLOBAL, LOCAL):
                raise ConfigError(f"layer {number} of attention_types is {shown(kind)}: write {GLOBAL} or {LOCAL}")
        return [self.window_size if kind == LOCAL else None for kind in kinds]

    def _all_keys(self) -> Transformer:
        whole = self.model_copy(update={"attention_types": [[[GLOBAL], self.num_layers]], "attention_layers": None})
        return whole.transformer()

    def class_keeps(self) -> Transformer:
        """The class keeps all keys in every layer."""
        return self._all_keys()

    def class_multiplies(self) -> Transformer | None:
        """The class multiplies all keys in every layer."""
        return self._all_keys() if any(self.windows()) else None

    def architecture(self) -> Transformer:
        """Equal pre-norm blocks but for the window."""
        hidden = self.hidden_size
        norm = Norm(hidden=hidden, kind="layer", eps=self.layer_norm_epsilon)
        network = FeedForward(
            hidden=hidden, width=self.intermediate_size, bias=True, activation=self.activation_function
        )
        per_layer = self.windows()
        kinds = {
            window: Block.of(
                Attention(
                    hidden=hidden,
                    kv_heads=self.num_heads,
                    group=1,
                    head_dim=share(hidden, self.num_heads, "hidden_size by num_heads"),
                    out_bias=True,
                    window=window,
                    scale=1.0,
                ),
                network,
                norm=norm,
            )
            for window in dict.fromkeys(per_layer)
        }
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            positions=Positions(rows=self.max_position_embeddings, hidden=hidden),
            stacks=stacks([kinds[window] for window in per_layer]),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )
