"""A training step of an encoder, alone or in front of a decoder, on one rank: what autograd saves under torch's plan,
what DistributedDataParallel adds, and peaks among ranks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("transformers")

import tfacct
from tests.test_sharding import fake_ranks
from tests.test_sharding_encoders import ENCODERS, PAIRS, divisible
from tests.test_sharding_train import alive_on_a_rank
from tests.training_configs import drawn
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.timeline import timeline
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports.train_ranks_said import OF_ENCODERS
from tfacct.reports.training import trained
from tfacct.training.recipe import Recipe

NEARLY = 0.05
"""How far peaks may be from torch's."""


def small(kind: str, seed: int, tp: int = 1) -> tuple[LoadedModel, Workload]:
    config, _, work = drawn(kind, seed)
    even = divisible(kind, config, tp)
    return tfacct.load({name: 0.0 if "drop" in name and value else value for name, value in even.items()}).loaded, work


def counted(model: LoadedModel, work: Workload, **mesh: int) -> tuple[int, int]:
    """Bytes that are kept, and those at the peak up to the last gradient."""
    own = Mesh(**mesh) if mesh else None
    one = trained(model, work, Recipe(optimizer="none", attention="eager", mesh=own))
    return int(one.step.kept()), max(int(at.total) for at in timeline(one.step) if at.name != "optimizer step")


def given(model: Any, work: Workload, device: str) -> dict[str, Any]:
    import torch

    ids = torch.zeros(work.batch, work.tokens, dtype=torch.long, device=device)
    if work.source:
        return {"input_ids": torch.zeros(work.batch, work.source, dtype=torch.long, device=device), "labels": ids}
    return {"input_ids": ids, "labels": ids[:, 0] if "Sequence" in type(model).__name__ else ids}


@contextmanager
def divided(subject: LoadedModel, tp: int) -> Iterator[Any]:
    """The class on meta, as torch's plan divides it; logits stay divided for their loss."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel

    from tfacct.meta.cuda import cuda_kernels
    from tfacct.meta.model import build_model
    from tfacct.reference import encoding

    def whole(model: Any) -> Any:
        for name, style in planned(model):
            logits = name.rpartition(".")[2] in encoding.LOGITS
            yield name, ColwiseParallel(use_local_output=False) if logits else style

    planned = encoding._plan
    with fake_ranks(tp), patch.object(encoding, "_plan", whole), patch.object(encoding, "BIAS", "none"):
        model = build_model(subject.of_class, "eager", "bf16", auto=subject.config.ending.auto)
        mesh = init_device_mesh("cpu", (tp,))
        if (bias := getattr(model, "final_logits_bias", None)) is not None:
            part = bias[:, : bias.shape[-1] // tp]
            model.register_buffer("final_logits_bias", DTensor.from_local(part, mesh, [Shard(1)], run_check=False))
        encoding.divide(model, mesh, tp)
        with cuda_kernels(), loss_parallel():
            yield model


def on_a_rank(subject: LoadedModel, work: Workload, tp: int) -> tuple[int, int]:
    """What autograd saves on a rank, each storage once, and the most that is alive there."""
    import torch
    from torch.distributed.tensor import DTensor

    def local(tensor: Any) -> Any:
        return tensor._local_tensor if isinstance(tensor, DTensor) else tensor

    found: dict[int, Any] = {}
    with divided(subject, tp) as model:
        own = {local(each).untyped_storage()._cdata for each in (*model.parameters(), *model.buffers())}

        def save(tensor: Any) -> Any:
            storage = local(tensor).untyped_storage()
            if storage._cdata not in own:
                found[storage._cdata] = storage
            return tensor

        asked, alive = given(model, work, "meta"), alive_on_a_rank()
        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            model(**asked)
        kept = sum(storage.nbytes() for storage in found.values())
        found.clear()
        for each in (*model.parameters(), *model.buffers(), *asked.values()):
            alive.add(local(each))
        with alive:
            model(**asked).loss.backward()
    return kept, alive.peak.bytes


def tp_compared(kind: str, seed: int) -> None:
    model, work = small(kind, seed, 2)
    (kept, peak), (theirs, most) = counted(model, work, tp=2), on_a_rank(model, work, 2)
    assert kept == theirs and abs(peak - most) <= NEARLY * most, (kind, seed, peak, most)


def beside_buckets(subject: LoadedModel, work: Workload, alone: bool) -> int:
    """The most bytes alive on a CPU in a later step of a class in bf16, under DistributedDataParallel or `alone`."""
    import torch
    import transformers
    from torch.nn.parallel import DistributedDataParallel

    from tfacct.meta.tracker import LiveBytes, Peak

    def reduce(_, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    with fake_ranks(2):
        one = built(subject, transformers).to(torch.bfloat16)
        model = one if alone else DistributedDataParallel(one)
        if not alone:
            model.register_comm_hook(None, reduce)
        alive, asked = LiveBytes("cpu"), given(one, work, "cpu")
        for step in range(4):
            model.zero_grad()
            alive.peak = Peak(0, "", "")
            for each in (*model.parameters(), *model.buffers(), *asked.values()):
                alive.add(each)
            with alive if step > 1 else nullcontext():
                model(**asked).loss.backward()
    return alive.peak.bytes


def built(subject: LoadedModel, transformers: Any) -> Any:
    fields = {name: value for name, value in subject.of_class.items() if name != "model_type"}
    made = transformers.AutoConfig.for_model(subject.of_class["model_type"], **fields)
    made.use_cache, made._attn_implementation = False, "eager"
    return getattr(transformers, subject.config.ending.auto).from_config(made).train()


def dp_compared(kind: str, seed: int) -> None:
    """A CPU keeps other bytes than a GPU in some operators, with copies and without."""
    model, work = small(kind, seed)
    ours = counted(model, work, dp=2)[1] - counted(model, work)[1]
    assert ours == beside_buckets(model, work, False) - beside_buckets(model, work, True) > 0, (kind, seed)


def tracked(subject: LoadedModel, work: Workload, ranks: int) -> int:
    """The most bytes that torch's tracker sees of a second step on real tensors."""
    import torch
    import transformers
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from tfacct.reference.encoding import blocks_of

    with fake_ranks(ranks), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = built(subject, transformers).to(torch.bfloat16)
        mesh = init_device_mesh("cpu", (ranks,))
        for block in (*(block for blocks in blocks_of(model) for block in blocks), model):
            fully_shard(block, mesh=mesh)
        asked, tracker = given(model, work, "cpu"), FSDPMemTracker(model, None)
        tracker.track_inputs(tuple({id(each): each for each in asked.values()}.values()))
        with tracker:
            for first in (True, False):
                model(**asked).loss.backward()
                model.zero_grad()
                if first:
                    tracker.reset_mod_stats()
        return int(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])


def fsdp_compared(kind: str, seed: int) -> None:
    model, work = small(kind, seed)
    peak, most = counted(model, work, fsdp=2)[1], tracked(model, work, 2)
    assert abs(peak - most) <= NEARLY * most, (kind, seed, peak, most)


@pytest.mark.parametrize(("kind", "seed"), [("bert", 1), ("t5", 2), ("bart", 1)])
def test_a_rank_keeps_what_its_class_does(kind: str, seed: int) -> None:
    tp_compared(kind, seed)


@pytest.mark.parametrize(("kind", "seed"), [("roberta", 0), ("marian", 1)])
def test_buckets_come_to_the_peak_as_torchs_do(kind: str, seed: int) -> None:
    """Sines (marian) have no gradient, and stand in no bucket."""
    dp_compared(kind, seed)


@pytest.mark.parametrize(("kind", "seed"), [("bert", 0), ("bart", 2), ("t5", 2)])
def test_a_rank_of_fsdp_is_nearly_as_torchs_tracker_sees_it(kind: str, seed: int) -> None:
    fsdp_compared(kind, seed)


def test_both_sides_of_t5_by_hand() -> None:
    """Blocks and what is in none are shared; the table and both norms are gathered once."""
    rank = tfacct.load("t5-base").train(ctx=128, fsdp=4)
    at = {one["phase"]: one for one in rank.phases}
    read, written = 4 * 768 * 768 + 2 * 768 * 3072 + 2 * 768, 8 * 768 * 768 + 2 * 768 * 3072 + 3 * 768
    root = 32128 * 768 + 2 * 768 + 2 * 32 * 12  # and both tables of distances
    assert rank.weights_bytes == 2 * (12 * (read + written) + root) // 4 == at["optimizer step"]["gradients_bytes"]
    assert at["forward ends"]["gathered_bytes"] == 2 * root
    assert at["layer 0, backward"]["gathered_bytes"] == 2 * (root + written + read)  # the encoder's last one, ahead
    assert at["encoder, final norm, backward"]["gathered_bytes"] == 2 * (root + read)
    assert rank.sent_bytes == tfacct.load("t5-base").comms(fsdp=4, train=True, ctx=128).sent_bytes


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in ENCODERS + PAIRS if kind not in ("eurobert", "mpnet")])
def test_random_ranks_keep_what_their_classes_do(kind: str) -> None:
    for seed in range(10, 18):
        tp_compared(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [kind for kind in ENCODERS + PAIRS if kind not in ("camembert", "eurobert", "xlm-roberta")]
)
def test_random_ranks_of_fsdp_are_nearly_as_torchs_tracker_sees_them(kind: str) -> None:
    for seed in range(10, 16):
        fsdp_compared(kind, seed)


def test_what_is_said_and_refused() -> None:
    bert, t5 = tfacct.load("bert-base"), tfacct.load("t5-base")
    for mesh, exact in (({"dp": 2}, True), ({"tp": 2}, False), ({"fsdp": 2}, False)):
        found = bert.train(ctx=128, **mesh)
        assert found.exact is exact and any(OF_ENCODERS in note for note in found.notes) is not exact
    assert t5.train(ctx=128, dp=2).peak_bytes > t5.train(ctx=128).peak_bytes > t5.train(ctx=128, tp=4).peak_bytes
    classes = tfacct.load("bert-base", architectures=["BertForSequenceClassification"]).train(ctx=128, tp=2)
    assert any("The ranks of tp divide heads, networks and the token table" in note for note in classes.notes)
    both = "leave lora or the mesh out"
    for model, mesh, said, hint in (
        (t5, {"dp": 2, "zero": 2}, "an encoder with a decoder is not counted with zero=2", "leave zero out"),
        (
            t5,
            {"fsdp": 2, "weights_dtype": "fp32"},
            "an encoder with a decoder is counted under fsdp with weights in the pass's dtype",
            "leave weights out",
        ),
        (bert, {"pp": 2, "dp": 2}, "stages of an encoder are counted without another axis than pp", "leave pp out"),
        (
            bert,
            {"tp": 2, "lora": "4"},
            "adapters of an encoder are not counted on a mesh",
            both,
        ),
    ):
        with pytest.raises(tfacct.TfacctError, match=said) as told:
            model.train(ctx=128, **mesh)
        assert told.value.hint == hint
