"""Metrics by name: as numbers, arrays and symbols, they equal the commands' figures. Kind: law."""

import inspect
import re
import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfacct
from tests.families import TINY
from tests.helpers.models import by_kind, headed, of_family
from tfacct import Model, load
from tfacct.accounts.metrics import (
    METRICS,
    STEP_METRICS,
    Metric,
    Point,
    attention_overtakes,
    metric,
)
from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.options import MetricTerms

np = pytest.importorskip("numpy")

MOVED = {"total_read_bytes", "total_written_bytes", "total_moved_bytes", "flops_per_byte"}
NAMES = [*METRICS, "share.attn", "share.attn.scores", "share.attn_scores_values", "flops.mlp", "flops.lm_head"]


def named(name: str, model: LoadedModel) -> Metric:
    return metric(name, [model.ledger])


def test_they_are_the_numbers_of_the_other_commands() -> None:
    model = load("llama-3.1-8b")
    point = Point(model.ledger, Workload(4096, 4096, 3))
    facts = model.flops(ctx=4096, batch=3).models[0] | model.memory(ctx=4096, batch=3).models[0]
    facts |= model.params().models[0]
    traffic = model.traffic(ctx=4096, batch=3).models[0]
    facts |= {key: traffic[key] for key in ("total_read_bytes", "total_written_bytes", "total_moved_bytes")}
    for name in METRICS.keys() - {"ratio_to_rule_of_thumb", "flops_per_byte"}:
        assert METRICS[name].of(point) == facts[name], name
    assert METRICS["ratio_to_rule_of_thumb"].of(point) == Fraction(facts["total_flops"], facts["rule_of_thumb_flops"])
    assert METRICS["flops_per_byte"].of(point) == Fraction(traffic["total_flops"], traffic["total_moved_bytes"])
    assert float(METRICS["flops_per_byte"].of(point)) == traffic["flops_per_byte"]
    components = model.flops(ctx=4096, batch=3).models[0]["components"]
    for name, flops in components.items():
        assert named(f"flops.{name}", model.loaded).of(point) == flops
        assert named(f"share.{name}", model.loaded).of(point) == Fraction(flops, facts["total_flops"])
    assert sum(named(f"share.{name}", model.loaded).of(point) for name in components) == 1


# What scores + values cost against the rest, by hand: 4·T²·L·N·H > T·(rest per token), so T > rest / (4·L·N·H).
# gpt2-xl: D + D·K/N + D·F/(N·H) + D·V/(2·L·N·H) = 1,600 + 1,600 + 6,400 + 523.5…  → 10,124
# llama-3.1-8b: 4,096 + 1,024 + 3·4,096·14,336/(2·4,096) + 4,096·128,256/(2·32·4,096) = 28,628 exactly → 28,629
@pytest.mark.parametrize(("name", "context"), [("gpt2-xl", 10_124), ("llama-3.1-8b", 28_629)])
@pytest.mark.parametrize("tokens", [None, 1])
def test_where_attention_overtakes(name: str, context: int, tokens: int | None) -> None:
    model = load(name).loaded
    point = Point(model.ledger, Workload(5, tokens or 5, 7))
    assert attention_overtakes(point, chunk=tokens is not None) == context


def test_a_chunk_that_is_ahead_from_the_start() -> None:
    """With 100,000 new tokens the smallest possible context is past gpt2-xl's crossover."""
    model = load("gpt2-xl").loaded
    assert attention_overtakes(Point(model.ledger, Workload(200_000, 100_000)), chunk=True) == 100_000


@pytest.mark.parametrize("family", by_kind(headed()))
def test_arrays_are_within_a_rounding_of_the_exact_numbers(family: str) -> None:
    """Float64 within 10⁻¹⁵, object arrays exactly, both against one whole number at a time, of every metric."""
    model = load(TINY[family])
    rng = np.random.default_rng(3)
    contexts, batches = rng.integers(1, 10**9, 12), rng.integers(1, 10**6, 12)
    source = model.loaded.source or 0
    many = len(model.loaded.architecture.stacks) > 2 or len(model.ledger.products(Workload(1, 1).axes())) > 18
    roundings = 2 if source or many else 1
    for name in dict.fromkeys(of_family(name, family) for name in NAMES):
        fast = model.evaluate(name, ctx=contexts, batch=batches)
        exact = model.evaluate(name, ctx=contexts, batch=batches, exact=True)
        assert (fast.dtype, exact.dtype) == (np.float64, object), name
        for context, batch, near, value in zip(contexts.tolist(), batches.tolist(), fast, exact, strict=True):
            work = Workload(context, context, batch, source=source, new_source=source)
            wanted = named(name, model.loaded).of(Point(model.ledger, work))
            assert value == wanted and isinstance(value, (int, Fraction)), name
            assert abs(Fraction(float(near)) - wanted) <= roundings * abs(wanted) / 10**15, name


@settings(max_examples=60, deadline=None)
@given(
    context=st.integers(1, 2**40),
    batch=st.integers(1, 2**20),
    name=st.sampled_from(NAMES),
    preset=st.sampled_from(["gpt2-xl", "llama-3.1-405b", "qwen2-7b"]),
    train=st.booleans(),
    logits=st.sampled_from(["all", "last"]),
)
def test_no_sizes_make_float64_worse(
    context: int, batch: int, name: str, preset: str, train: bool, logits: str
) -> None:
    model, train = load(preset), train and name not in MOVED
    knobs = {"ctx": context, "batch": batch, "num_key_value_heads": 1}
    exact = model.evaluate(name, **knobs, exact=True, train=train, logits=logits)[()]
    near = model.evaluate(name, **knobs, train=train, logits=logits)[()]
    assert abs(Fraction(float(near)) - exact) <= exact * (2 if name in MOVED else 1) / Fraction(10**15)


def test_arrays_of_fields_and_axes() -> None:
    model = load("llama-3.1-8b")
    heads = [1, 2, 4, 8, 16, 32]
    for name in ("total_flops", "kv_cache_bytes", "total_params"):
        found = model.evaluate(name, ctx=4096, num_key_value_heads=heads, exact=True)
        one_by_one = [model.sweep(name, ctx=[4096], num_key_value_heads=[n]).rows[0][name] for n in heads]
        assert list(found) == one_by_one
    wider = load("llama-3.1-8b", intermediate_size=1000, num_hidden_layers=5).flops(ctx=100).total
    assert model.evaluate("total_flops", ctx=100, F=[1000], L=5, exact=True).tolist() == [wider]


def test_exact_numbers_in_arrays_stay_exact() -> None:
    """64-bit integers in an array of objects would overflow, floats would round."""
    model, batch = load("llama-3.1-8b"), 10**6
    wanted = model.flops(ctx=2**20, batch=batch).total
    for one in (2**20, np.int64(2**20), np.float64(2**20), float(2**20)):
        (found,) = model.evaluate("total_flops", ctx=np.array([one], dtype=object), batch=[batch], exact=True)
        assert (type(found), found) == (int, wanted)
    for kind in ("int32", "uint64", "float32"):
        (found,) = model.evaluate("total_flops", ctx=np.array([2**20], dtype=kind), batch=[batch], exact=True)
        assert (type(found), found) == (int, wanted)


@pytest.mark.parametrize("axis", ["D", "V"])
def test_arrays_of_the_axes_of_a_tied_head(axis: str) -> None:
    """gpt2 with a hidden size or a vocabulary that varies: embedding and head are one tensor of two lines."""
    field, value = {"D": ("n_embd", 768), "V": ("vocab_size", 50257)}[axis]
    found = load("gpt2").evaluate("total_params", **{axis: [value, value]}, exact=True)
    assert list(found) == [124_439_808] * 2 and load("gpt2").config[field] == value


def test_knobs_are_broadcast() -> None:
    grid = load("gpt2").evaluate("total_flops", ctx=np.array([[64], [128]]), batch=np.array([1, 2, 3]))
    assert grid.shape == (2, 3)
    assert grid[1, 2] == load("gpt2").flops(ctx=128, batch=3).total


def test_tokens_stay_when_the_context_grows() -> None:
    found = load("gpt2").evaluate("total_flops", ctx=[64, 128], tokens=1, exact=True)
    assert list(found) == [load("gpt2").flops(ctx=n, decode=True).total for n in (64, 128)]


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"context": [1]}, "no argument 'context'"),
        ({"seq": [1]}, "no argument 'seq'\nvariables: ctx, tokens, batch"),
        ({"ctx": [1], "decode": True}, "no argument 'decode'\ntokens=1 counts a decode step"),
        ({"ctx": [0, 5]}, "at least 1, not 0"),
        ({"ctx": [1.5]}, "whole numbers"),
        ({"ctx": ["a"]}, "whole numbers"),
        ({}, "no argument varies"),
        ({"num_key_value_heads": [1, 5]}, "must divide the 12 query heads"),
        ({"num_key_value_heads": [24]}, "must divide the 12 query heads"),
        ({"ctx": [10], "tokens": [11]}, "must not exceed the context"),
        ({"tokens": [10**9]}, "must not exceed the context"),
        ({"ctx": [10], "tokens": [5], "train": True}, "whole sequences"),
        ({"ctx": np.array([True])}, "whole numbers"),
        ({"ctx": np.array([True], dtype=object)}, "whole numbers"),
        ({"ctx": [2.0, float("nan")]}, "whole numbers"),
        ({"K": [1], "num_key_value_heads": [1]}, "the same"),
    ],
)
def test_knobs_that_make_no_sense(knobs: dict, words: str) -> None:
    with pytest.raises(TfacctError, match=words):
        load("gpt2").evaluate("total_flops", **knobs)


def test_help_names_every_keyword_of_a_metric() -> None:
    assert set(MetricTerms.__annotations__) <= set(re.findall(r"\w+", inspect.getdoc(Model.evaluate) or ""))


def test_an_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(TfacctError, match=r"unknown metric 'total_flop'\ndid you mean total_flops"):
        load("gpt2").evaluate("total_flop", ctx=[1])
    with pytest.raises(TfacctError, match=r"did you mean share\.attn\.scores"):
        load("gpt2").sweep("share.attn.score")


def test_a_metric_has_the_short_names_of_the_field() -> None:
    names = ("params", "kv_bytes", "intensity", "attention_flops", "mlp_flops")
    found = load("gpt2").sweep(*names, "total_params", ctx=[64])
    assert found.metrics == ["total_params", "kv_cache_bytes", "flops_per_byte", "flops.attn", "flops.mlp"]
    assert found.lines[0]["total_params"] == 124_439_808


def test_without_numpy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(TfacctError, match=r"pip install '\.\[arrays\]' in a tfacct checkout"):
        load("gpt2").evaluate("total_flops", ctx=[1])


def test_every_metric_is_listed_with_its_unit_and_one_sentence(run) -> None:
    document = run("help", "metrics", "--json").document
    assert (document["command"], document["models"]) == ("metrics", [])
    assert [row["metric"] for row in document["rows"]] == [*METRICS, *STEP_METRICS, "flops.NAME", "share.NAME"]
    for row in document["rows"]:
        about = row["about"]
        assert about[0].isupper() or about[0].isdigit() or about.startswith("total_flops "), about
        assert about.endswith(".") and ". " not in about and len(about) < 100, about
    units = {row["metric"]: row["unit"] for row in document["rows"]}
    assert (units["total_flops"], units["active_params"], units["share.NAME"]) == ("FLOPs", "parameters", "share of 1")
    assert tfacct.metrics().rows == document["rows"] == tfacct.metrics().document()["rows"]


def test_a_page_about_no_model_has_its_rows_in_the_json(run) -> None:
    rows = run("help", "counting", "--json").document["rows"]
    assert {"topic", "meaning"} == set(rows[0]) and "FLOPs" in [row["topic"] for row in rows]
    assert "rows" not in run("flops", "gpt2", "--json").document
