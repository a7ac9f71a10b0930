"""The reference model and the ledger: fvcore, shapes of modules, parameters, caches. Kind: oracle."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.families import SHAPES
from tests.helpers.cli import Run
from tests.helpers.command_lines import check_words
from tests.helpers.lazy import lazy
from tests.helpers.models import alone, asked, by_kind, context, every_step, ran, tiny
from tfacct.base.errors import TfacctError
from tfacct.ledger.lines import Matmul, Pointwise
from tfacct.ledger.workload import Request, Workload
from tfacct.loading import presets
from tfacct.loading.model import LoadedModel
from tfacct.output.report import Report
from tfacct.reports.verify import verify

torch, counting, model = lazy("torch"), lazy("tfacct.reference.counting"), lazy("tfacct.reference.model")
hf, flop_counter = lazy("tfacct.reference.hf"), lazy("torch.utils.flop_counter")
modules = lazy("tfacct.reference.modules")
WORKLOADS = {
    "prefill": Workload(context=23, tokens=23, batch=9),
    "chunk": Workload(context=23, tokens=13, batch=9),
    "decode": Workload(context=23, tokens=1, batch=9),
    "last logits": Workload(context=23, tokens=13, batch=9, logits="last"),
}

STEPS = pytest.mark.parametrize(
    ("tiny_model", "work"), every_step(WORKLOADS, "chunk", "prefill"), indirect=["tiny_model"]
)


def built(loaded: LoadedModel, work: Workload) -> tuple[model.Decoder, model.Inputs]:
    """The reference model on meta, as `verify` asks it. With numbers it is compared in test_logits.py."""
    reference = model.build(loaded.architecture, logits=work.logits)
    return reference, model.inputs(loaded.architecture, **work.sizes)


@pytest.mark.parametrize(
    "family", ["llama", "gemma3n_text", "deepseek_v2, absorbed", "mixtral", "zamba2", "rwkv", "bart"]
)
def test_one_run_distinguishes_forward_backward_and_recomputation(family: str) -> None:
    """As torch's counter counts a model that saves all activations, and one that recomputes all."""
    tiny_model = tiny(family)
    totals, work = {}, asked(tiny_model, WORKLOADS["prefill"])
    for recompute in (False, True):
        reference, given = built(tiny_model, work)
        reference.recompute = recompute
        if reference.encoder is not None:
            reference.encoder.recompute = recompute
        with flop_counter.FlopCounterMode(display=False) as counter:
            logits, *others = reference(*given.all)
            forward = counter.get_total_flops()
            sum(result.sum() for result in (logits, *others)).backward()
        totals[recompute] = counter.get_total_flops()
        ran = counting.passes(reference, given)
        assert (ran.forward, ran.backward) == (forward, totals[False] - forward)
        assert ran.redone == totals[recompute] - totals[False]
    assert totals[True] > totals[False]


@STEPS
def test_the_reference_says_the_same_path_by_path(tiny_model: LoadedModel, work: str) -> None:
    """torch's counter, shapes of modules, states and parameters. An encoder does not run after its source was read, and
    is 0 in the ledger."""
    work = asked(tiny_model, WORKLOADS[work])
    ledger, at = tiny_model.ledger, work.axes()
    reference, given = built(tiny_model, work)
    assert counting.module_flops(reference, given) == ledger.flops(at, unfolded=True)
    assert counting.parameters(reference) == ledger.parameters(unfolded=True)
    seen = counting.seen(reference, given)
    products = {}
    for group in ledger.groups:
        for line in group.lines:
            if isinstance(line, Matmul) and line.flops(group.bound(at)):
                one = ran(line, group.bound(at))
                products |= {path: one for path, _ in group.places(line.path, unfolded=True)}
    assert products == seen.products
    assert {path: n for path, n in ledger.pointwise(at, unfolded=True).items() if n} == seen.pointwise
    assert ledger.states(at, unfolded=True) == seen.states


KINDS = {
    "activation": "Activation Xielu",
    "gate": "OutputGate OutGate Left LetThrough Times",
    "norm_layer": "LayerNorm LayerNormAroundOne HeadsNorm ScaleAndShift",
    "norm_rms": "RMSNorm PlainRMSNorm GatedRMSNorm ScaledFirst GroupNorm PairNorm Unit",
    "residual": "Residual AltUpResidual AffineResidual",
    "rotary": "Rotary Rotation",
    "routing": "Routing",
    "scale": "Scale Temperature Factors Rescale",
    "softmax": "Softmax SoftmaxOfBoth SourceWeights Some",
    "sum": "Add Minus Gather HeadMean Alibi Resampled Shifted",
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split()}
"""The kind of pointwise work by the class of the reference's module; of others, none."""
SEVERAL = {
    "Activation": {"gate": "gate", "tanh": "", "correct_tanh": ""},
    "Times": {"q_decay": "scale", "k_decay": "scale", "sum": ""},
    "Shares": {"softmax": "softmax", "average": "sum"},
}
"""Classes that do work of several kinds: by the module's own name."""


@pytest.mark.parametrize("tiny_model", SHAPES, indirect=True)
def test_pointwise_work_is_of_the_kind_of_the_module_that_does_it(tiny_model: LoadedModel) -> None:
    """And has its activation: from both follows what a training step saves."""
    functions, silu = modules.ACTIVATIONS, modules.ACTIVATIONS["silu"]
    work = dict(model.build(tiny_model.architecture).named_modules())
    for group in tiny_model.ledger.groups:
        for line in group.lines:
            for path, _ in group.places(line.path, unfolded=True) if isinstance(line, Pointwise) else ():
                module, own = work[path], path.rpartition(".")[2]
                does = type(module).__name__
                kind = (
                    "weighting" if own.endswith("weighting") else SEVERAL.get(does, {}).get(own, KIND_OF.get(does, ""))
                )
                assert (path, line.kind) == (path, kind)
                if does == "Activation" and kind == "activation" and not path.endswith("indexer.act"):
                    assert line.function and functions.get(line.function, silu) is module.function, path


def keeps_nothing(facts: Mapping[str, Any]) -> bool:
    """True for an encoder: EmbeddingGemma is one, of a family of decoders."""
    preset = facts["model"] in presets.names()
    return not presets.load(facts["model"]).has_cache if preset else alone(facts["family"])


def holds(report: Report, count: int) -> None:
    """Every model agrees, and every counter was really run."""
    assert report.agrees and len(report.models) == count
    for facts in report.models:
        assert facts["total_flops"] == facts["measured_flops"] == sum(line["flops"] for line in facts["lines"]) > 0
        named = ((w["check"].split(" of ")[0].removesuffix(", no dropout"), w) for w in facts["cross_checks"])
        checks = {name.replace("KV cache and state", "state").replace("state", "KV cache"): w for name, w in named}
        assert all(w["equal"] and w["counted"] == w["measured"] > 0 for w in checks.values())
        assert set(CHECKS) - (ALONE if keeps_nothing(facts) else set()) <= set(checks)
        forward = checks["torch, forward"]["measured"]
        assert checks["torch, backward (2 ×)"]["measured"] == 2 * forward
        assert checks["torch, training step (3 ×)"]["measured"] == 3 * forward


ALONE = {"torch, decode at T = 1", "torch, chunk", "KV cache bytes, fp32"}
"""Checks that an encoder lacks, because it has no cache."""
CHECKS = [
    "fvcore, forward", "torch, forward", "torch, backward (2 ×)", "torch, training step (3 ×)",
    "torch, full recomputation", "torch, decode at T = 1", "torch, chunk", "parameters", "parameter bytes, fp32",
    "KV cache bytes, fp32",
]  # fmt: skip
WHOLE = (
    *("gpt2-xl", "llama-3.1-405b", "mixtral-8x7b", "deepseek-v3", "t5-base", "mamba-130m", "bert-base"),
    *("vit-base-patch16-224", "glm-4.1v-9b-vision", "kimi-k2.5-vision", "qwen3-vl-4b-vision", "dinov3-vits16"),
)
"""Of each sort one; every kind of block is verified in a small size, below."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in WHOLE)) for name in presets.names()]
)
def test_every_preset_verifies_at_full_size(name: str) -> None:
    model = presets.load(name)
    report = verify([model], Request())
    holds(report, 1)
    (facts,) = report.models
    assert facts["layers_traced"] == len(model.architecture.every_stack) < facts["block_count"]
    asked_for = len(CHECKS) - (len(ALONE) if keeps_nothing(facts) else 0)
    assert len(facts["cross_checks"]) == 1 + asked_for  # and the expected total


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(deep, marks=pytest.mark.slow) for deep in ("gpt2-xl", "llama-3.1-405b", "gpt-oss-20b")),
        "cs336-gpt2-small",
    ],
)
def test_all_layers_say_the_same_as_one(name: str) -> None:
    one, every = (verify([presets.load(name)], Request(ctx=2048), all_layers=flag) for flag in (False, True))
    holds(every, 1)
    assert every.models[0]["layers_traced"] == every.models[0]["block_count"]
    assert every.models[0]["lines"] == one.models[0]["lines"]
    assert every.models[0]["cross_checks"] == one.models[0]["cross_checks"]


ASKED = [name for name in SHAPES if tiny(name).config.hf_modules and tiny(name).config.hf_unsupported() is None]
"""LongCat-Flash's class runs on real numbers alone."""


@pytest.mark.parametrize(
    "family", by_kind(ASKED)
)  # every class's numbers: tests/oracle/test_transformers.py; every shape's: above
def test_tiny_models_verify_with_transformers_asked_too(family: str) -> None:
    about = tiny(family)
    config = about.config  # of some every step takes all, or the class no chunk, or no step
    whole = alone(family) or config.hf_no_chunked_prefill or config.hf_no_cache
    whole_source = alone(family) and about.config.hf_fixed_source
    ctx = about.context if whole_source else context(about, 23)
    report = verify([about], Request(ctx=ctx, tokens=None if whole else 13, batch=9), against="transformers")
    holds(report, 1)
    checks = [w["check"] for w in report.models[0]["cross_checks"] if w["check"].startswith("transformers")]
    of_class = 2 if alone(family) or config.hf_no_cache else 3
    assert len(checks) == of_class


@pytest.mark.parametrize("family", by_kind(SHAPES))
def test_the_reference_never_asks_the_ledger(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is built from the parts' fields: with every line and axis out of reach it still builds and counts."""
    model = tiny(family)
    work = asked(model, WORKLOADS["chunk"])

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the reference read the ledger")

    for stack in model.architecture.stacks:
        for _, part in stack.block.parts():
            monkeypatch.setattr(type(part), "lines", refuse)
            monkeypatch.setattr(type(part), "axes", refuse)
    for part in filter(None, (model.architecture.embed, model.architecture.head)):
        monkeypatch.setattr(type(part), "lines", refuse)
        monkeypatch.setattr(type(part), "axes", refuse)
    assert sum(counting.module_flops(*built(model, work)).values()) > 0


def stray(logits: torch.Tensor) -> torch.Tensor:
    return logits @ logits.transpose(1, 2)


def fused(logits: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(logits, logits, logits)


@pytest.mark.parametrize(
    ("more", "counter", "why"),
    [
        (stray, "multiply_adds", "are outside the matmul modules"),
        (stray, "module_flops", "FLOPs are outside the matmul modules"),
        (fused, "multiply_adds", "scaled_dot_product_attention"),  # which fvcore skips
    ],
)
def test_work_that_a_counter_cannot_place_is_an_error(more: Any, counter: str, why: str) -> None:
    class More(model.Decoder):
        def forward(self, tokens, past=(), positions=None):
            logits, *caches = super().forward(tokens, past, positions)
            return (more(logits), *caches)

    loaded, work = tiny("llama"), WORKLOADS["prefill"]
    _, given = built(loaded, work)
    with torch.device("meta"):
        working = More(loaded.architecture)
    with pytest.raises(counting.UncountedOperatorError, match=why):
        getattr(counting, counter)(working, given)


def differing(report: Report) -> dict[str, str]:
    return {row["what"]: row["verdict"] for row in report.rows if row["verdict"] != "ok"}


def test_verify_says_which_path_differs(monkeypatch: pytest.MonkeyPatch, run) -> None:
    """A counter that counts one product wrong in one block makes verify fail and name the block."""
    honest = counting.multiply_adds

    def wrong(reference, given):
        counts = honest(reference, given)
        counts["blocks.1.attn.values"] += 1
        return counts

    monkeypatch.setattr("tfacct.reference.counting.multiply_adds", wrong)
    report = verify([tiny("llama")], Request(), all_layers=True)
    assert not report.agrees
    row = next(row for row in report.rows if row["what"] == "blocks.1.attn.values")
    flops = 2 * 53 * 53 * 10 * 6  # 2·T·S·H·N
    assert (row["formula"], row["measured"], row["verdict"]) == (flops, flops + 2, "DIFFERS by +2")
    ran = run("verify", "gpt2", "--ctx", "64", "--all-layers")
    assert ran.code == 1 and "blocks.1.attn.values" in ran.out and "DIFFERS by +2" in ran.out


def off(**more: int) -> Any:
    """A counter's result with so much more in these fields of it, or under these of its keys."""

    def wrong(found: Any) -> Any:
        if isinstance(found, int):
            return found + more["bytes"]
        if isinstance(found, dict):
            return {**found, **{name: found.get(name, 0) + count for name, count in more.items()}}
        return replace(found, **{name: getattr(found, name) + count for name, count in more.items()})

    return wrong


# A function of each counter, how it lies, and the checks that must go red.
LIES = {
    "fvcore": ("counting.multiply_adds", off(lm_head=1), {"fvcore, forward"}),
    "module by module": ("counting.module_flops", off(lm_head=2), {"torch, decode at T = 1", "torch, chunk"}),
    "forward": (
        "counting.passes",
        off(forward=2),
        {"torch, forward", "torch, training step (3 ×)", "torch, full recomputation"},
    ),
    "backward": (
        "counting.passes",
        off(backward=4),
        {"torch, backward (2 ×)", "torch, training step (3 ×)", "torch, full recomputation"},
    ),
    "caches": (
        "counting.passes",
        lambda found: replace(found, caches=[*found.caches, torch.empty(1, device="meta")]),
        {"KV cache bytes, fp32"},
    ),
    "parameters": ("counting.parameters", off(**{"extra.weight": 5}), {"parameters"}),
    "storage": ("counting.storage_bytes", off(bytes=1), {"parameter bytes, fp32", "KV cache bytes, fp32"}),
    "the class": (
        "hf.run",
        lambda found: (off(lm_head=2)(found[0]), off(**{"blocks.0.attn.k_cache": 1})(found[1])),
        {"transformers, forward", "transformers, cached elements"},
    ),
}


@pytest.mark.parametrize("counter", LIES)
def test_every_counter_is_really_run(counter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each counter in turn is replaced by a wrong one: exactly its checks fail, by name."""
    name, lie, red = LIES[counter]
    module, _, function = name.partition(".")
    honest = getattr({"counting": counting, "hf": hf}[module], function)
    monkeypatch.setattr(f"tfacct.reference.{name}", lambda *a, **named: lie(honest(*a, **named)))
    (facts,) = verify([tiny("llama")], Request(), against="transformers" if module == "hf" else None).models
    assert {check["check"].split(" of ")[0] for check in facts["cross_checks"] if not check["equal"]} == red


def test_recomputation_without_dropout_says_so() -> None:
    """The reference model drops nothing, so its last matmul runs once; a dropout after it would run it again."""
    for rate, name in ((0.1, "torch, full recomputation, no dropout"), (0.0, "torch, full recomputation")):
        (facts,) = verify([tiny("gpt2", resid_pdrop=rate)], Request(ctx=9)).models
        assert name in [check["check"] for check in facts["cross_checks"]]


def test_a_published_total_that_differs_is_named(tmp_path) -> None:
    text = (presets.folder() / "gpt2.toml").read_text().replace("n_layer = 12", "n_layer = 11")
    (tmp_path / "mine.toml").write_text(text)
    report = verify([presets.load_file(tmp_path / "mine.toml")], Request(ctx=9))
    assert list(differing(report)) == ["parameters, expected total"]


def test_fields_that_change_no_count_are_accepted() -> None:
    """Activations, RoPE and its scaling may have any value: on meta they have shapes only."""
    rope = {"rope_theta": "1e6", "rope_type": "bogus"}
    odd = {"hidden_act": "xyz", "rope_parameters": rope, "rope_scaling": {"type": "yarn", "factor": 4.0}}
    for field, value in odd.items():
        assert verify([tiny("llama", **{field: value})], Request(ctx=23)).agrees


def test_the_table_has_every_product_and_a_verdict(run: Run) -> None:
    """2 · 64 · 768 · 768 · 12 layers."""
    ran = run("verify", "gpt2", "--ctx", "64", "--against", "transformers", columns=200)
    words = ["gpt2: formulas at context 64", " totals agree exactly, and so does every operation.", "absent", "DIFFERS"]
    check_words(["blocks.*.attn.q_proj 905,969,664 905,969,664 ok", *words, "hint:"], ran.out + ran.err)
    assert ran.code == 0


def test_a_workload_is_asked_once() -> None:
    checks = [w["check"] for w in verify([tiny("gpt2")], Request(ctx=9, decode=True)).models[0]["cross_checks"]]
    assert "torch, decode at T = 1" not in checks and "torch, chunk of T = 3" in checks


def test_a_family_without_a_class_says_so() -> None:
    report = verify([tiny("cs336")], Request(ctx=9), against="transformers")
    assert report.hints == ("hint: transformers has no class for tiny-cs336",)


def test_missing_torch_is_a_plain_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *args, **kwargs):
        if name.startswith("torch"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    for name in [n for n in sys.modules if n.startswith("tfacct.reference")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(TfacctError, match=r"(?s)needs torch and fvcore.*\.\[measure\]"):
        verify([tiny("gpt2")], Request())
