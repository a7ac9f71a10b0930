"""Data parallelism: the buckets of DistributedDataParallel, with experts on several ranks too. Kind: oracle."""

import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

import tfacct
from tests.families import random_config as small_config
from tests.helpers.classes import ClassRefusesError, of_the_class
from tests.helpers.fake_ranks import EXPERTS, Counted, built, random_expert_config, watched
from tests.helpers.lazy import lazy
from tests.helpers.models import in_whole_rows
from tests.helpers.torch_ranks import add_peft, decoder, real_tokens
from tests.helpers.training_layouts import LLAMA, memory
from tfacct.ledger.workload import Workload
from tfacct.parallel import data_parallel
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.model_collectives import tensors_in_order
from tfacct.parallel.rules import collectives
from tfacct.parallel.support import routing_bits

reference = lazy("tfacct.reference.ranks")
torch, parallel, device_mesh = lazy("torch"), lazy("torch.nn.parallel"), lazy("torch.distributed.device_mesh")
distributed, expert_parallel = lazy("transformers.distributed"), lazy("transformers.distributed.expert_parallel")


def without_dropout(config: dict[str, Any]) -> dict[str, Any]:
    fields = {name: 0.0 if "drop" in name else value for name, value in config.items()}
    return {name: value for name, value in fields.items() if not name.endswith("token_id")}


def watch_buckets(copy: Any) -> list[int]:
    """Bytes of the buckets that torch will reduce."""
    found: list[int] = []

    def reduce(_, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations
        found.append(bucket.buffer().nbytes)
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    copy.register_comm_hook(None, reduce)
    return found


def use_small_buckets(monkeypatch: pytest.MonkeyPatch, cap: int) -> None:
    monkeypatch.setattr(data_parallel, "OTHERS", cap)
    monkeypatch.setattr(data_parallel, "FIRST", cap // 2)
    monkeypatch.setattr("torch.nn.parallel.distributed._DEFAULT_BUCKET_CAP_MB", cap / 2**20)
    monkeypatch.setattr("torch.distributed._DEFAULT_FIRST_BUCKET_BYTES", cap // 2)


def test_buckets_are_as_large_as_torchs() -> None:
    assert data_parallel.FIRST == torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
    assert data_parallel.OTHERS == torch.nn.parallel.distributed._DEFAULT_BUCKET_CAP_MB * 2**20


def buckets_of(config: dict[str, Any]) -> list[int]:
    """Bytes of the buckets that torch reduces in a second step."""
    with reference.fake_ranks(2):
        model = parallel.DistributedDataParallel(built(config).bfloat16())
        found = watch_buckets(model)
        ids = torch.zeros(1, 8, dtype=torch.long)
        for _ in range(2):
            found.clear()
            model(input_ids=ids).logits.sum().backward()
    return found


FUSED = ("deepseek_v3", "gpt2", "llama", "mixtral", "phi3", "qwen3", "qwen3_moe")
"""Llama, and families whose classes store several matmuls, or experts, as one tensor, or norm queries and keys as they
are made: the order in which gradients are ready is theirs."""
FURTHER = (
    *("dots1", "exaone4", "falcon", "gemma3_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite"),
    *("gpt_bigcode", "gpt_neox", "granitemoe", "minimax_m2", "olmo2", "olmoe", "phimoe", "starcoder2", "youtu"),
)


@pytest.mark.parametrize("kind", [*FUSED, *(pytest.param(kind, marks=pytest.mark.slow) for kind in FURTHER)])
def test_buckets_of_gradients_are_torchs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_buckets(monkeypatch, 2**14)
    met = 0
    for seed in range(6):
        config = in_whole_rows(without_dropout(small_config(kind, seed)))
        model = tfacct.load(config).loaded
        own = data_parallel.buckets(model.ledger, Mesh(dp=2), 16, tensors_in_order(model))
        try:
            with of_the_class():
                theirs = buckets_of(config)
        except ClassRefusesError:
            continue
        assert Counter(own) == Counter(theirs), config
        met += len(own)
    assert met >= 12


@pytest.mark.parametrize(
    "recipe", [{"lora": "8"}, {"lora": "8", "adapter_dtype": "bf16"}, {"weights_dtype": "fp32"}], ids=str
)
def test_a_replica_has_the_buckets_of_torchs_ddp(recipe: dict[str, Any]) -> None:
    """Frozen weights have none, and under autocast they are in fp32."""
    one = memory(LLAMA, 64, 2, optimizer="none", dp=2, **recipe)
    autocast = one.recipe.autocast
    model = decoder(LLAMA, fp32_weights=autocast)
    if one.recipe.lora:
        add_peft(model, 8, fp32=one.recipe.adapter_dtype == "fp32")
    with reference.fake_ranks(2), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        replica = parallel.DistributedDataParallel(model)
        sizes = watch_buckets(replica)
        for _ in range(2):
            sizes.clear()
            replica(**real_tokens(2, 64)).loss.backward()
    assert one.step.buckets == sum(sizes)


def exchanged(found: Counted) -> Any:
    """Count the tokens sent to experts and back; every rank sends this one as much as it sends itself."""

    def record(received: Any, sent: Any, group: Any) -> None:
        received.copy_(sent[:1].expand_as(sent))
        found.setdefault(("forward", "all-to-all"), Counter())[sent.numel() * sent.element_size()] += 1

    return patch("transformers.distributed.expert_parallel.all_to_all_single", record)


def balance(model: Any) -> None:
    """Make every router distribute tokens evenly, on all ranks alike."""

    def dealt(forward: Any, experts: int) -> Any:
        def run(*args: Any) -> Any:
            logits, weights, chosen = forward(*args)
            return logits, weights, (torch.arange(chosen.numel()) % experts).view_as(chosen)

        return run

    for name, module in model.named_modules():
        if name.endswith("mlp.gate"):
            module.forward = dealt(module.forward, module.num_experts)


def observed(config: dict[str, Any], mesh: Mesh, batch: int, tokens: int) -> tuple[Counted, Counter[int], int]:
    """Tokens sent to experts and back in a second step, the buckets that torch reduces, and the elements of a rank."""
    found: Counted = {}
    model = built(config).to(torch.bfloat16)
    model.set_experts_implementation("eager")
    balance(model)
    with reference.fake_ranks(mesh.dp), exchanged(found):
        asked = distributed.DistributedConfig(tp_size=1, fsdp_size=mesh.dp, ep_size=mesh.ep)
        _, by_experts, _ = model._resolve_parallel_plans(asked)
        ranks = device_mesh.init_device_mesh(
            "cpu", (1, mesh.expert_replicas, mesh.ep), mesh_dim_names=("tp", "replicas", "ep")
        )
        expert_parallel.apply_expert_parallelism(model, ranks["ep"], ranks["tp"], by_experts)
        local = sum(getattr(weight, "_local_tensor", weight).numel() for weight in model.parameters())
        apart = [name for name, _ in model.named_parameters() if ".mlp.experts." in name]
        parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, apart)
        copy = parallel.DistributedDataParallel(model)
        buckets = watch_buckets(copy)
        ids = torch.zeros(batch, tokens, dtype=torch.long)
        for _ in range(2):
            found.clear()
            buckets.clear()
            with watched(found, "forward"):
                logits = copy(input_ids=ids, position_ids=torch.arange(tokens)[None], use_cache=False).logits
            with watched(found, "backward"):
                logits.sum().backward()
    return {key: sizes for key, sizes in found.items() if key[1] == "all-to-all"}, Counter(buckets), local


WITH_EXPERTS = [("mixtral", 2, 2, 0), ("mixtral", 4, 2, 0), ("qwen3_moe", 4, 4, 0), ("deepseek_v3", 4, 2, 0)]
FURTHER_EXPERTS = [
    pytest.param(kind, (2, 4)[seed % 2] * (1, 2)[seed // 2 % 2], (2, 4)[seed % 2], seed, marks=pytest.mark.slow)
    for kind in ("mixtral", "qwen3_moe", "deepseek_v3")
    for seed in range(1, 9)
]


@pytest.mark.parametrize(("kind", "dp", "ep", "seed"), WITH_EXPERTS + FURTHER_EXPERTS)
def test_copies_send_tokens_to_experts_and_reduce_the_rest(
    kind: str, dp: int, ep: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = Mesh(dp=dp, ep=ep)
    use_small_buckets(monkeypatch, 2**9)
    config = {
        **random_expert_config(kind, random.Random(f"copies {kind} {seed}"), mesh),
        "num_hidden_layers": 2 + seed % 2,
    }
    config["hidden_size"] *= 4
    batch, tokens = 2, config[EXPERTS[kind]]
    loaded = tfacct.load(config).loaded
    ours: Counted = {}
    buckets: Counter[int] = Counter()
    of_experts = 0
    at = Workload(tokens, tokens, batch).axes()
    shares = routing_bits(loaded, mesh, 16, train=True)
    for one in collectives(loaded.ledger, mesh, at, 16, train=True, shares=shares, tensors=tensors_in_order(loaded)):
        if one.kind == "all-to-all":
            ours.setdefault((one.when, one.kind), Counter())[one.bytes // one.calls] += one.calls
        elif one.what == "gradients":
            buckets[one.bytes // one.calls] += one.calls
        else:
            assert (one.kind, one.over) == ("all-reduce", "dp")
            of_experts += one.bytes
    seen, reduced, local = observed(config, mesh, batch, tokens)
    assert ours == seen, config
    assert buckets == reduced and sum(buckets.values()) > 2, config
    assert tfacct.load(config).params(ep=mesh.ep).rank_params == local
    # Gradients outside buckets are summed by the ranks of the same experts, if there are several.
    rest = 2 * local - sum(size * count for size, count in reduced.items())
    assert of_experts == (rest if mesh.expert_replicas > 1 else 0)
