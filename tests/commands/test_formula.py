"""Printed formulas, read back from the text and evaluated, equal every other command. Kind: law, refusal."""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families import SHAPES, TINY, Fields, family_of
from tests.helpers.models import alone, asked, by_kind, context, tiny
from tfacct import Model, load
from tfacct.algebra.factored import CODE, LATEX, TEXT, factored, latex_axis
from tfacct.algebra.symbols import in_symbols, layer_axes
from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention
from tfacct.base.errors import TfacctError
from tfacct.ledger.einsum import AXIS
from tfacct.ledger.lines import WINDOWS
from tfacct.ledger.workload import Request, Workload
from tfacct.loading.model import LoadedModel, load_model
from tfacct.reports.formula import formula

pytest.importorskip("sympy")

# As in textbooks, with N = K · G; 2 per multiply-add, S keys, logits for every position.
LLAMA = "2·B·T·(L·(3·D·F + 2·D·H·(N + K) + 2·N·H·S) + D·V)"
GPT2 = "2·B·T·(L·(2·D·F + 4·D·N·H + 2·N·H·S) + D·V)"
TOTALS = [
    ("llama", "flops", LLAMA),
    ("llama", "train", LLAMA.replace("2·B", "6·B", 1)),
    ("llama", "kv", "2·B·L·K·H·S"),
    # 2 norms in a layer, a final norm; embedding and head are not tied
    ("llama", "params", "D·(L·(3·F + 2·H·(N + K) + 2) + 2·V + 1)"),
    ("llama-3.2-1b", "params", "D·(L·(3·F + 2·H·(N + K) + 2) + V + 1)"),
    ("qwen2", "flops", LLAMA),
    # biases on q, k and v
    ("qwen2", "params", "L·(3·D·F + 2·D·H·(N + K) + 2·D + H·(N + 2·K)) + 2·D·V + D"),
    ("gpt2", "flops", GPT2),
    ("gpt2", "train", GPT2.replace("2·B", "6·B", 1)),
    ("gpt2", "kv", "2·B·L·N·H·S"),
    # a layer: biases 3·N·H on q k v, D on o, F and D in the MLP; two norms of 2·D. Last norm 2·D, tied
    ("gpt2", "params", "L·(2·D·F + 4·D·N·H + 6·D + F + 3·N·H) + D·V + D·P + 2·D"),
    ("cs336", "flops", "2·B·T·(L·(3·D·F + 4·D·N·H + 2·N·H·S) + D·V)"),
    # in and gate 2·D·Dx, out D·Dx; step, B and C Rt + 2·Ns, the step back to Dx; read-out Ns; the window Kc
    ("mamba", "flops", "2·B·T·(L·Dx·(3·D + 3·Ns + Kc + 2·Rt) + D·V)"),
    # weights as above without the read-out; A_log; biases of the step and the window; D; a norm a layer, a final norm
    ("mamba", "params", "L·(Dx·(3·D + 3·Ns + Kc + 2·Rt + 1) + D + 2·Dx) + D·V + D"),
    ("mamba", "kv", "B·L·Dx·(Ns + Kc)"),
]


@pytest.mark.parametrize(("name", "of", "total"), TOTALS)
def test_the_totals_are_those_in_textbooks(run, name: str, of: str, total: str) -> None:
    ran = run("formula", name, "--of", of)
    assert ran.code == 0 and f"total = {total}\n" in ran.out
    facts = run("formula", name, "--of", of, "--json").models[0]
    assert facts["total_text"] == total and facts["total_formula"] == total.replace("·", "*")


def evaluated(text: str, sizes: dict[str, int]) -> int:
    """A printed formula at these sizes, as Python reads it."""
    value: int = eval(text.replace("·", "*"), {"__builtins__": {}}, sizes)
    return value


def rows(text: str) -> dict[str, list[str]]:
    """The table's rows by their first cell, then the total formula. Two spaces or more separate cells."""
    lines = text.splitlines()
    rule = next(index for index, line in enumerate(lines) if line.startswith(" ─"))
    end = next(index for index, line in enumerate(lines) if line.startswith("total = "))
    cells = (re.split(r"\s{2,}", line.strip()) for line in lines[rule + 1 : end] if line)
    return {first: rest for first, *rest in cells} | {"=": [lines[end].removeprefix("total = ")]}


def printed(run, config: dict, *arguments: str) -> dict[str, list[str]]:
    ran = run("formula", "-", *arguments, "--digits", columns=300, stdin=json.dumps(config).encode())
    assert ran.code == 0, ran.err
    return rows(ran.out)


def number(cell: str) -> int:
    return int(cell.replace(",", ""))


FORMS = ("flops", "params", "kv", "train")
UNITS = {"params": "params", "kv": "elements"}
"""Units of a line that are not FLOPs."""
TOTAL_KEYS = {"params": "total_params", "kv": "kv_cache_elements"}


@cache
def model_of(name: str) -> Model:
    return load(SHAPES[name])


def step_of(name: str, of: str) -> dict[str, int]:
    """A step that a tiny model can be asked for: 13 of 17 tokens, or in training and for a cache all of them."""
    ours = tiny(name)
    tokens = {"tokens": 13} if of == "flops" and ours.has_cache else {}
    sizes = {"ctx": context(ours, 17), **tokens, "batch": 3}
    return {} if of == "params" else sizes | ({"source": asked(ours, Workload(17, 13)).source} if ours.source else {})


def counted(name: str, of: str) -> dict[str, int]:
    """The numbers of another command, or of the ledger, by path."""
    model, step = model_of(name), step_of(name, of)
    if of == "kv":
        axes = Workload(step["ctx"], step["ctx"], step["batch"], "all", step.get("source", 0)).axes()
        return {path: size for path, size in tiny(name).ledger.states(axes).items() if size}
    lines = model.params().lines if of == "params" else model.flops(**step, train=of == "train").lines
    found: dict[str, int] = {}
    for line in lines:
        found[line["path"]] = found.get(line["path"], 0) + line[UNITS.get(of, "flops")]
    return found


def read_back(facts: dict) -> dict[str, int]:
    """Checks that each line's formula, in code and in LaTeX, has its value at the sizes of the legend. Those sizes."""
    sizes = {axis: about["value"] for axis, about in facts["legend"].items() if "value" in about}
    unit = UNITS.get(facts["of"], "flops")
    for line in facts["lines"]:
        formula_, value = line[f"{unit}_formula"], line[f"{unit}_value"]
        assert evaluated(formula_, sizes) == evaluated(unlatexed(line["latex"]), sizes) == value
        assert set(AXIS.findall(f"{line['spec']} {formula_}")) <= set(facts["legend"])
    return sizes


@pytest.mark.parametrize("of", FORMS)
@pytest.mark.parametrize("name", by_kind(sorted(set(SHAPES) - {"custom"})))
def test_every_formula_reads_back(run, name: str, of: str) -> None:
    """Each line's formula, and the total's, with the sizes of the legend, in code and in LaTeX."""
    arguments = [f"--{option}={size}" for option, size in step_of(name, of).items()]
    ran = run("formula", "-", "--of", of, "--json", *arguments, stdin=json.dumps(SHAPES[name]).encode())
    if of == "kv" and alone(name):
        assert (ran.code, ran.out) == (2, "") and "encoders have no KV cache" in ran.err
        return
    (facts,) = ran.models
    assert (facts["of"], facts["family"]) == (of, tiny(name).family)
    assert (facts["workload"] is None) == (of == "params")
    lines, sizes = facts["lines"], read_back(facts)
    found: dict[str, int] = {}
    for line in lines:
        found[line["path"]] = found.get(line["path"], 0) + line[f"{UNITS.get(of, 'flops')}_value"]
    assert found == counted(name, of)
    total = facts[TOTAL_KEYS.get(of, "total_flops")]
    assert evaluated(facts["total_formula"], sizes) == evaluated(unlatexed(facts["total_latex"]), sizes) == total
    assert facts["total_text"].replace("·", "*").replace("^", "**") == facts["total_formula"]
    assert sum(found.values()) == total
    if of == "flops":  # a matmul stores what `params` has for its module
        modules: dict[str, int] = {}
        for path, size in counted(name, "params").items():
            module = path.rpartition(".")[0]
            modules[module] = modules.get(module, 0) + size
        stored: dict[str, int] = {}
        for line in lines:
            size = evaluated(line["params_formula"] or "0", sizes)
            stored[line["path"]] = stored.get(line["path"], 0) + size
        assert stored == {path: modules.get(path, 0) for path in stored}
    if of == "kv":
        assert sum(line["bytes_value"] for line in lines) == model_of(name).kv(**step_of(name, of)).total


def test_a_familys_formula_holds_for_models_with_its_biases_and_ties(run) -> None:
    """The largest Llama has no biases, and its head is not tied."""
    plain = {**TINY["llama"], "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False}
    (facts,) = load(plain).formula(of="params").models
    sizes = {axis: about["value"] for axis, about in facts["legend"].items()}
    table = rows(run("formula", "llama", "--of", "params", columns=300).out)
    params = load(plain).params()
    assert evaluated(table.pop("=")[0], sizes) == params.total
    assert [evaluated(count, sizes) for _, count in table.values()] == [line["params"] for line in params.lines]
    tied = rows(run("formula", "llama", "--of", "params", "--set", "tie_word_embeddings=true", columns=300).out)
    assert evaluated(tied["="][0], sizes) == params.total - sizes["V"] * sizes["D"]


def unlatexed(text: str) -> str:
    text = re.sub(r"_\{\\mathrm\{([a-z0-9]+)\}\}", r"\1", text)  # lowercase letters are a subscript
    text = re.sub(r"\^\{(\d+)\}", r"**\1", text)
    return text.replace(r"\left", "").replace(r"\right", "").replace(r"\,", "*")


def test_a_family_has_no_values(run) -> None:
    (facts,) = run("formula", "llama", "--json").models
    assert facts["model"] == "llama" and facts["biases_and_ties_of"] == "llama-3.1-405b"
    assert facts["workload"] is None and facts["total_flops"] is None
    assert facts["legend"]["N"] == {"meaning": "query heads, K · G"}
    assert set(facts["lines"][0]) == {"path", "spec", "flops_formula", "params_formula", "latex"}
    with pytest.raises(AttributeError, match="a formula report has no 'total'"):
        _ = formula(load("llama-3-8b").loaded, family=True).total


def test_the_legend_names_every_axis_once_with_its_value(run) -> None:
    text = run("formula", "llama-3-8b", "--ctx", "100", "--tokens", "7", "--batch", "3").out
    legend = text.partition("total = ")[2].split("Counted")[0].partition("\n")[2]
    entries = re.split(r"; |\n", legend.strip())
    # from its config.json
    assert {entry.partition(" = ")[0]: entry.split(" ")[2].removesuffix(":") for entry in entries} == {
        "B": "3", "T": "7", "O": "7", "L": "32", "D": "4,096", "N": "32", "K": "8", "G": "4", "H": "128",
        "F": "14,336", "V": "128,256", "S": "100",
    }  # fmt: skip
    assert len(entries) == 12


@pytest.mark.parametrize("name", SHAPES)
def test_the_number_of_layers_of_each_kind_is_an_axis(name: str) -> None:
    shape = load_model(name, SHAPES[name]).architecture
    assert len({*layer_axes(shape)}) == len(shape.every_stack)


def with_one_field_changed(config: Fields, fields: Fields) -> Iterator[Fields]:
    """For each size, configs with its double and its half: multiples and divisors of heads."""
    for name, size in {**fields, **config}.items():
        if isinstance(size, int) and size > 0 and not isinstance(size, bool):
            yield from ({**config, name: other} for other in (2 * size, size // 2) if other)


@pytest.mark.parametrize("family", sorted(set(TINY) - {"custom"}))
def test_constant_axes_of_a_family_do_not_depend_on_its_config(family: str) -> None:
    """Axes that are 1 in all configs are among them."""
    config = tiny(family).config
    sizes = {name: getattr(config, name) for name in type(config).model_fields}
    variants = [shape for name, shape in SHAPES.items() if family_of(name) == family]
    found: dict[str, set[int]] = {}
    for changed in (*variants, *with_one_field_changed(TINY[family], sizes)):
        with contextlib.suppress(TfacctError):
            for group in load_model("x", changed).ledger.groups:
                for axis, size in group.axes.items():
                    found.setdefault(axis, set()).add(size)
    found.pop("U", None)  # the gate's one number: no field says it
    found.pop("Yc", None)  # nor that of ESM's contacts
    assert {axis for axis, each in found.items() if each == {1}} <= set(config.constant_axes)
    assert all(len(found[axis]) == 1 for axis in config.constant_axes)


def test_latex_explains_the_axes_that_occur(run) -> None:
    """GPT-2's formulas have N for K · G; a windowed layer's keys are min(S, T + W − 1)."""
    explained = re.findall("^%   (.+?): (.+)", run("formula", "gpt2", "--latex").out, re.M)
    assert [axis for axis, _ in explained] == ["B", "T", "L", "D", "N", "H", "F", "V", "S"]
    assert dict(explained)["N"] == "query heads"
    assert "%   W: keys that a query" in run("formula", "gemma-3-27b-text", "--latex").out


@pytest.mark.parametrize("of", ["flops", "params", "kv"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2-7b", "cs336"])
def test_latex_is_an_align_environment_that_can_be_set(run, name: str, of: str) -> None:
    ran = run("formula", name, "--of", of, "--latex")
    lines = [line for line in ran.out.splitlines() if not line.startswith("%")]
    assert ran.code == 0 and "amsmath" in ran.out
    assert (lines[0], lines[-1]) == (r"\begin{align*}", r"\end{align*}")
    body = lines[1:-1]
    count = len(run("formula", name, "--of", of, "--json").models[0]["lines"])
    assert len(body) == count + 1 and body[-1].startswith(r"  \text{total} &= ")
    mathtext = pytest.importorskip("matplotlib.mathtext")
    for line in body:
        row = line.removesuffix(r" \\")
        assert (row == line) == (line is body[-1])
        assert re.fullmatch(r"  \\text\{(?:[a-z0-9.]|\\_)+\} &= [^&_%#$~]+", row), row
        assert row.count("{") == row.count("}")
        assert row.count(r"\left(") == row.count(r"\right)") == row.count("(") == row.count(")")
        mathtext.MathTextParser("path").parse(f"${row.partition('&= ')[2]}$")
    with pytest.raises(ValueError, match=r"ParseException|Expected"):
        mathtext.MathTextParser("path").parse(r"$2\,\left(B$")


def test_axes_of_several_characters() -> None:
    """3·D·Rq² + D·Rq, with the common factors in front."""
    assert factored(("D", "Rq"), [{(1, 2): 3}, {(1, 1): 1}]).text == "D·Rq·(3·Rq + 1)"
    written = factored(("D", "Rq"), [{(1, 2): 3}])
    assert (written.text, written.code) == ("3·D·Rq^2", "3*D*Rq**2")
    assert written.latex == r"3\,D\,R_{\mathrm{q}}^{2}"
    assert latex_axis("Hv") == r"H_{\mathrm{v}}" and latex_axis("H") == "H"


def test_every_style_writes_every_operator() -> None:
    assert {style.times for style in (TEXT, CODE, LATEX)} == {"·", "*", r"\,"}
    assert factored(("B",), []).text == factored(("B",), []).code == "0"
    assert factored(("B",), [{(0,): 7}]).text == "7"
    assert factored(("L", "D"), [{(1, 1): 1, (0, 1): 1}]).text == "D·(L + 1)"
    assert factored(("L", "D"), [{(1, 1): 2, (0, 1): 1}, {(1, 0): 1}]).text == "L·(2·D + 1) + D"


def test_stacks_with_one_sum_share_its_bracket() -> None:
    """2·(L + Lw)·(D + 1) + D·Le: stacks with equal sums have one term."""
    both = {(1, 0, 0, 1): 2, (1, 0, 0, 0): 2, (0, 1, 0, 1): 2, (0, 1, 0, 0): 2}
    found = factored(("L", "Lw", "Le", "D"), [both, {(0, 0, 1, 1): 1}])
    assert found.text == "2·(L + Lw)·(D + 1) + Le·D"
    assert found.code == found.text.replace("·", "*")
    assert factored(("L", "Lw", "D"), [{(1, 0, 1): 1, (0, 1, 1): 1}]).text == "D·(L + Lw)"
    # equal terms of two parts are one
    assert factored(("L", "V"), [{(0, 1): 1}, {(0, 1): 1}, {(1, 0): 1}]).text == "L + 2·V"


POWERS = st.tuples(*[st.integers(0, 2)] * 5)
PARTS = st.lists(st.dictionaries(POWERS, st.integers(1, 12), max_size=4), max_size=4)


@settings(max_examples=300, deadline=None, database=None)
@given(parts=PARTS, after=PARTS)
def test_any_polynomial_is_written_exactly(parts: list, after: list) -> None:
    values = dict(zip("BLDKS", (2, 3, 5, 7, 11), strict=True))
    expected = sum(
        count * prod(value**power for value, power in zip(values.values(), powers, strict=True))
        for part in (*parts, *after)
        for powers, count in part.items()
    )
    written = factored(tuple(values), parts, after)
    assert eval(written.code, {}, values) == expected
    assert eval(written.text.replace("·", "*").replace("^", "**"), {}, values) == expected
    latex = re.sub(r"\^\{(\d)\}", r"**\1", unlatexed(written.latex))
    assert eval(latex, {}, values) == expected


def test_n_is_written_for_k_times_g_exactly() -> None:
    """K·G becomes N wherever both are factors, and nothing else does."""
    symbolic = in_symbols(load("llama-3-8b").architecture)
    K, G, D = (symbolic.symbols[axis] for axis in "KGD")
    assert symbolic.formula([K * G * D]).written.text == "D·N"
    assert symbolic.formula([K**2 * G + K]).written.text == "K·(N + 1)"
    assert symbolic.formula([K * G**3]).written.text == "N·G^2"
    assert symbolic.formula([K + G]).written.text == "K + G"
    with pytest.raises(ValueError, match="whole coefficients"):
        symbolic.formula([K / 2])


def test_every_size_is_a_symbol() -> None:
    for family in TINY:
        shape = tiny(family).architecture
        fixed = tiny(family).config.constant_axes
        symbolic = in_symbols(shape, fixed=fixed)
        # A window is none: visible and cached keys have symbols of their own.
        sizes = {name for name, axis in shape.declared_axes().items() if axis.made is None} - fixed - WINDOWS
        assert sizes <= set(symbolic.symbols) and not fixed & set(symbolic.symbols)
        axes = {axis: size for group in symbolic.ledger.groups for axis, size in group.axes.items()}
        assert {axis for axis, size in axes.items() if isinstance(size, int)} - {"U", "Yc", *WINDOWS} == fixed


@pytest.mark.usefixtures("presets_apart")
def test_n_follows_the_parts_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """If N were 2·K·G, K·G would have no symbol."""
    monkeypatch.setattr(Attention, "made", {"N": "2 · K · G"})
    assert in_symbols(tiny("llama").architecture).products == {}


def in_two_stacks(*widths: int, window: tuple[int | None, int | None] = (None, None)) -> LoadedModel:
    """Llama with a second stack of two layers with an MLP, and optionally a window, of another size."""
    one = tiny("llama")
    (stack,) = one.architecture.stacks
    attention, network = stack.block.sublayers

    def block(width: int, seen: int | None) -> Block:
        sublayers = (
            replace(attention, part=replace(attention.part, window=seen)),
            replace(network, part=replace(network.part, width=width)),
        )
        return replace(stack.block, sublayers=sublayers)

    first, second = (block(width, seen) for width, seen in zip(widths, window, strict=True))
    mixed = replace(one.architecture, stacks=(Stack(first, stack.count), Stack(second, 2)))
    return replace(one, architecture=mixed, ledger=mixed.ledger())


@pytest.mark.parametrize(
    ("window", "axis_names"), [((None, None), {"F1": 71, "F2": 72}), ((None, 4), {"Ffull": 71, "Fwin": 72})]
)
def test_layers_of_two_sizes_have_two_axes(window: tuple, axis_names: dict[str, int]) -> None:
    """Each line's formula evaluates to its number; the legend has every axis with its value."""
    both = in_two_stacks(71, 72, window=window)
    for of in ("flops", "params", "kv"):
        (facts,) = formula(both, Request() if of == "params" else Request(ctx=9), of=of).models
        values = read_back(facts)
        if of != "kv":
            assert {axis: values[axis] for axis in values if axis[0] == "F"} == axis_names
            assert facts["legend"]["F"] == {"meaning": f"any of {', '.join(axis_names)}"}
    first, whose = next(iter(axis_names)), {"F1": "layers of kind 1", "Ffull": "full layers"}
    (facts,) = formula(both, Request(ctx=9)).models
    assert facts["legend"][first]["meaning"] == f"feed-forward width in {whose[first]}"


def test_windows_of_two_sizes_are_refused() -> None:
    with pytest.raises(TfacctError, match="W is 4 in some parts and 5 in others"):
        formula(in_two_stacks(71, 71, window=(4, 5)), Request())


# 6 and 10 heads, of sizes 10 and 6; MLPs of 32 and 40; 2 and 3 layers.
SIDES = {
    "model_type": "bart", "vocab_size": 97, "d_model": 60, "encoder_layers": 2, "decoder_layers": 3,
    "encoder_attention_heads": 6, "decoder_attention_heads": 10, "encoder_ffn_dim": 32, "decoder_ffn_dim": 40,
    "max_position_embeddings": 50,
}  # fmt: skip


def test_each_side_has_its_own_axes(run) -> None:
    """N is 6 in the encoder and 10 in the decoder."""
    out = run("formula", "-", "--ctx", "9", "--source", "7", columns=200, stdin=json.dumps(SIDES).encode()).out
    assert "encoder.attn.scores    B I Kenc G Henc, B J Kenc Henc → B Kenc G I J  2·B·I·Le·Nenc·Henc·J" in out
    assert "cross.scores           B T K G H, B J K H → B K G T J" in out
    assert "Nenc = 6: query heads in the encoder, Kenc · G" in out
    assert "N = 10: query heads in the decoder, K · G" in out
    assert "Henc = 10: head size in the encoder" in out and "Le = 2: encoder layers" in out
    # by hand: 60·97 of the tied embedding; 2·52·60 of positions; two norms of 120 after them
    # a layer of 60: attention 4·(60·60 + 60) and its norm 120; MLP 2·60·32 + 32 + 60, or of 40; its norm
    ends, attention = 60 * 97 + 2 * 52 * 60 + 2 * 120, 4 * 3_660 + 120
    hand = ends + 2 * (attention + 3_932 + 120) + 3 * (2 * attention + 4_900 + 120)
    table = printed(run, SIDES, "--of", "params")
    sizes = {"B": 1, "D": 60, "V": 97, "P": 52, "L": 3, "Le": 2, "N": 10, "Nenc": 6, "H": 6, "Henc": 10}
    assert evaluated(table["="][0], {**sizes, "F": 40, "Fenc": 32}) == hand == number(table["total"][-1])


def test_a_field_of_both_sides_is_one_axis() -> None:
    """T5's encoder and decoder share heads and widths; BART has fields for each, even where these are equal."""
    assert set(tiny("t5").architecture.declared_axes()) == set("VDRpKGNHF".replace("Rp", "")) | {"Rp"}
    equal = {**SIDES, "encoder_attention_heads": 10, "encoder_ffn_dim": 40}
    assert {"N", "Nenc", "F", "Fenc", "H", "Henc"} <= set(load(equal).architecture.declared_axes())


def test_derived_axes_differ_between_sides() -> None:
    """12 query heads on both sides, of 4 and of 6 key/value heads: N is K · G there, and Kenc · Genc."""
    own = load({**OWN_SIDES, "encoder": {**OWN_SIDES["encoder"], "attention": {"heads": 12, "kv_heads": 4}}})
    axis_names = own.architecture.declared_axes()
    assert axis_names["Nenc"].made == "Kenc · Genc" and axis_names["N"].made == "K · G"


OWN_SIDES = {
    "model_type": "custom",
    "model": {
        "vocab": 31, "source_vocab": 29, "hidden": 24, "context": 20, "source_context": 18, "positions": "learned",
    },
    "norm": {"kind": "layer"},
    "encoder": {
        "layers": 2, "attention": {"heads": 4, "kv_heads": 2, "head_dim": 5},
        "experts": {"experts": 7, "active": 3, "width": 11, "shared": 13},
    },
    "decoder": {
        "layers": 3, "attention": {"heads": 12, "kv_heads": 6, "head_dim": 8},
        "experts": {"experts": 5, "active": 2, "width": 17, "shared": 19},
    },
}  # fmt: skip


@pytest.mark.parametrize("of", ["flops", "params", "kv", "train"])
def test_own_sides_that_differ_in_everything_read_back(of: str) -> None:
    model = load(OWN_SIDES)
    report = model.formula(of=of, **({} if of == "params" else {"ctx": 9, "source": 7, "batch": 2}))
    (facts,) = report.models
    values = read_back(facts)
    if of == "params":
        assert {"Venc", "Penc"} <= set(values)
    if of == "flops":
        assert {"Kenc", "Henc", "Eenc", "Aenc", "Feenc", "Fsenc", "Nenc"} <= set(values)
        assert evaluated(facts["total_formula"], values) == model.flops(ctx=9, source=7, batch=2).total == report.total


def test_every_way_to_vary_a_side(run) -> None:
    """Fenc varies alone; key/value heads divide the heads of both sides, 6 and 10; and a context is solved."""
    pytest.importorskip("numpy")
    model = load({**SIDES, "max_position_embeddings": 250})
    assert list(model.evaluate("total_params", Fenc=[32, 33], exact=True)) == [
        model.params().total,
        load({**SIDES, "max_position_embeddings": 250, "encoder_ffn_dim": 33}).params().total,
    ]
    with pytest.raises(TfacctError, match="must divide the 6 query heads"):
        model.evaluate("total_params", num_key_value_heads=[5])
    with pytest.raises(TfacctError, match="H must be even"):
        load(TINY["llama"]).evaluate("total_params", H=[3])
    # 2 · 3 · K · 6 · (50 + 50) · 2 bytes = 7,200·K: K = 2 is the last of 1 and 2 within 14,400
    report = model.solve("num_key_value_heads", "kv_cache_bytes=14400B", ctx=50, source=50)
    assert report.total == 2 and report.models[0]["beyond"] is None
    # a token more is 2 · 3 · 60 · 2 bytes = 720, and as much a source token: 100,000 / 720 = 138.9
    assert model.solve("ctx", "kv_cache_bytes=100kB", source=50).total == (100_000 - 50 * 720) // 720
