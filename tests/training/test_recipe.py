"""The recipe of a training step: its options, and their former names. Kind: output, refusal."""

from dataclasses import replace
from typing import Any

import pytest

from tests.helpers.cli import Run
from tests.helpers.training_step import SMALL
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.training.recipe import Recipe, batch_sizes


@pytest.mark.parametrize(
    ("former", "new"),
    [
        ({"checkpoint": "full"}, {"recompute": "full"}),
        ({"hold_logits": True}, {"keep_logits": True}),
        ({"accumulate": 3}, {"gradient_accumulation": 3}),
        ({"weights": "fp32"}, {"weights_dtype": "fp32"}),
        ({"lora": 4, "adapters": "bf16"}, {"lora": 4, "adapter_dtype": "bf16"}),
    ],
)
def test_former_keywords_are_understood(former: dict[str, Any], new: dict[str, Any]) -> None:
    peaks = [load("gpt2").train(ctx=960, **recipe).peak_bytes for recipe in (former, new, {})]
    assert peaks[0] == peaks[1] != peaks[2]


@pytest.mark.parametrize("steps", [0, -1, True, 1.5])
def test_gradient_accumulation_is_a_number_of_micro_batches(steps: Any) -> None:
    with pytest.raises(UsageError, match="gradient_accumulation must be"):
        Recipe(gradient_accumulation=steps).checked()


FSDP, PIPELINE = Mesh(fsdp=8), Mesh(pp=4, dp=3)


@pytest.mark.parametrize(
    ("given", "mesh", "expected"),
    [
        ((None, None, None, None), None, (1, 1, 0)),
        ((5, None, 3, None), None, (5, 3, 0)),
        ((None, 5, 3, None), FSDP, (5, 3, 0)),
        ((None, 2, None, 112), FSDP, (2, 7, 0)),  # 2 · 7 · 8
        ((None, None, 7, 112), FSDP, (2, 7, 0)),
        ((2, None, 7, 112), FSDP, (2, 7, 0)),
        ((None, None, None, 40), FSDP, (1, 5, 0)),
        ((None, 2, None, 60), PIPELINE, (20, 1, 10)),  # 2 · 10 · 3: a pipeline takes 10 micro-batches
        ((None, None, None, 60), PIPELINE, (20, 1, 0)),  # as a batch of 20: more of them may be in flight
        ((None, 1, None, 60), PIPELINE, (20, 1, 0)),
        ((None, None, 4, 60), PIPELINE, (20, 1, 4)),
        ((None, None, 1, 60), PIPELINE, (20, 1, 1)),
        ((None, None, None, 60), replace(PIPELINE, microbatches=10), (20, 1, 10)),
        ((None, 2, 5, None), PIPELINE, (10, 1, 5)),
        ((20, None, None, None), PIPELINE, (20, 1, 0)),
        ((20, None, 1, None), PIPELINE, (20, 1, 0)),
        ((2, None, 5, None), PIPELINE, (10, 1, 5)),
    ],
)
def test_batch_sizes_follow_from_each_other(
    given: tuple[int | None, ...], mesh: Mesh | None, expected: tuple[int, int, int]
) -> None:
    """global batch = micro-batch · micro-batches of a step · data-parallel ranks."""
    found = batch_sizes(*given, mesh)
    assert (found.batch, found.gradient_accumulation, found.mesh.microbatches if found.mesh else 0) == expected


@pytest.mark.parametrize(
    ("given", "mesh", "message"),
    [
        ((None, None, None, 30), FSDP, "does not divide into 8 data-parallel ranks"),
        ((None, 3, None, 64), FSDP, "does not divide into micro-batches of 3 over 8"),
        ((None, None, 5, 64), FSDP, "does not divide into 5 micro-batches over 8"),
        ((None, 2, 5, 64), FSDP, "is not 80, that is 5 micro-batches of 2 over 8 data-parallel ranks"),
        ((2, 2, None, None), None, "set the same size: give only one"),
        ((None, 0, None, None), None, "micro_batch_size must be at least 1"),
        ((8, None, None, 24), PIPELINE, "batch is the whole pipeline batch"),
        ((None, 2, 6, None), Mesh(pp=4, microbatches=5), "does not match the other batch sizes, which give 6"),
        ((None, 1, None, 60), Mesh(pp=4, dp=3, microbatches=10), "does not match the other batch sizes, which give 20"),
    ],
)
def test_batch_sizes_that_do_not_divide_are_refused(
    given: tuple[int | None, ...], mesh: Mesh | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        batch_sizes(*given, mesh)


def test_the_peak_is_that_of_later_micro_batches(run: Run) -> None:
    """Gradients of earlier micro-batches, 2 bytes a parameter, are there from the start; how many is no matter."""
    words = "train llama-2-7b --ctx 96 --fsdp 8 --micro-batch-size 3 --json --global-batch-size"
    one, two, nine = (run(*words.split(), str(size)).models[0] for size in (24, 48, 216))
    assert [each["gradient_accumulation"] for each in (one, two, nine)] == [1, 2, 9]
    assert all(each["workload"]["batch"] == each["micro_batch_size"] == 3 for each in (one, two, nine))
    assert nine["global_batch_size"] == 216
    first, later = (each["phases"][0]["gradients_bytes"] for each in (one, two))
    assert (first, later) == (0, 2 * 6_738_415_616 // 8)
    assert one["peak_bytes"] < two["peak_bytes"] == nine["peak_bytes"]


def test_qlora_is_lora_on_nf4(run: Run) -> None:
    """peft casts what is not in 4 bits to fp32, 2 bytes a parameter more: embedding and head of 128,256 · 4,096, and 65
    norms of 4,096."""
    llama = load("llama-3.1-8b")
    asked = llama.train(ctx=96, lora=16, weights_dtype="nf4")
    assert llama.train(ctx=96, qlora=True).to_json() == asked.to_json()
    assert llama.train(ctx=96, qlora=True, lora=7).lora == "7"
    more = 2 * (2 * 128_256 * 4096 + 65 * 4096) / 2**30
    out = run("train", "llama-3.1-8b", "--ctx", "96", "--qlora", "--verbose").out_line
    note = f"prepare_model_for_kbit_training casts 16-bit weights to fp32 (+{more:.2f} GiB)"
    assert f"{note}, and it turns on --recompute full" in out
    with pytest.raises(UsageError, match="qlora=True uses nf4 weights, not fp32"):
        llama.train(ctx=96, qlora=True, weights_dtype="fp32")


def test_packing_under_sdpa_adds_a_mask_and_copies_of_keys_and_values() -> None:
    """Each of 3 layers saves a 16-bit mask of 384 × 384, and keys and values for 6 query heads in place of 2."""
    model = load(SMALL)
    row, packed = model.train(ctx=384), model.train(ctx=96, batch=4, packing=True)
    more = 3 * (2 * 384 * 384 + 2 * (2 * 384 * 16 * (6 - 2)))
    assert abs(packed.saved_bytes - row.saved_bytes - more) < 3 * 64  # seeds of the two kernels
    eager = model.train(ctx=96, batch=4, packing=True, attention="eager")
    assert model.train(ctx=384, attention="eager").saved_bytes == eager.saved_bytes


def test_ranks_of_fsdp_pack_sequences_of_their_own() -> None:
    model, row = load("llama-3.2-1b"), Recipe(packing=True).runs(Workload(context=96, tokens=96, batch=3))
    assert (row.batch, row.tokens, row.context) == (1, 288, 288)
    one = model.train(ctx=96, batch=3, packing=True)
    assert model.train(ctx=96, batch=3, packing=True, fsdp=8).saved_bytes == one.saved_bytes
