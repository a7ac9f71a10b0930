"""Nemotron Super and Ultra: no class stands behind them; layers without attention, a network, or either."""

from tests.families._sizes import Distinct, Sized


def _layer(group: int | None, times: float | None) -> dict[str, dict[str, object]]:
    attention: dict[str, object] = {"n_heads_in_group": group, "no_op": group is None, "window_length": None}
    return {"attention": attention, "ffn": {"ffn_mult": times, "no_op": times is None, "sparsify": None}}


TINY = {
    "model_type": "nemotron-nas", "vocab_size": 461, "hidden_size": 96, "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "max_position_embeddings": 47, "intermediate_size": None, "num_key_value_heads": None,
    "block_configs": [_layer(4, 2.5), _layer(None, 5.25), _layer(None, None), _layer(2, None), _layer(4, 2.5)],
}  # fmt: skip
VARIANTS = {"biases": {**TINY, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}}
SILENT = {"pretraining_tp": 1}


def sized(of: Distinct) -> Sized:
    """One layer of each kind it may be: attention and a network."""
    hidden, times = of.K * of.G * of.H, of.F / 4
    width = -(-int(2 * times * hidden / 3) // 256) * 256
    config = {
        "vocab_size": of.V, "hidden_size": hidden, "num_hidden_layers": of.L, "num_attention_heads": of.K * of.G,
        "max_position_embeddings": of.P, "block_configs": [_layer(of.G, times)] * of.L,
    }  # fmt: skip
    sizes = {**of.letters("KGHVLBTS"), "N": of.K * of.G, "D": hidden, "F": width}
    return config, sizes
