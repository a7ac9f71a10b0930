"""`solve`: both sides of every boundary, the closed form, and questions without an answer. Kind: law, refusal."""

import re
from fractions import Fraction

import pytest

from tests.families import TINY
from tests.helpers.models import by_kind, every_other, headed, of_family, tiny
from tfacct import load
from tfacct.accounts.metrics import Point
from tfacct.algebra.equations import Equation, read
from tfacct.algebra.solving import placed, solved
from tfacct.architecture.parts import FeedForward
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Request, Workload
from tfacct.loading.model import LoadedModel, load_model
from tfacct.loading.selection import workload
from tfacct.reports.metrics import Counting
from tfacct.reports.solve import solve

# (model, unknown, equation, workload, answer), each by hand:
BY_HAND = [
    # 16,060,522,496 bytes of weights / 131,072 a token = 122,532.06
    ("llama-3.1-8b", "ctx", "kv_cache_bytes=weights_bytes", Request(), 122_532),
    # (24 · 1024³ − 16,060,522,496) / 131,072 = 74,075.94
    ("llama-3.1-8b", "ctx", "total_bytes=24GiB", Request(), 74_075),
    # 122,532.06 / 8,192 = 14.96
    ("llama-3.1-8b", "batch", "kv_cache_bytes = weights_bytes", Request(ctx=8192), 14),
    # the inverse question
    ("llama-3.1-8b", "ctx", "weights_bytes=kv_cache_bytes", Request(), 122_532),
    ("llama-3.1-8b", "ctx", "24GiB=total_bytes", Request(), 74_075),
    # twice the weights: 245,064.125
    ("llama-3.1-8b", "ctx", "kv_cache_bytes=2*weights_bytes", Request(), 245_064),
    # D + D·K/N + D·F/(N·H) + D·V/(2·L·N·H) = 10,123.51; llama's with 3·D·F/(2·N·H) is 28,628 exactly, and holds there
    ("gpt2-xl", "ctx", "share.attn_scores_values=50%", Request(), 10_123),
    ("llama-3.1-8b", "ctx", "share.attn_scores_values=0.5", Request(), 28_628),
    ("llama-3.1-8b", "ctx", "share.attn_scores_values=0.5", Request(decode=True), 28_628),
    # 64 layers' worth of 8 heads: 2 · 32 · 8,192 · K · 128 · 2 bytes = 1 GiB at K = 8
    ("llama-3.1-8b", "num_key_value_heads", "kv_cache_bytes=1GiB", Request(ctx=8192), 8),
    ("llama-3.1-8b", "num_key_value_heads", "kv_cache_bytes=2147483647B", Request(ctx=8192), 8),
]


@pytest.mark.parametrize(("name", "unknown", "until", "request_", "answer"), BY_HAND)
def test_answers_by_hand(name: str, unknown: str, until: str, request_: Request, answer: int) -> None:
    assert solve(load(name).loaded, request_, unknown=unknown, until=until).total == answer


SIDES = [
    "kv_cache_bytes=weights_bytes",
    "total_bytes=1MB",
    "share.attn=0.5",
    "share.mlp=25%",
    "ratio_to_rule_of_thumb=1.5",
    "flops.attn_scores_values=flops.mlp",
    "flops.lm_head=0.1*total_flops",
    "total_flops=2G",
    "flops_per_token=300K",
]


def refused(message: str, signs: list[int]) -> None:
    """A refusal says what the sides do at values from 1 on, by the signs of their difference."""
    if "several solutions" in message:
        assert {1, -1} <= set(signs)
    elif "stays equal from there" in message:
        assert signs[-1] == 0
    elif "above" in message or "below" in message:
        assert set(signs) == {1 if "above" in message else -1}
    elif "rounding up" in message or "more than once" in message:
        return  # between the values that are tried here, or among them
    else:
        assert re.search("the only solution is negative|only past|for every|does not depend", message), message
        assert len(set(signs)) == 1


@pytest.mark.parametrize(
    ("family", "asked"), every_other(by_kind(headed()), ["ctx even", "batch odd", "ctx odd", "batch even"])
)
def test_the_answers_hold_and_the_next_do_not(family: str, asked: str) -> None:
    model, (unknown, half) = tiny(family), asked.split()
    for until in dict.fromkeys(of_family(side, family) for side in SIDES[half == "odd" :: 2]):
        for dtype in ("bf16", "int4") if "bytes" in until else ("bf16",):
            holds_and_the_next_does_not(model, dtype, unknown, until)


def holds_and_the_next_does_not(model: LoadedModel, dtype: str, unknown: str, until: str) -> None:
    """By the reports of other commands; up to the answer, the same side is larger as at 1."""
    terms = Counting(dtype)
    point = terms.point(model, workload(model, Request()))
    equation, at = read(until, point), placed(unknown, model.architecture, point, chunk=False)

    def sign(value: int) -> int:
        difference = equation.difference(at(value))
        return (difference > 0) - (difference < 0)

    try:
        facts = solve(model, Request(), unknown=unknown, until=until, terms=terms).models[0]
    except UsageError as error:
        refused(error.message, [sign(value) for value in (1, 2, 3, 10, 30, 100, 10**4, 10**6, 10**9)])
        return
    answer, beyond = facts["solution"], facts["beyond"]
    if beyond is None:  # nothing follows the end of a learned position embedding
        assert unknown == "ctx" and answer == model.position_limit
        return
    assert beyond == answer + 1
    past = sign(beyond)
    assert past and sign(answer) != past
    assert all(sign(value) != past for value in (1, 2, 3, answer // 2, answer - 1, answer) if 1 <= value <= answer)
    last = facts["again"] or answer  # where compressed keys make counts leap, some larger contexts hold too
    assert sign(last) != past
    assert all(sign(value) == past for value in (beyond, last + 1, 2 * last, 100 * last))


def test_a_cache_that_exceeds_the_limit_from_the_second_token_on_shrinks_below_it_once() -> None:
    """516, 810, 1,194, 752, 1,136, 1,002 … bytes: the fourth token completes a compressed key."""
    model = load(TINY["deepseek_v4"], sliding_window=2)
    sizes = [model.kv(ctx=tokens).models[0]["kv_cache_bytes"] for tokens in range(1, 40)]
    assert [tokens for tokens, size in enumerate(sizes, start=1) if size <= 800] == [1, 4]
    found = model.solve("ctx", "kv_cache_bytes=800B").models[0]
    assert (found["solution"], found["again"]) == (1, 4)


@pytest.mark.parametrize(
    ("name", "until"), [("gpt2-xl", "share.attn_scores_values=0.5"), ("qwen2-7b", "share.mlp=0.25")]
)
def test_the_printed_closed_form_is_the_boundary(name: str, until: str, run) -> None:
    """The printed formula at the model's sizes lies between the two whole numbers."""
    ran = run("solve", name, "--for", "ctx", "--until", until, "--json")
    facts = ran.models[0]
    shape = load(name).architecture
    (attn,), network = shape.attentions, shape.stacks[0].block.find(FeedForward)
    sizes = {
        "D": attn.hidden, "K": attn.kv_heads, "N": attn.heads, "H": attn.head_dim, "F": network.width,
        "L": shape.stacks[0].count, "V": shape.head.vocab,
    }  # fmt: skip
    text = facts["closed_form"].replace("·", "*").replace("−", "-").replace(",", "")
    text = re.sub(r"\b(\d+|[A-Z])\b", r"Fraction(\1)", text)
    root = eval(text, {"Fraction": Fraction, **sizes})  # our own output of numbers and symbols
    assert facts["solution"] <= root < facts["beyond"]
    assert facts["root"] == float(root)


def test_a_falling_side() -> None:
    """mlp's share falls: it stays above 30 % up to the answer."""
    report = solve(load("gpt2-xl").loaded, Request(), unknown="ctx", until="share.mlp=0.3")
    past = "(beyond this model's 1,024 positions)"
    until = f"Up to ctx = {report.total:,} {past}, share.mlp stays at or above 0.3"
    assert report.answer == f"{until}; from {report.total + 1:,} on, it is smaller."
    model = load("gpt2-xl")
    shares = [
        Fraction(facts["components"]["mlp"], facts["total_flops"])
        for facts in (model.flops(ctx=report.total + i).models[0] for i in (0, 1))
    ]
    assert shares[0] >= Fraction(3, 10) > shares[1]


class Bent(Equation):
    """(ctx − 3)·(ctx − 100) instead of a difference: no two metrics of these families are equal twice."""

    def difference(self, point: Point):
        return (point.work.context - 3) * (point.work.context - 100)


def test_several_solutions_are_named() -> None:
    model = load("gpt2-xl")
    point = Point(model.ledger, Workload(64, 64))
    equation = read("flops.attn_scores_values=flops.mlp", point)
    at = placed("ctx", model.architecture, point, chunk=False)
    with pytest.raises(UsageError, match="several solutions: ctx = 3 and 100"):
        solved("ctx", Bent(equation.left, equation.right), at, 1)


ODD = {
    "written": {"vocab_size": 16, "n_embd": 21, "n_layer": 3, "n_head": 7, "n_inner": 16, "n_positions": 1},
    "tiny": {"vocab_size": 3, "n_embd": 2, "n_layer": 1, "n_head": 1, "n_inner": 2, "n_positions": 64},
    "batch": {"vocab_size": 33, "n_embd": 6, "n_layer": 2, "n_head": 2, "n_inner": 5, "n_positions": 64},
}


@pytest.mark.parametrize(
    ("name", "unknown", "until", "request_"),
    [
        ("written", "ctx", "total_written_bytes=5*kv_cache_bytes", Request()),
        ("tiny", "ctx", "kv_cache_bytes=2*total_written_bytes", Request(tokens=1)),
        ("batch", "batch", "total_written_bytes=5*kv_cache_bytes", Request(ctx=1)),
        ("tiny", "ctx", "kv_cache_bytes=weights_bytes", Request()),
    ],
)
def test_rounding_to_whole_bytes_moves_no_boundary(name: str, unknown: str, until: str, request_: Request) -> None:
    """Odd sizes at four bits: the answer is that of whole bytes, or none is claimed."""
    about, terms = load_model(name, {"model_type": "gpt2", **ODD[name]}), Counting("int4", "int4")
    chunk = request_.tokens is not None
    point = terms.point(about, Request(ctx=max(64, request_.ctx or 1), tokens=request_.tokens).workload(64))
    point = point if request_.ctx is None else terms.point(about, request_.workload(64))
    equation, at = read(until, point), placed(unknown, about.architecture, point, chunk=chunk)
    if name == "batch":
        with pytest.raises(UsageError, match="rounding makes the sides cross more than once"):
            solve(about, request_, unknown=unknown, until=until, terms=terms)
        # 61 bytes and 60, 119 and 120, 180 and 180, 238 and 240
        assert [equation.difference(at(value)) for value in (1, 2, 3, 4)] == [1, -1, 0, -2]
        return
    facts = solve(about, request_, unknown=unknown, until=until, terms=terms).models[0]
    below, above = (equation.difference(at(value)) for value in (facts["solution"], facts["beyond"]))
    assert above != 0 and (below == 0 or (below > 0) != (above > 0))
    assert facts["closed_form"] is None


@pytest.mark.parametrize("until", ["flops_per_token=1T", "total_flops=2.5T", "flops_per_token=0.3G"])
def test_large_numbers_of_flops(until: str, run) -> None:
    facts = run("solve", "gpt2", "--for", "ctx", "--until", until, "--json").models[0]
    metric, _, text = until.partition("=")
    budget = Fraction(text[:-1]) * {"T": 10**12, "G": 10**9}[text[-1]]
    for side, holds in (("solution", True), ("beyond", False)):
        value = load("gpt2").evaluate(metric, ctx=[facts[side]], exact=True)[0]
        assert (value <= budget) == holds


def test_no_ctx_past_a_position_embedding_is_promised(run) -> None:
    """Bytes alone would let 250,275 tokens into 80 GB: (80 · 10^9 − 3,115,222,400) / (48 · 2 · 1,600 · 2)."""
    facts = load("gpt2-xl").solve("ctx", "total_bytes=80GB").models[0]
    assert (facts["solution"], facts["beyond"], facts["closed_form"]) == (1024, None, None)
    assert load("xglm-564m").solve("ctx", "total_bytes=80GB").total > 2048  # its sines are computed
    assert load("gpt2").solve("ctx", "kv_cache_bytes=weights_bytes").total == 6751  # a count, no verdict
    refused = run("solve", "gpt2", "--for", "batch", "--ctx", "1025", "--until", "total_bytes=80GB")
    assert refused.code == 2 and "is past the 1,024 positions" in refused.err


def test_heads_without_number_are_no_loop() -> None:
    many = {**TINY["llama"], "num_attention_heads": 10**12, "num_key_value_heads": 10**12}
    with pytest.raises(UsageError, match="no solution"):
        solve(load_model("many", many), Request(), unknown="num_key_value_heads", until="total_params=1")


@pytest.mark.parametrize(
    ("name", "field", "until", "answer", "beyond"),
    [
        # 60,821,504 parameters a layer and 262,670,336 others: (3·10⁹ − 262,670,336) / 60,821,504 = 45.006
        ("llama-3.2-1b", "num_hidden_layers", "total_params=3B", 45, 46),
        # 144·D² + (12 · 13 + 51,283)·D is 10⁹ at D = 2,462.7, and 12 heads need a multiple of 12
        ("gpt2", "n_embd", "total_params=1B", 2460, 2472),
        # 2 · 32 · W · 8 · 128 · 2 bytes are 1 GiB at W = 8,192
        ("mistral-7b-v0.1", "sliding_window", "kv_cache_bytes=1GiB", 8192, 8193),
        # 36,864 bytes a token, at each setting's own longest context
        ("gpt2", "n_positions", "kv_cache_bytes=5GB", 135_633, 135_634),
        # an expert in each of 58 layers is 58 · 3 · 7,168 · 2,048 = 2,554,331,136; with 8, 37,552,282,624 are active:
        # (50·10⁹ − 37,552,282,624) / 2,554,331,136 = 4.87 more
        ("deepseek-v3", "num_experts_per_tok", "active_params=50B", 12, 13),
    ],
)
def test_a_field_of_the_config_by_hand(name: str, field: str, until: str, answer: int, beyond: int) -> None:
    model = load(name)
    report = model.solve(for_=field, until=until)
    facts = report.models[0]
    assert (facts["solution"], facts["beyond"]) == (answer, beyond)
    metric = until.partition("=")[0]
    for line in facts["lines"]:
        (row,) = model.sweep(metric, **{field: [line[field]]}).models[0]["lines"]
        assert row[metric] == line["left"]
    assert facts["lines"][0]["left"] <= facts["lines"][0]["right"] < facts["lines"][1]["left"]
    left = f"{facts['lines'][0]['left']:,}"
    gives = f"{left} parameters" if metric == "total_params" else f"{metric} = {left}"
    assert report.answer == f"{field} = {answer:,} gives {gives}, the most within {facts['until'].split(' = ')[1]}."


def test_solve_wants_one_unknown() -> None:
    for given in ({"until": "total_bytes=1GB"}, {"unknown": "ctx", "for_": "ctx", "until": "x=1"}):
        with pytest.raises(UsageError, match="an unknown and an equation"):
            load("gpt2").solve(**given)


def test_the_largest_step_names_a_batch_that_is_not_tight(run) -> None:
    """The answer's peak is too close to the limit: `train` says so too."""
    options = ("--on", "rtx-3090", "--lora", "8")
    ran = run("solve", "gpt2-medium", "--train", "--for", "batch", *options)
    largest = run("solve", "gpt2-medium", "--train", "--for", "batch", *options, "--json").models[0]["solution"]
    step = ("train", "gpt2-medium", "--batch", str(largest), *options)
    for words in (ran.out_line, run(*step).out_line):
        assert "It may run out of memory: the CUDA allocator reserved 17–24% more" in words
    assert " with 17% to spare for the allocator)." in ran.out_line
    assert f"{run(*step, '--json').models[0]['peak_bytes']:,}" in ran.out_line
    assert "may run out" not in run("solve", "gpt2-medium", "--for", "batch", "--on", "rtx-3090").out
