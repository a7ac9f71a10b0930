"""Recurrent layers, windows of an encoder and layers that differ: numbers and states by hand. Kind: golden, refusal."""

import json

import pytest
from sympy import Symbol, sympify

from tests.families import LOGITS, TINY
from tests.helpers.models import tiny
from tfacct import load
from tfacct.accounts.metrics import Point, attention_overtakes
from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model


@pytest.mark.parametrize(
    ("name", "key", "published"),
    [
        # "RecurrentGemma" (arXiv 2404.07839), abstract; the others in their names.
        ("recurrentgemma-2b", "non_embedding_params", "2e9"),
        ("nemotron-3-nano-30b-a3b", "active_non_embedding_params", "3.2e9"),
        ("nemotron-3-super-120b-a12b", "active_non_embedding_params", "1.2e10"),
        ("nemotron-3-ultra-550b-a55b", "active_non_embedding_params", "5.5e10"),
    ],
)
def test_parameters_outside_the_embedding_as_published(name: str, key: str, published: str) -> None:
    digits = len(published.partition("e")[0].replace(".", "")) - 1
    assert float(f"{load(name).params().models[0][key]:.{digits}e}") == float(published)


def test_the_sizes_of_sparse_attention_config_are_the_ones_taken(run) -> None:
    """As in the class, they replace its own fields, which are not named as defaulted."""
    sparse = {"sparse_num_index_heads": 4, "sparse_index_dim": 16, "sparse_attention_freq": [0, 1, 1]}
    fields = {name: value for name, value in TINY["minimax_m3_vl_text"].items() if "index" not in name}
    config = {**fields, "layer_types": None, "sparse_attention_config": sparse}
    stored = load_model("mine", config).ledger.parameters()
    assert stored["blocks.*.attn.indexer.q_proj.weight"] == 2 * 48 * 4 * 16
    assert "index_" not in run("params", "-", stdin=json.dumps(config).encode()).out


FLOPS = "|--masked|--by part|--by block --decode|--pointwise|--train|--bytes|--ctx 100 --generate 7".split("|")
COMMANDS = [
    *(f"flops mamba-130m {more}" for more in (*FLOPS, "mamba-2.8b", "mamba-2.8b --bytes")),
    *(f"memory mamba-130m {more}" for more in ("", "--on 24GiB", "mamba-2.8b --on 24GiB")),
    *(
        "memory --kv mamba-130m",
        "memory --kv mamba-130m --ctx 128k --batch 3",
        "params mamba-130m",
        "models mamba-130m",
    ),
    *("sweep mamba-130m --ctx 1k..8k", "compare --by line mamba-130m mamba-2.8b", "formula mamba-130m --of params"),
    *("formula mamba", "formula mamba --of train", "formula mamba --of kv", "formula rwkv"),
    "solve mamba-130m --for batch --until total_bytes=24GiB",
    *(f"{command} rwkv-4-169m-pile" for command in ("flops", "flops --bytes", "memory --kv", "memory")),
]
OF_ATTENTION = ("T × S", "softmax", "rotary", "scores", "KV cache", "MHA", "MQA", "query", "keys at the end", "window")
"""Words that a report about recurrent blocks alone has no use for; a convolution's window is named where bytes are."""


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_report_speaks_of_attention_where_there_is_none(run, command: str, columns: int) -> None:
    ran = run(*command.split(), columns=columns)
    assert ran.code == 0 and max(map(len, ran.out.splitlines())) <= columns
    allowed = ("window",) if "--bytes" in command else ()
    assert [word for word in OF_ATTENTION if word in ran.out and word not in allowed] == []
    assert "rwkv" not in command or ("convolution" not in ran.out and "None" not in ran.out)


def test_metrics_of_attention_alone() -> None:
    assert load("mamba-130m").flops(ctx=999, masked=True).total == load("mamba-130m").flops(ctx=999).total
    for chunk in (False, True):
        assert attention_overtakes(Point(tiny("mamba").ledger, Workload(5, 5, 7)), chunk=chunk) is None
    with pytest.raises(TfacctError, match="the model has no attention"):
        tiny("mamba").architecture.with_kv_heads(2)
    pytest.importorskip("numpy")
    with pytest.raises(TfacctError, match="the model has no attention"):
        load("mamba-130m").evaluate("total_flops", num_key_value_heads=[1, 2])


def test_windows_of_several_lengths_have_several_axes_in_a_formula() -> None:
    assert load_model("mine", TINY["led"]).source == 28
    # Read back with the sizes that the legend gives, the formula is the count; of 13 source tokens 24 are read.
    model = load(LOGITS["led windows of two sizes"])
    for step in ({"ctx": 11, "source": 13, "batch": 3}, {"ctx": 11, "tokens": 1, "source": 13}):
        facts = model.formula(**step).models[0]
        sizes = {axis: about["value"] for axis, about in facts["legend"].items() if "value" in about}
        total = sympify(facts["total_formula"], locals={axis: Symbol(axis) for axis in facts["legend"]})
        assert total.subs(sizes) == model.flops(**step).total
        assert (sizes["Ih1"], sizes["Iw2"]) == ((0, 0) if "tokens" in step else (12, 3))
    assert facts["legend"]["Iw1"]["meaning"].startswith("overlapping windows, Ih1")
