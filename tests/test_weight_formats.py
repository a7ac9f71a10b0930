"""Formats of weights: what presets are published in, and what is said of them outside a config.json."""

from math import ceil

import pytest

from tfacct import load
from tfacct.loading import presets


def _fp8(outputs: int, inputs: int) -> int:
    """A byte a number, and a 32-bit scale for each block of 128 × 128."""
    return outputs * inputs + 4 * ceil(outputs / 128) * ceil(inputs / 128)


def _mxfp8(outputs: int, inputs: int) -> int:
    """A byte a number, and a byte of scale for 32 inputs of an output."""
    return outputs * inputs + outputs * (inputs // 32)


def _mlp(inner: int, width: int) -> int:
    return 2 * _fp8(inner, width) + _fp8(width, inner)


def _mla(heads: int) -> int:
    """DeepSeek-V3's attention in fp8, its norms and those of the block in bf16."""
    shapes = [(1536, 7168), (heads * 192, 1536), (576, 7168), (heads * 256, 512), (7168, heads * 128)]
    return sum(_fp8(*shape) for shape in shapes) + 2 * (2 * 7168 + 1536 + 512)


def weights(name: str, **options: str) -> int:
    return int(load(name).memory(ctx=1, **options).models[0]["weights_bytes"])


def test_kimi_k2_by_hand() -> None:
    """The shapes and dtypes of its files, which hold 61 · 56 frequencies and 60 · 384 biases besides: 958.49 GiB."""
    experts = 60 * (385 * _mlp(2048, 7168) + 384 * 7168 * 2)
    total = 61 * _mla(64) + _mlp(18432, 7168) + experts + 2 * 7168 + 2 * 163840 * 7168 * 2
    assert weights("kimi-k2") == total == 1_029_173_157_728
    assert round((total + 61 * 56 * 2 + 60 * 384 * 4) / 2**30, 2) == 958.49


def test_deepseek_v3_2_by_hand() -> None:
    """Its scales are rounded to powers of two, and stored in 32 bits all the same."""
    indexer = _fp8(128, 7168) + _fp8(8192, 1536) + 2 * (64 * 7168 + 2 * 128)
    experts = 58 * (257 * _mlp(2048, 7168) + 256 * 7168 * 2)
    total = 61 * (_mla(128) + indexer) + 3 * _mlp(18432, 7168) + experts + 2 * 7168 + 2 * 129280 * 7168 * 2
    assert weights("deepseek-v3.2") == total == 674_030_277_824


def test_minimax_m2_by_hand() -> None:
    attention = _fp8(6144, 3072) + 2 * _fp8(1024, 3072) + _fp8(3072, 6144) + 2 * (6144 + 1024 + 2 * 3072)
    block = attention + 256 * _mlp(1536, 3072) + 256 * 3072 * 2
    assert weights("minimax-m2") == 62 * block + 2 * 3072 + 2 * 200064 * 3072 * 2 == 230_024_049_664


def test_mimo_v2_flash_by_hand() -> None:
    """9 full blocks of 4 key/value heads and 39 windowed ones of 8, with a sink for each of 64 heads; `o_proj` and the
    head in bf16, as in its files."""
    out, norms = 4096 * 64 * 128 * 2, 2 * 2 * 4096
    full, windowed = (_fp8(64 * 192, 4096) + _fp8(n * 192, 4096) + _fp8(n * 128, 4096) + out + norms for n in (4, 8))
    experts = 47 * (256 * _mlp(2048, 4096) + 256 * 4096 * 2)
    total = 9 * full + 39 * (windowed + 64 * 2) + _mlp(16384, 4096) + experts + 2 * 4096 + 2 * 152576 * 4096 * 2
    assert weights("mimo-v2-flash") == total


def test_mistral_small_4_by_hand() -> None:
    """A byte a number, and two scales for each matrix, of which a block has 5 of attention and 3 for each expert."""
    inner = (1024 * 4096, 4096 * 1024, 320 * 4096, 32 * 192 * 256, 4096 * 4096, 129 * 3 * 2048 * 4096)
    block = sum(inner) + 8 * (5 + 129 * 3) + 2 * (128 * 4096 + 2 * 4096 + 1024 + 256)
    assert weights("mistral-small-4-text") == 36 * block + 2 * 4096 + 2 * 131072 * 4096 * 2


def test_in_bf16_they_are_what_they_were() -> None:
    for name in ("kimi-k2", "deepseek-v3.2", "minimax-m2", "mimo-v2-flash", "mistral-small-4-text"):
        assert weights(name, dtype="bf16") == 2 * load(name).params().total


@pytest.mark.parametrize("lora", [None, "8"])
def test_training_goes_on_in_the_dtype_of_the_step(lora: str | None) -> None:
    step, plain = (
        load("minimax-m2", **fields).train(ctx=64, lora=lora).models[0]
        for fields in ({}, {"quantization_config": None})
    )
    assert step["peak_bytes"] == plain["peak_bytes"] > 2 * 228_689_748_992


PUBLISHED = {
    # GiB of all tensors in the published files, by their headers or their index. Besides what is counted they hold
    # layers of multi-token prediction (DeepSeek-V3, V3.2, GLM-4.7) and the biases of routers.
    "deepseek-v3": 641.30,
    "deepseek-v3.2": 642.12,
    "gpt-oss-20b": 12.82,
    "gpt-oss-120b": 60.77,
    "kimi-k2": 958.49,
    "minimax-m2": 214.32,
    "kimi-linear-48b-a3b": 91.50,
    "glm-4.7-flash": 58.15,
    "llama-3.1-8b": 14.96,
    "mixtral-8x7b": 86.99,
    "qwen2.5-7b": 14.19,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_of_published_files(name: str) -> None:
    assert 0.95 * PUBLISHED[name] < weights(name) / 2**30 < 1.002 * PUBLISHED[name]


ENDINGS = {True: ("-FP8", "-NVFP4", "-MXFP4", "-MXFP8", "-INT4", "-INT8", "-AWQ", "-GPTQ"), False: ("-BF16", "-FP16")}


@pytest.mark.parametrize("quantized", ENDINGS)
def test_the_format_in_the_name_of_a_page_is_that_of_the_preset(quantized: bool) -> None:
    pages = {name: presets.source(name).get("url", "").upper() for name in presets.names()}
    named = [name for name, page in pages.items() if page.endswith(ENDINGS[quantized])]
    assert all(presets.load(name).quantized is quantized for name in named)
    assert quantized or named  # NVIDIA's pages in bf16 say so
