"""Random small models of an encoder and a decoder whose training step is measured."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Pick: TypeAlias = Callable[[list[Any]], Any]
Config: TypeAlias = dict[str, Any]

DROPS = [0.0, 0.0, 0.1]


def bart(pick: Pick, config: Config) -> Config:
    heads = pick([2, 3])
    other = pick([1, 2, heads])
    width = heads * other * config["head_dim"]
    return {
        "d_model": width,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": pick([heads, other]),
        "encoder_layers": config["num_hidden_layers"],
        "decoder_layers": pick([1, 2, 3]),
        "encoder_ffn_dim": config["intermediate_size"],
        "decoder_ffn_dim": pick([16, 70, 200]),
        "max_position_embeddings": 64,
        "activation_function": pick(["gelu", "gelu", "relu"]),
        "scale_embedding": pick([True, False]),
        "dropout": pick([0.1, 0.1, 0.0]),
        "attention_dropout": pick(DROPS),
        "activation_dropout": pick(DROPS),
        **{"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2},
    }


def m2m_100(pick: Pick, config: Config) -> Config:
    taken = bart(pick, config)
    return {**taken, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "activation_function": pick(["relu", "gelu"])}


def marian(pick: Pick, config: Config) -> Config:
    shares = pick([True, False])
    target = None if shares else pick([77, 120])
    return {**bart(pick, config), "share_encoder_decoder_embeddings": shares, "decoder_vocab_size": target}


def t5(pick: Pick, config: Config) -> Config:
    return {
        "d_model": config["hidden_size"],
        "d_kv": config["head_dim"],
        "d_ff": config["intermediate_size"],
        "num_layers": config["num_hidden_layers"],
        "num_decoder_layers": pick([1, 2, 3]),
        "num_heads": pick([1, 2, 3]),
        "relative_attention_num_buckets": pick([4, 8, 32]),
        "feed_forward_proj": pick(["relu", "gated-gelu", "gated-silu"]),
        "dropout_rate": pick([0.0, 0.1]),
        **{"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0},
    }


PAIRS: Mapping[str, Callable[[Pick, Config], Config]] = {
    "bart": bart,
    "blenderbot": bart,
    "blenderbot-small": bart,
    "plbart": bart,
    "m2m_100": m2m_100,
    "marian": marian,
    "pegasus": bart,
    "mbart": bart,
    "t5": t5,
    "mt5": t5,
    "umt5": t5,
}
