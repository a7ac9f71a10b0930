"""`flops --traffic`: bytes moved and FLOPs per byte, by hand. Kind: golden."""

import pytest

from tests.families import SHAPES
from tests.helpers.models import by_kind, context, tiny
from tfacct import load
from tfacct.ledger.storage import BF16, BF16_EACH, storage, width
from tfacct.ledger.workload import Workload
from tfacct.loading import presets
from tfacct.loading.model import LoadedModel


def test_gpt2_xl_by_hand(run) -> None:
    """1,024 tokens in bf16: 2 bytes an element, 48 layers, 25 heads; read, written."""
    facts = run("flops", "gpt2-xl", "--bytes", "--json").models[0]
    stream, wide, scores, head = 1024 * 1600, 1024 * 6400, 25 * 1024**2, 1024 * 50257
    square, up, table = 1600**2, 1600 * 6400, 1600 * 50257
    each = {
        "attn.q_proj": (stream + square, stream),
        "attn.k_proj": (stream + square, stream),
        "attn.v_proj": (stream + square, stream),
        "attn.scores": (stream + stream, scores),
        "attn.values": (scores + stream, stream),
        "attn.o_proj": (stream + square, stream),
        "mlp.up_proj": (stream + up, wide),
        "mlp.down_proj": (wide + up, stream),
    }
    expected = {f"blocks.*.{path}": (48 * 2 * read, 48 * 2 * written) for path, (read, written) in each.items()}
    expected["lm_head"] = (2 * (stream + table), 2 * head)
    assert {line["path"]: (line["read_bytes"], line["written_bytes"]) for line in facts["lines"]} == expected
    read, written = (sum(pair[i] for pair in expected.values()) for i in (0, 1))
    assert (facts["total_read_bytes"], facts["total_written_bytes"]) == (read, written)
    assert facts["total_moved_bytes"] == read + written
    assert facts["total_flops"] == 3_506_703_564_800  # as without --bytes
    assert facts["flops_per_byte"] == 3_506_703_564_800 / (read + written)
    scored = next(line for line in facts["lines"] if line["path"].endswith("scores"))
    # per head 2 · 64 · 1024² FLOPs for 2 · (1024 · 64 + 1024 · 64 + 1024²) bytes
    assert scored["flops_per_byte"] == 64 * 1024 / (64 + 64 + 1024)
    assert (facts["workload"]["dtype"], facts["activation_dtype"]) == ("bf16", "bf16")


def test_a_decode_step_reads_the_weights_of_its_products_once() -> None:
    """llama-3.1-8b in bf16: all 8,030,261,248 parameters but the token embedding and 65 norms."""
    products = presets.load("llama-3.1-8b").ledger.products(Workload(8192, 1, 4).axes())
    weights = sum(product.moved(BF16, BF16_EACH)[1] for product in products if product.line.weight_axes() is not None)
    assert weights == 2 * (8_030_261_248 - 128256 * 4096 - 65 * 4096)


@pytest.mark.parametrize("kv_heads", [1, 2, 6], ids=["MQA", "GQA", "MHA"])
@pytest.mark.parametrize("dtype", ["int4", "fp8", "bf16", "fp32"])
def test_a_decode_step_reads_the_kv_cache(kv_heads: int, dtype: str) -> None:
    """The right operands of scores and values are the cache, in any format of the weights."""
    model = tiny("llama", num_key_value_heads=kv_heads)
    at = Workload(context=11, tokens=1, batch=3).axes()
    read = {product.path: product.moved(storage("nf4"), width(dtype))[1] for product in model.ledger.products(at)}
    cached = model.ledger.state_bytes(at, width(dtype))
    assert read["blocks.*.attn.scores"] == cached["blocks.*.attn.k_cache"] > 0
    assert read["blocks.*.attn.values"] == cached["blocks.*.attn.v_cache"] > 0


@pytest.mark.parametrize(
    ("dtype", "weights", "activations"),
    [("fp32", 32, 32), ("fp16", 16, 16), ("fp8", 8, 16), ("int8", 8, 16), ("int4", 4, 16), (None, 16, 16)],
)
def test_weights_and_activations_each_have_their_width(dtype: str | None, weights: int, activations: int) -> None:
    facts = load("gpt2").traffic(ctx=100, dtype=dtype).models[0]
    lines = {line["path"]: (8 * line["read_bytes"], 8 * line["written_bytes"]) for line in facts["lines"]}
    stream = 12 * 100 * 768 * activations
    assert lines["blocks.*.attn.k_proj"] == (stream + 12 * 768**2 * weights, stream)
    assert lines["blocks.*.attn.scores"] == (2 * stream, 12 * 12 * 100 * 100 * activations)
    assert facts["activation_dtype"] == {"fp8": "bf16", "int8": "bf16", "int4": "bf16", None: "bf16"}.get(dtype, dtype)
    assert facts["workload"]["dtype"] == (dtype or "bf16")


def test_odd_bits_round_up_in_every_block() -> None:
    """int4: a weight of 1 element takes a byte in each of 2 layers, of 3 elements 2 bytes, of 5 elements 3."""
    fields = {"vocab_size": 5, "n_embd": 1, "n_layer": 2, "n_head": 1, "n_positions": 7, "n_inner": 3}
    lines = load({"model_type": "gpt2", **fields}).traffic(dtype="int4").lines
    read = {line["path"].removeprefix("blocks.*."): line["read_bytes"] for line in lines}
    stream = 7 * 2  # 7 tokens of one element in bf16
    assert read["attn.q_proj"] == 2 * (stream + 1)
    assert read["mlp.up_proj"] == 2 * (stream + 2)
    assert read["mlp.down_proj"] == 2 * (3 * stream + 2)
    assert read["lm_head"] == stream + 5 * 2  # the head stays in bf16


@pytest.mark.parametrize("tiny_model", by_kind(SHAPES), indirect=True)
def test_the_report_in_python(tiny_model: LoadedModel) -> None:
    report = load(tiny_model.raw).traffic(ctx=context(tiny_model, 9), batch=3)
    facts = report.models[0]
    assert report.total == facts["total_read_bytes"] + facts["total_written_bytes"]
    assert facts["flops_per_byte"] == facts["total_flops"] / report.total
