"""BigBird: BERT for longer texts, with full attention."""

from dataclasses import replace
from operator import attrgetter

from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.base.spelling import setting
from tfacct.families.bert import ENCODING, MASKED, Bert
from tfacct.families.fields import StrictBool, StrictStr
from tfacct.families.rare.layoutlm import StoresPooler
from tfacct.families.task_heads import TOKENS_CLASSIFIED

FULL = "original_full"


class BigBird(StoresPooler):
    """BigBird with full attention: BERT's encoder for longer texts."""

    sizes = dict(vocab=50358, context=4096)
    defaults = dict(hidden_act="gelu_new")
    attention_type: StrictStr = "block_sparse"
    use_bias: StrictBool = True
    rescale_embeddings: StrictBool = False
    reference_only = "-attention_type rescale_embeddings"
    ignored_fields = "block_size num_random_blocks"
    task_heads = {
        "ForMaskedLM": MASKED,
        "Model": replace(ENCODING["Model"], paths={"pooler": "pooler"}),
        "ForTokenClassification": TOKENS_CLASSIFIED,
    }
    module_names = {**Bert.module_names, "idle": ".pooler", "pooler": ".pooler"}
    tensor_names = Bert.tensor_names
    attention_options = dict(qkv_bias=attrgetter("use_bias"))
    embedding_options = dict(scaled=attrgetter("rescale_embeddings"))

    def check(self) -> None:
        if self.attention_type != FULL:
            raise ConfigError(
                f"attention_type = {format_value(self.attention_type)} is not supported: it has random blocks of keys",
                f"{setting('attention_type', FULL)} counts every pair of tokens",
            )
        super().check()
