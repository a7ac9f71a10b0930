"""The formula is the same polynomial as what the model does."""

import json

import pytest

from tests.conftest import tiny
from tfacct import presets
from tfacct.lines import Matmul
from tfacct.parts import FeedForward
from tfacct.reports import prove as room
from tfacct.reports.prove import prove

pytest.importorskip("torch")
sympy = pytest.importorskip("sympy")

COUNTS = ["forward", "backward", "parameters", "cached"]
COUNTS += [f"all four at {edge}" for edge in ("T = 1", "C = 0", "B = 1", "K = 1", "G = 1", "B = 1, C = 0")]


@pytest.mark.parametrize(
    "name",
    ["gpt2", "llama-3-8b", "llama-3.2-1b", "qwen2-7b", "qwen3-8b", "gemma-2b", "mistral-nemo-12b", "cs336-gpt2-small"],
)
def test_plain_families_are_proven_with_symbols(name: str) -> None:
    proven(name, COUNTS)


def edges(letters: str, window: bool = False) -> list[str]:
    """What else is looked at: one of each of these sizes, an empty cache and an empty window."""
    empty = "C = 0, Cw = 0" if window else "C = 0"
    said = ["all four at T = 1", f"all four at {empty}", "all four at B = 1"]
    return [*COUNTS[:4], *said, *(f"all four at {letter} = 1" for letter in letters), f"all four at B = 1, {empty}"]


# One of each kind: experts; windows between full layers; experts beside a shared network behind a latent, dense first;
# post-norm blocks of narrower tokens; parallel blocks with two norms; experts with windows and sinks; an encoder; an
# encoder and a decoder with scores for distances; both with tables of positions.
KINDS = {
    "mixtral-8x7b": edges("KGA"),
    "gemma-2-2b": edges("KG", window=True),
    "deepseek-v2-lite": edges("NA"),
    "opt-350m": edges("KG"),
    "falcon-40b": edges("KG"),
    "gpt-oss-20b": edges("KGA", window=True),
    "bert-base": [*COUNTS[:5], *(f"all four at {letter} = 1" for letter in "BKG")],
    "t5-small": [*COUNTS, "all four at J = 1", "all but backward at I = 0"],
    "transformer-base": [*COUNTS, "all four at J = 1", "all but backward at I = 0"],
}


SLOW = ("deepseek-v2-lite", "gpt-oss-20b", "transformer-base")  # half a minute each


@pytest.mark.parametrize(
    ("name", "said"), [pytest.param(*kind, marks=[pytest.mark.slow] * (kind[0] in SLOW)) for kind in KINDS.items()]
)
def test_every_kind_of_block_is_proven_with_symbols(name: str, said: list[str]) -> None:
    proven(name, said)


@pytest.mark.parametrize("form", ["absorbed", pytest.param("unpacked", marks=pytest.mark.slow)])
def test_latent_attention_is_proven_in_its_other_forms(form: str) -> None:
    proven("deepseek-v2-lite", edges("NA"), latent_attention=form, first_k_dense_replace=0)


def proven(name: str, said: list[str], **sets: object) -> None:
    report = prove(presets.load(name, sets))
    assert report.agrees
    (facts,) = report.models
    assert facts["by"] == "symbols" and facts["proven"]
    assert [s["what"] for s in facts["statements"]] == said
    assert all(s["difference"] == "0" and s["evidence"] == "no assumption" for s in facts["statements"])


def test_the_polynomial_is_the_one_in_the_books() -> None:
    """2·B·T·(L·(3·D·F + 2·D·H·(N + K) + 2·N·H·S) + D·V) with N = K·G and S = C + T, written down by hand."""
    (facts,) = prove(presets.load("llama-3-8b")).models
    found = sympy.sympify({s["what"]: s["formula"] for s in facts["statements"]}["forward"])
    B, T, C, L, D, F, K, G, H, V = sympy.symbols("B T C L D F K G H V")
    N, S = K * G, C + T
    book = 2 * B * T * (L * (3 * D * F + 2 * D * H * (N + K) + 2 * N * H * S) + D * V)
    assert sympy.expand(found.subs({s: sympy.Symbol(s.name) for s in found.free_symbols}) - book) == 0


def test_a_slip_is_not_proven(monkeypatch: pytest.MonkeyPatch, run) -> None:
    """A spec that forgets the down projection differs by exactly that polynomial."""
    honest = FeedForward.lines

    def forgetful(self, at):
        return tuple(line for line in honest(self, at) if not (isinstance(line, Matmul) and "down" in line.path))

    monkeypatch.setattr(FeedForward, "lines", forgetful)
    report = prove(tiny("llama"))
    assert not report.agrees
    (facts,) = report.models
    said = {s["what"]: s["difference"] for s in facts["statements"]}
    assert (said["forward"], said["backward"]) == ("2*B*D*F*L*T", "4*B*D*F*L*T")
    assert said["cached"] == "0"
    ran = run("verify", "--prove", "gpt2")
    assert ran.code == 1 and "NOT PROVEN" in ran.out and "2*B*D*F*L*T" in ran.out


def test_what_a_symbol_leaves_out_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that does more in a plain prefill, for one sequence or for MHA, is not proven, and it is said where."""
    from tfacct.reference import model, modules

    honest = model.Decoder.forward

    def eager(self, tokens, past=(), positions=None):
        result = honest(self, tokens, past, positions)
        if not past:
            self.lm_head(self.embed(tokens))
        return result

    monkeypatch.setattr(model.Decoder, "forward", eager)
    report = prove(tiny("gpt2"))
    assert {row["what"] for row in report.rows if row["verdict"] != "proven"} == {
        "all four at C = 0",
        "all four at B = 1, C = 0",
    }
    monkeypatch.setattr(model.Decoder, "forward", honest)
    product = modules.Product.forward

    def doubled(self, left, right):
        if isinstance(self.group, int) and self.group == 1:
            product(self, left, right)
        return product(self, left, right)

    monkeypatch.setattr(modules.Product, "forward", doubled)
    report = prove(tiny("gpt2"))
    assert {row["what"] for row in report.rows if row["verdict"] != "proven"} == {"all four at G = 1"}


def test_an_assumption_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from tfacct.reference import symbolic

    honest = symbolic.polynomials
    monkeypatch.setattr(symbolic, "polynomials", lambda *a, **k: replace(honest(*a, **k), guards=["D > 7"]))
    report = prove(tiny("gpt2"))
    assert not report.agrees
    assert {row["verdict"] for row in report.rows} == {"NOT PROVEN"}


def test_the_grid_proves_the_same_and_sees_a_slip(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,536 models counted by fvcore and by torch, in processes of their own."""
    subject = presets.load("llama-3-8b")
    from tfacct.reference import grid

    counted = []

    def remember(points):
        for found in honest(points):
            counted.append(found)
            yield found

    honest = grid.counts
    monkeypatch.setattr(grid, "counts", remember)
    report = prove(subject, by="grid")
    assert report.agrees and len(counted) == 1536
    (facts,) = report.models
    by_symbols = {s["what"]: s["formula"] for s in prove(subject).models[0]["statements"]}
    by_grid = {s["what"]: s["formula"] for s in facts["statements"]}
    assert by_grid["forward"] == by_grid["forward, by torch"] == by_symbols["forward"]
    assert by_grid["backward"] == by_symbols["backward"]
    # The same counts against a formula without the down projection: no point agrees.
    monkeypatch.setattr(grid, "counts", lambda _: iter(counted))
    lines = FeedForward.lines
    monkeypatch.setattr(
        FeedForward, "lines", lambda self, at: tuple(line for line in lines(self, at) if "down" not in line.path)
    )
    slipped = prove(subject, by="grid")
    assert not slipped.agrees
    none, all_ = "0 at 0 of 1,536", "0 at 1,536 of 1,536"
    said = {row["what"]: row["difference"] for row in slipped.rows}
    assert said == {"forward": none, "forward, by torch": none, "backward": none, "parameters": none, "cached": all_}


def test_without_the_private_interface_it_falls_back_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from tfacct.reference import symbolic

    def gone(*_, **__):
        raise AttributeError("ShapeEnv is gone")

    asked = []
    monkeypatch.setattr(symbolic, "ShapeEnv", gone)
    monkeypatch.setattr(room, "_by_grid", lambda *a: asked.append(a) or iter(()))
    report = prove(tiny("llama"))
    assert asked and report.models[0]["by"] == "grid"
    assert "ShapeEnv is gone" in report.hints[0] and "proven by grid instead" in report.hints[0]


def test_the_command_line(run) -> None:
    ran = run("verify", "--prove", "llama", "--json")
    (facts,) = json.loads(ran.out)["models"]
    assert ran.code == 0 and facts["proven"] and facts["family"] == "llama"
    assert facts["legend"]["G"] == "query heads per key/value head"
    assert run("verify", "gpt2", "--prove", "llama").code == 2
    assert run("verify", "--prove", "lama").code == 2
    assert run("verify", "--prove", "gpt2", "--by", "magic").code == 2
    assert run("verify", "--prove", "gpt2", "--ctx", "5").code == 2
    assert run("verify", "gpt2", "--by", "grid").code == 2


def test_a_mistake_of_ours_is_no_excuse_for_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_):
        raise TypeError("ours")

    monkeypatch.setattr(room, "_formulas", broken)
    with pytest.raises(TypeError, match="ours"):
        prove(tiny("gpt2"))
