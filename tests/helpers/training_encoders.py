"""Random small encoders of the families whose training step is measured."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Pick: TypeAlias = Callable[[list[Any]], Any]
Config: TypeAlias = dict[str, Any]


EUROBERT = (
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "max_position_embeddings"),
    *("intermediate_size", "hidden_size", "head_dim"),
)
"""Sizes that it spells as Llama does."""


def ending(pick: Pick, name: str) -> Config:
    """A head, the masked language model's more often than others."""
    head = pick(["ForMaskedLM", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"])
    return {"architectures": [f"{name}{head}"], "num_labels": pick([2, 3, 7])}


def bert(pick: Pick, config: Config) -> Config:
    return {
        **{name: config[name] for name in ("num_hidden_layers", "num_attention_heads", "intermediate_size")},
        "hidden_size": config["num_attention_heads"] * config["head_dim"],
        "max_position_embeddings": pick([40, 64]),
        "type_vocab_size": pick([1, 2, 3]),
        "pad_token_id": 0,
        "hidden_act": pick(["gelu", "gelu", "relu", "gelu_new"]),
        "hidden_dropout_prob": pick([0.0, 0.1, 0.1]),
        **({"classifier_dropout": drop} if (drop := pick([None, None, 0.0, 0.2])) is not None else {}),
        **ending(pick, "Bert"),
        "attention_probs_dropout_prob": pick([0.0, 0.1, 0.1]),
    }


def roberta(pick: Pick, config: Config) -> Config:
    return {**bert(pick, config), "pad_token_id": pick([0, 1]), **ending(pick, "Roberta")}


def camembert(pick: Pick, config: Config) -> Config:
    return {**roberta(pick, config), **ending(pick, "Camembert")}


def xlm_roberta(pick: Pick, config: Config) -> Config:
    return {**roberta(pick, config), **ending(pick, "XLMRoberta")}


def electra(pick: Pick, config: Config) -> Config:
    taken = {**bert(pick, config), **ending(pick, "Electra")}
    return {**taken, "embedding_size": pick([taken["hidden_size"], 5, 16])}


def eurobert(pick: Pick, config: Config) -> Config:
    return {
        **{name: config[name] for name in EUROBERT},
        "pad_token_id": 0,
        "attention_bias": pick([True, False]),
        "mlp_bias": pick([True, False]),
        "attention_dropout": pick([0.0, 0.0, 0.1]),
    }


def modernbert(pick: Pick, config: Config) -> Config:
    count = max(config["num_hidden_layers"], 2)
    kinds = [pick(["full_attention", "sliding_attention"]) for _ in range(count - 1)]
    kinds.insert(pick([0, count - 1]), "sliding_attention")  # at least one block has the window
    return {
        **{name: config[name] for name in ("num_attention_heads", "intermediate_size", "max_position_embeddings")},
        "num_hidden_layers": count,
        "hidden_size": config["num_attention_heads"] * config["head_dim"],
        "local_attention": pick([4, 16, 34, 80]),
        "layer_types": pick([None, kinds]),
        "pad_token_id": 0,
        **{name: pick([True, False]) for name in ("attention_bias", "mlp_bias", "norm_bias", "decoder_bias")},
        "hidden_activation": pick(["gelu", "gelu", "silu"]),
        **ending(pick, "ModernBert"),
        "classifier_pooling": "cls",
        **{name: pick([True, False]) for name in ("classifier_bias", "norm_bias")},
    }


def nomic_bert(pick: Pick, config: Config) -> Config:
    return {
        **bert(pick, config),
        "head_dim": config["head_dim"],
        "hidden_size": config["hidden_size"],
        "hidden_act": pick(["silu", "silu", "gelu", "relu"]),
        **ending(pick, "NomicBert"),
    }


def mpnet(pick: Pick, config: Config) -> Config:
    taken = {name: value for name, value in bert(pick, config).items() if name not in ("type_vocab_size",)}
    return {**taken, "relative_attention_num_buckets": 32, "pad_token_id": 1, **ending(pick, "MPNet")}


def gte(pick: Pick, config: Config) -> Config:
    return {
        **nomic_bert(pick, config),
        "hidden_act": pick(["gelu", "gelu", "silu"]),
        "type_vocab_size": pick([0, 1, 2]),
        **ending(pick, "Gte"),
    }


def distilbert(pick: Pick, config: Config) -> Config:
    return {
        "n_layers": config["num_hidden_layers"],
        "n_heads": config["num_attention_heads"],
        "dim": config["num_attention_heads"] * config["head_dim"],
        "hidden_dim": config["intermediate_size"],
        "max_position_embeddings": pick([40, 64]),
        "pad_token_id": 0,
        "activation": pick(["gelu", "gelu", "relu"]),
        "architectures": [pick(["DistilBertForMaskedLM", "DistilBertForSequenceClassification"])],
        "num_labels": pick([2, 3, 7]),
        "seq_classif_dropout": pick([0.0, 0.2]),
        "dropout": pick([0.0, 0.1, 0.1]),
        "attention_dropout": pick([0.0, 0.1, 0.1]),
    }


def albert(pick: Pick, config: Config) -> Config:
    return {
        **{name: config[name] for name in ("num_hidden_layers", "num_attention_heads", "intermediate_size")},
        "hidden_size": config["num_attention_heads"] * config["head_dim"],
        "embedding_size": pick([5, 16, 40]),
        "max_position_embeddings": pick([40, 64]),
        "type_vocab_size": pick([1, 2, 3]),
        "pad_token_id": 0,
        "hidden_act": pick(["gelu_new", "gelu", "relu"]),
        "hidden_dropout_prob": pick([0.0, 0.1]),
        "attention_probs_dropout_prob": pick([0.0, 0.1]),
    }


ENCODERS: Mapping[str, Callable[[Pick, Config], Config]] = {
    **{draw.__name__: draw for draw in (albert, bert, camembert, distilbert, electra, eurobert, gte, modernbert)},
    **{draw.__name__: draw for draw in (mpnet, nomic_bert, roberta)},
    "xlm-roberta": xlm_roberta,
}
