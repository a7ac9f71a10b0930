"""Models without attention: no report mentions what only attention has. Kind: output, refusal."""

import json

import pytest

from tests.helpers.models import tiny
from tfacct import load
from tfacct.accounts.metrics import Point, attention_overtakes
from tfacct.architecture.parts import Mamba
from tfacct.base.errors import TfacctError
from tfacct.ledger.lines import Matmul
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model

COMMANDS = [
    "flops mamba-130m",
    "flops mamba-130m --masked",
    "flops mamba-130m --by part",
    "flops mamba-130m --by block --decode",
    "flops mamba-130m --pointwise",
    "flops mamba-130m --train",
    "flops mamba-130m --bytes",
    "flops mamba-130m --ctx 100 --generate 7",
    "flops mamba-130m mamba-2.8b",
    "flops mamba-130m mamba-2.8b --bytes",
    "params mamba-130m",
    "memory mamba-130m",
    "memory mamba-130m --on 24GiB",
    "memory mamba-130m mamba-2.8b --on 24GiB",
    "memory --kv mamba-130m",
    "memory --kv mamba-130m --ctx 128k --batch 3",
    "sweep mamba-130m --ctx 1k..8k",
    "compare --by line mamba-130m mamba-2.8b",
    "formula mamba",
    "formula mamba --of train",
    "formula mamba --of kv",
    "formula mamba-130m --of params",
    "solve mamba-130m --for batch --until total_bytes=24GiB",
    "models mamba-130m",
]
OF_ATTENTION = ("T × S", "softmax", "rotary", "scores", "KV cache", "MHA", "MQA", "query", "keys at the end", "window")
"""Words that a report about Mamba blocks alone has no use for; a convolution's window is named where bytes are."""


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_report_speaks_of_attention_where_there_is_none(run, command: str, columns: int) -> None:
    ran = run(*command.split(), columns=columns)
    assert ran.code == 0 and max(map(len, ran.out.splitlines())) <= columns
    allowed = ("window",) if "--bytes" in command else ()
    assert [word for word in OF_ATTENTION if word in ran.out and word not in allowed] == []


def test_the_json_says_the_same(run) -> None:
    """Keys as in every JSON; what there is none of is null or 0."""
    for command in ("flops mamba-130m", "formula mamba", "memory --kv mamba-130m"):
        document = json.loads(run(*command.split(), "--json").out)
        assert not any(word in document["convention"] for word in ("attention", "T x S", "token of the context"))
    (facts,) = json.loads(run("memory", "--kv", "mamba-130m", "--json").out)["models"]
    assert facts["query_heads"] is facts["kv_heads"] is None and facts["kv_bytes_per_token"] == 0
    assert {(line["as_built"], line["mha"], line["mqa"]) for line in facts["lines"]} == {(2_654_208, None, None)}


def test_beside_a_model_with_attention_each_says_its_own(run) -> None:
    ran = run("flops", "mamba-130m", "gpt2")
    assert (
        "mamba" in ran.out
        and "full T × S attention" in ran.out
        and "the recurrence of Mamba" in " ".join(run("flops", "mamba-130m", "gpt2", "-v").out.split())
    )
    for command in (
        "memory --kv mamba-130m gpt2",
        "memory mamba-130m gpt2",
        "compare --by line gpt2 mamba-130m --ctx 1k,1k",
    ):
        assert "mamba-130m keeps no keys and values, but a state of fixed size" in " ".join(
            run(*command.split()).out.split()
        )
    assert " any " in run("memory", "mamba-130m", "gpt2", "--on", "24GiB").out


def test_masked_pairs_are_all_there_are() -> None:
    model = load("mamba-130m")
    assert model.flops(ctx=999, masked=True).total == model.flops(ctx=999).total


@pytest.mark.parametrize("chunk", [False, True])
def test_no_crossover_is_made_up(chunk: bool, run) -> None:
    assert attention_overtakes(Point(tiny("mamba").ledger, Workload(5, 5, 7)), chunk=chunk) is None
    assert (
        " tokens on" not in run("flops", "mamba-130m").out + run("memory", "--kv", "mamba-130m", "--batch", "1000").out
    )


def test_a_state_that_does_not_fit_is_a_verdict(run) -> None:
    for command, says in (
        ("memory mamba-2.8b --on 5GiB", "Does not fit in 5 GiB: the weights alone need"),
        ("memory mamba-130m --on 247MiB --batch 99", "less than the state of 99 sequences"),
    ):
        ran = run(*command.split())
        assert ran.code == 0 and says in " ".join(ran.out.split())


def test_key_heads_are_no_knob() -> None:
    with pytest.raises(TfacctError, match="the model has no attention"):
        tiny("mamba").architecture.with_kv_heads(2)
    pytest.importorskip("numpy")
    with pytest.raises(TfacctError, match="the model has no attention"):
        load("mamba-130m").evaluate("total_flops", num_key_value_heads=[1, 2])


def test_the_width_follows_as_in_the_class() -> None:
    """expand · hidden_size, unless intermediate_size says another; a rank of a sixteenth, rounded up."""
    bare = {"model_type": "mamba", "vocab_size": 7, "hidden_size": 33, "num_hidden_layers": 1}
    said = [
        ({}, (66, 3)),
        ({"expand": 3}, (99, 3)),
        ({"intermediate_size": 50}, (50, 3)),
        ({"expand": 3, "intermediate_size": 99, "d_inner": 99, "d_model": 33, "n_layer": 1}, (99, 3)),
        ({"time_step_rank": 5, "intermediate_size": None}, (66, 5)),
    ]
    for fields, sizes in said:
        mamba = load_model("mine", {**bare, **fields}).architecture.stacks[0].block.find(Mamba)
        assert (mamba.inner, mamba.rank) == sizes


def test_rows_of_a_product_without_tokens_of_its_own_are_its_left_axes() -> None:
    """Reading the states: Dx × Ns by Ns, for each token of each sequence. 2 · 3 · 5 · 7 · 11 FLOPs."""
    line = Matmul("read_out", "B T Dx Ns, B T Ns -> B T Dx")
    axes = {"B": 3, "T": 5, "Dx": 7, "Ns": 11}
    dims = line.dims(axes)
    assert (dims.m, dims.k, dims.n, dims.times) == (7, 11, 1, 15)
    left, right = line.backward()  # an outer product, and a sum over channels: 2 · 3 · 5 · 7 · 11 each
    assert left.flops(axes) == right.flops(axes) == line.flops(axes) == 2 * 3 * 5 * 7 * 11
