"""The reference model against the ledger: fvcore, shapes seen by the modules, parameters, caches."""

import pytest

from tests.conftest import TINY, ran, tiny
from tfacct import presets
from tfacct.errors import TfacctError
from tfacct.ledger import Matmul
from tfacct.reports.verify import verify
from tfacct.subject import Subject
from tfacct.workload import Request, Workload

torch = pytest.importorskip("torch")
pytest.importorskip("fvcore")

from tfacct.reference import counting, model  # noqa: E402

WORKLOADS = {
    "prefill": Workload(context=23, tokens=23, batch=9),
    "chunk": Workload(context=23, tokens=13, batch=9),
    "decode": Workload(context=23, tokens=1, batch=9),
    "last logits": Workload(context=23, tokens=13, batch=9, logits="last"),
}


def built(subject: Subject, work: Workload) -> tuple[model.Decoder, model.Inputs]:
    reference = model.build(subject.architecture, logits=work.logits)
    return reference, model.inputs(subject.architecture, batch=work.batch, tokens=work.tokens, context=work.context)


@pytest.mark.parametrize("work", WORKLOADS.values(), ids=WORKLOADS)
def test_fvcore_agrees_path_by_path(tiny_subject: Subject, work: Workload) -> None:
    multiply_adds = counting.multiply_adds(*built(tiny_subject, work))
    assert {path: 2 * count for path, count in multiply_adds.items()} == tiny_subject.ledger.flops(
        work.axes(), unfolded=True
    )


@pytest.mark.parametrize("work", WORKLOADS.values(), ids=WORKLOADS)
def test_the_modules_see_the_ledgers_shapes(tiny_subject: Subject, work: Workload) -> None:
    ledger, at = tiny_subject.ledger, work.axes()
    seen = counting.seen(*built(tiny_subject, work))
    products = {}
    for group in ledger.groups:
        for line in group.lines:
            if isinstance(line, Matmul):
                one = ran(line, {**group.axes, **at})
                products |= {path: one for path, _ in group.places(line.path, unfolded=True)}
    assert products == seen.products
    assert ledger.pointwise(at, unfolded=True) == seen.pointwise
    assert ledger.states(at, unfolded=True) == seen.states


def test_parameters_agree_tensor_by_tensor(tiny_subject: Subject) -> None:
    reference, _ = built(tiny_subject, WORKLOADS["prefill"])
    assert counting.parameters(reference) == tiny_subject.ledger.parameters(unfolded=True)


def test_every_preset_verifies_at_full_size() -> None:
    report = verify(presets.load_all(), Request())
    assert report.agrees
    assert len(report.models) == len(presets.names()) >= 22
    for facts in report.models:
        assert facts["total_flops"] == facts["measured_flops"] > 0
        assert facts["expected_params"] == facts["measured_params"]


def test_a_context_past_the_trained_one_and_a_batch_verify() -> None:
    report = verify([presets.load("gpt2")], Request(ctx=3001, batch=7))
    assert report.agrees and report.models[0]["workload"]["keys"] == 3001


@pytest.mark.parametrize("family", TINY)
def test_the_reference_never_asks_the_ledger(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is built from the parts' fields: with every line and axis out of reach it still builds and counts."""
    subject, work = tiny(family), WORKLOADS["chunk"]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the reference read the ledger")

    for stack in subject.architecture.stacks:
        for _, part in stack.block.parts():
            monkeypatch.setattr(type(part), "lines", refuse)
            monkeypatch.setattr(type(part), "axes", refuse)
    for part in (subject.architecture.embed, subject.architecture.head):
        monkeypatch.setattr(type(part), "lines", refuse)
        monkeypatch.setattr(type(part), "axes", refuse)
    assert sum(counting.multiply_adds(*built(subject, work)).values()) > 0


def test_a_product_outside_a_named_module_is_an_error() -> None:
    class Stray(model.Decoder):
        def forward(self, tokens, past=()):
            logits, *caches = super().forward(tokens, past)
            return (logits @ logits.transpose(1, 2), *caches)

    subject, work = tiny("llama"), WORKLOADS["prefill"]
    _, given = built(subject, work)
    with torch.device("meta"):
        stray = Stray(subject.architecture)
    with pytest.raises(counting.UncountedOperatorError, match="belong to no product's module"):
        counting.multiply_adds(stray, given)


def test_an_operator_that_fvcore_skips_is_an_error() -> None:
    class Fused(model.Decoder):
        def forward(self, tokens, past=()):
            logits, *caches = super().forward(tokens, past)
            return (torch.nn.functional.scaled_dot_product_attention(logits, logits, logits), *caches)

    subject, work = tiny("llama"), WORKLOADS["prefill"]
    _, given = built(subject, work)
    with torch.device("meta"):
        fused = Fused(subject.architecture)
    with pytest.raises(counting.UncountedOperatorError, match="scaled_dot_product_attention"):
        counting.multiply_adds(fused, given)


def test_verify_says_which_path_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A witness that counts one product wrong in one block makes verify fail and name the block."""
    honest = counting.multiply_adds

    def wrong(reference, given):
        counts = honest(reference, given)
        counts["blocks.1.attn.values"] += 1
        return counts

    monkeypatch.setattr(counting, "multiply_adds", wrong)
    report = verify([tiny("llama")], Request())
    assert not report.agrees
    assert [row for row in report.rows if row["verdict"] != "ok"] == [
        {
            "what": "blocks.1.attn.values",
            "formula": 2 * 53 * 53 * 10 * 6,  # 2·T·S·H·N
            "measured": 2 * 53 * 53 * 10 * 6 + 2,
            "verdict": "DIFFERS by +2",
        }
    ]


def test_verify_compares_parameters_too(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = counting.parameters
    monkeypatch.setattr(counting, "parameters", lambda m: {**honest(m), "extra.weight": 5})
    report = verify([tiny("gpt2")], Request())
    assert not report.agrees
    assert {row["what"]: row["verdict"] for row in report.rows if row["verdict"] != "ok"} == {
        "parameters": "DIFFERS by +5",
        "extra.weight": "not in the formula",
    }


def test_missing_torch_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins
    import sys

    real = builtins.__import__

    def absent(name: str, *args, **kwargs):
        if name.startswith("torch"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    for name in [n for n in sys.modules if n.startswith("tfacct.reference")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(TfacctError, match=r"(?s)needs torch and fvcore.*tfacct\[measure\]"):
        verify([tiny("gpt2")], Request())
