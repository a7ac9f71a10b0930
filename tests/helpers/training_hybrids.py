"""Random small models of families with parts of their own whose training step is measured: hybrids, and others."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tests.helpers.training_relatives import DROPS, grouped, layers, routed

Pick: TypeAlias = Callable[[list[Any]], Any]
Config: TypeAlias = dict[str, Any]


def mixers(pick: Pick, config: Config, kind: str) -> list[str]:
    """What stands in each layer: attention, or what stands in its place; both where there is room."""
    count = config["num_hidden_layers"]
    kinds = [pick(["full_attention", kind]) for _ in range(count)]
    kinds[pick([0, count - 1])] = "full_attention"  # a class may ask for it
    return kinds


def lfm2(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config, own_head=False),
        "layer_types": mixers(pick, config, "conv"),
        "conv_bias": pick([True, False]),
        "conv_L_cache": pick([2, 3, 4]),
        "block_auto_adjust_ff_dim": False,
    }


def lfm2_moe(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config, own_head=False),
        "layer_types": mixers(pick, config, "conv"),
        "conv_bias": pick([True, False]),
        "conv_L_cache": pick([2, 3, 4]),
        "moe_intermediate_size": pick([16, 72, 200]),
        "num_dense_layers": pick([0, 1, 2]),
        "num_experts": pick([3, 5]),
        "norm_topk_prob": pick([True, True, False]),
        "use_expert_bias": pick([True, True, False]),
    }


def deltas(pick: Pick, config: Config) -> Config:
    """Sizes of DeltaNet."""
    heads = pick([1, 2, 3])
    return {
        "layer_types": mixers(pick, config, "linear_attention"),
        "linear_num_key_heads": heads,
        "linear_num_value_heads": heads * pick([1, 1, 2, 3]),
        "linear_key_head_dim": pick([4, 8, 24]),
        "linear_value_head_dim": pick([4, 8, 20]),
        "linear_conv_kernel_dim": pick([2, 3, 4]),
    }


def qwen3_5_text(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config),
        **deltas(pick, config),
        "head_dim": pick([8, 16, 24]),
        "partial_rotary_factor": pick([0.25, 0.5, 1.0]),
        "attention_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def qwen3_5_moe_text(pick: Pick, config: Config) -> Config:
    return {
        **qwen3_5_text(pick, config),
        **routed(pick, config),
        "moe_intermediate_size": pick([16, 72, 200]),
        "shared_expert_intermediate_size": pick([8, 56, 104]),
        "num_experts": pick([3, 5]),
    }


def qwen3_next(pick: Pick, config: Config) -> Config:
    return {
        **qwen3_5_moe_text(pick, config),
        "intermediate_size": config["intermediate_size"],
        "norm_topk_prob": pick([True, True, False]),
        "decoder_sparse_step": pick([1, 1, 2]),
        "mlp_only_layers": pick([[], [], [0]]),
    }


def llama4_text(pick: Pick, config: Config) -> Config:
    count = config["num_hidden_layers"]
    return {
        **grouped(pick, config),
        "hidden_size": pick([24, 40, 64, 120]),
        "intermediate_size": pick([16, 72, 200]),
        "intermediate_size_mlp": pick([16, 70, 200]),
        "num_local_experts": pick([1, 3, 5]),
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": pick([1, 1, 2]),
        "no_rope_layers": [pick([0, 1]) for _ in range(count - 1)] + [1],
        "attention_chunk_size": pick([2, 8, 17, 40]),
        "use_qk_norm": pick([True, True, False]),
        "attn_temperature_tuning": pick([True, True, False]),
        "attention_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def nanochat(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config),
        "hidden_act": pick(["relu2", "relu2", "silu"]),
        "attention_bias": pick([True, False]),
        "final_logit_softcapping": pick([15.0, 15.0, None]),
        "attention_dropout": pick(DROPS),
    }


def afmoe(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config),
        **layers(pick, config),
        "moe_intermediate_size": pick([16, 72, 200]),
        "num_experts": pick([3, 5]),
        "num_shared_experts": pick([1, 2]),
        "num_dense_layers": pick([0, 1, 2]),
        "global_attn_every_n_layers": pick([2, 3, 4]),
        "mup_enabled": pick([True, False]),
        "attention_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def apertus(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config),
        "hidden_act": pick(["xielu", "xielu", "silu"]),
        "attention_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


HYBRIDS: Mapping[str, Callable[[Pick, Config], Config]] = {
    own.__name__: own
    for own in (lfm2, lfm2_moe, qwen3_5_text, qwen3_5_moe_text, qwen3_next, llama4_text, nanochat, afmoe, apertus)
}
