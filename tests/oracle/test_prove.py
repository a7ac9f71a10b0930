"""The formula is the same polynomial as the reference model's count. Kind: law, refusal."""

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

import tfacct
from tests.families import SHAPES, TINY
from tests.helpers.answers import check_plain, check_printed_and_framed
from tests.helpers.lazy import lazy
from tests.helpers.models import tiny
from tests.helpers.schemas import check_typed
from tfacct.algebra.symbols import in_symbols
from tfacct.architecture.parts import FeedForward
from tfacct.base.errors import UsageError
from tfacct.loading import presets
from tfacct.loading.model import load_model
from tfacct.reports.verify import prove
from tfacct.verify import proof as proofs
from tfacct.verify.sizes import FIXED, Sizes

grid, model, symbolic = lazy("tfacct.reference.grid"), lazy("tfacct.reference.model"), lazy("tfacct.reference.symbolic")
sympy = pytest.importorskip("sympy")

COUNTS = ["forward", "backward", "parameters", "cached"]


@pytest.fixture(autouse=True)
def traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace takes a second, and depends on the reference model alone, not on the formula."""
    monkeypatch.setattr(proofs.Traces, "_at_once", once)


HONEST, TRACED = proofs.Traces._at_once, dict[Any, Any]()


def once(own: Any, layers: Any, fixed: Any, *more: Any) -> Any:
    key = repr((own.shape, layers, fixed, more))
    if key not in TRACED:
        TRACED[key] = HONEST(own, layers, fixed, *more)
    return TRACED[key]


def test_an_encoder_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all sizes above 1: its edges, and those of other kinds, take minutes."""
    monkeypatch.setattr(Sizes, "edges", lambda _: [])
    report = prove(presets.load("bert-base"))
    assert report.agrees
    holds(report.models[0])


FULL = ["full_attention"] * 6
DEEPSEEK = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("recurrent_gemma", {"block_types": ["recurrent"]}),
        ("nemotron_h", {"hybrid_override_pattern": "*E"}),
        ("gemma3n_text", {"layer_types": FULL, "num_kv_shared_layers": 0, "activation_sparsity_pattern": [0.5] * 6}),
        ("gemma4_text", {"layer_types": FULL, "num_kv_shared_layers": 0}),
        ("embedding_gemma2_text", {"layer_types": FULL[:3]}),
        *(("deepseek_v4", {"layer_types": [kind] * 3}) for kind in DEEPSEEK),
        ("beit", {"use_relative_position_bias": True}),
    ],
)
def test_parts_of_small_configs_are_proven(
    family: str, fields: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all sizes above 1, and at the least ones, of any number of layers that have rows of their own. The families
    themselves are proven in tests/sweeps."""
    every = Sizes.edges
    monkeypatch.setattr(Sizes, "edges", lambda own: every(own)[-1:])
    report = prove(load_model("small", {**TINY[family], **fields}))
    assert report.agrees and {row["evidence"] for row in report.rows} == {"no assumption"}


def sizes_of_tiny(family: str) -> Sizes:
    """The symbols of a proof of a family's small model."""
    shape = tiny(family).architecture
    return Sizes(shape, in_symbols(shape, cached=True, fixed=FIXED))


def test_a_head_has_at_least_its_rotary_dimensions() -> None:
    """At least two of its dimensions are rotary, so a head size of 1 is no case."""
    edges = [edge.sizes for edge in sizes_of_tiny("bailing_moe_linear, with lightning attention").edges()]
    assert {"Hl": 2, "Hlr": 2, "Nc": 2} in edges and {"Nl": 1, "Nc": 2} in edges


def test_an_image_has_no_fewer_tokens_than_precede_its_patches() -> None:
    tokens = [edge.sizes["T"] for edge in sizes_of_tiny("deit").edges() if "T" in edge.sizes]
    assert tokens == [3]
    assert "Xr" not in sizes_of_tiny("dinov2_with_registers").declared  # one fewer than precede them, a number


def test_tokens_in_a_chunk_that_come_together() -> None:
    """Those of a group of keys, of which a chunk of a recurrence holds 16: none of these steps has a second chunk."""
    sizes = sizes_of_tiny("glm5_next_text")
    assert (sizes.together, sizes.chunk) == (4, 64)
    edges = [edge.sizes for edge in sizes.edges() if "T" in edge.sizes]
    assert edges == [{"T": 4, "Nc": 1}, {"T": 64, "Nc": 1}]


def test_complete_keys_of_cached_and_new_tokens_are_cached() -> None:
    """Those of a window, and one for each 4 tokens, of which none waits."""
    small = load_model("small", {**TINY["deepseek_v4"], "layer_types": ["heavily_compressed_attention"] * 3})
    at = in_symbols(small.architecture, fixed=FIXED, cached=True)
    b, t, c, window, layers, head = (at.symbols[name] for name in ("B", "T", "C", "Cw", "L", "H"))
    every = layers * b * head * (window + t + (c + t) / 4)
    assert proofs._formulas(at)["cached"].expression == sympy.expand(every)


def test_tokens_of_one_sequence_are_multiples_of_all_that_they_come_in() -> None:
    sizes = sizes_of_tiny("deepseek_v4")
    assert (sizes.factors({})["T"], sizes.factors({})["B"]) == ((4,), ("E",))
    assert sizes.factors({"B": 1})["T"] == (4, "E") and "B" not in sizes.factors({"B": 1})


@pytest.mark.parametrize(
    ("counts", "through", "guards"),
    [
        ((3, 5, 7), "2*T + 1", []),
        ((3, 5, 8), "2*T + 1", ["forward is of degree 1 in T"]),
        ((3, 8, 17, 30), "2*T**2 - T + 2", []),  # with layers of attention and of the recurrence
        ((3, 8, 17, 31), "2*T**2 - T + 2", ["forward is of degree 2 in T"]),
    ],
)
def test_the_last_number_of_tokens_lies_on_the_curve_or_does_not(
    counts: tuple[int, ...], through: str, guards: list[str]
) -> None:
    runs = [({"forward": sympy.Integer(count)}, []) for count in counts]
    assert proofs.interpolated(sympy.Symbol("T"), runs, checked=True) == ({"forward": sympy.sympify(through)}, guards)
    fewer = ({"forward": sympy.sympify(through)}, [])  # where a curve was checked before, one run less fixes it
    assert proofs.interpolated(sympy.Symbol("T"), runs[:-1], checked=False) == fewer


@pytest.mark.parametrize(
    ("counts", "guards"),
    [(("T", "T + 4*D", "T + 8*D"), []), (("T", "T + 4*D", "T + 9*D"), ["forward is linear in Nc"])],
)
def test_whether_each_chunk_adds_as_much_as_the_second(counts: tuple[str, ...], guards: list[str]) -> None:
    T, D, Nc = sympy.symbols("T D Nc")
    runs = [({"forward": sympy.sympify(count)}, []) for count in counts]
    assert proofs.in_chunks(Nc, runs) == ({"forward": T + 4 * D * Nc - 4 * D}, guards)


def test_whether_each_layer_adds_as_much_as_the_second() -> None:
    """1 + 2·La + 3·Lb·Nc: further counts are compared with that law, with one chunk."""
    La, Lb, Nc = sympy.symbols("La Lb Nc")
    law = 1 + 2 * La + 3 * Lb * Nc
    counts = {layers: law.subs({La: layers[0], Lb: layers[1]}) for layers in ((1, 1), (2, 1), (1, 2))}
    once = {(3, 3): 16}
    whole, linear = proofs.for_all_layers(counts | once, [La, Lb], {Nc: 1})
    assert linear and sympy.expand(whole - law) == 0
    assert not proofs.for_all_layers(counts | {(3, 3): 17}, [La, Lb], {Nc: 1})[1]


def test_two_runs_determine_the_count_of_a_chunk() -> None:
    """Logits of one sequence: 2 · T · D · V FLOPs, however many chunks there are. That the last one is not full is no
    assumption."""
    shape = tiny("mamba2").architecture
    sizes = Sizes(shape, in_symbols(shape, cached=True, fixed=FIXED))
    assert (sizes.chunk, sizes.once) == (tiny("mamba2").raw["chunk_size"], {"Nc": 1})
    counts, guards = proofs.Traces(shape, sizes).counted({"Lm": 1, "L": 1}, first=False)
    T, B, D, V = (sizes.symbols[axis] for axis in "TBDV")
    assert guards == [] and sympy.expand(counts["forward"].coeff(V) - 2 * B * T * D) == 0


def test_edges_of_tokens_in_chunks() -> None:
    """A whole chunk, the token of a decode step in none; one sequence has its tokens dealt out to one expert."""
    sizes = sizes_of_tiny("minimax")
    edges = {edge.words: edge.sizes for edge in sizes.edges()}
    assert edges["T = 1, Nc = 0, Tr = 1"] == {"T": 1, "Nc": 0, "Tr": 1}
    assert edges[f"T = {sizes.chunk}, Nc = 1"] == {"T": sizes.chunk, "Nc": 1}
    assert edges["B = 1, E = 1, A = 1"] == {"B": 1, "E": 1, "A": 1, "Nc": 2}


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_no_axis_of_a_part_is_left_out_of_the_proof(name: str) -> None:
    """Every size is a symbol, and each is also checked at its least value."""
    shape = tiny(name).running("expanded").architecture
    sizes = Sizes(shape, in_symbols(shape, cached=True))
    own = {called.get(axis, axis) for axis, called in with_axes(shape)}
    assert own == set(sizes.declared)
    at_least = {axis: edge.sizes[axis] for edge in sizes.edges() for axis in edge.sizes}
    assert own <= set(at_least)
    for part in shape.parts():  # nothing of a part escapes the declarations
        every = (*part.with_nested(),)
        assert set(part.axes()) <= {axis for one in every for axis in (*one.sizes().values(), *one.derived())}
        declared = {*part.cases, *part.at_most, *part.at_most.values(), *part.cut, *part.made, part.dealt}
        assert declared - {None} <= {*part.axis_names.values(), *part.made}
        assert set(part.made) <= set(part.legend)


def with_axes(shape):
    """Every axis that a part declares, except windows, with the model's name of it."""
    for place, called in shape.named_places():
        for part in place.parts:
            yield from ((axis, called) for axis in part.sizes().values() if axis not in FIXED)


def test_layers_that_have_rows_of_their_own_are_no_fewer_than_there_are_stacks() -> None:
    sizes = sizes_of_tiny("gemma3n_text")
    assert sizes.edges()[-1].sizes["Lp"] == len(sizes.stacks) > 1


def test_parts_declare_possible_sizes() -> None:
    """Phi rotates at least 2 dimensions of a head, and the rest is a size of its own; Mixtral routes its tokens."""
    sizes = sizes_of_tiny("phi")
    assert sizes.conditions() == ["Hr a multiple of 2", "H at least Hr + 2"]
    assert sizes.edges()[-1].sizes | {"H": 2, "Hr": 2} == sizes.edges()[-1].sizes
    assert (sizes.values("Hr"), sizes.values("H")) == ([2, 4], [4, 5])
    assert (sizes.values("T"), sizes.values("C")) == ([1, 2, 3], [0, 1])
    sizes = sizes_of_tiny("mixtral")
    assert sizes.factors({}) == {"H": (2,), "B": ("E",)}
    assert sizes.factors({"B": 1}) == {"H": (2,), "T": ("E",), "J": ("E",)}
    assert (sizes.values("A"), sizes.values("E")) == ([1, 2], [2, 3])
    assert {"E": 1, "A": 1}.items() <= sizes.edges()[-1].sizes.items()
    sizes = sizes_of_tiny("gpt2")
    assert sizes.conditions() == []  # no rotary embedding: heads of any size
    assert [edge.sizes for edge in sizes.edges()].count({"T": 1}) == 1
    sizes = sizes_of_tiny("laguna")  # its kinds of layers rotate unequal shares
    assert sizes.rests == {"H": ("Hrfull", "Hrwin")} and "H at least Hrfull + Hrwin + 2" in sizes.conditions()
    kimi = tiny("kimi_k25_vision").architecture  # pairs of rows and pairs of columns
    assert Sizes(kimi, in_symbols(kimi, cached=False)).conditions() == ["H a multiple of 4"]


def holds(facts: dict) -> None:
    assert facts["by"] == "symbols" and facts["proven"]
    assert [statement["what"] for statement in facts["statements"]] == COUNTS
    assert all(s["difference"] == "0" and s["evidence"] == "no assumption" for s in facts["statements"])


def is_in_the_books(facts: dict) -> None:
    """2·B·T·(L·(3·D·F + 2·D·H·(N + K) + 2·N·H·S) + D·V) with N = K·G and S = C + T, written down by hand."""
    found = sympy.sympify({s["what"]: s["formula"] for s in facts["statements"]}["forward"])
    B, T, C, L, D, F, K, G, H, V = sympy.symbols("B T C L D F K G H V")
    N, S = K * G, C + T
    book = 2 * B * T * (L * (3 * D * F + 2 * D * H * (N + K) + 2 * N * H * S) + D * V)
    assert sympy.expand(found.subs({s: sympy.Symbol(s.name) for s in found.free_symbols}) - book) == 0


def test_the_command_line_proves_the_polynomial_in_the_books(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sizes, "edges", lambda _: [])
    ran = run("verify", "--prove", "llama", "--json")
    (facts,) = ran.models
    assert ran.code == 0 and facts["family"] == "llama"
    assert facts["legend"]["G"] == {"meaning": "query heads per key/value head"}
    holds(facts)
    is_in_the_books(facts)


def test_a_proof_is_a_report_like_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sizes, "edges", lambda _: [])  # its statements are alike: a few will do
    report = tfacct.load("llama-3.1-405b").prove()
    check_typed(report, "verify-prove")
    check_plain(report)
    check_printed_and_framed(report)


def test_rotary_embedding_of_any_scaling_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference model has no YaRN, and heads of the least size have angles."""
    every, yarn = Sizes.edges, {"rope_type": "yarn", "factor": 4.0}
    monkeypatch.setattr(Sizes, "edges", lambda own: every(own)[-1:])
    assert prove(load_model("llama", {**TINY["llama"], "num_hidden_layers": 1, "rope_scaling": yarn})).agrees


def forget_the_down_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = FeedForward.lines
    monkeypatch.setattr(FeedForward, "lines", lambda *a: tuple(one for one in lines(*a) if "down" not in one.path))


@pytest.mark.usefixtures("presets_apart")
def test_a_slip_is_not_proven(monkeypatch: pytest.MonkeyPatch, run) -> None:
    """A spec that forgets the down projection differs by exactly that polynomial."""
    forget_the_down_projection(monkeypatch)
    monkeypatch.setattr(Sizes, "edges", lambda _: [])
    ran = run("verify", "--prove", "llama")
    assert ran.code == 1
    rows = {line.split("  ")[0].strip(): line.split()[1:] for line in ran.out.splitlines() if "  " in line}
    assert rows["forward"][0] == "2*B*D*F*L*T" and rows["forward"][-2:] == ["NOT", "PROVEN"]
    assert rows["backward"][0] == "4*B*D*F*L*T" and rows["backward"][-2:] == ["NOT", "PROVEN"]
    assert rows["cached"] == ["0", "no", "assumption", "proven"]


@pytest.mark.slow
def test_sizes_that_a_symbol_excludes_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that does more in a plain prefill is not proven, and the report says where."""
    honest = model.Decoder.forward

    def eager(self, tokens, past=(), positions=None):
        result = honest(self, tokens, past, positions)
        if not past:
            self.lm_head(self.embed(tokens))
        return result

    monkeypatch.setattr(model.Decoder, "forward", eager)
    report = prove(tiny("gpt2"))
    left = {row["what"] for row in report.rows if row["verdict"] != "proven"}
    assert left == {"all four at C = 0", "all four at B = 1, C = 0"}


def test_an_assumption_is_no_proof(monkeypatch: pytest.MonkeyPatch, run) -> None:
    honest = symbolic.polynomials
    shape = tiny("gpt2").architecture
    traces = proofs.Traces(shape, Sizes(shape, in_symbols(shape, cached=True, fixed=FIXED)))
    assert traces.at({"L": 1}, {})[1] == []
    monkeypatch.setattr(symbolic, "polynomials", lambda *a, **k: replace(honest(*a, **k), guards=["D > 7"]))
    assert HONEST(traces, {"L": 1}, {})[1] == ["D > 7"]
    monkeypatch.setattr(proofs.Traces, "_at_once", lambda *a: (once(*a)[0], ["D > 7"]))
    monkeypatch.setattr(Sizes, "edges", lambda _: [])
    (facts,) = run("verify", "--prove", "llama", "--json").models
    assert not facts["proven"] and {row["evidence"] for row in facts["statements"]} == {"3 assumptions"}


@pytest.mark.parametrize("every", [61, pytest.param(1, marks=pytest.mark.slow)])
def test_the_grid_proves_the_same_and_sees_a_slip(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,536 models counted by fvcore and by torch, in processes of their own; every 61st of them in less time."""
    model = presets.load("llama-3-8b")
    counted: list[Any] = []
    honest, product = grid.counts, proofs.product
    monkeypatch.setattr(grid, "counts", lambda points: (counted.append(found) or found for found in honest(points)))
    monkeypatch.setattr(proofs, "product", lambda *values: islice(product(*values), None, None, every))
    report = prove(model, by="grid")
    points = len(range(0, 1536, every))
    assert report.agrees and len(counted) == points
    (facts,) = report.models
    is_in_the_books(facts)
    by_grid = {s["what"]: s["formula"] for s in facts["statements"]}
    assert by_grid["forward, by torch"] == by_grid["forward"]
    forward = sympy.sympify(by_grid["forward"])
    assert sympy.expand(sympy.sympify(by_grid["backward"]) - 2 * forward) == 0
    # The same counts against a formula without the down projection: no point agrees.
    monkeypatch.setattr(grid, "counts", lambda _: iter(counted))
    forget_the_down_projection(monkeypatch)
    slipped = prove(model, by="grid")
    assert not slipped.agrees
    none, all_ = f"0 at 0 of {points:,}", f"0 at {points:,} of {points:,}"
    differs = {row["what"]: row["difference"] for row in slipped.rows}
    assert differs == {"forward": none, "forward, by torch": none, "backward": none, "parameters": none, "cached": all_}


def test_without_the_private_interface_it_falls_back_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_, **__):
        raise AttributeError("ShapeEnv is missing")

    asked = []
    monkeypatch.setattr(symbolic, "ShapeEnv", missing)
    monkeypatch.setattr(proofs, "_by_grid", lambda *a: asked.append(a) or iter(()))
    report = prove(tiny("llama"))
    assert asked and report.models[0]["by"] == "grid"
    assert "ShapeEnv is missing" in report.hints[0] and "so the proof uses a grid" in report.hints[0]


def test_a_point_of_the_grid_caches_keys_outside_the_window() -> None:
    (found,) = grid.count(
        [grid.Point(tiny("mistral", sliding_window=2).architecture, batch=3, tokens=5, context=9, in_window=4)]
    )
    assert found.cached == 2 * 3 * 9 * 2 * 2 * 6  # keys and values, batch, tokens, layers, heads, head size


def test_a_mistake_of_ours_is_no_excuse_for_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_):
        raise TypeError("ours")

    monkeypatch.setattr(proofs, "_formulas", broken)
    with pytest.raises(TypeError, match="ours"):
        prove(tiny("gpt2"))


def test_a_model_that_does_not_run_with_symbols_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("torch needs a number")

    monkeypatch.setattr("tfacct.verify.proof.proven", fails)
    with pytest.raises(UsageError, match="does not run with symbols"):
        prove(tiny("llama"))
