"""Kernels of a step have the ledger's FLOPs, weights and cache, on any devices. Kind: law, refusal."""

from dataclasses import replace
from functools import cache

import pytest

from tfacct import families
from tfacct.families.gemma import AltUp
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Matmul, State
from tfacct.ledger.storage import BF16, BF16_EACH, storage
from tfacct.ledger.workload import Workload
from tfacct.loading import presets
from tfacct.loading.find import find
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.rules import collectives
from tfacct.timing.kernels import Kernel, NoKernelError, cache_bytes, kernels, way_of, weight_bytes

FP8 = storage("fp8")
STEPS = {"prefill": Workload(40, 40, 3), "chunk": Workload(5000, 16, 3), "decode": Workload(5000, 1, 12)}
BORROWS = ("gemma-4-e2b-text", "gemma-4-e4b-text")


def refused(model: LoadedModel) -> bool:
    """True for recurrences other than the delta rule, for AltUp, and for an indexer whose choice is not counted."""
    lines = [line for group in model.ledger.groups for line in group.lines]
    states = [line.path for line in lines if isinstance(line, State)]
    chooses = any("Sx" in group.axes for group in model.ledger.groups)
    indexes = any(path.endswith("index_cache") for path in states)
    others = any("_state" in path and ".delta." not in path for path in states) or any(
        path.endswith(("lightning.state", "time_mix.state")) for path in states
    )
    return others or (indexes and not chooses) or isinstance(model.architecture.streams, AltUp)


def gathers(model: LoadedModel) -> bool:
    """True for models that do not read their whole cache once in each step."""
    masks = {line.mask for group in model.ledger.groups for line in group.lines if isinstance(line, Matmul)}
    deltas = any("Nd" in group.axes for group in model.ledger.groups)
    choices = any("Sx" in group.axes for group in model.ledger.groups)
    return deltas or choices or "entries" in masks


FAMILIES = families.names()
MEASURED = ("llama-3.1-70b", "qwen3-32b", "qwen3-235b-a22b", "gpt-oss-120b", "deepseek-v3", "glm-5")
NAMES = (*FAMILIES, *MEASURED, *BORROWS)


@cache
def first_presets() -> dict[str, str]:
    """A preset of each family that has one."""
    return {listed.family: listed.name for listed in reversed(presets.list_all())}


def decoder(name: str) -> LoadedModel | None:
    """The preset, or a preset of the family; None for encoders and models without a cache."""
    if name in FAMILIES and name not in first_presets():
        return None
    model = find(first_presets()[name] if name in FAMILIES else name)
    return model if model.has_cache and model.architecture.encoder is None else None


def lowered(name: str, step: str, mesh: Mesh | None = None) -> list[Kernel]:
    """Kernels of a preset's step."""
    return of(find(name), step, mesh)


def of(model: LoadedModel, step: str, mesh: Mesh | None = None) -> list[Kernel]:
    return kernels(model.ledger, STEPS[step].axes(), FP8, BF16_EACH, BF16_EACH, mesh)


@pytest.mark.parametrize("name", NAMES)
def test_kernels_add_up_to_the_ledger(name: str) -> None:
    """On one device; several devices together store and compute at least as much."""
    model = decoder(name)
    if model is None:
        return
    if refused(model):
        with pytest.raises(NoKernelError):
            of(model, "decode")
        return
    for step, work in STEPS.items():
        at, found = work.axes(), of(model, step)
        way = Ledger(way_of(model.ledger, at).groups)
        exact = sum(kernel.flops for kernel in found) == way.total_flops(at, masked=True)
        assert exact or (name == "minimax_m3_vl_text" and work.context > 2048)  # its class masks keys that engines skip
        assert sum(weight_bytes(model.ledger, FP8, Mesh()).values()) == sum(model.ledger.weight_bytes(FP8).values())
        assert cache_bytes(model.ledger, at, FP8, BF16_EACH, BF16_EACH, Mesh()) == sum(
            model.ledger.state_bytes(at, BF16_EACH).values()
        )
    for mesh in (Mesh(2), Mesh(8), Mesh(3), Mesh(8, ep=8), Mesh(16, ep=4), Mesh(1, dp=4, ep=4)):
        for step in ("prefill", "decode"):
            assert mesh.ranks * _flops(of(model, step, mesh)) >= _flops(of(model, step))
            for count in (_weights, _cached):
                assert mesh.ranks * count(model, mesh) >= count(model)
    if gathers(model):
        return
    cached = sum(model.ledger.state_bytes(at, BF16_EACH).values())
    read = sum(kernel.cache for kernel in of(model, "decode"))
    assert read > cached if model.name in BORROWS else read == cached  # keys that other blocks borrow are read again


def _flops(every: list[Kernel]) -> int:
    return sum(kernel.flops for kernel in every)


def _weights(model: LoadedModel, mesh: Mesh | None = None) -> int:
    return sum(weight_bytes(model.ledger, FP8, mesh or Mesh()).values())


def _cached(model: LoadedModel, mesh: Mesh | None = None) -> int:
    return cache_bytes(model.ledger, STEPS["decode"].axes(), FP8, BF16_EACH, BF16_EACH, mesh or Mesh())


def test_devices_divide_evenly_what_they_can() -> None:
    # Llama-3.1-70B: 64 query heads, 8 key/value heads, width 28,672 and 128,256 tokens all divide by 8; only norms,
    # 161 · 8,192 numbers of 2 bytes, are on each device.
    whole, each = lowered("llama-3.1-70b", "decode"), lowered("llama-3.1-70b", "decode", Mesh(8))
    assert 8 * _flops(each) == _flops(whole)
    model = find("llama-3.1-70b")
    assert 8 * _cached(model, Mesh(8)) == _cached(model)
    assert 8 * _weights(model, Mesh(8)) - _weights(model) == 7 * 161 * 8192 * 2
    # 16 devices have a key/value head each, twice in all: k_proj and v_proj run twice, attention itself does not.
    twice = lowered("llama-3.1-70b", "decode", Mesh(16))
    assert 16 * _cached(model, Mesh(16)) == 2 * _cached(model)
    assert 16 * _flops(twice) - _flops(whole) == 80 * 2 * (2 * 12 * 8192 * 8 * 128)


def test_experts_are_divided_by_number_or_by_width() -> None:
    # Qwen3-30B-A3B: 48 blocks, 128 experts of width 768 over 2,048, 8 for each token.
    for mesh, experts in ((Mesh(4), (128, 8, 128)), (Mesh(4, ep=4), (32, 8, 128)), (Mesh(4, ep=2), (64, 8, 128))):
        (up,) = (one for one in lowered("qwen3-30b-a3b", "decode", mesh) if one.name == "mlp.experts.gate_up_proj")
        assert up.experts == experts
        assert 4 * up.read == 48 * 128 * 2 * 2048 * 768
        assert 4 * up.flops == 48 * 2 * (2 * 12 * 8 * 2048 * 768)
        assert up.rows == 12


def test_fused_kernels() -> None:
    names = {kernel.name: kernel.times for kernel in lowered("llama-3.1-8b", "decode", Mesh(2))}
    assert names == {
        "embed": 1,
        "embed all-reduce": 1,
        "attn.qkv_proj": 32,
        "attn.attention": 32,
        "attn.o_proj": 32,
        "mlp.gate_up_proj": 32,
        "mlp.down_proj": 32,
        "pointwise": 1,  # after the layers; 4 · 32 in them
        "attn all-reduce": 32,
        "mlp all-reduce": 32,
        "lm_head": 1,
        "lm_head all-gather": 1,
    }
    inside = [one.times for one in lowered("llama-3.1-8b", "decode") if one.kind == "pointwise"]
    assert inside == [4 * 32, 1]


def test_attention_never_moves_pairs() -> None:
    # Llama-3.1-8B, 40 new tokens of 3 sequences: queries and results of 32 heads of 128 in bf16, and the keys and
    # values of 8 heads.
    (one,) = (kernel for kernel in lowered("llama-3.1-8b", "prefill") if kernel.kind == "attention")
    assert one.moved == 32 * 2 * (3 * 40 * 32 * 128) * 2
    assert one.cache == 32 * 2 * (3 * 40 * 8 * 128) * 2


def test_a_latent_is_absorbed_in_decode_and_unpacked_in_prefill() -> None:
    decode = {kernel.name: kernel for kernel in lowered("deepseek-v3", "decode", Mesh(8)) if kernel.times == 58}
    prefill = {kernel.name: kernel for kernel in lowered("deepseek-v3", "prefill") if kernel.times == 58}
    assert "attn.k_b_v_b_proj" in prefill and "attn.k_b_v_b_proj" not in decode
    # Latent and rotary key, 512 + 64 numbers of 5,000 tokens and 12 sequences, are read once, and on every device.
    assert decode["attn.attention"].cache == 58 * 12 * 5000 * 576 * 2


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-32b", "gemma-2-9b", "gemma-4-e2b-text", "mistral-7b-v0.3"])
def test_collectives_are_those_of_the_mesh(name: str) -> None:
    at = STEPS["decode"].axes()
    asked = collectives(find(name).ledger, Mesh(4), at, 16, after="gathered")
    found = kernels(find(name).ledger, at, BF16, BF16_EACH, BF16_EACH, Mesh(4))
    for kind in ("all-reduce", "all-gather"):
        sent, of_mesh = ([one for one in every if one.kind == kind] for every in (found, asked))
        assert sum(kernel.times for kernel in sent) == sum(one.calls for one in of_mesh) > 0
        assert sum(kernel.moved for kernel in sent) == sum(one.bytes for one in of_mesh)


def test_a_recurrence_reads_and_writes_its_state() -> None:
    # Qwen3-Next-80B-A3B: 36 layers with 32 heads of a 128 × 128 state in 32 bits, and 4 tokens of the convolution's
    # 2 · 16 · 128 + 32 · 128 channels in bf16. 2 devices have half of the heads.
    (decode,) = (one for one in lowered("qwen3-next-80b-a3b", "decode", Mesh(2)) if one.name == "delta.recurrence")
    state = 36 * 12 * (16 * 128 * 128 * 4 + 4 * 4096 * 2)
    assert decode.cache == 2 * state
    assert (decode.times, decode.flops, decode.moved) == (36, 0, 0)
    # 40 tokens are one chunk of 64. Three products have 64 × 64 pairs of 128 channels: keys with keys, queries with
    # keys, pairs with values. Three have 64 tokens and the state: its old values, its read and its write.
    (prefill,) = (one for one in lowered("qwen3-next-80b-a3b", "prefill", Mesh(2)) if one.name == "delta.recurrence")
    assert prefill.flops == 36 * 3 * 16 * (3 * 2 * 64 * 64 * 128 + 3 * 2 * 64 * 128 * 128)
    assert (prefill.times, prefill.rows) == (36, 40)


def test_an_indexer_reads_all_keys_and_attention_those_it_chooses() -> None:
    # DeepSeek-V3.2: 61 layers, 64 heads of 128 in the indexer, 2,048 chosen keys, latents of 512 + 64. Each of 8
    # devices runs the whole indexer, and 16 of 128 query heads, which a kernel pads to 64.
    decode = {kernel.name: kernel for kernel in lowered("deepseek-v3.2", "decode", Mesh(8)) if kernel.times >= 58}
    index, attention = (
        [kernel for kernel in lowered("deepseek-v3.2", "decode", Mesh(8)) if kernel.name == name]
        for name in ("attn.indexer", "attn.attention")
    )
    assert "attn.k_b_v_b_proj" not in decode
    assert sum(one.cache for one in index) == 61 * 12 * 5000 * 128 * 2
    assert sum(one.flops for one in index) == 61 * 12 * 5000 * (2 * 64 * 128 + 2 * 64)
    assert sum(one.times for one in index) == 61
    assert sum(one.cache for one in attention) == 61 * 12 * 2048 * 576 * 2
    assert {one.padded for one in attention} == {4.0}
    # Each of 16 new tokens of 3 sequences reads its own 2,048 keys.
    chunk = [kernel for kernel in lowered("deepseek-v3.2", "chunk", Mesh(8)) if kernel.name == "attn.attention"]
    assert sum(one.cache for one in chunk) == 61 * 3 * 16 * 2048 * 576 * 2


def test_queries_of_latents_are_padded_to_a_tile() -> None:
    # DeepSeek-V3: each of 8 devices has 16 of 128 heads. A tile of 64 queries holds the heads of one new token, or of
    # four that are verified together; 5 tokens are 80 queries in two tiles. A prompt has keys for each head.
    ledger, at = find("deepseek-v3").ledger, Workload(5000, 1, 12)
    for tokens, padded in ((1, 4.0), (4, 1.0), (5, 1.6)):
        found = kernels(ledger, replace(at, tokens=tokens).axes(), BF16, BF16_EACH, BF16_EACH, Mesh(8))
        assert {one.padded for one in found if one.kind == "attention"} == {padded}
    prompt = kernels(ledger, Workload(500, 500).axes(), BF16, BF16_EACH, BF16_EACH, Mesh(8))
    assert {one.padded for one in prompt} == {1.0}


def test_engines_skip_keys_that_a_class_masks() -> None:
    # MiniMax-M3: 57 of 60 layers read 16 blocks of 128 keys for each of 4 key/value heads of 128, the others all 5,000;
    # each multiplies the queries of 64 heads by keys, and the scores by values.
    found = [one for one in lowered("minimax-m3", "decode") if one.name == "attn.attention"]
    keys = 3 * 5000 + 57 * 2048
    assert sum(one.cache for one in found) == 12 * keys * 2 * 4 * 128 * 2
    assert sum(one.flops for one in found) == 12 * keys * 2 * (2 * 64 * 128)
    assert {one.padded for one in found} == {1.0}
    (index,) = (one for one in lowered("minimax-m3", "decode") if one.name == "attn.indexer")
    assert index.cache == 57 * 12 * 5000 * 128 * 2


def test_latents_are_unpacked_only_where_all_keys_are_chosen() -> None:
    ledger = find("deepseek-v3.2").ledger
    short, long = (way_of(ledger, Workload(size, size).axes()) for size in (2048, 2049))
    read = [
        {line.spec for group in way.groups for line in group.lines if isinstance(line, Matmul)} for way in (short, long)
    ]
    unpacked = "B S R, R N Hp -> B S N Hp"
    assert unpacked in read[0] and unpacked not in read[1]


@pytest.mark.parametrize("name", ["mamba-130m", "jamba-v0.1", "glm-5.3-flash", "lfm2-1.2b", "falcon-mamba-7b"])
def test_models_without_kernels_are_refused_by_name(name: str) -> None:
    assert refused(find(name))
    with pytest.raises(NoKernelError, match=r"^(mamba|conv|attn)\."):
        lowered(name, "decode")
