"""T5Gemma 2, its merged attention, and its embedding."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import SOURCES, Attention, Embedding
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.base.record import record
from tfacct.families.decoder import QK_NORMS, Layer
from tfacct.families.family import Family, build, submodules
from tfacct.families.family_config import validate
from tfacct.families.fields import JsonDict
from tfacct.families.gemma import Gemma3Text
from tfacct.families.t5 import T5GEMMA_LAYER, GemmaEncoderDecoder, GemmaSide, side_modules
from tfacct.ledger.lines import Line, Matmul, Pointwise, State, Unused

ENCODER, DECODER = "model.encoder.text_model", "model.decoder"
LAYER = {**T5GEMMA_LAYER, **QK_NORMS}
SOURCE = submodules(
    "attn", "self_attn", source_k_proj="k_proj", source_v_proj="v_proj", source_scores="", source_values=""
)


@record(kw_only=True)
class MergedAttention(Attention):
    """Merged attention: Zhang et al., "T5Gemma 2" (arXiv 2512.14856), with the matmuls of transformers'
    T5Gemma2MergedAttention.

    Queries attend to earlier tokens and to all tokens of a source, in one softmax. Keys and values of both come from
    the same projections and norms; those of the source are not rotated, and are computed once, in the step that reads
    it.
    """

    mesh_unsupported: ClassVar[str] = "merged self- and cross-attention"
    reads_source: ClassVar[bool] = True
    legend: ClassVar[dict[str, str]] = {axis: Attention.legend[axis] for axis in ("D", "N", "K", "G", "H", "W")}

    def lines(self, at: str) -> Iterator[Line]:
        """Lines of attention, each followed by that of the source, and the caches of both."""
        attention = list(Attention.lines(self, at))
        states = [line for line in attention if isinstance(line, State)]
        for line in attention:
            if line not in states:
                yield line
                yield from self._of_source(at, line)
        yield from states
        for which in "kv":
            yield State(f"{at}.{SOURCES}{which}_cache", "B J K H")

    def _of_source(self, at: str, line: Line) -> Iterator[Line]:
        leaf = line.path.removeprefix(f"{at}.")
        path = f"{at}.{SOURCES}{leaf}"
        match leaf:
            case "k_proj" | "v_proj":  # a bias is stored once, with the weight
                yield Matmul(path, "B I D, D K H -> B I K H", weight=line.path)
            case "k_norm":
                yield Pointwise(path, "B I K H", weight="H", kind="norm_rms", module=line.path)
            case "scores":
                yield Matmul(path, "B T K G H, B J K H -> B K G T J")
            case "softmax":
                yield Pointwise(path, "B K G T J", kind="softmax")
            case "values":
                yield Matmul(path, "B K G T J, B J K H -> B T K G H")


@record(kw_only=True)
class ImageEndEmbedding(Embedding):
    """Token embedding with an additional row for the end-of-image token, which no text has
    (T5Gemma2TextScaledWordEmbedding)."""

    def lines(self, at: str) -> Iterator[Line]:
        """The embedding, and the additional row."""
        table, *others = Embedding.lines(self, at)
        yield table
        yield Unused(Pointwise(f"{at}.image_end", "B T D", weight="D"))
        yield from others


class T5Gemma2Side(GemmaSide, Gemma3Text):
    """The text encoder or the decoder, whose config classes have Gemma 3's defaults."""

    def side_block(self, layer: Layer, source_hidden: int | None) -> Block:
        """One layer, without the soft cap of Gemma's scores; those of a decoder also read the source."""
        attention: Any = self.attention(layer)
        attention = replace(attention, softcap=None, causal=source_hidden is not None)
        if source_hidden is not None:
            attention = MergedAttention.of(attention)
        norm = self.norm()
        return Block.of(attention, self.mlp(layer), norm=norm, post_norm=norm)


class T5Gemma2Encoder(Family):
    """The encoder's config; only its text part counts here. The vision tower is counted separately."""

    text_config: JsonDict | None = None
    ignored_fields = """boi_token_index eoi_token_index image_token_index boi_token_id eoi_token_id image_token_id
        mm_tokens_per_image tie_word_embeddings"""


class T5Gemma2(GemmaEncoderDecoder):
    """T5Gemma 2: an encoder and a decoder of Gemma 3's layers; decoder tokens attend to the source and to earlier
    tokens in one attention."""

    ignored_fields = "image_token_index eoi_token_index image_token_id eoi_token_id"
    module_names = {**side_modules("encoder.", ENCODER, LAYER), **side_modules("", DECODER, {**LAYER, **SOURCE})}
    tensor_names = {
        "embed.image_end.weight": f"{DECODER}.embed_tokens.eoi_embedding",
        "encoder.embed.image_end.weight": f"{ENCODER}.embed_tokens.eoi_embedding",
    }
    checkpoint_conversion_mapping = ((r"^model\.encoder\.(?=(embed_tokens|layers|norm)\.)", f"{ENCODER}."),)
    encoder_path = "encoder.text_config"

    def read_side(self, path: str) -> tuple[Any, dict[str, Any], list[str]]:
        if path == "decoder":
            return validate(build(T5Gemma2Side), self.decoder or {})
        encoder: Any
        encoder, _, others = validate(build(T5Gemma2Encoder), self.encoder or {})
        side, defaulted, unknown = validate(build(T5Gemma2Side), encoder.text_config or {})
        return side, defaulted, [*others, *unknown]

    def hf_module_names(self) -> Mapping[str, str]:
        """A tied embedding is the encoder's."""
        names = super().hf_module_names()
        return {**names, "embed": names["encoder.embed"]} if self.tie_word_embeddings else names

    def hf_tensor_names(self) -> dict[str, str]:
        """So is the end-of-image row."""
        names, (end_row, encoder_end_row) = super().hf_tensor_names(), self.tensor_names
        return {**names, end_row: names[encoder_end_row]} if self.tie_word_embeddings else names

    def check(self) -> None:
        super().check()
        encoder, decoder = self.sides
        for name in ("hidden_size", "vocab_size"):
            one, other = getattr(encoder, name), getattr(decoder, name)
            if one != other:
                raise ConfigError(
                    f"{name} is {one:,} in encoder.text_config and {other:,} in decoder: they must be equal"
                )
        if self.vocab_size not in (None, decoder.vocab_size):
            vocab = format_value(self.vocab_size)
            raise ConfigError(f"vocab_size = {vocab} contradicts {decoder.vocab_size:,} in decoder")

    def side_embeddings(self) -> tuple[Embedding, Embedding]:
        """Both have a row for the end of an image; the class may share them."""
        source, embedding = super().side_embeddings()
        shared = replace(source, shared=True) if self.tie_word_embeddings else ImageEndEmbedding.of(source)
        return shared, ImageEndEmbedding.of(embedding)
