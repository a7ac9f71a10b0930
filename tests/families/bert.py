"""Test configs of the bert lineage: a small one of each family, and variants."""

from tests.families._configs import LAYERS


class Bert:
    TINY = {
        "model_type": "bert", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "max_position_embeddings": 37, "type_vocab_size": 3,
    }  # fmt: skip
    LOGITS = {"": TINY, "relu": {**TINY, "hidden_act": "relu", "layer_norm_eps": 1e-3}}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}


class Electra:
    TINY = {
        "model_type": "electra", "vocab_size": 151, "embedding_size": 31, "hidden_size": 102, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 83, "max_position_embeddings": 49, "type_vocab_size": 3,
    }  # fmt: skip
    VARIANTS = {"of wide tables": {**TINY, "embedding_size": 102}}
    LOGITS = {"": TINY, "of wide tables": {**VARIANTS["of wide tables"], "hidden_act": "relu"}}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}


class DistilBert:
    TINY = {
        "model_type": "distilbert", "vocab_size": 163, "dim": 60, "n_layers": 2, "n_heads": 6, "hidden_dim": 77,
        "max_position_embeddings": 43,
    }  # fmt: skip
    LOGITS = {"": TINY, "relu": {**TINY, "activation": "relu"}}
    REQUIRED = {"vocab_size": 37, "dim": 128, "n_layers": 2, "n_heads": 4}
    SILENT = {"intermediate_size": 77, "tie_weights_": True}


class Albert:
    TINY = {
        "model_type": "albert", "vocab_size": 149, "embedding_size": 29, "hidden_size": 114, "num_hidden_layers": 3,
        "num_attention_heads": 6, "intermediate_size": 89, "max_position_embeddings": 53, "type_vocab_size": 4,
    }  # fmt: skip
    LOGITS = {"": TINY, "of wide tables": {**TINY, "embedding_size": 114, "hidden_act": "relu"}}
    SILENT = {"gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0, "down_scale_factor": 1}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}


class BertGeneration:
    TINY = {
        "model_type": "bert-generation", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 37, "is_decoder": True,
    }  # fmt: skip
    VARIANTS = {"as an encoder": {**TINY, "is_decoder": False}}
    LOGITS = {"": TINY, "relu": {**VARIANTS["as an encoder"], "hidden_act": "relu", "layer_norm_eps": 1e-3}}


class ChineseCLIPText(Bert):
    TINY = {**Bert.TINY, "model_type": "chinese_clip_text_model", "projection_dim": 29}
    VARIANTS = {"projected": {**TINY, "architectures": ["ChineseCLIPTextModelWithProjection"]}}


class DPR:
    TINY = {**Bert.TINY, "model_type": "dpr", "vocab_size": 491, "projection_dim": 29}
    VARIANTS = {
        "without a product": {**TINY, "projection_dim": 0},
        "of passages": {**TINY, "architectures": ["DPRContextEncoder"]},
    }
    LOGITS = {
        "": TINY,
        "of passages": VARIANTS["of passages"],
    }  # without a product the class gives one vector, no stream


class MegatronBert(Bert):
    TINY = {**Bert.TINY, "model_type": "megatron-bert", "vocab_size": 479}
    LOGITS = {"": TINY, "relu": {**TINY, "hidden_act": "relu", "layer_norm_eps": 1e-3}}
    REQUIRED = {"num_hidden_layers": 2}


class MPNet:
    TINY = {
        "model_type": "mpnet", "vocab_size": 157, "hidden_size": 90, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 79, "max_position_embeddings": 47, "relative_attention_num_buckets": 14,
    }  # fmt: skip
    REQUIRED = {"num_hidden_layers": 2}
    READ = {
        **TINY,
        "relative_attention_num_buckets": 32,
        "pad_token_id": 1,
    }  # the class reads so many, whatever the config says
    LOGITS = {"": READ, "relu": {**READ, "hidden_act": "relu"}}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}
    CONTEXT = 510


class RemBert:
    TINY = {
        "model_type": "rembert", "vocab_size": 151, "input_embedding_size": 31, "output_embedding_size": 37,
        "hidden_size": 102, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 83,
        "max_position_embeddings": 49, "type_vocab_size": 3,
    }  # fmt: skip
    LOGITS = {"": TINY, "relu": {**TINY, "hidden_act": "relu", "layer_norm_eps": 1e-3}}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}


class Splinter(Bert):
    TINY = {**Bert.TINY, "model_type": "splinter", "vocab_size": 173}
    SILENT = {"question_token_id": 104}


class Roberta:
    TINY = {
        "model_type": "roberta", "vocab_size": 179, "hidden_size": 84, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 73, "max_position_embeddings": 41, "type_vocab_size": 3, "pad_token_id": 4,
    }  # fmt: skip
    LOGITS = {"": TINY, "of one segment": {**TINY, "type_vocab_size": 1, "pad_token_id": 1, "hidden_act": "relu"}}
    REQUIRED = {**LAYERS, "num_attention_heads": 4}
    CONTEXT = 510


class RobertaPreLayerNorm(Roberta):
    TINY = {**Roberta.TINY, "model_type": "roberta-prelayernorm", "vocab_size": 487}


class XLMRoberta(Roberta):
    TINY = {**Roberta.TINY, "model_type": "xlm-roberta", "vocab_size": 173}


class XLMRobertaXL(Roberta):
    TINY = {**Roberta.TINY, "model_type": "xlm-roberta-xl", "vocab_size": 491}
    REQUIRED = {"num_hidden_layers": 2}
    CONTEXT = 512


class Camembert(Roberta):
    TINY = {**Roberta.TINY, "model_type": "camembert", "vocab_size": 167}


class Data2VecText(Roberta):
    TINY = {**Roberta.TINY, "model_type": "data2vec-text", "vocab_size": 401}


class AltCLIPText:
    TINY = {**Roberta.TINY, "model_type": "altclip_text_model", "project_dim": 29, "projection_dim": 31}
    VARIANTS = {"projected": {**TINY, "architectures": ["AltCLIPTextModelWithProjection"]}}
    CONTEXT, REQUIRED = 512, {"num_hidden_layers": 2}
