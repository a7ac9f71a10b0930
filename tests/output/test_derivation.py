"""A derivation is recomputed from its printed text: every product and every sum. Kind: law, output."""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest

from tests.families import SHAPES
from tests.helpers.imports import commanded, imported_by
from tests.helpers.models import by_kind, context, kind_of_preset, tiny
from tests.helpers.terminal import through
from tfacct import Model, load
from tfacct.architecture.parts import Attention, Patches, Stem
from tfacct.base.errors import TfacctError
from tfacct.ledger.einsum import AXIS
from tfacct.ledger.workload import Request
from tfacct.loading import presets
from tfacct.loading.model import LoadedModel
from tfacct.output import layout
from tfacct.output.report import Report

WIDTHS = (60, 80, 120)
UNBOUND = 1000
DEFAULT = Request()
UNITS = {"flops": "FLOPs", "params": "parameters", "kv": "bytes", "memory": "bytes"}


def explain(model: LoadedModel, request: Request, of: Any = "flops", **terms: Any) -> Any:
    names = ("ctx", "tokens", "decode", "batch", "source", "logits")
    step = {name: value for name in names if (value := getattr(request, name)) != getattr(DEFAULT, name)}
    return Model(model).explain(of, **step, **terms)


def text_of(report: Report, width: int = UNBOUND) -> str:
    return "\n".join(line.text for line in layout.lines(report, width, digits=False, spelled=str))


def reckoned(text: str) -> Fraction:
    """The exact value of printed arithmetic such as `⌈4 · 768 / 8⌉ · 12 layers`."""
    text = re.sub("[A-Za-z]+", "", text).replace(",", "")
    text = re.sub(r"\d+", r"Fraction(\g<0>)", text)
    for sign, python in {"·": "*", "−": "-", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")"}.items():
        text = text.replace(sign, python)
    return Fraction(eval(text, {"Fraction": Fraction, "ceil": ceil, "floor": floor}))  # numbers and signs only


def checked(report: Report, unit: str, widths: Sequence[int] = ()) -> None:
    """Recompute the whole derivation from its text, which is the same at each width."""
    text = re.sub(r"\n {6}\+ ", " + ", text_of(report))  # a sum of many goes on in the next line
    legend = {name: number.replace(",", "") for name, number in re.findall(r"^  (\S+) += +([\d,]+)  ", text, re.M)}
    steps, components, sums = [], [], []
    for line in re.findall(rf"^    (\S.* = .* {unit})$", text, re.M):
        *written, result = line.removesuffix(f" {unit}").split(" = ")
        total = int(result.replace(",", ""))
        if len(written) == 2:
            axis_names, numbers = written
            assert set(AXIS.findall(axis_names)) <= legend.keys(), axis_names
            assert reckoned(AXIS.sub(lambda axis: legend[axis[0]], axis_names)) == total, line
            assert reckoned(numbers) == total, line
            steps.append(total)
        else:
            assert reckoned(written[0]) == total, line
            sums.append(total)
    shown = re.findall(r"^  \S.*   (\S.*)$", text.partition(" = ")[2], re.M)
    specs = [spec for spec in shown if re.fullmatch(r"[A-Z][\w ,→]*", spec) and "=" not in spec]
    assert len(specs) >= len(steps)
    assert {axis for spec in specs for axis in AXIS.findall(spec)} <= legend.keys()
    derivation = report.derivation
    assert derivation is not None
    components = [component.total for component in derivation.components]
    assert steps == [step.result for component in derivation.components for step in component.steps]
    alone = [component for component in derivation.components if len(component.steps) == 1]
    assert len(sums) == len(components) - len(alone) + (len(components) > 1)
    assert sum(steps) == sum(components) == derivation.total == report.total
    assert f"\n    {derivation.sums[-1][1] + ' = ' if len(components) > 1 else ''}{report.total:,} {unit}" in text
    if derivation.check:
        whole, _, total = derivation.check.removesuffix(f" {unit}").rpartition(" = ")
        assert reckoned(whole) == reckoned(total) == report.total
        assert derivation.takeaway and report.answer == derivation.takeaway
    for width in widths:
        narrow = text_of(report, width)
        assert max(map(len, narrow.splitlines())) <= width
        assert "".join(narrow.split()) == "".join(text.split())


def kinds(model: LoadedModel) -> list[str]:
    return [of for of in UNITS if of != "kv" or model.has_cache]


WITHOUT_TAKEAWAY = ("deberta", "deberta-v2", "xlnet", "nvembed")
"""Families whose matmuls of distances or learned rows no token pays for: no takeaway. Nor has an encoder of images or
audio, nor a step with these axes: a source, chunks, compressed keys."""
OTHERS = {"I", "J", "Nc", "Sc"}


@pytest.mark.parametrize("name", by_kind(presets.names(), kind_of_preset))
def test_every_preset_is_derived_again_by_hand(name: str) -> None:
    model = presets.load(name)
    for of in kinds(model):
        report = explain(model, Request(), of, dtype="bf16" if of == "memory" else None)
        checked(report, UNITS[of], WIDTHS)
        assert report.derivation is not None
        of_tokens = not isinstance(model.architecture.embed, Patches | Stem) and model.family not in WITHOUT_TAKEAWAY
        others = OTHERS & {axis.name for axis in report.derivation.legend}
        assert report.derivation.takeaway or others or (of == "flops" and not of_tokens)


@pytest.mark.parametrize("name", by_kind(SHAPES))
def test_every_step_of_every_shape(name: str) -> None:
    """All sizes are distinct here, so a wrong axis gives a wrong number."""
    model = tiny(name)
    ctx = context(model, 13)
    whole, chunk = Request(ctx=ctx, batch=3), Request(ctx=13, tokens=4, batch=3)
    once = [Request(ctx=ctx, batch=2, logits="last"), *([Request(ctx=29, decode=True, batch=5)] * model.has_cache)]
    for request in (whole, *([chunk] * model.has_cache), *once):
        for masked in (False, True) if request not in once else (False,):
            checked(explain(model, request, masked=masked), "FLOPs")
    checked(explain(model, Request(ctx=ctx, batch=3), train=True), "FLOPs")
    checked(explain(model, Request(), "params"), "parameters")
    for length in (3, 97):
        for dtype in (None, "int4") if model.has_cache else ():
            checked(explain(model, Request(ctx=length, batch=3), "kv", dtype=dtype), "bytes")
    every = ("fp32", "fp8", "int4", "mxfp4", "nvfp4", "gptq", "awq", "nf4")
    for dtype in every if name in ("llama", "mixtral") else ("int4", "mxfp4"):
        checked(explain(model, Request(ctx=ctx, batch=3), "memory", dtype=dtype, kv_dtype="int4"), "bytes")


@pytest.mark.parametrize("name", ["gpt2-xl", "llama-3.1-8b", "mixtral-8x7b", "deepseek-v3", "t5-small"])
def test_a_product_has_one_order_in_formulas_and_derivations(name: str) -> None:
    model = load(name)
    formulas = {line["path"]: line["flops_formula"].split("*") for line in model.formula().models[0]["lines"]}
    derivation = model.explain().derivation
    assert derivation is not None
    both = [(s.symbols.split("·"), formulas[s.path]) for part in derivation.components for s in part.steps]
    alike = [pair for pair in both if sorted(pair[0]) == sorted(pair[1])]  # not with O for T, or N for an equal K
    assert len(alike) >= 6 and all(derived == formula for derived, formula in alike)


def test_the_takeaway_counts_uses_of_a_weight_that_two_matmuls_read() -> None:
    model = load("deepseek-v3", mtp=True)
    answer = model.explain(ctx=1024, decode=True).answer
    assert "2 FLOPs per use of a weight (" in answer
    checked(model.explain(ctx=1024, decode=True), "FLOPs")


def test_two_windows_have_two_axes() -> None:
    """No family has two windows; a transformer built by hand may."""
    model = tiny("gemma3_text")

    def windowed(part: object) -> object:
        return replace(part, window=9) if isinstance(part, Attention) and part.window is None else part

    shape = model.architecture.mapped(windowed)
    model = replace(model, architecture=shape, ledger=shape.ledger())
    windows = {part.window for part in shape.attentions if isinstance(part, Attention)}
    assert len(windows) == 2
    for request in (Request(ctx=29), Request(ctx=29, decode=True), Request(ctx=7, batch=2)):
        for masked in (False, True):
            report = explain(model, request, masked=masked)
            checked(report, "FLOPs")
            assert report.derivation is not None
            legend = {axis.name: axis for axis in report.derivation.legend}
            assert {legend["W1"].value, legend["W2"].value} == windows
            assert legend["Sw2"].meaning == "keys visible in a windowed layer, min(S, T + W2 − 1)"
            assert masked or "layer (Sw2)" in report.answer
        checked(explain(model, Request(ctx=request.ctx), "kv"), "bytes")


def test_each_form(run) -> None:
    document = run("flops", "gpt2", "--ctx", "1k", "--explain", "--json").document
    (facts,) = document["models"]
    assert document["command"] == "flops" and facts["total_flops"] == facts["derivation"]["total"] == 291648307200
    assert document["answer"] == facts["derivation"]["takeaway"]
    scores = facts["derivation"]["parts"][1]
    assert (scores["component"], scores["total"]) == ("scores + values", 2 * 19327352832)
    assert scores["steps"][0] == {
        "path": "blocks.*.attn.scores",
        "step": "attn.scores",
        "spec": "B T K G H, B S K H -> B K G T S",
        "symbols": "2·B·T·L·N·H·S",
        "numbers": "2 · 1 · 1,024 · 12 layers · 12 · 64 · 1,024",
        "result": 19327352832,
    }
    assert facts["derivation"]["legend"]["H"] == {"meaning": "head size", "value": 64}
    markdown = run("params", "gpt2", "--explain", "--markdown").out
    assert markdown.startswith("# gpt2: parameters\n\n**Each of the 12 layers has 7,087,872 parameters;")
    assert "\n    L·D·N·H = 12 layers · 768 · 12 · 64 = 7,077,888 parameters\n" in markdown.split("```")[1]
    latex = run("flops", "gpt2", "--explain", "--train", "--latex").out
    body = latex.partition(r"\begin{align*}")[2].partition(r"\end{align*}")[0]
    assert r"\text{attn.scores} &= 3\cdot 2\cdot B\cdot T\cdot L\cdot N\cdot H\cdot S \\" in body
    assert r"&= 57{,}982{,}058{,}496\ \text{FLOPs} \\" in body  # three times 19,327,352,832
    assert body.count("{") == body.count("}") and all(line.count("&") == 1 for line in body.strip().splitlines())
    assert '<p class="title">gpt2: forward' in load("gpt2").explain(ctx=16)._repr_html_()


def test_a_budget_is_answered_first(run) -> None:
    asked = ("memory", "llama-3.1-8b", "--ctx", "8k", "--on", "24GiB")
    plain, derived = (run(*asked, *more, "--json").document["answer"] for more in ((), ("--explain",)))
    assert derived == f"{plain} {load('llama-3.1-8b').explain('memory', ctx=8192).answer}"


@pytest.mark.parametrize("command", ["flops gemma-3-4b-text --masked", "memory gpt2 --dtype nf4"])
@pytest.mark.parametrize("form", ["", " --json", " --markdown", " --latex"])
def test_a_derivation_in_ascii(command: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = through("ascii", *f"{command} --explain{form}".split(), monkeypatch=monkeypatch)
    assert out and "?" not in out
    if not form:
        assert max(len(line) for line in out.splitlines()) <= 80
    if "nf4" in command and not form:
        assert "ceil(" in out


def test_python_refuses_options_that_change_no_total() -> None:
    model = load("gpt2")
    assert model.explain("memory", ctx=1024).total == model.memory(ctx=1024).total
    for of, terms in {"params": {"ctx": 9}, "kv": {"train": True}, "memory": {"decode": True}}.items():
        with pytest.raises(TfacctError, match=f"{of} does not depend on {next(iter(terms))}"):
            model.explain(of, **terms)  # type: ignore[arg-type]
    with pytest.raises(TfacctError, match="of is flops, params, kv or memory, not 'flop'"):
        model.explain("flop")  # type: ignore[arg-type]


def test_derivations_need_no_sympy() -> None:
    assert imported_by(commanded("flops", "gemma-3-4b-text", "--masked", "--explain")) == set()
