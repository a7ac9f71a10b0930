"""What vLLM allocates at start, by hand, and the lines that published logs print. Kind: golden, refusal."""

import json
from pathlib import Path

import pytest

from tests.helpers.cli import Run
from tfacct import load
from tfacct.base.errors import NotFoundError, TfacctError, UsageError
from tfacct.commands.engine import engine_of
from tfacct.engines import vllm
from tfacct.engines.launch import Flags, Launch
from tfacct.engines.pages import CacheLayers, Pages, cache_layers
from tfacct.engines.profiles import GIB, MIB, profile_of
from tfacct.engines.start import check
from tfacct.engines.weights import allocated, rotary_caches, weights
from tfacct.ledger.storage import width
from tfacct.loading import devices, presets
from tfacct.loading.model import load_model

SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "image_size": 896, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip
LLAMA = {"on": "h100-sxm", "max_model_len": 8192, "gpu_memory_utilization": 0.95, "engine_version": "0.19"}


def launch(name: str, version: str = "0.19", device: str = "h100-sxm", **flags: object) -> Launch:
    """A launch of a preset."""
    return Launch(profile_of("vllm", version), presets.load(name), devices.load(device), Flags(**flags))  # type: ignore[arg-type]


def weights_of(start: Launch) -> dict[str, int]:
    """Weights of one rank of a launch without pipeline stages."""
    ((_, _, rank),) = vllm.stages(start)
    return weights(start, rank)


def test_llama_starts_with_the_tokens_of_the_log() -> None:
    """A published start of vLLM 0.19 on an H100 printed 476,000, and 58.11 requests of 8,192."""
    start = load("llama-3.1-8b").engine(**LLAMA)
    assert (start.starts, start.kv_cache_tokens, round(start.max_concurrency, 1)) == (True, 476_000, 58.1)
    assert start.blocks * start.block_size == 476_000 and start.activation_peak_from == "sampler"
    assert start.log_lines[0] == "GPU KV cache size: 476,000 tokens"
    flags = "--max-model-len 8192 --gpu-memory-utilization 0.95"
    assert start.launch == f"vllm serve meta-llama/Llama-3.1-8B {flags}"
    assert start.interval["low"] <= 476_016 <= start.interval["high"]  # what a second start printed
    terms = {one["what"]: one["bytes"] for one in start.terms}
    requested = terms.pop("requested")
    assert start.pool_bytes == requested - sum(terms.values())
    assert {"flag": "--max-num-seqs", "value": "384", "kv_cache_tokens": 483_888} in start.cheaper
    assert "--max-num-seqs 384 (default 1,024) frees room for 7,888 more tokens." in start.notes


def test_the_error_is_that_of_the_benchmark_and_of_launches_like_its_starts_alone() -> None:
    """0.124% at p90 of 45 starts: 590 of 476,000 tokens. Formats that no start agrees with have no interval."""
    start = load("llama-3.1-8b").engine(**LLAMA)
    measured = {"starts": 45, "versions": "0.15–0.19", "median": 0.0001, "p90": 0.00124, "worst": 0.00884}
    assert start.interval == {"low": 475_410, "high": 476_590, **measured}
    logged = "90% of 45 estimates were within 0.12% of the logged tokens, the worst 0.9% off"
    assert f"(for vLLM 0.15–0.19, {logged})" in start.answer
    for dtype in ("nf4", "int8", "fp32"):
        other = load("llama-3.1-8b").engine(**LLAMA, dtype=dtype)
        assert other.interval is None and "(error not measured)" in other.answer
    term = load("llama-3.1-8b").engine(**LLAMA, dtype="nf4").terms[1]
    assert (term["what"], term["kind"], term["low_bytes"]) == ("weights", "estimate", None)
    assert load("llama-3.1-8b").engine(**LLAMA, dtype="fp8").interval is not None
    older = load("llama-3.1-8b").engine(**LLAMA | {"engine_version": "0.13"})
    assert older.interval is None
    known = "90% of 45 estimates were within 0.12% of the logged tokens"
    assert f"(error not measured for vLLM 0.12–0.13; for vLLM 0.15–0.19, {known})" in older.answer
    for version in ("0.19", "0.33"):  # no start on an L4 is measured
        l4 = load("llama-3.1-8b").engine(engine="vllm", on="l4", max_model_len="max", engine_version=version)
        assert "error not measured on this card)" in l4.answer


def test_the_sampler_by_hand() -> None:
    """1,024 rows of 128,256 logits: bf16 2, fp32 logits, probabilities and noise 12; a row of fp32 for each of 132
    programs; hidden states of 8,192 tokens, and twice the last rows."""
    llama = launch("llama-3.1-8b")

    def sampled_by(kind: str, **flags: int) -> int:
        other = Launch({**llama.profile, "sampler": kind}, llama.model, llama.device, Flags(**flags))
        return sum(vllm.sampler(other).values())

    hidden = 8192 * 4096 * 2 + 2 * 1024 * 4096 * 2
    logits = 1024 * 128_256
    assert sum(vllm.sampler(llama).values()) == sampled_by("triton") == logits * 14 + 132 * 128_256 * 4 + hidden
    assert sampled_by("sort") == logits * 38 + hidden
    few = 7 * 128_256 * 38 + 8192 * 4096 * 2 + 2 * 7 * 4096 * 2  # it sorts below 8 rows
    assert [sampled_by(kind, max_num_seqs=7) for kind in ("triton", "sort")] == [few, few]
    assert sampled_by("gumbel") == logits * 6 + hidden
    found = vllm.peak(llama)
    assert sum(found.values()) == logits * 14 + 132 * 128_256 * 4 + hidden + 32 * MIB


def test_a_layer_by_hand() -> None:
    """Gate, up and their product, and three residual streams, or four if eager."""
    assert vllm.layer(launch("llama-3.1-8b", enforce_eager=True)) == 8192 * 2 * (3 * 14_336 + 4 * 4096)
    assert vllm.layer(launch("llama-3.1-8b", tp=2)) == 8192 * 2 * (3 * 14_336 // 2 + 3 * 4096) + 48 * MIB


@pytest.mark.parametrize(
    ("name", "device", "length", "seqs", "printed"),
    [("qwen2.5-1.5b", "t4", 32_768, 256, 2.02), ("qwen3-4b", "rtx-4090", 10_000, 1, 0.74)],
)
def test_the_v0_engine_runs_whole_requests_and_compiles_nothing(
    name: str, device: str, length: int, seqs: int, printed: float
) -> None:
    """Two starts of the V0 engine printed 2.02 and 0.74 GiB. Longer requests run in chunks of 2,048 tokens."""
    start = launch(name, "0.7", device, max_model_len=length, max_num_seqs=seqs)
    assert sum(vllm.peak(start).values()) / GIB == pytest.approx(printed, abs=0.005)
    assert start.batched == length and launch(name, "0.8", device, max_model_len=length).batched == 2048
    assert launch("llama-3.1-8b", "0.7", device).batched == 2048


def test_buffers_of_experts_by_hand() -> None:
    """Mixtral on two cards: two experts for each of 8,192 tokens, 7,168 wide, so 14,336 for gate and up."""
    assert vllm.workspace(launch("mixtral-8x7b", tp=2)) == 8192 * 2 * (7168 + 14_336) * 2
    assert vllm.workspace(launch("llama-3.1-8b")) == 0


@pytest.mark.parametrize(("version", "expected"), [("0.19", 14.249), ("0.22", 14.290)])
def test_weights_of_qwen_with_the_allocator(version: str, expected: float) -> None:
    """Logs print 14.25 by 0.19 and 14.29 by 0.22, whose allocator keeps every remainder."""
    stored = weights_of(launch("qwen2.5-7b", version))
    assert round(sum(stored.values()) / GIB, 3) == pytest.approx(expected, abs=0.001)
    assert round(stored["parameters"] / GIB, 2) == 14.19


def test_parameters_are_those_of_memory_on_every_preset_that_is_served() -> None:
    """Except padding, cos and sin, absorbed matrices and the allocator."""
    equal = 0
    for name in presets.names():
        try:
            served = launch(name)
            check(served, vllm.unsupported(served))
            stored = weights_of(served)
        except TfacctError:
            continue
        assert stored["parameters"] == load(name).memory(ctx=8).weights_bytes, name
        assert min(stored.values()) >= 0, name
        equal += 1
    assert equal > 230


def test_cos_and_sin_of_gemma_3() -> None:
    """131,072 positions of 256 dimensions for the windows, and eight times as many for full attention: 0.56 GiB."""
    assert sorted(rotary_caches(presets.load("gemma-3-12b-text"), 2)) == [1 << 26, 8 << 26]


def test_latent_attention_stores_its_absorbed_matrices() -> None:
    """DeepSeek-V2-Lite: 16 heads · 128 · 512 numbers for keys, and as many for values, in 27 layers."""
    assert weights_of(launch("deepseek-v2-lite"))["W_UK and W_UV"] == 27 * 2 * 16 * 128 * 512 * 2


def test_layers_with_states_on_two_cards() -> None:
    """Qwen3-Next: 148.49 GiB of parameters, halved but for norms and routers, and cos and sin of 262,144 · 64 numbers;
    a log prints 74.28 GiB."""
    stored = weights_of(launch("qwen3-next-80b-a3b", "0.10", tp=2))
    assert round(sum(stored.values()) / GIB, 2) == 74.28
    assert stored["cos and sin"] == 262_144 * 64 * 2
    alone = weights_of(launch("qwen3-next-80b-a3b", "0.10", "b200-hgx"))
    assert alone["parameters"] == load("qwen3-next-80b-a3b").memory(ctx=8).weights_bytes


def test_a_rank_of_a_stage_stores_the_embedding_or_the_head() -> None:
    """Llama 3.1 8B on two ranks of two stages: half of the matrices of 16 layers and of the embedding or the head, and
    whole norms."""
    start = launch("llama-3.1-8b", tp=2, pp=2)
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336
    first = 16 * (layer // 2 + 2 * 4096) + 128_256 * 4096 // 2
    found = [weights(start, rank)["parameters"] for _, _, rank in vllm.stages(start)]
    assert found == [2 * first, 2 * (first + 4096)]


def test_the_allocator() -> None:
    assert allocated(10 * MIB) == 10 * MIB
    assert allocated(11 * MIB) == 12 * MIB and allocated(11 * MIB - 512) == 11 * MIB - 512
    assert allocated(21 * MIB - 512) == 21 * MIB - 512 and allocated(21 * MIB - 512, True) == 22 * MIB


@pytest.mark.parametrize("version", ["0.19", "0.33"])
def test_scales_of_8_bit_weights_are_tensors_of_their_own(version: str) -> None:
    """Every matrix of Llama 3.3 70B in fp8 on two cards is a multiple of 2 MiB, so no rest stays with it; each layer
    has fp32 scales for the outputs of q, k, v; o; gate, up; and down."""
    stored = weights_of(launch("llama-3.3-70b", version, tp=2, dtype="fp8"))
    assert stored["scales and padding"] == 80 * 4 * ((8192 + 2 * 1024) // 2 + 8192 + 2 * 28_672 // 2 + 8192)
    _, term, *_ = load("llama-3.3-70b").engine(on="2xh100", dtype="fp8", engine_version=version).terms
    assert term["source"] == "parameters 33.83, cos and sin 0.03, scales and padding 0.01"


@pytest.mark.parametrize(
    ("name", "mode", "block"), [("kimi-linear-48b-a3b", "none", 1920), ("nemotron-nano-9b-v2", "all", 768)]
)
def test_blocks_are_multiples_of_kernels_and_of_the_chunks_of_cached_states(name: str, mode: str, block: int) -> None:
    """A state of 2,170,880 bytes is as large as 1,884.4 tokens of 1,152 bytes: 30 · 64, for MLA. One of 2,695,168 is as
    large as 658 tokens of 4,096 bytes: 6 chunks of 128."""
    start = launch(name, "0.33", "b200-hgx", mamba_cache_mode=mode)
    ((_, stage, _),) = vllm.stages(start)
    assert vllm.pages(start, stage, GIB).block_size == block


def test_three_whole_logs_of_hybrids() -> None:
    """Blocks, tokens and requests at once, as printed."""
    layers = cache_layers(presets.load("qwen3-next-80b-a3b"), width("bf16"), tp=2)
    found = Pages(layers, 47_878_721_024)
    assert (found.blocks, found.tokens, round(found.concurrency(262_144), 2)) == (7162, 973_760, 14.77)
    small = [CacheLayers("full", 8, 4096), CacheLayers("state", 24, 2_146_304)]
    found = Pages(small, int(12.85 * GIB), padding_ratio=1.5)
    assert round(found.concurrency(1024), 2) == 159.40 and int(found.concurrency(1024) * 1024) == 163_225
    layers = cache_layers(presets.load("qwen3.5-35b-a3b"), width("fp8"))
    found = Pages(layers, int(1.28 * GIB), padding_ratio=1.5, mode="align")
    assert (found.tokens, round(found.concurrency(65_536), 2)) == (33_536, 1.68)


@pytest.mark.parametrize(
    ("version", "tp", "gib", "length", "blocks", "printed"),
    [
        ("0.27", 1, 51.7, 32_768, 42 + 3, 786_432),
        ("0.28", 1, 19.54, 262_144, 335 + 6, 313_650),
        ("0.28", 2, 12.93, 262_144, 335 + 6, 415_125),
    ],
)
def test_prefix_caching_is_the_default_with_states_from_0_28_on(
    version: str, tp: int, gib: float, length: int, blocks: int, printed: int
) -> None:
    """Three starts of a 27B hybrid printed these tokens. A request has blocks of 784 tokens, and in each of three
    groups one state, with prefix caching two."""
    flags = {"max_model_len": length, "kv_cache_memory_bytes": int(gib * GIB), "tp": tp}
    start = vllm.start(launch("qwen3.5-27b", version, "rtx-pro-6000", **flags))
    assert (start.tokens, start.pages and start.pages.per_request(length)) == (printed, blocks)


@pytest.mark.parametrize(
    ("version", "mode", "words"),
    [
        ("0.27", "none", ""),
        ("0.27", "align", " --enable-prefix-caching --mamba-cache-mode align"),
        ("0.28", "none", " --no-enable-prefix-caching"),
        ("0.28", "align", ""),
        ("0.28", "all", " --mamba-cache-mode all"),
    ],
)
def test_the_launch_line_has_the_flags_of_a_mode(version: str, mode: str, words: str) -> None:
    start = load("qwen3.5-9b").engine(on="h100", engine_version=version, mamba_cache_mode=mode)
    assert start.launch == f"vllm serve Qwen/Qwen3.5-9B{words}"


def test_groups_of_windowed_layers() -> None:
    """Gemma 3 27B: 52 layers with windows and 10 with full attention, in groups of 10: six of windows, one full. A
    window of 1,024 after a step of 8,192 tokens takes 576 blocks and one, of a request of 16,384."""
    layers = [CacheLayers("full", 10, 8192), CacheLayers("window", 52, 8192, 1024)]
    found = Pages(layers, 20 * GIB, padding_ratio=1.5, batched=8192)
    assert found.group_counts == [1, 6] and found.layers_per_group == 10
    assert [found.pages_of(one, 16_384) for one in layers] == [1024, (1023 + 8192 + 15) // 16 + 1]


def test_kinds_of_nearly_as_many_layers_are_one_group_each() -> None:
    """12 and 15 layers: with a ratio of 1.5 groups have 15, with padding; with a ratio of 1.0 they have 12."""
    layers = [CacheLayers("full", 12, 1024), CacheLayers("window", 15, 1024, 128)]
    assert [Pages(layers, GIB, padding_ratio=ratio).layers_per_group for ratio in (1.5, 1.0)] == [15, 12]


def test_defaults_by_card() -> None:
    """8,192 tokens and 1,024 requests from 70 GiB on, but not on an A100 from 0.9 on."""
    each = [(one.batched, one.seqs) for one in (launch("gpt2"), launch("gpt2", device="a100-sxm-80gb"))]
    assert each == [(8192, 1024), (2048, 256)]
    assert launch("llama-3.1-8b", "0.8", "a100-sxm-80gb").batched == 8192
    assert launch("llama-3.1-8b", "0.33", "b200-hgx").batched == 16_384
    assert launch("llama-3.1-8b", max_num_seqs=4, max_model_len=512).batched == 2048


def test_a_version_without_a_profile_names_the_nearest() -> None:
    with pytest.raises(NotFoundError, match=r"0\.40 has no profile") as error:
        profile_of("vllm", "0.40")
    assert "0.33" in str(error.value)
    assert profile_of("vllm", "v0.19.1")["words"] == "0.18–0.19"
    for wrong in ("newest", "1.0", "", "0"):
        with pytest.raises((UsageError, NotFoundError)):
            profile_of("vllm", wrong)


def test_it_does_not_start() -> None:
    start = load("llama-3.1-8b").engine(on="l4", engine_version="0.19")
    assert not start.starts and start.reason.startswith("one request of 131,072 tokens needs 16.0 GiB")
    longest = int(start.answer.split("max_model_len=")[1].removesuffix("."))
    again = load("llama-3.1-8b").engine(on="l4", engine_version="0.19", max_model_len=longest)
    assert again.starts
    assert not load("llama-3.1-8b").engine(on="l4", engine_version="0.19", max_model_len=longest + 16).starts
    assert load("llama-3.1-8b").engine(on="l4", engine_version="0.19", max_model_len="max").max_model_len == longest


def test_the_longest_request_of_a_pool_without_a_block_is_one_token() -> None:
    start = load("llama-3.1-8b").engine(on="h100", max_model_len="max", kv_cache_memory_bytes="1KiB")
    assert not start.starts and start.max_model_len == 1


def test_the_smallest_share_of_a_card_for_a_number_of_requests() -> None:
    start = load("llama-3.1-8b").engine(on="h100", engine_version="0.19", max_model_len=8192, requests=32)
    share = start.requested_bytes / start.total_memory_bytes
    assert start.answer.startswith(f"vLLM starts; 32 requests fit at once with gpu_memory_utilization={share:.2f}:")
    assert start.max_concurrency >= 32
    less = load("llama-3.1-8b").engine(
        on="h100", engine_version="0.19", max_model_len=8192, gpu_memory_utilization=round(share - 0.01, 2)
    )
    assert less.max_concurrency < 32


def test_a_pool_that_is_given_has_exact_tokens() -> None:
    """20 GiB of 128 KiB a token: 163,840 tokens."""
    start = load("llama-3.1-8b").engine(on="h100", engine_version="0.19", kv_cache_memory_bytes="20GiB")
    assert (start.kv_cache_tokens, "≈" in start.answer) == (163_840, False)
    assert [term["what"] for term in start.terms] == ["requested", "weights"]
    known = load("llama-3.1-8b").engine(on="h100", engine_version="0.19")
    assert start.weights_bytes == known.weights_bytes
    assert "will say: GPU KV" in " ".join(start.notes) and "will say, approximately: GPU KV" in " ".join(known.notes)
    assert "at vLLM's default utilization of 0.9 (" in known.answer
    experts = load("gpt-oss-20b").engine(on="h100", kv_cache_memory_bytes="20GiB")
    assert [(term["what"], term["kind"]) for term in experts.terms] == [("requested", "exact"), ("weights", "estimate")]


def hinted(answer: str) -> dict[str, object]:
    """The flags that an answer says start."""
    words = (word.partition("=") for word in answer.removesuffix(".").split())
    values = {name: value.strip("'") for name, _, value in words if value}
    return {name: int(value) if value.isdecimal() else value for name, value in values.items()}


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("llama-3.1-8b", {"on": "l4", "max_model_len": 200_000}),
        ("llama-3.1-8b", {"on": "l4", "max_num_seqs": 20_000}),
        ("llama-3.1-8b", {"on": "3xh100"}),
        ("llama-3.1-8b", {"on": "h100", "kv_cache_memory_bytes": "500GiB"}),
        ("opt-125m", {"on": "t4", "dtype": "bf16"}),
        ("gemma-2-2b", {"on": "h100", "dtype": "fp16"}),
        ("opt-125m", {"on": "h100", "block_size": 7}),
    ],
)
def test_a_hint_that_starts_is_a_launch_that_starts(name: str, flags: dict[str, object]) -> None:
    start = load(name).engine(**flags)
    hints = hinted(start.answer)
    other = load(name).engine(**flags | hints)
    assert not start.starts and hints and other.starts and start.launch == other.launch


def test_requests_are_at_most_those_of_a_step_and_leave_given_flags() -> None:
    """A card of 24 GB takes 256 requests by default; a share or a pool that is given stays."""
    start = load("llama-3.1-8b").engine(on="l4", max_model_len=64, requests=300)
    assert "--max-num-seqs 300" in start.launch and start.max_concurrency >= 300
    share = load("llama-3.1-8b").engine(on="h100", max_model_len=8192, requests=3, gpu_memory_utilization=0.9)
    assert "--gpu-memory-utilization 0.9" in share.launch and share.answer.startswith("vLLM starts: ")
    pool = load("llama-3.1-8b").engine(on="h100", max_model_len=8192, requests=3, kv_cache_memory_bytes="20GiB")
    assert pool.answer.startswith("vLLM starts: 163,840 tokens")


def test_the_launch_line_names_the_folder_and_the_changed_fields(tmp_path: Path, run: Run) -> None:
    """A shell would split a folder with a space; vLLM takes no config.json, and fields by --hf-overrides."""
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(dict(load("gpt2").config)))
    for path in (folder, folder / "config.json"):
        assert load(str(path)).engine(on="h100").launch == f"vllm serve '{folder}'"
    changed = load("llama-3.1-8b", num_hidden_layers=4).engine(on="h100").launch
    assert changed == """vllm serve meta-llama/Llama-3.1-8B --hf-overrides '{"num_hidden_layers": 4}'"""


def test_odd_vocabularies_take_more_outside_torch() -> None:
    """Three starts printed 0.46 GiB, 0.21 more than others; on two cards none was measured: 2.07, and 0.21."""
    terms = {one["what"]: one for one in load("falcon-h1-7b").engine(on="h100", engine_version="0.19").terms}
    assert terms["outside torch"]["source"] == "30 starts: 0.24–0.26; 0.21 more for a vocabulary that 4 does not divide"
    assert round(terms["outside torch"]["bytes"] / GIB, 2) == 0.46
    term, measured = vllm.outside(launch("granite-3.1-8b", tp=2))
    assert (measured, round(term["bytes"] / GIB, 2)) == (False, 2.28)
    even = {one["what"]: one["source"] for one in load("llama-3.1-8b").engine(**LLAMA).terms}
    assert even["outside torch"] == "30 starts: 0.24–0.26"


def test_between_two_measured_numbers_of_cards_the_smaller_one_counts() -> None:
    """Two cards took 2.07 GiB, four 2.13; three are as near to both."""
    term, measured = vllm.outside(launch("opt-125m", tp=3))
    assert (measured, round(term["bytes"] / GIB, 2)) == (False, 2.07)


def test_latent_attention_with_the_block_size_of_the_log() -> None:
    start = load("deepseek-v2-lite").engine(on="h100", engine_version="0.19", block_size=64)
    assert (start.block_size, start.blocks, start.kv_cache_tokens, start.interval) == (64, 21_392, 1_369_088, None)


@pytest.mark.parametrize(
    ("on", "kv_dtype", "block"),
    [("a100", None, 16), ("h100", None, 16), ("h100", "fp8", 64), ("b200", "fp8", 32), ("rtx-5090", None, 16)],
)
def test_blocks_of_latent_attention_by_the_backend_of_the_card(on: str, kv_dtype: str | None, block: int) -> None:
    """Triton takes multiples of 16, FlashAttention on Hopper too but no fp8, FlashMLA 64, FlashInfer 32 or 64."""
    found = load("deepseek-v2-lite").engine(on=on, kv_dtype=kv_dtype, max_model_len=8192)
    assert found.block_size == block
    if found.starts:
        memory = load("deepseek-v2-lite").memory(ctx=8192, on=on, kv_dtype=kv_dtype, engine="vllm")
        assert memory.fit["largest_batch"] == int(found.max_concurrency)


def test_fewer_requests_leave_the_tokens_that_the_hint_has() -> None:
    """Requests of 8 tokens: fewer of them lower the default of the batched tokens too."""
    flags = {"on": "h100", "engine_version": "0.19", "max_model_len": 8}
    start = load("qwen2.5-7b").engine(**flags)
    (fewer,) = (one for one in start.cheaper if one["flag"] == "--max-num-seqs")
    other = load("qwen2.5-7b").engine(**flags, max_num_seqs=int(fewer["value"]))
    assert other.kv_cache_tokens == fewer["kv_cache_tokens"] > start.kv_cache_tokens


def test_tokens_that_a_flag_frees_are_whole_blocks_and_the_log_rounds_a_float_down() -> None:
    """2,594 blocks of 16 tokens, and 2,692 with fewer requests: 98 · 16 = 1,568 more. vLLM prints
    int(2692 / 2594 · 41,504), which is 43,071 in floats."""
    assert int(2692 / 2594 * 41_504) == 43_071
    given = {"on": "l4", "gpu_memory_utilization": 0.98, "engine_version": "0.33"}
    start = load("llama-3.1-8b").engine(**given, max_model_len="max")
    assert (start.max_model_len, start.kv_cache_tokens, start.blocks) == (41_504, 41_504, 2594)
    assert "--max-num-seqs 136 (default 256) frees room for 1,568 more tokens." in start.notes
    assert start.answer.startswith("At most max_model_len=41504 (what fits): ≈ 41,504 tokens")
    other = load("llama-3.1-8b").engine(**given, max_model_len=41_504, max_num_seqs=136)
    assert other.kv_cache_tokens == 43_072 and other.log_lines[0] == "GPU KV cache size: 43,071 tokens"
    assert load("llama-3.1-8b").engine(**given, max_model_len="max", max_num_seqs=136).max_model_len == 43_072
    whole = load("qwen3-8b").engine(on="h100", max_model_len="max").answer
    assert whole.startswith("At most max_model_len=40960 (the model's context): ≈ ")
    assert "tokens of KV cache, at vLLM's default utilization of 0.92 (error" in whole


def test_the_reason_of_activations_has_their_figure() -> None:
    """1,024 · 151,936 · 14 bytes are 2.03 GiB; 8,192 tokens and twice 1,024 rows of 2,048 numbers 0.04; experts:
    8,192 tokens · 8 · (2,048 + 2,048) numbers 0.50. No start with 0.33 was compared, so these are derived."""
    moe = load("qwen3-30b-a3b").engine(on="h100", engine_version="0.33").terms[2]
    assert moe["source"] == "sampler 2.03 (1,024 rows × 151,936 logits × 14 bytes), states 0.04, experts 0.50"
    assert moe["kind"] == "derived" and moe["low_bytes"] is None
    assert moe["bytes"] == 1024 * 151_936 * 14 + 10_240 * 2048 * 2 + 8192 * 8 * 4096 * 2


def test_a_launch_line_can_be_typed_again() -> None:
    """It lacks flags with the default value of the version and the card, but has two that depend on each other."""
    for flags in ({"max_num_batched_tokens": 64}, {"max_num_seqs": 8, "max_model_len": 8}, {"dtype": "nf4", "tp": 2}):
        given = {"on": "h100", "engine_version": "0.25"}
        start = load("llama-3.1-8b").engine(**given, **flags)
        words = start.launch.replace("--enforce-eager", "").split()[3:]
        typed = dict(zip((word[2:].replace("-", "_") for word in words[::2]), words[1::2], strict=True))
        names = {"tensor_parallel_size": "tp", "quantization": "dtype"}
        again = {names.get(name, name): int(value) if value.isdecimal() else value for name, value in typed.items()}
        assert load("llama-3.1-8b").engine(**given, **again).pool_bytes == start.pool_bytes


def test_images_of_a_config() -> None:
    """Gemma 3 12B: 32 images of 256 tokens in 8,192, and an encoder of 416,866,032 parameters with its projector."""
    text = presets.load("gemma-3-12b-text").raw
    composite = {"model_type": "gemma3", "text_config": text, "vision_config": SIGLIP}
    loaded = load_model("gemma-3-12b", composite)
    found = engine_of(loaded, on="h100", engine_version="0.19", max_model_len=8192).report
    alone = load("gemma-3-12b-text").engine(on="h100", engine_version="0.19", max_model_len=8192)
    images = 32 * (256 * 3840 * 2 + 3 * 896 * 896 * 2)
    assert found.activation_peak_bytes - alone.activation_peak_bytes == images
    assert found.weights_bytes - alone.weights_bytes == 2 * (416_866_032 + 1152 * 3840 + 1152)
    assert any(note.startswith("The activations include 32 dummy images") for note in found.models[0]["notes"])


def test_no_pool_where_the_weights_leave_none() -> None:
    """131 GiB of weights on a card of 79; 30,688 tokens of a cache of 131,072 on one of 22."""
    start = load("llama-3.1-70b").engine(on="h100")
    assert not start.starts and (start.pool_bytes, start.kv_cache_tokens) == (None, 0)
    assert not any("leaves" in note for note in load("llama-3.1-8b").engine(on="l4").notes)


def test_requests_are_rounded_down_and_the_version_is_named() -> None:
    start = load("llama-3.1-8b").engine(on="h100")
    assert start.max_concurrency == pytest.approx(start.kv_cache_tokens / 131_072, abs=0.01)
    assert f" {start.max_concurrency:.2f} requests of 131,072" in start.answer
    (outside,) = (one for one in start.terms if one["what"] == "outside torch")
    assert outside["source"] == f"not measured for vLLM {start.engine_version} on this card"
