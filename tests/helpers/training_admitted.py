"""Random small models of families whose training step was measured last: relatives of those before."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tests.helpers.training_encoders import bert, ending, roberta
from tests.helpers.training_relatives import DROPS, grouped, layers, routed
from tests.helpers.training_since import granitemoe

Pick: TypeAlias = Callable[[list[Any]], Any]
Config: TypeAlias = dict[str, Any]


def networks(pick: Pick, config: Config) -> list[str]:
    """Which layers are dense, and which have experts."""
    return [pick(["dense", "sparse"]) for _ in range(config["num_hidden_layers"])]


def arcee(pick: Pick, config: Config) -> Config:
    return {
        **grouped(pick, config, own_head=False),
        "head_dim": config["head_dim"],
        "attention_bias": pick([True, False]),
        "mlp_bias": pick([True, False]),
        "hidden_act": pick(["relu2", "relu2", "gelu", "silu"]),
        "attention_dropout": pick(DROPS),
    }


def ministral(pick: Pick, config: Config) -> Config:
    return {**grouped(pick, config), **layers(pick, config), "attention_dropout": pick(DROPS)}


def mellum(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config),
        **layers(pick, config),
        "mlp_layer_types": pick([None, networks(pick, config)]),
        "moe_intermediate_size": pick([16, 72, 200]),
        "num_experts": pick([3, 5]),
        "norm_topk_prob": pick([True, False]),
        "attention_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def solar_open(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config),
        "attention_bias": pick([True, False]),
        "moe_intermediate_size": pick([16, 72, 200]),
        "n_routed_experts": pick([4, 6]),
        "n_shared_experts": pick([1, 2]),
        "norm_topk_prob": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def exaone_moe(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config),
        **layers(pick, config),
        "moe_intermediate_size": pick([16, 72, 200]),
        "num_experts": pick([4, 6]),
        "num_shared_experts": pick([1, 2]),
        "mlp_layer_types": pick([None, networks(pick, config)]),
        "norm_topk_prob": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def hy_v3(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config),
        "moe_intermediate_size": pick([16, 72, 200]),
        "num_experts": pick([4, 6]),
        "num_shared_experts": pick([1, 2]),
        "mlp_layer_types": pick([None, networks(pick, config)]),
        "attention_bias": pick([True, False]),
        "enable_moe_fp32_combine": pick([True, True, False]),
        "attention_dropout": pick(DROPS),
    }


def flex_olmo(pick: Pick, config: Config) -> Config:
    return {
        **routed(pick, config, own_head=False),
        "intermediate_size": pick([16, 72, 200]),
        "num_experts": pick([3, 5]),
        "norm_topk_prob": pick([True, False]),
        "attention_bias": pick([True, False]),
        "attention_dropout": pick(DROPS),
    }


def granitemoeshared(pick: Pick, config: Config) -> Config:
    return {**granitemoe(pick, config), "shared_intermediate_size": pick([0, 8, 56, 104])}


def ernie(pick: Pick, config: Config) -> Config:
    return {**bert(pick, config), **ending(pick, "Ernie"), "use_task_id": pick([True, False])}


def data2vec_text(pick: Pick, config: Config) -> Config:
    return {**roberta(pick, config), **ending(pick, "Data2VecText")}


def roberta_prelayernorm(pick: Pick, config: Config) -> Config:
    return {**roberta(pick, config), **ending(pick, "RobertaPreLayerNorm")}


def xlm_roberta_xl(pick: Pick, config: Config) -> Config:
    return {**roberta(pick, config), **ending(pick, "XLMRobertaXL")}


ADMITTED: Mapping[str, Callable[[Pick, Config], Config]] = {
    **{
        draw.__name__: draw
        for draw in (arcee, ernie, exaone_moe, flex_olmo, granitemoeshared, hy_v3, mellum, ministral, solar_open)
    },
    "data2vec-text": data2vec_text,
    "roberta-prelayernorm": roberta_prelayernorm,
    "xlm-roberta-xl": xlm_roberta_xl,
}
