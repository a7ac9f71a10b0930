"""Random small models for each family whose training step is measured, and random ways to take a step of them."""

import random
from typing import Any

from tfacct.ledger.workload import Workload
from tfacct.reports.training import Recipe


def drawn(family: str, seed: int) -> tuple[dict[str, Any], Recipe, Workload]:
    """A small model of a family, and how a step of it is taken."""
    pick = random.Random(f"{family} {seed}").choice
    config: dict[str, Any] = {"model_type": family, "vocab_size": pick([11, 50, 101, 300])}
    layers, wide, heads = pick([1, 2, 3, 4]), pick([16, 70, 200]), pick([8, 16, 24])
    if family == "gpt2":
        drop = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), pick([0.0, 0.1]))
        count = pick([2, 3, 4])
        config |= {
            "n_embd": count * heads,
            "n_head": count,
            "n_layer": layers,
            "n_inner": wide,
            "n_positions": 64,
            **drop,
        }
        config |= {"activation_function": pick(["gelu_new", "gelu", "relu"])}
    else:
        groups, each = pick([1, 2, 3]), pick([1, 2, 4])
        config |= {"num_attention_heads": groups * each, "num_key_value_heads": groups, "num_hidden_layers": layers}
        config |= {"hidden_size": groups * each * pick([4, 7, 10, 24]), "intermediate_size": wide, "head_dim": heads}
        config |= {"max_position_embeddings": 64, "attention_dropout": pick([0.0, 0.0, 0.1])}
    if family == "qwen2":  # its class knows no head_dim
        config |= {"hidden_size": config["num_attention_heads"] * config.pop("head_dim")}
    if family == "olmo2":
        config |= {"attention_bias": pick([True, False]), "pad_token_id": 0, "eos_token_id": 1}
        config |= {"hidden_size": config["num_attention_heads"] * config.pop("head_dim")}
    if family == "gemma":
        config |= {"hidden_act": pick(["gelu", "gelu_pytorch_tanh"]), "attention_bias": pick([True, False])}
        config |= {"pad_token_id": 0}
    if family == "qwen3_moe":
        config |= {"hidden_size": pick([24, 40, 64, 120]), "moe_intermediate_size": pick([16, 72, 200])}
        config |= {"num_experts": pick([3, 5]), "num_experts_per_tok": pick([1, 2])}
        config |= {"norm_topk_prob": pick([True, False]), "attention_bias": pick([True, False])}
        config |= {"decoder_sparse_step": pick([1, 1, 2]), "mlp_only_layers": pick([[], [], [0], [1, 2]])}
    if family in ("mistral", "mixtral"):
        config |= {"sliding_window": None}
    if family == "mixtral":  # grouped products take rows of 16 bytes
        config |= {"hidden_size": pick([24, 40, 64, 120]), "intermediate_size": pick([16, 72, 200])}
        config |= {"num_local_experts": pick([3, 5]), "num_experts_per_tok": pick([1, 2])}
    config |= {"tie_word_embeddings": pick([True, False])}
    recipe = Recipe(pick(["bf16", "fp32"]), "none", pick(["none", "none", "full"]), pick(["sdpa", "eager"]))  # type: ignore[arg-type]
    tokens = pick([5, 17, 33])
    return config, recipe, Workload(context=tokens, tokens=tokens, batch=pick([1, 2, 3]))
