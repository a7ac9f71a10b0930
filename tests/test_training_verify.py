"""`verify --train`: the class, two trackers and torch's optimizers, and what a slip of the account looks like."""

import json
from collections.abc import Callable

import pytest

import tfacct
from tests.conftest import TINY, Ran
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.training import saved_tensors

pytest.importorskip("transformers")
WITNESSES = ["peak, operator by operator", "peak by torch's MemTracker", "gradients"]


@pytest.mark.parametrize(
    ("arguments", "first", "last"),
    [
        ("llama-3.2-1b --ctx 512", ["kept by 2 blocks", "kept by all 16 blocks", "kept by a third block"], "adamw"),
        ("gpt2 --ctx 64 --dtype fp32 --recompute full --optimizer sgd-momentum", None, "sgd-momentum"),
        ("gpt2 --set n_layer=2 --ctx 64 --attention eager --all-layers", ["kept by 2 blocks"], "adamw"),
        # Every block of the decoder reads what the encoder gave, whose last gradient comes behind all of them.
        ("bart-base --ctx 24 --source 56 --all-layers", ["kept by 6 blocks"], "adamw"),
    ],
)
def test_witnesses_agree(run: Callable[..., Ran], arguments: str, first: list[str] | None, last: str) -> None:
    ran = run("verify", "--train", *arguments.split(), "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    (facts,) = document["models"]
    names = [witness["witness"] for witness in facts["witnesses"]]
    assert facts["agrees"] and all(witness["equal"] for witness in facts["witnesses"])
    assert names == [*(first or names[:3]), *WITNESSES, f"torch.optim, {last}"]
    assert document["answer"] == f"All {len(names)} checks agree exactly, to the byte."


def test_the_witnesses_are_asked_about_the_account_of_train(run: Callable[..., Ran]) -> None:
    """Of a model with two blocks, what `verify` compares is what `train` says."""
    two = load("llama-3.2-1b", num_hidden_layers=2)
    said, asked = two.train(ctx=96, batch=3), two.verify(train=True, ctx=96, batch=3, against="transformers")
    by_name = {witness["witness"]: witness["measured"] for witness in asked.witnesses}
    assert asked.agrees and asked.kept_bytes == by_name["kept by 2 blocks"] == said.kept_bytes
    assert by_name["gradients"] == said.gradients_bytes and by_name["torch.optim, adamw"] == said.optimizer_bytes
    fullest = max(each["total_bytes"] - each["optimizer_bytes"] for each in said.instants[:-1])
    assert by_name["peak, operator by operator"] == fullest


def test_a_slip_is_seen(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule by which a GELU saves one tensor fewer: the totals differ, and what is not touched agrees."""
    monkeypatch.setitem(saved_tensors.SAVED_BY_ACTIVATION, "gelu_new", 3)
    ran = run("verify", "gpt2", "--train", "--ctx", "64", "--batch", "2", columns=120)
    assert ran.code == 1 and " checks differ: gpt2 (kept by 2 blocks, kept by all 12 blocks" in " ".join(
        ran.out.split()
    )
    rows = {line.split("  ")[0].strip(): line for line in ran.out.splitlines()}
    # Two blocks of 2 · 64 tokens and 3,072 numbers of 2 bytes.
    assert "DIFFERS by +1,572,864" in rows["kept by 2 blocks"] and rows["gradients"].endswith("ok")


def test_a_slip_of_an_instant_is_seen(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfacct.accounts.step_sums.bytes_each", lambda *_: 0)
    ran = run("verify", "gpt2", "--train", "--ctx", "16", "--set", "n_layer=1")
    assert ran.code == 1 and "peak by torch's MemTracker" in ran.out.split("differ: ")[1]


def test_optimizers_of_torch_are_asked_for_their_states() -> None:
    from tfacct.meta import optimizer
    from tfacct.meta.model import build_model

    gpt2 = load("gpt2", n_layer=2)
    model = build_model(gpt2.loaded.of_class, "sdpa", "bf16")
    for name in optimizer.OPTIMIZERS:
        assert optimizer.state_bytes(model, name) == gpt2.train(ctx=8, optimizer=name).optimizer_bytes, name


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("t5gemma-2b-2b --train", "the training step of t5gemma has not been measured"),
        ("gpt2 --optimizer sgd", "--optimizer needs --train"),
        ("gpt2 --train --decode", "whole sequences"),
        ("gpt2 --train --against torch", "--against knows transformers"),
        ("pegasus-large --train --lora 64 --ctx 509", "not been measured with adapters"),
        ("bert-base --train --ctx 513", "its class cannot take a step of 513 tokens: The expanded size"),
    ],
)
def test_what_makes_no_sense_is_said(run: Callable[..., Ran], arguments: str, says: str) -> None:
    ran = run("verify", *arguments.split())
    assert ran.code == 2 and says in " ".join(ran.err.split()), ran.err


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({**TINY["mixtral"], "intermediate_size": 37}, "torch multiplies experts whose widths are multiples of 8"),
        (TINY["t5"], "its class cannot take a step: T5Config has no decoder_start_token_id"),
    ],
)
def test_a_step_that_its_class_cannot_take_is_said(config: dict, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        load(config).verify(train=True, against="transformers", ctx=12, attention="eager")


def test_several_models_and_an_optimizer_nobody_runs_on_meta(run: Callable[..., Ran]) -> None:
    ran = run("verify", "gpt2", "qwen3-0.6b", "deberta-v3-base", "--train", "--ctx", "32", "--optimizer", "adamw-8bit")
    said = " ".join(ran.out.split())
    assert ran.code == 0 and "Training steps in bf16 against witnesses" in said and "deberta-v3-base" in ran.err
    assert "The state of adamw-8bit was not asked for" in said


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_tables_fit(run: Callable[..., Ran], columns: int) -> None:
    ran = run("verify", "gpt2", "--train", "--ctx", "16", "--set", "n_layer=3", columns=columns)
    assert ran.code == 0 and max(map(len, ran.out.splitlines())) <= columns


@pytest.mark.slow
def test_what_is_kept_is_proven(run: Callable[..., Ran]) -> None:
    """gpt2 with every block run again: two values of B, K, H, F, V and L, three of T."""
    ran = run("verify", "--prove", "gpt2", "--train", "--dtype", "bf16", "--recompute", "full", "--json")
    assert ran.code == 0, ran.err
    (facts,) = json.loads(ran.out)["models"]
    whole, *edges = facts["statements"]
    assert facts["proven"] and whole["difference"] == "0 at 192 of 192" and all(edge["proven"] for edge in edges)
    assert {edge["what"] for edge in edges} == {f"kept in bf16 at {at}" for at in ("B = 1", "K = 1", "B = 1, K = 1")}


def test_a_slip_is_not_proven(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    """An activation that keeps one tensor fewer. Fewer points, and none of them agrees."""
    from tfacct.witness import step_proof

    monkeypatch.setattr(step_proof, "VALUES", {**step_proof.VALUES, "V": (11,), "F": (24,), "L": (2,), "H": (16,)})
    small = run("verify", "--prove", "gpt2", "--train", "--dtype", "bf16")
    assert small.code == 1 and "0 at 12 of 12" in small.out and "NOT PROVEN" in small.out  # too few points
    monkeypatch.setitem(saved_tensors.SAVED_BY_ACTIVATION, "gelu_new", 3)
    ran = run("verify", "--prove", "gpt2", "--train", "--dtype", "bf16")
    assert (
        ran.code == 1
        and "NOT PROVEN" in ran.out
        and "0 at 0 of 12" in ran.out
        and ran.out.splitlines()[1] == ("Not proven.")
    )


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    "family",
    ["llama", "qwen2", "qwen3", "mistral", "gemma", "olmo2", "opt", "gpt2", "mixtral", "phi", "phi3", "gpt_neox"],
)
def test_families_are_proven(run: Callable[..., Ran], family: str, attention: str) -> None:
    ran = run("verify", "--prove", family, "--train", "--attention", attention)
    assert ran.code == 0 and "Proven: both are the same polynomial" in ran.out, ran.out


def test_proofs_that_cannot_be_are_refused(run: Callable[..., Ran]) -> None:
    assert "takes no symbols" in run("verify", "--prove", "gpt2", "--train", "--by", "symbols").err
    assert "the training step of t5gemma has not been measured" in run("verify", "--prove", "t5gemma", "--train").err
    convolved = run("verify", "--prove", "lfm2", "--train")
    assert convolved.code == 2 and "it does not run without a layer that has attention" in convolved.err


@pytest.mark.parametrize(
    "asked",
    [
        *("--lora 4:q_proj,v_proj --lora-dropout 0.1", "--lora 4 --weights nf4"),
        *("--loss chunked", "--weights fp32", "--weights fp32 --loss chunked"),
    ],
)
def test_recipes_are_asked_of_the_class_too(run: Callable[..., Ran], asked: str) -> None:
    """Adapters by peft, weights in 4 bits by bitsandbytes: kept bytes, peaks, gradients and moments."""
    for name in {"lora": ("peft",), "nf4": ("bitsandbytes",)}.get(
        asked.split()[-1], ("peft",) if "lora" in asked else ()
    ):
        pytest.importorskip(name)
    ran = run("verify", "llama-3.2-1b", "--train", "--ctx", "16", *asked.split(), "--json")
    assert ran.code == 0, ran.err
    (facts,) = json.loads(ran.out)["models"]
    assert facts["agrees"] and len(facts["witnesses"]) >= 6


def test_what_is_not_proven_is_refused(run: Callable[..., Ran]) -> None:
    ran = run("verify", "--prove", "llama", "--train", "--weights", "fp32")
    assert ran.code == 2 and "--weights fp32 is not proven" in ran.err


def test_experts_that_are_weighted_in_the_passs_dtype_need_no_cast() -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 16}
    sizes |= {"num_hidden_layers": 1, "num_experts": 4, "num_experts_per_tok": 4, "moe_intermediate_size": 8}
    model = tfacct.load({"model_type": "qwen3_moe", "tie_word_embeddings": False, **sizes})
    found = model.verify(train=True, ctx=64, batch=2, optimizer="none")
    assert found.agrees
    # Three tensors of each token's experts, as wide as the stream, decide at this size.
    step = model.train(ctx=64, batch=2, optimizer="none")
    assert step.peak_instant == "block 0, backward" and step.exact


def test_what_corrects_the_choice_of_experts_has_no_gradient() -> None:
    """A parameter of the class that is not trained: no witness has a gradient or a state of it."""
    given = load({**TINY["afmoe"], "hidden_size": 16, "moe_intermediate_size": 8})
    asked = given.verify(train=True, ctx=16, attention="eager", against="transformers")
    assert asked.agrees and len(asked.witnesses) == 5
