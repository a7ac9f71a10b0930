"""Latent attention: each step runs the form with fewer FLOPs. Kind: golden, refusal."""

import json
from itertools import product
from pathlib import Path

import pytest

from tests.helpers.single_families import FORMS, by_name
from tfacct import load
from tfacct.accounts.metrics import Point, attention_overtakes, flops_of, metric
from tfacct.accounts.step_flops import decode_flops, recomputed_flops
from tfacct.ledger.workload import Workload

STEPS = [(1, 1), (1, 2), (1, 23), (5, 6), (5, 7), (8, 11), (8, 12), (20, 96), (20, 97), (40, 999), (23, 23)]
"""New tokens and keys, on both sides of where the small model changes its form."""
LONGEST = 700
"""Contexts that are tried one by one."""
SHARE = "share.attn_scores_values"


def decode_by_hand(keys: int) -> int:
    """deepseek-v3, one token: 2 FLOPs for each multiply-add."""
    projections = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 128 * 128 * 7168  # to the latents, from them, and out
    absorbed = 128 * 128 * 512 + 128 * 512 * 128 + keys * 128 * (576 + 512)  # to latents and back
    dense, experts = 3 * 7168 * 18432, 7168 * 256 + (8 + 1) * 3 * 7168 * 2048
    return 2 * (61 * (projections + absorbed) + 3 * dense + 58 * experts + 7168 * 129_280)


def test_each_phase_runs_the_form_that_engines_run() -> None:
    report = load("deepseek-v3").flops(ctx=32_768, decode=True)
    assert report.total == decode_by_hand(32_768)
    assert round(report.total, -9) == 630 * 10**9
    (facts,) = report.models
    named = load("deepseek-v3", latent_attention="expanded").flops(ctx=32_768, decode=True)
    assert facts["latent_attention"] == "absorbed"
    assert any("in absorbed form, the cheaper one in this step" in note for note in report.notes)
    assert named.models[0]["latent_attention"] == "expanded" and round(named.total, -11) == 67_300 * 10**9
    (facts,) = load("deepseek-v3").flops(ctx=4096).models
    assert facts["latent_attention"] == "expanded"
    assert facts["total_flops"] == load("deepseek-v3", latent_attention="expanded").flops(ctx=4096).total
    report = load("deepseek-v3").generate(ctx=2048, new_tokens=3)
    (facts,) = report.models
    assert (facts["prefill_latent_attention"], facts["decode_latent_attention"]) == ("expanded", "absorbed")
    assert facts["decode_flops"] == decode_by_hand(2049) + decode_by_hand(2050)
    (line,) = (line for line in facts["lines"] if line["path"] == "blocks.*.attn.k_b_proj")
    assert (line["spec"], line["decode_spec"]) == ("B S R, R N Hp -> B S N Hp", "B T N Hp, R N Hp -> B T N R")


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("tokens", "keys"), STEPS)
def test_each_step_runs_the_form_with_fewer_flops(tokens: int, keys: int, masked: bool) -> None:
    models, work = by_name(), Workload(keys, tokens, 3)
    at = work.axes()
    totals = {form: models[form].ledger.total_flops(at, masked=masked) for form in FORMS}
    best = min(FORMS, key=lambda form: totals[form])
    named, ours = models[best].ledger, models["auto"].ledger
    assert ours.flops(at, masked=masked) == named.flops(at, masked=masked)
    assert ours.flops(at, masked=masked, unfolded=True) == named.flops(at, masked=masked, unfolded=True)
    assert ours.products(at, masked=masked) == named.products(at, masked=masked)
    assert ours.total_flops(at, masked=masked, backward=True) == named.total_flops(at, masked=masked, backward=True)
    assert models["auto"].settled(work, masked=masked).architecture == models[best].architecture
    if not masked:
        assert recomputed_flops(ours, at) == recomputed_flops(named, at)


def test_both_forms_are_used_and_have_the_same_cache() -> None:
    ledger = by_name()["auto"].ledger
    taken = {ledger.ways.index(ledger.settled(Workload(keys, tokens).axes())) for tokens, keys in STEPS}
    assert taken == {0, 1}
    one, other = by_name()["auto"].ledger.ways
    at = Workload(23, 5, 3).axes()
    for what in ("parameters", "active_parameters", "tensors"):
        assert getattr(one, what)() == getattr(other, what)()
    assert one.states(at) == other.states(at) and one.pointwise(at) == other.pointwise(at)
    assert one.flops(at) != other.flops(at)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", ["total_flops", SHARE, "total_moved_bytes", "ratio_to_rule_of_thumb"])
def test_arrays_choose_point_by_point(name: str, exact: bool) -> None:
    np = pytest.importorskip("numpy")
    from tfacct.algebra.arrays import evaluate

    auto, tokens = by_name()["auto"], np.array([[1], [8], [20], [40]])
    keys = np.r_[40:400:31, 95:99]  # 20 tokens change their form between 96 and 97
    asked = metric(name, [auto.ledger])
    point = Point(auto.ledger, Workload(1, 1, 3))
    found = evaluate(asked, auto.architecture, point, {"ctx": keys, "tokens": tokens}, exact=exact)
    for (row, some), (column, many) in product(enumerate(tokens[:, 0].tolist()), enumerate(keys.tolist())):
        one = asked.of(Point(auto.ledger, Workload(many, some, 3)))
        assert found[row, column] == (one if exact else pytest.approx(float(one), rel=1e-14))


def test_sweeps_and_equations_choose_point_by_point() -> None:
    swept = load("deepseek-v3").sweep("total_flops", ctx=(128, 241, 242, 300, 4096), tokens=100)
    best = [
        min(load("deepseek-v3", latent_attention=form).flops(ctx=line["ctx"], tokens=100).total for form in FORMS)
        for line in swept.models[0]["lines"]
    ]
    assert [line["total_flops"] for line in swept.models[0]["lines"]] == best
    report = load("deepseek-v3").solve("ctx", f"{SHARE}=5%", tokens=100)
    assert report.total == 241 and report.models[0]["root"] is None
    assert any(note.startswith("They are never equal") for note in report.notes)
    shares = [
        load("deepseek-v3", latent_attention=form).flops(ctx=ctx, tokens=100).models[0]
        for form, ctx in (("expanded", 241), ("absorbed", 242))
    ]
    below, above = (facts["components"]["attn_scores_values"] / facts["total_flops"] for facts in shares)
    assert below < 0.05 < above


@pytest.mark.parametrize("fields", [{}, {"qk_nope_head_dim": 1, "v_head_dim": 1}], ids=["usual", "tiny heads"])
@pytest.mark.parametrize("steps", [0, 1, 2, 9, 40])
def test_a_request_decodes_in_the_form_of_each_step(fields: dict, steps: int) -> None:
    """With heads of one number it is the expanded form for the first steps, up to R keys, and then the other."""
    models, prompt = by_name(**fields), 7
    total = dict.fromkeys(models["auto"].ledger.flops(Workload(1, 1).axes()), 0)
    taken = set()
    for step in range(1, steps + 1):
        at = Workload(prompt + step, 1, 3).axes()
        best = min(FORMS, key=lambda form: models[form].ledger.total_flops(at))
        taken.add(best)
        for path, flops in models[best].ledger.flops(at).items():
            total[path] += flops
    assert decode_flops(models["auto"].ledger, batch=3, prompt=prompt, steps=steps) == total
    if fields:
        assert len(taken) == {0: 0, 1: 1, 2: 1, 9: 2, 40: 2}[steps]


@pytest.mark.parametrize("tokens", [8, 40])
@pytest.mark.parametrize("until", [f"{SHARE}=3%", f"{SHARE}=10%", f"{SHARE}=20%", "total_flops=30M"])
def test_an_equation_is_solved_across_the_change_of_form(until: str, tokens: int) -> None:
    """By brute force: the last context up to which the left side is no more than the right."""
    from tfacct.algebra.equations import read
    from tfacct.algebra.solving import NoSolutionError
    from tfacct.ledger.workload import Request
    from tfacct.reports.solve import solve

    auto = by_name()["auto"]
    equation = read(until, Point(auto.ledger, Workload(tokens, tokens)))
    below = [equation.difference(Point(auto.ledger, Workload(s, tokens))) <= 0 for s in range(tokens, LONGEST)]
    changes = [i for i in range(1, len(below)) if below[i] != below[i - 1]]
    try:
        answer = solve(auto, Request(tokens=tokens), unknown="ctx", until=until).total
    except NoSolutionError:
        assert len(changes) != 1
        return
    assert [tokens + change - 1 for change in changes] == ([answer] if answer < LONGEST - 1 else [])


@pytest.mark.parametrize("tokens", [1, 8, 20, 40])
def test_where_attention_overtakes_the_rest(tokens: int) -> None:
    ledger, names = by_name()["auto"].ledger, ("attn.scores", "attn.values")

    def ahead(keys: int) -> int:
        point = Point(ledger, Workload(keys, tokens))
        attention = flops_of(point, lambda path, _line: path.endswith(names))
        return 2 * attention - flops_of(point)

    found = next((keys for keys in range(tokens, 5000) if ahead(keys) > 0), None)
    assert found is not None
    assert attention_overtakes(Point(ledger, Workload(tokens, tokens)), chunk=True) == found


def test_formulas_and_differences_name_their_forms() -> None:
    model = load("deepseek-v2-lite")
    for options, form in (({}, "expanded"), ({"decode": True}, "absorbed")):
        written = model.formula(ctx=4096, **options)
        assert (written.latent_attention, written.total_flops) == (form, model.flops(ctx=4096, **options).total)
    facts = model.diff(ctx=4096, to_ctx=8192, decode=True).models[0]
    assert [facts[side]["latent_attention"] for side in ("old_side", "new_side")] == ["absorbed", "absorbed"]


def test_layers_that_read_the_latents_of_others(run, tmp_path: Path) -> None:
    shared = {"num_hidden_layers": 8, "no_rope_layers": [1] * 8, "kv_source_layers": [0] * 8}
    (file := tmp_path / "config.json").write_text(json.dumps({"model_type": "mistral_large4_text", **shared}))
    assert "7 of 8 layers reuse the cache of other layers." in run("memory", "--kv", str(file)).out_line
    refused = run("params", str(file), "--pp", "2")
    assert refused.code == 2 and "--pp does not support latents of an earlier layer" in refused.err


def test_windows_over_latents_are_noted() -> None:
    """dots3-note by its defaults; its cache by hand: by_hand.toml."""
    notes = " ".join(load({"model_type": "dots3_note_text"}).flops(ctx=8192).notes)
    assert "In 33 of 46 layers, a token sees at most 512 keys" in notes
    assert "recomputes the keys and values of all cached tokens" in notes
    assert "In 13 of 46 layers, an indexer selects at most 2,048 keys per token" in notes
