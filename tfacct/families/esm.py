"""ESM-1b and ESM-2, encoders of proteins: RoBERTa's parts with the norms in front of the sublayers."""

from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention, Contacts, Embedding, FeedForward, Norm, Positions, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Fields, Real, Switch, UpTo, Word, even, shown
from tfacct.families._bert_like import ENCODING, LM_HEAD, BertLike, class_table

RELEASED = "2019-04"

BODY_AT = "esm."
UNMASKED = 0.88
"""Factor of the rows of tokens with token_dropout, where no token is masked."""


class Config(BertLike):
    """`EsmConfig`, with its class's defaults: `EsmForMaskedLM`, or the class that `architectures` names."""

    vocab_size: Count
    pad_token_id: UpTo
    max_position_embeddings: Count = 1026
    position_embedding_type: Word = "absolute"
    rope_theta: Real = 10_000.0
    emb_layer_norm_before: Switch | None = None
    token_dropout: Switch = False
    is_folding_model: Switch = False
    esmfold_config: Fields | None = None
    is_decoder: Switch = False
    add_bias_fnn: Switch | None = None

    stems: ClassVar = ("Esm",)
    uncounted: ClassVar = BertLike.uncounted | {"pad_token_id", "rope_theta", "is_folding_model", "is_decoder"}
    harmless: ClassVar = frozenset({"mask_token_id", "vocab_list"})
    heads: ClassVar = {
        name: ENCODING[name] for name in ("ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification")
    }
    order: ClassVar = "pre"
    front_norm: ClassVar = False
    head_act: ClassVar = "gelu"
    understood: ClassVar = {
        **{"is_folding_model": False, "esmfold_config": None, "is_decoder": False},
        "add_bias_fnn": None,  # of a gated network, which files with code of their own have
    }
    unties: ClassVar = True
    body: ClassVar = BODY_AT
    hf_paths: ClassVar = {
        **{ours: theirs for ours, theirs in class_table(BODY_AT, LM_HEAD).items() if ours != "type_embed"},
        "embed_norm": f"{BODY_AT}embeddings.layer_norm",
        "blocks.*.attn_norm": f"{BODY_AT}encoder.layer.*.attention.LayerNorm",
        "blocks.*.mlp_norm": f"{BODY_AT}encoder.layer.*.LayerNorm",
        "final_norm": f"{BODY_AT}encoder.emb_layer_norm_after",
        "contacts.regression": f"{BODY_AT}contact_head.regression",
    }
    hf_tensors: ClassVar = {"lm_head.bias": "lm_head.bias"}

    @property
    def rotates(self) -> bool:
        """Whether positions are rotary. Raises ConfigError where they are neither that nor a table."""
        kind = self.position_embedding_type
        if kind not in ("rotary", "absolute"):
            raise ConfigError(f"position_embedding_type = {shown(kind)} is not understood: write rotary or absolute")
        return kind == "rotary"

    @property
    def context(self) -> int:
        """max_position_embeddings, less the rows that stand for no position. Raises ConfigError where none is left."""
        positions = self.max_position_embeddings - self.pad_token_id - 1
        if positions < 1:
            raise ConfigError(
                f"max_position_embeddings = {self.max_position_embeddings:,} leaves no position behind"
                f" pad_token_id = {self.pad_token_id:,}"
            )
        return positions

    def attention(self) -> Attention:
        """BERT's, turned where positions are rotary."""
        plain = super().attention()
        if not self.rotates:
            return plain
        return replace(plain, head_dim=even(plain.head_dim, "the size of a head"), rotary=Rotary(self.rope_theta))

    def network(self) -> FeedForward:
        """Two matrices around a GELU, whatever hidden_act says."""
        return replace(super().network(), activation="gelu")

    def positions(self) -> Positions | None:
        """Table of positions, where they are not rotary."""
        if self.rotates:
            return None
        rows = self.context + self.pad_token_id + 1
        return Positions(rows=rows, hidden=self.hidden_size, offset=self.pad_token_id + 1)

    def architecture(self) -> Transformer:
        """Pre-norm blocks, and the weights that say which tokens touch."""
        ends: dict[str, Any] = {}
        if self.emb_layer_norm_before:
            ends["embed_norm"] = Norm(hidden=self.hidden_size, kind="layer", eps=self.layer_norm_eps)
        if self.token_dropout:
            ends["embed"] = Embedding(vocab=self.vocab_size, hidden=self.hidden_size, scaled=True, factor=UNMASKED)
        maps = self.num_hidden_layers * self.num_attention_heads
        return replace(super().architecture(), contacts=Contacts(maps=maps), **ends)
