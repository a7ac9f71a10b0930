"""RoCBert: BERT with shape and pronunciation embeddings."""

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts import Embedding
from tfacct.base.record import record
from tfacct.families.bert import POOLED, Bert, DecoderCapable
from tfacct.families.fields import PositiveInt, StrictBool
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Table


@record(kw_only=True)
class GlyphEmbedding(Embedding):
    """Embeddings of tokens, their shapes and their pronunciations: Su et al., "RoCBert" (ACL 2022, 2022.acl-long.65),
    section 3.3, with the order of transformers' RoCBertEmbeddings.

    The three embeddings are concatenated and projected to the hidden size. `shapes` and `sounds` are numbers of rows,
    `shape_dim` and `sound_dim` widths.
    """

    shapes: Size
    shape_dim: Size
    sounds: Size
    sound_dim: Size

    mesh_unsupported: ClassVar[str] = "shape and pronunciation embeddings"
    axis_names: ClassVar[dict[str, str]] = {
        "vocab": "V", "hidden": "D", "shapes": "Vsh", "shape_dim": "Dsh", "sounds": "Vso", "sound_dim": "Dso"
    }  # fmt: skip
    legend: ClassVar[dict[str, str]] = {axis: Embedding.legend[axis] for axis in "VD"} | {
        "Vsh": "rows of the shape embedding",
        "Dsh": "width of the shape embedding",
        "Vso": "rows of the pronunciation embedding",
        "Dso": "width of the pronunciation embedding",
        "Dal": "token, shape and pronunciation embeddings, concatenated, D + Dsh + Dso",
    }
    made: ClassVar[dict[str, str]] = {"Dal": "D + Dsh + Dso"}

    def derived(self) -> dict[str, str]:
        """Width of all three embeddings."""
        return self.made

    def lines(self, at: str) -> Iterator[Line]:
        """Three embeddings, and their projection."""
        yield Table(at, "V D")
        yield Table(f"{at}.shapes", "Vsh Dsh")
        yield Table(f"{at}.sounds", "Vso Dso")
        yield Matmul(f"{at}.project", "B T Dal, Dal D -> B T D", bias=True)


class RoCBert(DecoderCapable):
    """RoCBert: BERT for Chinese; token, shape and pronunciation embeddings are concatenated."""

    shape_vocab_size: PositiveInt = 24858
    shape_embed_dim: PositiveInt = 512
    pronunciation_vocab_size: PositiveInt = 910
    pronunciation_embed_dim: PositiveInt = 768
    enable_shape: StrictBool = True
    enable_pronunciation: StrictBool = True
    concat_input: StrictBool = True

    required_values = {"enable_shape": True, "enable_pronunciation": True, "concat_input": True}
    task_heads = POOLED
    base_model_prefix = "roc_bert"
    module_names = {
        **Bert.module_names,
        "embed.shapes": ".embeddings.shape_embed",
        "embed.sounds": ".embeddings.pronunciation_embed",
        "embed.project": ".embeddings.map_inputs_layer",
    }
    tensor_names = Bert.tensor_names

    def embedding(self) -> GlyphEmbedding:
        return GlyphEmbedding(
            vocab=self.vocab_size,
            hidden=self.hidden_size,
            shapes=self.shape_vocab_size,
            shape_dim=self.shape_embed_dim,
            sounds=self.pronunciation_vocab_size,
            sound_dim=self.pronunciation_embed_dim,
        )
