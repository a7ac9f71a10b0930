"""Copies of a model, each with a batch: DistributedDataParallel's buckets, HSDP and ZeRO."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest

import tfacct
from tests.test_pipeline_fsdp import sizes
from tests.test_sharding import built, fake_ranks, random_config
from tests.test_sharding_train import without_seeds
from tests.training_configs import drawn
from tfacct.accounts.sharding import replicas
from tfacct.accounts.sharding.adapters import of_copies
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.timeline import timeline
from tfacct.ledger.workload import Workload
from tfacct.reports.mesh import computed
from tfacct.reports.train_ranks_said import OF_ZERO
from tfacct.reports.training import trained
from tfacct.training.recipe import Recipe

CONFIG = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4, "num_key_value_heads": 2}


def copied(config: dict[str, Any], rank: int, adapters: str) -> tuple[Any, list[int]]:
    """A class in bf16 under DistributedDataParallel, with peft's adapters of a `rank` or none (0), and the bytes of the
    buckets that it reduces."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    found: list[int] = []

    def reduce(_, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations
        found.append(bucket.buffer().nbytes)
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model = built(config).to(torch.bfloat16)
    for module in model.modules():  # frequencies stay as they are where weights are made in bf16
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = buffer.float()
    if rank:
        peft = pytest.importorskip("peft")
        products = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peft.get_peft_model(
                model, peft.LoraConfig(r=rank, target_modules=products), autocast_adapter_dtype=adapters == "fp32"
            )
        model.train()
    alone = DistributedDataParallel(model)
    alone.register_comm_hook(None, reduce)
    return alone, found


def peak_of_a_copy(
    config: dict[str, Any], rank: int, earlier: bool, adapters: str, alone: bool = False
) -> tuple[int, list[int]]:
    """The most bytes alive on a CPU in a later step, up to the last gradient, and the buckets of that step; `alone`: of
    the model without copies."""
    import torch

    from tfacct.meta.tracker import LiveBytes, Peak

    with fake_ranks(2):
        model, found = copied(config, rank, adapters)
        model = model.module if alone else model
        ids, alive = torch.zeros(2, 32, dtype=torch.long), LiveBytes("cpu")
        for step in range(4):
            if not earlier:
                model.zero_grad()
            found.clear()
            alive.peak = Peak(0, "", "")
            gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
            for tensor in (*model.parameters(), *model.buffers(), *gradients, ids):
                alive.add(tensor)
            with alive if step > 1 else nullcontext():  # buckets are seen once something was copied into them
                model(input_ids=ids, labels=ids).loss.backward()
    return alive.peak.bytes, found


@pytest.mark.parametrize(
    ("kind", "rank", "earlier", "adapters"),
    [
        ("llama", 0, False, "bf16"),
        ("qwen3", 0, True, "bf16"),
        ("llama", 4, False, "bf16"),
        ("llama", 4, False, "fp32"),
        ("qwen3", 3, True, "fp32"),
    ],
)
def test_a_peak_beside_buckets_is_what_is_alive_under_torchs(
    kind: str, rank: int, earlier: bool, adapters: str
) -> None:
    rng = random.Random(f"copy {kind} {rank}")
    config = {**random_config(kind, rng, Mesh()), "head_dim": 8, "vocab_size": 97, "num_hidden_layers": 3}
    config["hidden_size"] = 8 * config["num_attention_heads"]
    lora: dict[str, Any] = {"lora": str(rank), "adapter_dtype": adapters} if rank else {}
    recipe = Recipe(optimizer="none", mesh=Mesh(dp=2), gradient_accumulation=1 + earlier, **lora)
    one = trained(tfacct.load(config).loaded, Workload(32, 32, 2), recipe)
    most = max(int(each.total) for each in timeline(without_seeds(one.step)) if each.name != "optimizer step")
    seen, reduced = peak_of_a_copy(config, rank, earlier, adapters)
    assert one.exact and most == seen
    assert sum(reduced) == one.step.buckets
    if rank:
        (call,) = of_copies(one.step, Mesh(dp=2))
        assert [call.bytes] == reduced and sum(reduced) == int(one.step.adapter_bytes)


@pytest.mark.parametrize(("kind", "seed"), [("gpt2", 3), ("mixtral", 1), ("phi3", 2), ("deepseek_v3", 2)])
def test_what_copies_add_to_a_peak_of_fused_tensors_is_what_torchs_add(kind: str, seed: int) -> None:
    """A CPU keeps other bytes than a GPU in some of these classes' operators, with copies and without."""
    config = without_dropout(drawn(kind, seed)[0])
    ours = [
        max(int(each.total) for each in timeline(without_seeds(one.step)) if each.name != "optimizer step")
        for mesh in (Mesh(dp=2), None)
        for one in [trained(tfacct.load(config).loaded, Workload(32, 32, 2), Recipe(optimizer="none", mesh=mesh))]
    ]
    theirs = [peak_of_a_copy(config, 0, False, "bf16", alone)[0] for alone in (False, True)]
    assert ours[0] - ours[1] == theirs[0] - theirs[1] > 0


def without_dropout(config: dict[str, Any]) -> dict[str, Any]:
    said = {name: 0.0 if "drop" in name else value for name, value in config.items()}
    return {name: value for name, value in said.items() if not name.endswith("token_id")}


def buckets_of(config: dict[str, Any], dtype: Any = None) -> list[int]:
    """Bytes of the buckets that torch reduces in a second step."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    found: list[int] = []

    def reduce(_, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations
        found.append(bucket.buffer().nbytes)
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    with fake_ranks(2):
        model = DistributedDataParallel(built(config).to(dtype))
        model.register_comm_hook(None, reduce)
        ids = torch.zeros(1, 8, dtype=torch.long)
        for _ in range(2):
            found.clear()
            model(input_ids=ids).logits.sum().backward()
    return found


@pytest.mark.parametrize(("kind", "seed"), [("llama", 0), ("llama", 1), ("qwen2", 0), ("qwen3", 0), ("starcoder2", 0)])
def test_buckets_of_gradients_are_torchs(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"{kind} {seed}")
    config = {**random_config(kind, rng, Mesh()), **CONFIG, "head_dim": 64, "vocab_size": rng.randint(600, 4000)}
    config["num_hidden_layers"] = rng.randint(2, 4)
    monkeypatch.setattr(replicas, "OTHERS", 3 * 2**20)
    monkeypatch.setattr("torch.nn.parallel.distributed._DEFAULT_BUCKET_CAP_MB", 3)
    own = replicas.buckets(tfacct.load(config).loaded.ledger, Mesh(dp=2), 32, {})
    assert Counter(own) == Counter(buckets_of(config)), config
    assert len(own) > 3


CAP = 2**14
FUSED = ("deepseek_v3", "gpt2", "mixtral", "phi3", "qwen3", "qwen3_moe")
"""Families whose classes store several products, or experts, as one tensor, or norm queries and keys as they are made:
the order in which gradients are ready is theirs."""
FURTHER = (
    *("dots1", "exaone4", "falcon", "gemma3_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite"),
    *("gpt_bigcode", "gpt_neox", "granitemoe", "minimax_m2", "olmo2", "olmoe", "phimoe", "youtu"),
)


@pytest.mark.parametrize("kind", [*FUSED, *(pytest.param(kind, marks=pytest.mark.slow) for kind in FURTHER)])
def test_buckets_of_fused_gradients_are_torchs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(replicas, "OTHERS", CAP)
    monkeypatch.setattr(replicas, "FIRST", CAP // 2)
    monkeypatch.setattr("torch.nn.parallel.distributed._DEFAULT_BUCKET_CAP_MB", CAP / 2**20)
    monkeypatch.setattr("torch.distributed._DEFAULT_FIRST_BUCKET_BYTES", CAP // 2)
    met = 0
    for seed in range(4):
        config = without_dropout(drawn(kind, seed)[0])
        model = tfacct.load(config).loaded
        own = replicas.buckets(model.ledger, Mesh(dp=2), 16, computed(model))
        assert Counter(own) == Counter(buckets_of(config, torch.bfloat16)), config
        met += len(own)
    assert met >= 12


def test_copies_of_llama_by_hand() -> None:
    model = tfacct.load("llama-3.1-8b")
    whole = 2 * 8_030_261_248
    plain = model.comms(dp=8, train=True)
    (row,) = plain.collectives
    # A ring sends 7 of 8 shares twice.
    assert (row["kind"], row["over"], row["bytes"]) == ("all-reduce", "dp", whole)
    assert plain.mesh["ranks"] == 8 and abs(plain.sent_bytes - 2 * 7 * whole // 8) < 8 * 8 * row["calls"]
    # ZeRO 1 and 2 send as much: the sums are scattered, and what was updated is gathered.
    for zero in (1, 2):
        scatter, gather = model.comms(dp=8, zero=zero, train=True).collectives
        assert (scatter["kind"], scatter["calls"], scatter["bytes"]) == ("reduce-scatter", 33, whole // 8)
        assert (gather["kind"], gather["when"], gather["bytes"]) == ("all-gather", "update", whole)
    assert model.comms(dp=8, zero=3, train=True).collectives == model.comms(fsdp=8, train=True).collectives
    # HSDP: what fsdp has scattered is reduced among the copies.
    last = model.comms(fsdp=4, dp=2, train=True).collectives[-1]
    assert (last["kind"], last["over"], last["calls"], last["bytes"]) == ("all-reduce", "dp", 33, whole // 4)


def test_what_a_copy_holds() -> None:
    model = tfacct.load("llama-3.2-1b")
    whole = 2 * 1_235_814_400
    plain, one, two, three, mixed = (
        model.train(ctx="1k", **mesh)
        for mesh in ({"dp": 4}, {"dp": 4, "zero": 1}, {"dp": 4, "zero": 2}, {"dp": 4, "zero": 3}, {"dp": 2, "fsdp": 4})
    )
    alone = model.train(ctx="1k")
    assert (plain.weights_bytes, plain.gradients_bytes) == (one.weights_bytes, one.gradients_bytes) == (whole, whole)
    assert plain.optimizer_state_bytes == alone.optimizer_state_bytes
    assert plain.peak_bytes == alone.peak_bytes + whole  # the buckets are as large as the gradients, and stay
    tensors = 4 * (16 * 9 + 2)  # a counter of each
    state = 2 * whole // 4 + tensors
    assert one.optimizer_state_bytes == two.optimizer_state_bytes == three.optimizer_state_bytes == state
    assert two.gradients_bytes == three.gradients_bytes == three.weights_bytes == whole // 4
    assert two.weights_bytes == whole and not two.exact and plain.exact and three.exact
    assert mixed.weights_bytes == whole // 4 and mixed.mesh["ranks"] == 8


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("comms llama-3.1-8b --dp 8", "sends gradients alone --train counts them"),
        ("comms llama-3.1-8b --dp 8 --zero 4 --train", "--zero is 1, 2 or 3, not 4"),
        ("comms llama-3.1-8b --zero 1 --train", "--zero 1 goes with --dp, without --fsdp"),
        ("comms llama-3.1-8b --dp 2 --fsdp 2 --zero 1 --train", "--zero 1 goes with --dp, without --fsdp"),
        (
            "comms gpt-oss-20b --dp 8 --train",
            "its experts have biases, and which tensors share a bucket",
        ),
        ("train qwen1.5-moe-a2.7b --dp 8", "its shared network has a gate, and which tensors share a bucket of --dp"),
        ("comms mixtral-8x7b --dp 2 --tp 2 --train", "beside --tp 2 its class fuses products"),
        ("train llama-3.1-8b --dp 2 --weights fp32", "autocast is not counted on a mesh"),
    ],
)
def test_copies_that_are_not_counted_are_refused_by_name(run: Any, arguments: str, said: str) -> None:
    ran = run(*arguments.split())
    words = " ".join(ran.err.split()).replace("hint: ", "")
    assert ran.code == 2 and said in words and "Traceback" not in words, words


def test_copies_are_said(run: Any) -> None:
    words = " ".join(run("comms", "llama-3.1-8b", "--dp", "8", "--train").out.split())
    assert "8 copies have a batch each; gradients are reduced in buckets of 25 MiB" in words
    words = " ".join(run("train", "llama-3.1-8b", "--ctx", "2k", "--dp", "8").out.split())
    assert "The buckets stay beside the gradients." in words
    assert "as ZeRO 2 does" in " ".join(run("train", "llama-3.1-8b", "--dp", "8", "--zero", "2").out.split())


def higher_with_shared_moments(seed: int, views: bool) -> float:
    """The share by which what is alive at the fullest is more than the account of ZeRO 1, under torch's
    ZeroRedundancyOptimizer, which shares whole tensors. `views`: gradients are parts of DistributedDataParallel's
    buckets."""
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    def reduce(_, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    rng = random.Random(f"zero llama {seed}")
    ranks, tokens, batch = rng.choice((2, 4)), rng.choice((8, 32, 64)), rng.choice((1, 2))
    config = {**random_config("llama", rng, Mesh()), "num_hidden_layers": rng.choice((2, 3, 4, 6))}
    config |= {"hidden_size": 16 * config["num_attention_heads"], "vocab_size": rng.choice((50, 400, 2000))}
    config |= {"intermediate_size": rng.choice((2, 3, 4)) * config["hidden_size"], "head_dim": 8 * rng.randint(1, 4)}
    with fake_ranks(ranks), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = built(config).to(torch.bfloat16)
        for module in model.modules():  # frequencies stay as they are where weights are made in bf16
            for name, buffer in module.named_buffers(recurse=False):
                module._buffers[name] = buffer.float()
        copy = DistributedDataParallel(model, gradient_as_bucket_view=views)
        copy.register_comm_hook(None, reduce)
        update: Any = ZeroRedundancyOptimizer(copy.parameters(), torch.optim.AdamW, foreach=True)
        ids, alive = torch.zeros(batch, tokens, dtype=torch.long), sizes()

        def step() -> None:
            copy(input_ids=ids, labels=ids, use_cache=False).loss.backward()
            update.step()
            update.zero_grad(set_to_none=not views)

        for _ in range(3):
            step()
        moments = (tensor for state in update.optim.state.values() for tensor in state.values())
        gradients = (weight.grad for weight in model.parameters() if weight.grad is not None)
        for tensor in (*model.parameters(), *model.buffers(), ids, *moments, *gradients):
            alive.add(tensor)
        with alive:
            step()
    recipe = Recipe(optimizer="adamw-foreach", mesh=Mesh(dp=ranks, zero=1))
    one = trained(tfacct.load(config).loaded, Workload(tokens, tokens, batch), recipe)
    return alive.most / max(int(each.total) for each in timeline(without_seeds(one.step))) - 1


@pytest.mark.parametrize("views", [True, False])
def test_peaks_of_shared_moments_are_as_much_higher_as_is_said(views: bool) -> None:
    assert -0.002 < higher_with_shared_moments(2, views) <= OF_ZERO / 100


@pytest.mark.slow
def test_random_peaks_of_shared_moments_are_as_much_higher_as_is_said() -> None:
    found = [higher_with_shared_moments(seed, views) for seed in range(24) for views in (True, False)]
    assert min(found) > -0.002 and 30 < 100 * max(found) <= OF_ZERO, found
