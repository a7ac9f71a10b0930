"""Bytes of quantized weights, by hand and as in published checkpoints. Kind: golden, refusal."""

import pytest

from tests.families import TINY
from tests.helpers.cli import Run
from tests.helpers.models import by_kind, tiny
from tfacct import load
from tfacct.accounts.metrics import METRICS, Point
from tfacct.base import units
from tfacct.ledger.storage import Stored, storage, width
from tfacct.ledger.workload import Workload

FORMATS = tuple(units.BLOCKS)
NARROW = ("fp8", "int8", "int4", *FORMATS)

# A matrix of 24 outputs and 160 inputs: 3,840 numbers.
BY_HAND = {
    "bf16": 2 * 3840,
    "fp8": 3840,
    "int4": 1920,
    "mxfp4": 24 * 5 * (16 + 1),  # 5 blocks of 32 per output
    "nvfp4": 24 * 10 * (8 + 1) + 4,
    # 160 · 3 words of 8 outputs; 2 groups of at most 128 inputs: 24 scales of 2 bytes and 3 words of zeros each
    "awq": 160 * 3 * 4 + 2 * (24 * 2 + 3 * 4),
    "gptq": 20 * 24 * 4 + 2 * (24 * 2 + 3 * 4) + 160 * 4,  # 20 words of 8 inputs; a group's number per input
    "nf4": 1920 + 60 + 4,  # 60 scales, one of 32 bits for them
}
# 3 outputs and 67 inputs fill no block: mxfp4 3 blocks per output, nvfp4 5, words of 8 outputs 1, of 8 inputs 9
ROUNDED = {
    "mxfp4": 3 * 3 * 17,
    "nvfp4": 3 * 5 * 9 + 4,
    "awq": 67 * 1 * 4 + 1 * (3 * 2 + 4),
    "gptq": 9 * 3 * 4 + 1 * (3 * 2 + 4) + 67 * 4,
    "nf4": 101 + 4 + 4,  # 201 numbers: 100.5 bytes, 4 scales
    "int4": 101,
}


@pytest.mark.parametrize(("name", "expected"), BY_HAND.items())
def test_a_matrix_by_hand(name: str, expected: int) -> None:
    assert storage(name).bytes(Stored("matrix", 24 * 160, 160)) == expected
    assert storage(name).bytes(Stored("expert", 24 * 160, 160, copies=7)) == 7 * expected


@pytest.mark.parametrize(("name", "expected"), ROUNDED.items())
def test_a_partial_block_takes_a_whole_one(name: str, expected: int) -> None:
    assert storage(name).bytes(Stored("matrix", 3 * 67, 67)) == expected


def test_nf4_has_a_wide_scale_for_256_scales() -> None:
    """64 · 256 numbers share one, the next number has another: QLoRA's 0.127 bits per number."""
    assert storage("nf4").bytes(Stored("matrix", 64 * 256, 64)) == 8192 + 256 + 4
    assert storage("nf4").bytes(Stored("matrix", 64 * 256 + 1, 1)) == 8193 + 257 + 8


@pytest.mark.parametrize("name", NARROW)
def test_only_matrices_of_layers_are_quantized(name: str) -> None:
    assert storage(name).bytes(Stored("other", 101)) == 202 and storage(name).dtype(Stored("other", 101)) == "bf16"
    assert storage("fp32").bytes(Stored("other", 101)) == 404


@pytest.mark.parametrize(
    ("model", "dtype", "published"),
    [
        # metadata.total_size of model.safetensors.index.json; all else is 2 bytes for each of the other parameters:
        # 24 · 32 · 3 · 2880² numbers of experts · 17/32 + 2 · 1,804,459,584
        ("gpt-oss-20b", "mxfp4", 13_761_264_768),
        # 36 · 128 · 3 · 2880² · 17/32 + 2 · 2,167,371,072
        ("gpt-oss-120b", "mxfp4", 65_248_815_744),
    ],
)
def test_published_checkpoints_to_the_byte(model: str, dtype: str, published: int) -> None:
    assert load(model).memory(dtype=dtype).models[0]["weights_bytes"] == published


@pytest.mark.parametrize(
    ("model", "dtype", "hundredths"),
    [
        ("llama-3.1-8b", "fp8", 908),  # Meta-Llama-3.1-8B-Instruct-FP8: 9.08 GB
        ("llama-3.1-8b", "awq", 573),  # Meta-Llama-3.1-8B-Instruct-AWQ-INT4: 5.73 GB
        ("llama-3.1-8b", "nf4", 570),  # Meta-Llama-3.1-8B-bnb-4bit: 5.70 GB
        ("llama-2-7b", "awq", 389),  # Llama-2-7B-AWQ: 3.89 GB
    ],
)
def test_published_checkpoints_to_a_hundredth_of_a_gigabyte(model: str, dtype: str, hundredths: int) -> None:
    assert round(load(model).memory(dtype=dtype).models[0]["weights_bytes"] / 10**7) == hundredths


def test_llama_by_hand() -> None:
    """llama-3.1-8b: matrices of layers; the embedding and head of 128,256 · 4,096 and 65 norms wide."""
    wide = 2 * (2 * 128_256 * 4096 + 65 * 4096)
    matrices = 32 * 4096 * (4096 + 1024 + 1024 + 4096 + 3 * 14_336)
    assert matrices == 6_979_321_856
    for name, expected in {
        "int4": matrices // 2,
        "mxfp4": matrices * 17 // 32,
        "nvfp4": matrices * 9 // 16 + 32 * 7 * 4,
        "awq": matrices // 2 + matrices // 128 * 5 // 2,
        "nf4": matrices // 2 + matrices // 64 + matrices // 64 // 64,
    }.items():
        assert load("llama-3.1-8b").memory(dtype=name).models[0]["weights_bytes"] == wide + expected


def test_a_tied_head_stays_wide() -> None:
    """qwen2-0.5b: the embedding, which is the head too, once in bf16."""
    table = next(line for line in load("qwen2-0.5b").memory(dtype="awq").lines if line["what"] == "embed")
    assert (table["bytes"], table["dtype"]) == (2 * 151_936 * 896, "bf16")


def test_which_tensors_are_matrices() -> None:
    roles = {
        name: {tensor.path: tensor.stored.role for tensor in tiny(name).ledger.tensors()}
        for name in ("mixtral", "qwen2_moe", "deepseek_v3", "mamba", "gpt2", "t5")
    }
    mixtral = roles["mixtral"]
    assert mixtral["blocks.*.mlp.experts.up_proj.weight"] == "expert"
    assert mixtral["blocks.*.mlp.router.weight"] == "other"
    assert (mixtral["lm_head.weight"], mixtral["embed.weight"]) == ("head", "embedding")
    assert mixtral["blocks.*.attn.q_proj.weight"] == "dense"
    assert roles["qwen2_moe"]["blocks.*.mlp.shared_gate.weight"] == "other"
    assert roles["deepseek_v3"]["blocks.*.attn.kv_a_norm.weight"] == "other"
    mamba = roles["mamba"]
    matrices = {path.rpartition("mamba.")[2] for path, role in mamba.items() if role == "matrix"}
    assert matrices == {"in_proj.weight", "x_proj.weight", "dt_proj.weight", "out_proj.weight"}
    assert mamba["blocks.*.mamba.conv.weight"] == "other"
    assert (roles["gpt2"]["pos_embed.weight"], roles["gpt2"]["blocks.*.mlp.up_proj.bias"]) == ("embedding", "other")
    assert roles["t5"]["encoder.blocks.*.mlp.up_proj.weight"] == "matrix"


@pytest.mark.parametrize("form", ["expanded", "absorbed", "unpacked"])
@pytest.mark.parametrize("name", NARROW)
def test_how_latent_attention_runs_moves_no_stored_byte(name: str, form: str) -> None:
    """`kv_b` is read the other way round when it is absorbed; its groups stay where they are."""
    one, other = (tiny("deepseek_v3", latent_attention=how).ledger for how in ("expanded", form))
    assert one.weight_bytes(storage(name)) == other.weight_bytes(storage(name))


@pytest.mark.parametrize("family", by_kind(TINY))
def test_a_decode_step_reads_the_stored_bytes(family: str) -> None:
    for name in NARROW:
        reads_what_is_stored(family, name)


def reads_what_is_stored(family: str, name: str) -> None:
    """Every weight of a matmul with its scales, if the step reads all experts."""
    ledger, how = tiny(family).ledger, storage(name)
    keeps, source = tiny(family).has_cache, tiny(family).source or 0
    at = Workload(99, 1 if keeps else 99, 99, source=source, new_source=source).axes()
    stored, read = ledger.weight_bytes(how), {}
    for product in ledger.products(at):
        if product.line.weight_axes() is not None:
            path = product.line.parameters()[0].path
            read[path] = read.get(path, 0) + product.moved(how, width("bf16"))[1]
    ahead = {path: count for path, count in read.items() if count != stored[path]}
    again = {"embed.weight", "lm_head.weight"}  # MTP reads the head again
    if any(group.once or group.shared for group in ledger.groups):  # every layer reads the weights of the first
        again |= {path for path in read if path.startswith("blocks.")}
    # Tokens and distances, or a source, may have the same projections; ZAYA's first convolution runs twice.
    again |= {line.parameters()[0].path for product in ledger.products(at) if (line := product.line).weight is not None}
    assert set(ahead) <= again and len(read) > 3
    assert all(count % stored[path] == 0 for path, count in ahead.items())


@pytest.mark.parametrize("name", ("bf16", *NARROW))
@pytest.mark.parametrize("metric", ["weights_bytes", "total_bytes", "total_moved_bytes", "flops_per_byte"])
@pytest.mark.parametrize("family", ["llama", "mixtral"])
def test_ints_and_arrays_are_the_same_numbers(family: str, metric: str, name: str) -> None:
    pytest.importorskip("numpy")
    model = load(TINY[family])
    contexts = [1, 5, 12]
    exact = model.evaluate(metric, exact=True, dtype=name, ctx=contexts).tolist()
    floats = model.evaluate(metric, dtype=name, ctx=contexts).tolist()
    for context, one, near in zip(contexts, exact, floats, strict=True):
        work = Workload(context, context)
        assert one == METRICS[metric].of(Point(model.ledger, work, storage(name), width(_cached(name))))
        assert near == pytest.approx(float(one), rel=1e-14)


def _cached(name: str) -> str:
    return load("gpt2").memory(dtype=name).models[0]["kv_dtype"]


@pytest.mark.parametrize("name", FORMATS)
def test_arrays_of_sizes_round_up_as_ints_do(name: str) -> None:
    """A swept width that fills no block: every element of the array is rounded separately."""
    pytest.importorskip("numpy")
    values = [4096, 4097, 14_336]
    swept = load("llama-3.1-8b").evaluate("weights_bytes", exact=True, dtype=name, F=values).tolist()
    alone = [load("llama-3.1-8b", intermediate_size=v).memory(dtype=name).models[0]["weights_bytes"] for v in values]
    assert swept == alone


@pytest.mark.parametrize("name", FORMATS)
def test_a_symbol_is_not_rounded(name: str) -> None:
    sympy = pytest.importorskip("sympy")
    outputs, inputs = sympy.symbols("n d", positive=True)
    bytes_ = storage(name).bytes(Stored("matrix", outputs * inputs, inputs))
    assert bytes_.subs({outputs: 256, inputs: 1280}) == storage(name).bytes(Stored("matrix", 256 * 1280, 1280))


@pytest.mark.parametrize("name", FORMATS)
def test_commands_take_every_format(run: Run, name: str) -> None:
    weights = load("gpt-oss-20b").memory(dtype=name).models[0]["weights_bytes"]
    memory = run("memory", "gpt-oss-20b", "--dtype", name, "--on", "24GiB", "-v")
    assert memory.code == 0 and "of cache in bf16" in memory.out and f"{name}: the weight matrices of" in memory.out
    for command in (
        f"flops gpt-oss-20b --bytes --decode --dtype {name}",
        f"sweep gpt-oss-20b --ctx 1k,2k --metric weights_bytes --dtype {name}",
        f"compare --by line gpt-oss-20b --ctx 1k,2k --dtype {name}",
        f"solve gpt-oss-20b --for ctx --until total_bytes=24GiB --dtype {name}",
    ):
        ran = run(*command.split())
        assert ran.code == 0, ran.err
        assert f"{name}: the weight matrices of" in ran.out
        assert "All other tensors, embeddings included, stay in bf16" in ran.out_line
    facts = run("solve", *f"gpt-oss-20b --for ctx --until total_bytes=24GiB --dtype {name} --json".split()).document
    fitted = load("gpt-oss-20b").memory(dtype=name, ctx=1, on="24GiB").models[0]["fit"]["largest_context"]
    assert facts["models"][0]["solution"] == fitted
    assert load("gpt-oss-20b").sweep("weights_bytes", dtype=name).models[0]["lines"][0]["weights_bytes"] == weights


BLOCKS_OF_32 = {"q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20, "q4_0": 18, "iq4_nl": 18}


@pytest.mark.parametrize(("name", "size"), BLOCKS_OF_32.items())
def test_a_cache_in_blocks_by_hand(run: Run, name: str, size: int) -> None:
    """llama-3.1-8b: keys and values of 32 layers, 8 heads of 128 numbers: 4 blocks of 32 for each head."""
    token = 2 * 32 * 8 * 4 * size
    llama = load("llama-3.1-8b")
    assert llama.kv(dtype=name, ctx=1000).total == 1000 * token
    memory = llama.memory(kv_dtype=name, ctx=1000, batch=3).models[0]
    assert (memory["kv_cache_bytes"], memory["kv_bytes_per_token"]) == (3000 * token, token)
    assert memory["kv_dtype"] == name
    solved = run("solve", *f"llama-3.1-8b --for ctx --until kv_cache_bytes=1GB --kv-dtype {name} --json".split())
    assert solved.models[0]["solution"] == 10**9 // token
    swept = llama.sweep("kv_cache_bytes", kv_dtype=name, ctx=[7, 19])
    assert [line["kv_cache_bytes"] for line in swept.models[0]["lines"]] == [7 * token, 19 * token]
    explained = run("memory", "--kv", "llama-3.1-8b", "--ctx", "1000", "--kv-dtype", name, "--explain")
    assert f"Each token of context adds {token:,} bytes per sequence." in explained.out


def test_a_cache_in_blocks_at_a_float_and_of_an_array() -> None:
    pytest.importorskip("numpy")
    found = load("llama-3.1-8b").evaluate("kv_cache_bytes", exact=True, kv_dtype="q8_0", ctx=[7, 19]).tolist()
    assert found == [7 * 2 * 32 * 8 * 4 * 34, 19 * 2 * 32 * 8 * 4 * 34]


def test_latents_are_stored_in_blocks() -> None:
    """deepseek-v3: a latent of 512 numbers and 64 rotated ones in 61 layers: 18 blocks of 32."""
    assert load("deepseek-v3").kv(dtype="q4_0", ctx=100).total == 100 * 61 * 18 * 18


@pytest.mark.parametrize("name", ["q8_0", "fp8", "fp8-token", "int4"])
def test_states_of_fixed_size_do_not_follow_a_narrow_cache(name: str) -> None:
    """qwen3.5-9b: in 24 of 32 layers 4 inputs of a convolution with 2 · 16 · 128 + 32 · 128 channels in bf16, and 32
    matrices of 128 × 128 in fp32."""
    lines = {line["what"]: line for line in load("qwen3.5-9b").memory(ctx=5, kv_dtype=name).lines}
    conv, delta = lines["delta.conv_state"], lines["delta.delta_state"]
    assert (conv["bytes"], conv["dtype"]) == (24 * 4 * 8192 * 2, "bf16")
    assert (delta["bytes"], delta["dtype"]) == (24 * 32 * 128 * 128 * 4, "fp32")
    assert lines["attn.k_cache"]["dtype"] == name
