"""Random small models for each family whose training step is measured, and random ways to take a step of them."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from tests.helpers.training_admitted import ADMITTED
from tests.helpers.training_hybrids import HYBRIDS
from tests.helpers.training_images import IMAGES, tokens_of
from tests.helpers.training_pairs import PAIRS
from tests.helpers.training_relatives import RELATIVES
from tests.helpers.training_since import SINCE
from tfacct.ledger.workload import Workload
from tfacct.training.recipe import Recipe

Pick: TypeAlias = Callable[[list[Any]], Any]
Config: TypeAlias = dict[str, Any]

EAGER = ("bloom", "codegen", "gemma2", "gpt_neo", "gpt_oss", "gptj", "mpnet", "mpt", "vaultgemma")
"""Families whose classes refuse sdpa."""

ONCE = ("albert", "mpnet", "mt5", "t5", "umt5")
"""Families whose classes run no block again."""

TIED = (
    "albert",
    "bart",
    "bert",
    "blenderbot",
    "blenderbot-small",
    "plbart",
    "camembert",
    "distilbert",
    "electra",
    "gte",
    "m2m_100",
    "marian",
    "mbart",
    "mpnet",
    "mt5",
    "nomic_bert",
    "pegasus",
    "roberta",
    "t5",
    "umt5",
    "data2vec-text",
    "ernie",
    "roberta-prelayernorm",
    "xlm-roberta-xl",
    "xlm-roberta",
)
"""Families whose head is the token table."""


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
    if family in ("gemma2", "gemma3_text"):
        config |= {"hidden_activation": pick(["gelu", "gelu_pytorch_tanh"]), "attention_bias": pick([True, False])}
        config |= {"pad_token_id": 0, "query_pre_attn_scalar": 16, "sliding_window": pick([2, 8, 17, 40])}
        config |= {"final_logit_softcapping": pick([None, 30.0])}
        if family == "gemma2":
            config |= {"attn_logit_softcapping": pick([None, 50.0])}
        kinds = [pick(["full_attention", "sliding_attention"]) for _ in range(layers - 1)]
        kinds.insert(pick([0, layers - 1]), "sliding_attention")  # at least one block has the window
        config |= {"layer_types": pick([None, kinds])}
    if family == "qwen3_moe":
        config |= {"hidden_size": pick([24, 40, 64, 120]), "moe_intermediate_size": pick([16, 72, 200])}
        config |= {"num_experts": pick([3, 5]), "num_experts_per_tok": pick([1, 2])}
        config |= {"norm_topk_prob": pick([True, False]), "attention_bias": pick([True, False])}
        config |= {"decoder_sparse_step": pick([1, 1, 2]), "mlp_only_layers": pick([[], [], [0], [1, 2]])}
    if family in ("mistral", "mixtral"):
        config |= {"sliding_window": pick([None, 2, 8, 17, 40])}
    if family in ("qwen2", "qwen3", "qwen3_moe"):
        config |= {"sliding_window": pick([2, 8, 17, 40]), "use_sliding_window": pick([False, True])}
        config |= {"max_window_layers": pick([0, 1, 2])}
    if family == "mixtral":  # grouped products take rows of 16 bytes
        config |= {"hidden_size": pick([24, 40, 64, 120]), "intermediate_size": pick([16, 72, 200])}
        config |= {"num_local_experts": pick([3, 5]), "num_experts_per_tok": pick([1, 2])}
    if family in OWN:
        config = {"model_type": family, "vocab_size": config["vocab_size"], **OWN[family](pick, config)}
    if family not in IMAGES:
        config |= {"tie_word_embeddings": pick([True, False]) or family in TIED}
    recipe = Recipe(pick(["bf16", "fp32"]), "none", pick(["none", "none", "full"]), pick(["sdpa", "eager"]))  # type: ignore[arg-type]
    if family in ONCE:
        recipe = replace(recipe, recompute="none")
    shared = config.get("multi_query") and not config.get("new_decoder_architecture", True)  # Falcon's heads
    if family in EAGER or shared:
        recipe = replace(recipe, attention="eager")
    tokens = tokens_of(family, config) if family in IMAGES else pick([5, 16, 17, 33])
    if "linear_num_key_heads" in config:  # chunks of 64
        tokens = pick([5, 33, 64, 70, 128, 130, 200, 300, 330])
    work = Workload(context=tokens, tokens=tokens, batch=pick([1, 2, 3]))
    if family in PAIRS:
        source = pick([5, 16, 17, 33, 40])
        work = replace(work, source=source, new_source=source)
    return config, recipe, work


def of_hidden(pick: Pick, config: Config, kv: bool) -> Config:
    """Llama's sizes in a class whose heads divide the hidden size; `kv`: it groups them."""
    taken = {name: config[name] for name in ("num_hidden_layers", "num_attention_heads", "max_position_embeddings")}
    taken["hidden_size"] = config["num_attention_heads"] * config["head_dim"]
    return {**taken, **({"num_key_value_heads": config["num_key_value_heads"]} if kv else {})}


def opt(pick: Pick, config: Config) -> Config:
    taken = of_hidden(pick, config, kv=False)
    return {
        **taken,
        "ffn_dim": config["intermediate_size"],
        "word_embed_proj_dim": taken["hidden_size"],
        "dropout": pick([0.0, 0.1]),
        "attention_dropout": pick([0.0, 0.0, 0.1]),
        "activation_function": pick(["relu", "gelu"]),
        "enable_bias": pick([True, True, False]),
        "_remove_final_layer_norm": pick([False, False, True]),
        **{"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2},
    }


def phi3(pick: Pick, config: Config) -> Config:
    taken = of_hidden(pick, config, kv=True)
    share = pick([1.0, 0.5])
    pairs = int(taken["hidden_size"] // taken["num_attention_heads"] * share) // 2
    factors = {f"{name}_factor": [1.0] * pairs for name in ("short", "long")}
    return {
        **taken,
        "intermediate_size": config["intermediate_size"],
        "partial_rotary_factor": share,
        "sliding_window": pick([None, None, 2, 8, 17, 40]),
        "resid_pdrop": pick([0.0, 0.0, 0.1]),
        "attention_dropout": pick([0.0, 0.0, 0.1]),
        "rope_scaling": pick([None, {"type": "longrope", **factors}]),
        "original_max_position_embeddings": 64,
        **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    }


def phi(pick: Pick, config: Config) -> Config:
    taken = of_hidden(pick, config, kv=True)
    return {
        **taken,
        "intermediate_size": config["intermediate_size"],
        "partial_rotary_factor": pick([1.0, 0.5, 0.25]),
        "hidden_act": pick(["gelu_new", "gelu_new", "gelu"]),
        "resid_pdrop": pick([0.0, 0.0, 0.1]),
        "embd_pdrop": pick([0.0, 0.0, 0.1]),
        "attention_dropout": pick([0.0, 0.0, 0.1]),
    }


def gpt_neox(pick: Pick, config: Config) -> Config:
    return {
        **of_hidden(pick, config, kv=False),
        "intermediate_size": config["intermediate_size"],
        "rotary_pct": pick([0.25, 0.5, 1.0]),
        "hidden_act": pick(["gelu", "gelu", "relu", "gelu_new", "gelu_fast"]),
        "hidden_dropout": pick([0.0, 0.0, 0.1]),
        "attention_dropout": pick([0.0, 0.0, 0.1]),
        "use_parallel_residual": pick([True, True, False]),
        "attention_bias": pick([True, False]),
    }


def qwen2_moe(pick: Pick, config: Config) -> Config:
    taken = of_hidden(pick, config, kv=True)
    width = 8 * taken["num_attention_heads"]  # whose rows are of 16 bytes
    return {
        **taken,
        "hidden_size": width * pick([1, 2, 3]),
        "moe_intermediate_size": pick([16, 72, 200]),
        "shared_expert_intermediate_size": pick([8, 56, 104]),
        "intermediate_size": config["intermediate_size"],
        "num_experts": pick([3, 5]),
        "num_experts_per_tok": pick([1, 2]),
        "norm_topk_prob": pick([True, False]),
        "qkv_bias": pick([True, False]),
        "decoder_sparse_step": pick([1, 1, 2]),
        "mlp_only_layers": pick([[], [], [0], [1, 2]]),
        "sliding_window": pick([2, 8, 17, 40]),
        "use_sliding_window": pick([False, False, True]),
        "max_window_layers": pick([0, 1, 2]),
        "attention_dropout": pick([0.0, 0.0, 0.1]),
    }


OWN: Mapping[str, Callable[[Pick, Config], Config]] = {
    **{own.__name__: own for own in (opt, phi3, phi, gpt_neox, qwen2_moe)},
    **RELATIVES,
    **SINCE,
    **ADMITTED,
    **HYBRIDS,
    **PAIRS,
    **IMAGES,
}
