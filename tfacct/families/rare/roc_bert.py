"""RoCBert: BERT with embeddings of the shape and the sound of tokens."""

from tfacct.architecture.parts import ShapedEmbedding
from tfacct.families.bert import POOLED, Bert, DecoderCapable
from tfacct.families.fields import PositiveInt, StrictBool


class RoCBert(DecoderCapable):
    """RoCBert: BERT for Chinese; a token's embedding is joined with those of its shape and its sound."""

    shape_vocab_size: PositiveInt = 24858
    shape_embed_dim: PositiveInt = 512
    pronunciation_vocab_size: PositiveInt = 910
    pronunciation_embed_dim: PositiveInt = 768
    enable_shape: StrictBool = True
    enable_pronunciation: StrictBool = True
    concat_input: StrictBool = True

    required_values = {
        **DecoderCapable.required_values,
        "enable_shape": True,
        "enable_pronunciation": True,
        "concat_input": True,
    }
    task_heads = POOLED
    base_model_prefix = "roc_bert"
    module_names = {
        **Bert.module_names,
        "embed.shapes": ".embeddings.shape_embed",
        "embed.sounds": ".embeddings.pronunciation_embed",
        "embed.project": ".embeddings.map_inputs_layer",
    }
    tensor_names = Bert.tensor_names

    def embedding(self) -> ShapedEmbedding:
        return ShapedEmbedding(
            vocab=self.vocab_size,
            hidden=self.hidden_size,
            shapes=self.shape_vocab_size,
            shape_dim=self.shape_embed_dim,
            sounds=self.pronunciation_vocab_size,
            sound_dim=self.pronunciation_embed_dim,
        )
