"""What the reference model keeps in a training step: the rules against its own saved tensors, on meta, by the modules
that asked for each."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Ran, rounded
from tests.families import SHAPES, names, room, sampled
from tfacct import load
from tfacct.accounts.instants import peak
from tfacct.accounts.training import Step
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.loading.model import subject as loaded
from tfacct.profiles import reference_lines as rules
from tfacct.profiles.reference_compressed import entries
from tfacct.profiles.reference_mixers import lengths
from tfacct.reports.kept_as import instants, kept_step, refusal
from tfacct.training.recipe import Recipe
from tfacct.witness.reference_step import kept_by_reference, peak_by_reference

STEPS = (("bf16", 2, 5), ("fp32", 3, 4), ("bf16", 1, 7), ("fp32", 1, 1))
"""Dtype, sequences, tokens of each: one sequence, and one token of it, are laid out in another way."""


def of(name: str, config: dict[str, Any]) -> LoadedModel:
    return load(config).loaded if name.startswith("own") else loaded(config["model_type"], config, {}, None)


def check(subject: LoadedModel, dtype: str, batch: int, tokens: int, source: int = 6) -> None:
    source = 0 if subject.architecture.encoder is None else source
    tokens = rounded(subject, tokens + int(getattr(subject.architecture.embed, "front", None) or 0))
    work = Workload(context=tokens, tokens=tokens, batch=batch, source=source, new_source=source)
    step = kept_step(subject, work, Recipe(dtype), "reference")
    found = kept_by_reference(subject.architecture, step, dtype, work)
    assert found.agrees, (subject.name, dtype, batch, tokens, {k: v for k, v in found.pairs().items() if v[0] != v[1]})
    assert found.totals == (step.kept(), step.kept())


@pytest.mark.parametrize("name", SHAPES)
def test_the_reference_model_keeps_what_is_said(name: str) -> None:
    pytest.importorskip("torch")
    model = of(name, SHAPES[name])
    assert refusal(model, Recipe(), "reference") is None
    own = list(SHAPES).index(name) % 2  # each dtype, and each odd step, by every other shape
    for dtype, batch, tokens in (STEPS[own], STEPS[2 + own]):
        check(model, dtype, batch, tokens)


@pytest.mark.parametrize(
    ("name", "dtype", "batch", "tokens"),
    [
        ("qwen3_next", "bf16", 1, 150),
        ("kimi_linear", "fp32", 2, 65),
        ("bamba", "bf16", 2, 30),
        ("minimax", "fp32", 1, 30),
    ],
)
def test_recurrences_keep_states_of_all_their_chunks(name: str, dtype: str, batch: int, tokens: int) -> None:
    pytest.importorskip("torch")
    check(of(name, SHAPES[name]), dtype, batch, tokens)


@pytest.mark.parametrize("heads", [{"num_attention_heads": 2}, {"num_key_value_heads": 1}])
def test_keys_and_values_that_products_read_as_they_are_are_kept_once_by_all_that_borrow_them(
    heads: dict[str, int],
) -> None:
    pytest.importorskip("torch")
    check(of("gemma4_text", {**SHAPES["gemma4_text"], **heads}), "bf16", 1, 5)


@pytest.mark.slow
@pytest.mark.parametrize("family", [name for name in names() if hasattr(room(name), "sized")])
def test_many_reference_models_keep_what_is_said(family: str) -> None:
    pick = random.Random(family).choice
    for seed in range(200):
        config, _ = sampled(family, seed)
        model = loaded(family, config, {}, None)
        check(model, pick(["bf16", "fp32"]), pick([1, 2, 3]), pick([1, 4, 7, 70]), pick([1, 2, 9, 33]))


@pytest.mark.parametrize(
    "whole", [{"architectures": ["BertModel"]}, {"architectures": ["BertForSequenceClassification"]}]
)
def test_a_body_keeps_what_its_pooler_reads(whole: dict[str, Any]) -> None:
    pytest.importorskip("torch")
    config = {**SHAPES["bert"], **whole}
    check(loaded("bert", config, {}, None), "bf16", 2, 5)


def test_every_activation_of_the_reference_model_has_a_rule() -> None:
    pytest.importorskip("torch")
    from tfacct.reference.modules import ACTIVATIONS

    assert ACTIVATIONS.keys() == rules.INPUT | rules.RESULT | rules.SQUARED | rules.GATING


def test_a_layer_of_gpt2_by_hand() -> None:
    # One block of gpt2-xl at 1 × 1,024 in bf16, D = 1,600, F = 6,400, N = 25, H = 64, T = 1,024, in T · bytes:
    # two LayerNorms: what they read 2·D each and two fp32 numbers each, 2·(2·D + 8); their results 2·2·D;
    # q, k, v copied, values as o_proj reads them: 4·2·N·H; softmax 2·N·T; gelu's input and result 2·2·F.
    block = 1_024 * (2 * (2 * 1_600 + 8) + 4 * 1_600 + 8 * 25 * 64 + 2 * 25 * 1_024 + 4 * 6_400)
    # Around 48 blocks: token ids and positions of 8 bytes each; the final norm and its result.
    ends = 1_024 * (8 + 8) + 1_024 * (2 * 1_600 + 8 + 2 * 1_600)
    step = load("gpt2-xl").train(as_="reference", ctx=1024)
    assert step.kept_bytes == 48 * block + ends


def test_both_sides_of_bart_by_hand() -> None:
    # bart-base at 1 × 64 in bf16, a source of 32; in bytes. D = 768, F = 3,072, N = 12, H = 64, 6 blocks a side.
    # Attention over so many keys: what it reads, q, k, v and values, 2·D each, softmax 2·N; a norm: its sum and two
    # fp32 numbers, 2·D + 8, and its result, which the next part reads; gelu's input and result, 2·2·F.
    def block(rows: int, sums: int) -> int:
        return rows * (5 * 2 * 768 + 2 * 12 * rows + 2 * 768 + 4 * 3_072 + sums * (2 * 768 + 8))

    source, target = block(32, 2), block(64, 3)
    across = 64 * 3 * 2 * 768 + 32 * 2 * 2 * 768 + 64 * 2 * 12 * 32  # the norm's result, q and values; k and v; softmax
    # Ids and positions, 8 bytes each, and the norm of the tables; what the encoder gave; what the head reads.
    ends = (32 + 64) * (16 + 2 * 768 + 8) + 32 * 2 * 768 + 64 * 2 * 768
    step = load("bart-base").train(as_="reference", ctx=64, source=32)
    assert step.kept_bytes == 6 * (source + target + across) + ends


@pytest.mark.parametrize(("family", "dtype"), [pytest.param("llama", "bf16", marks=pytest.mark.slow), ("gpt2", "fp32")])
def test_the_formula_is_what_the_reference_model_keeps_in_every_size(family: str, dtype: str) -> None:
    pytest.importorskip("fvcore")
    pytest.importorskip("sympy")
    subject = load(SHAPES[family])
    proof = subject.prove(train=True, as_="reference", dtype=dtype)
    assert proof.agrees
    assert all(each["difference"] == "0" and each["evidence"] == "no assumption" for each in proof.statements)


def test_the_formula_of_gpt2_is_korthikantis_without_dropouts_and_copies() -> None:
    pytest.importorskip("sympy")
    # Korthikanti et al. (2205.05198), section 4.1: a layer of a GPT keeps 34·s·b·h + 5·a·s²·b bytes. Three dropouts are
    # among them, which the reference model has not: two masks as wide as the stream, 2·s·b·h; softmax's mask and its
    # dropped weights, a·s²·b + 2·a·s²·b. The norms' statistics are not: 2 · 2 · 4 bytes for each token.
    said = load("gpt2").formula(of="kept", as_="reference", ctx=8)
    (block,) = said.models[0]["saved_by_block"]
    symbols = {letter: sympy_symbol(letter) for letter in "BTDFKGH"}
    from sympy import expand, sympify

    found = sympify(block["bytes_formula"], locals={**symbols, "N": symbols["K"] * symbols["G"]})
    b, t, d, n = (symbols[letter] for letter in "BTDK")
    like_gpt = found.subs({symbols["F"]: 4 * d, symbols["G"]: 1, symbols["H"]: d / n})
    assert expand(like_gpt - (32 * t * b * d + 2 * n * t * t * b + 16 * b * t)) == 0


def sympy_symbol(name: str) -> Any:
    from sympy import Symbol

    return Symbol(name)


def test_a_formula_is_the_number_of_the_step(run: Callable[..., Ran]) -> None:
    pytest.importorskip("sympy")
    for name in ("qwen3-0.6b", "falcon-7b", "bert-base"):
        (facts,) = json.loads(run("formula", name, "--of", "kept", "--as", "reference", "--ctx", "64", "--json").out)[
            "models"
        ]
        assert facts["kept_bytes"] == load(name).train(as_="reference", ctx=64).kept_bytes


def test_a_formula_says_the_first_of_several_streams_apart() -> None:
    pytest.importorskip("sympy")
    model = load(SHAPES["glm5_next_text"])
    (facts,) = model.formula(of="kept", as_="reference", ctx=8).models
    assert facts["kept_bytes"] == model.train(as_="reference", ctx=8).kept_bytes
    first, others = (facts["saved_by_block"][number] for number in range(2))
    assert first["kind"] == f"first {others['kind']}" and first["bytes_formula"] != others["bytes_formula"]
    with pytest.raises(UsageError, match="no polynomial in these letters"):
        load(SHAPES["qwen3_vl_vision"]).formula(of="kept", as_="reference", ctx=8)


def test_a_wrong_rule_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fvcore")
    pytest.importorskip("sympy")
    monkeypatch.setattr(rules, "RESULT", rules.RESULT | rules.INPUT)  # each activation keeps its result alone
    monkeypatch.setattr(rules, "INPUT", frozenset())
    monkeypatch.setattr("tfacct.witness.reference_proof._edges", lambda _: ())  # what a symbol leaves out: above
    proof = load(SHAPES["gpt2"]).prove(train=True, as_="reference", dtype="bf16")
    assert not proof.agrees and proof.statements[0]["difference"] == "2*B*F*L*T"


@pytest.mark.slow
@pytest.mark.parametrize("family", [name for name in names() if hasattr(room(name), "sized")])
def test_the_formula_of_every_family_is_what_its_reference_model_keeps(family: str) -> None:
    pytest.importorskip("fvcore")
    pytest.importorskip("sympy")
    model = of(family, SHAPES[family])
    padded = model.architecture.encoder is not None and model.architecture.encoder.longest is not None
    parts = model.architecture.parts()
    if padded or any(lengths(part, 1) or entries(part, 1) or getattr(part, "by_rows", False) for part in parts):
        with pytest.raises(UsageError, match="is not proven for all sizes"):
            load(SHAPES[family]).prove(train=True, as_="reference")
        return
    assert load(SHAPES[family]).prove(train=True, as_="reference").agrees


def most_at_once(model: LoadedModel, step: Step, dtype: str, work: Workload) -> int:
    found = instants(model, step, work, Recipe(dtype, "none"), "reference")
    return int(peak(instant for instant in found if instant.name != "optimizer step").total)


def held(family: str, seed: int) -> None:
    """Hold the most bytes alive in a step to the account."""
    from tfacct.reference import saving

    pick = random.Random(f"{family} {seed}").choice
    model = loaded(family, sampled(family, seed)[0], {}, None)
    dtype, batch, tokens = pick(["bf16", "fp32"]), pick([1, 2, 3]), pick([1, 4, 7, 19])
    source = 0 if model.architecture.encoder is None else pick([1, 2, 9, 33])
    tokens = rounded(model, tokens + int(getattr(model.architecture.embed, "front", None) or 0))
    work = Workload(context=tokens, tokens=tokens, batch=batch, source=source, new_source=source)
    step = kept_step(model, work, Recipe(dtype, "none"), "reference")
    most = saving.peak(model.architecture, dtype, batch, tokens, source)
    found = most_at_once(model, step, dtype, work)
    assert found == most.bytes, (family, seed, dtype, batch, tokens, source, found, most)


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        *(("llama", 1), ("llama", 18), ("gpt2", 81), ("phi3", 3), ("opt", 2)),
        *(("qwen3", 4), ("olmo2", 2), ("cohere", 1), ("gemma3_text", 3), ("mixtral", 0), ("qwen3_moe", 7)),
        *(("bert", 4), ("vaultgemma", 101), ("lfm2", 7), ("lfm2_moe", 3)),
        *(("qwen3_next", 1), ("bamba", 1), ("falcon_mamba", 2), ("recurrent_gemma", 5), ("nemotron_h", 0)),
        *(("rwkv", 1), ("arcee", 8), ("nemotron", 0), ("lfm3", 3)),  # lfm3: a norm keeps the result of a convolution
        *(
            ("jamba", 97),
            ("deberta-v2", 0),
            ("minimax", 3),
            ("bart", 1),
            ("bart", 3),
            ("t5", 0),
            ("falcon_h1", 2),
            ("gemma3n_text", 1),
        ),
    ],
)
def test_the_reference_model_holds_what_is_said_at_its_peak(family: str, seed: int) -> None:
    pytest.importorskip("torch")
    held(family, seed)


@pytest.mark.slow
@pytest.mark.parametrize("family", [name for name in names() if hasattr(room(name), "sized")])
def test_many_reference_models_hold_what_is_said_at_their_peaks(family: str) -> None:
    pytest.importorskip("torch")
    for seed in range(100):
        held(family, seed)


@pytest.mark.parametrize("name", ["deepseek_v3", "mistral4", "qwen3_moe", "hunyuan_v1_moe", "lfm3"])
def test_the_reference_model_holds_what_is_said_of_latents_and_of_several_kinds_of_blocks(name: str) -> None:
    pytest.importorskip("torch")
    model = of(name, SHAPES[name])
    for dtype, batch, tokens in STEPS:
        work = Workload(context=tokens, tokens=tokens, batch=batch)
        step = kept_step(model, work, Recipe(dtype, "none"), "reference")
        most = most_at_once(model, step, dtype, work)
        assert peak_by_reference(model.architecture, most, dtype, work).agrees, (name, dtype, batch, tokens)


def test_latent_attention_that_is_left_open_is_verified_in_its_expanded_form() -> None:
    pytest.importorskip("torch")
    found = load("deepseek-v2-lite").verify(train=True, as_="reference", ctx=8)
    assert found.agrees and len(found.witnesses) == 2
    assert load("deepseek-v2-lite").train(as_="reference", ctx=8).peak_bytes is not None


def test_what_corrects_experts_has_no_gradient_and_what_indexes_keys_has_one() -> None:
    """Trinity's expert_bias: 30 blocks of 128 numbers. An indexer is trained here through the sum of its scores. AdamW
    has two numbers for each of a gradient, and a step of 4 bytes for each tensor."""
    bent, shown = load("trinity-mini"), load("deepseek-v3.2")
    found = bent.train(as_="reference", ctx=64)
    corrects = sum(t.count * t.elements for t in bent.loaded.ledger.tensors() if t.path.endswith("routing.bias"))
    assert corrects == 30 * 128 and found.weights_bytes - found.gradients_bytes == 2 * corrects
    assert 0 < found.optimizer_bytes - 2 * found.gradients_bytes < 2**14
    whole = shown.train(as_="reference", ctx=64)
    assert 0 < whole.optimizer_bytes - 2 * whole.weights_bytes < 2**14
    assert whole.gradients_bytes == whole.weights_bytes


def test_a_peak_of_the_reference_model_by_hand(run: Callable[..., Ran]) -> None:
    """gpt2 at 1 × 8 in bf16: V · D = 50,257 · 768. The head is the table: its gradient waits, that of the table's rows
    is made beside it, and the sum of both. All 124,439,808 weights and the other gradients are there, 8 tokens and
    as many positions of 8 bytes, the loss and its gradient of 4."""
    (facts,) = json.loads(run("train", "gpt2", "--as", "reference", "--ctx", "8", "--optimizer", "none", "--json").out)[
        "models"
    ]
    params, table = 124_439_808, 50_257 * 768
    assert facts["peak_bytes"] == 2 * (params + params - table + 3 * table) + 8 * (8 + 8) + 2 * 4
    assert facts["peak_instant"] == "table, backward" and facts["instants"][-1]["instant"] == "optimizer step"
    assert facts["kept_bytes"] == sum(line["bytes"] for line in facts["lines"])
    said = " ".join(run("train", "gpt2", "--as", "reference", "--ctx", "8").out.split())
    assert "at its peak (table, backward)" in said and "Kept for the backward pass" in said


def test_the_losss_and_the_heads_instants_of_the_reference_model_by_hand() -> None:
    """gpt2 at 1 × 8 in bf16, T · V = 8 · 50,257 logits. Of the loss, a mean in fp32, the gradient is one tensor of 4
    bytes each and one of 2, and no weight has one yet. The head has that of its logits, 2 bytes each, that of the
    stream (D = 768), and its weight's own, V · D, as it is made; the loss is there, its gradient, and 8 positions."""
    step = load("gpt2").train(as_="reference", ctx=8, optimizer="none")
    found = {one["instant"]: one for one in step.instants}
    logits, others = 8 * 50_257, 2 * 4 + 8 * 8
    loss, head = found["loss, backward"], found["head, backward"]
    assert (loss["gradients_bytes"], loss["held_bytes"]) == (0, 6 * logits + others)
    assert (head["gradients_bytes"], head["held_bytes"]) == (0, 2 * 50_257 * 768 + 2 * logits + 2 * 8 * 768 + others)


def test_verify_asks_the_reference_model_for_its_peak(run: Callable[..., Ran]) -> None:
    pytest.importorskip("torch")
    ran = run("verify", "gpt2", "--train", "--as", "reference", "--ctx", "8", "--json")
    (facts,) = json.loads(ran.out)["models"]
    asked = {each["witness"]: each for each in facts["witnesses"]}
    said = load("gpt2").train(as_="reference", ctx=8)
    assert asked["kept by the reference model"]["measured"] == said.kept_bytes == facts["kept_bytes"]
    # Before the optimizer's step, which has nothing but its state beside it that is fuller: its moments are left out.
    assert asked["peak, operator by operator"]["measured"] == said.peak_bytes - said.optimizer_bytes
    assert facts["agrees"] and facts["profile"] == "reference"
    assert facts["checked"] == (
        "Checked: the bytes that autograd keeps, module by module, and the most bytes alive at any operator before the"
        " optimizer's step, without its state."
    )
    assert facts["checked"] in " ".join(run("verify", "gpt2", "--train", "--as", "reference", "--ctx", "8").out.split())


def test_verify_sees_a_slip_of_the_reference_models_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("tfacct.shapes.library.Torch.wide", lambda _, x: x)  # the loss and its gradient in 16 bits
    found = load("gpt2", n_layer=1).verify(train=True, as_="reference", ctx=16)
    (wrong,) = (each for each in found.witnesses if not each["equal"])
    assert not found.agrees and wrong["witness"] == "peak, operator by operator"


def test_verify_of_the_reference_models_step_takes_no_class() -> None:
    for given in ({"against": "transformers"}, {"all_layers": True}):
        with pytest.raises(UsageError, match="is asked of the transformers class"):
            load("gpt2").verify(train=True, as_="reference", **given)


def test_what_rules_say_is_kept_is_alive_where_the_forward_pass_ends() -> None:
    """Beside it are positions of 8 bytes, the loss of 4, and frequencies of 8 bytes for each pair that turns."""
    for family, pairs in (("nemotron", None), ("gpt2", 0), ("glm4", None)):
        model = load(SHAPES[family])
        (attention,) = set(model.loaded.architecture.attentions)
        turned = attention.rope_dim if attention.rope_dim is not None else attention.head_dim
        found = next(one for one in model.train(as_="reference", ctx=7).instants if one["instant"] == "forward ends")
        assert found["held_bytes"] == 7 * 8 + 4 + 8 * (int(turned) // 2 if pairs is None else pairs), family


def test_both_sides_have_instants_and_what_is_kept_goes_as_they_run() -> None:
    step = load("bart-base").train(as_="reference", ctx=64, source=32, optimizer="none")
    found = {one["instant"]: one for one in step.instants}
    assert [*found] == [
        *("forward ends", "loss, backward", "head, backward", "block 5, backward", "block 0, backward"),
        *("encoder, block 5, backward", "encoder, block 0, backward", "table, backward", "optimizer step"),
    ]
    assert found["forward ends"]["kept_bytes"] == step.kept_bytes
    # Of 64 × 50,265 logits the loss has a gradient of 4 bytes each, and the same in bf16; the loss and its own, of 4;
    # positions.
    assert found["loss, backward"]["held_bytes"] == 64 * 50_265 * (4 + 2) + 2 * 4 + 64 * 8
    assert found["table, backward"]["gradients_bytes"] == step.weights_bytes
    assert found["optimizer step"]["gradients_bytes"] == step.weights_bytes


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"recompute": "full"}, "recompute='full' is not counted"),
        ({"attention": "eager"}, "attention='eager' is not counted"),
        ({"keep_logits": True}, "keep_logits=True is not counted"),
        ({"fit": "80GiB"}, "fit is not answered"),
        ({"as_": "megatron"}, "as_ is transformers, reference, fused, not 'megatron'"),
    ],
)
def test_what_a_reference_step_does_not_know_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        load("gpt2").train(**{"as_": "reference", **given})


def test_heads_of_further_tokens_are_counted_where_they_are_asked_for() -> None:
    pytest.importorskip("torch")
    model = loaded("deepseek_v3", SHAPES["deepseek_v3"], {"mtp": True, "num_nextn_predict_layers": 2}, None)
    for dtype, batch, tokens in STEPS[1:3]:
        check(model, dtype, batch, tokens)
    work = Workload(context=7, tokens=7, batch=1)
    most = most_at_once(model, kept_step(model, work, Recipe("bf16", "none"), "reference"), "bf16", work)
    assert peak_by_reference(model.architecture, most, "bf16", work).agrees


def test_what_has_no_polynomial_is_not_proven() -> None:
    with pytest.raises(UsageError, match="is not proven for all sizes"):
        load(SHAPES["llama4_vision_model"]).prove(train=True, as_="reference")


def test_the_table_of_a_source_can_be_the_fullest() -> None:
    # Measured by torch's operators, on meta: the encoder's own rows are added to the table's gradient.
    step = load("t5-small").train(as_="reference", ctx=24, source=24, optimizer="none")
    assert (step.peak_bytes, step.peak_instant) == (307_849_800, "encoder, backward")


def test_of_several_models_no_peak_is_told(run: Callable[..., Ran]) -> None:
    facts = json.loads(run("train", "gpt2", "gpt2-xl", "--as", "reference", "--ctx", "8", "--json").out)["models"]
    assert [each["peak_bytes"] for each in facts] == [None, None] and all(each["kept_bytes"] for each in facts)


def test_a_picture_needs_instants() -> None:
    with pytest.raises(UsageError, match="instants, which are not counted"):
        load("gpt2").train(as_="fused", ctx=64).plot()


def test_where_another_runner_has_no_rule_the_classes_own_step_is_named(run: Callable[..., Ran]) -> None:
    asked = ("train", "bart-base", "--ctx", "64")
    assert "its step is counted as transformers runs it" in run(*asked, "--as", "fused").err
    assert run(*asked, "--as", "transformers").code == 0
    assert "hint" not in run("train", "whisper-tiny", "--ctx", "64", "--as", "fused").err


def test_a_sweep_says_who_tells_the_reference_models_peak(run: Callable[..., Ran]) -> None:
    told = run("sweep", "gpt2", "--ctx", "8", "--metric", "peak_bytes", "--as", "reference").err
    assert "peak_bytes is not compared as the reference model runs a step" in " ".join(told.split())
    assert "--as reference goes with train for it" in " ".join(told.split())
