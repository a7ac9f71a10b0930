"""Formats that presets are published in, and formats named outside config.json. Kind: golden, refusal."""

import json
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from tests.families import TINY
from tests.families._configs import without
from tests.helpers.checkpoints import written
from tests.helpers.weight_files import LLAMA_70B, SHARD, folder, indexed
from tfacct import load
from tfacct.base.errors import TfacctError
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


def _presets_by_hand() -> Iterator[tuple[str, int]]:
    """Bytes of weights, by the shapes and dtypes of the published files."""
    # The files also have 61 · 56 frequencies and 60 · 384 biases: 958.49 GiB in all.
    experts = 60 * (385 * _mlp(2048, 7168) + 384 * 7168 * 2)
    yield "kimi-k2", 61 * _mla(64) + _mlp(18432, 7168) + experts + 2 * 7168 + 2 * 163840 * 7168 * 2
    # Its scales are rounded to powers of two, and stored in 32 bits all the same.
    indexer = _fp8(128, 7168) + _fp8(8192, 1536) + 2 * (64 * 7168 + 2 * 128)
    experts = 58 * (257 * _mlp(2048, 7168) + 256 * 7168 * 2)
    ends = 2 * 7168 + 2 * 129280 * 7168 * 2
    yield "deepseek-v3.2", 61 * (_mla(128) + indexer) + 3 * _mlp(18432, 7168) + experts + ends
    attention = _fp8(6144, 3072) + 2 * _fp8(1024, 3072) + _fp8(3072, 6144) + 2 * (6144 + 1024 + 2 * 3072)
    block = attention + 256 * _mlp(1536, 3072) + 256 * 3072 * 2
    yield "minimax-m2", 62 * block + 2 * 3072 + 2 * 200064 * 3072 * 2
    # 9 full blocks of 4 key/value heads and 39 windowed ones of 8, with a sink for each of 64 heads; `o_proj` and the
    # head in bf16.
    out, norms = 4096 * 64 * 128 * 2, 2 * 2 * 4096
    full, windowed = (_fp8(64 * 192, 4096) + _fp8(n * 192, 4096) + _fp8(n * 128, 4096) + out + norms for n in (4, 8))
    experts = 47 * (256 * _mlp(2048, 4096) + 256 * 4096 * 2)
    ends = 2 * 4096 + 2 * 152576 * 4096 * 2
    yield "mimo-v2-flash", 9 * full + 39 * (windowed + 64 * 2) + _mlp(16384, 4096) + experts + ends
    # A byte a number, and two scales for each matrix, of which a block has 5 of attention and 3 for each expert.
    inner = (1024 * 4096, 4096 * 1024, 320 * 4096, 32 * 192 * 256, 4096 * 4096, 129 * 3 * 2048 * 4096)
    block = sum(inner) + 8 * (5 + 129 * 3) + 2 * (128 * 4096 + 2 * 4096 + 1024 + 256)
    yield "mistral-small-4-text", 36 * block + 2 * 4096 + 2 * 131072 * 4096 * 2


BY_HAND = dict(_presets_by_hand())


@pytest.mark.parametrize("name", BY_HAND)
def test_a_preset_in_the_format_that_it_is_published_in(name: str) -> None:
    assert weights(name) == BY_HAND[name]
    assert weights(name, dtype="bf16") == 2 * load(name).params().total


@pytest.mark.parametrize("lora", [None, "8"])
def test_training_goes_on_in_the_dtype_of_the_step(lora: str | None) -> None:
    step, plain = (
        load("minimax-m2", **fields).train(ctx=64, lora=lora).models[0]
        for fields in ({}, {"quantization_config": None})
    )
    assert step["peak_bytes"] == plain["peak_bytes"] > 2 * 228_689_748_992


PUBLISHED = {
    **{"deepseek-v3": 641.30, "deepseek-v3.2": 642.12, "gpt-oss-20b": 12.82, "gpt-oss-120b": 60.77, "kimi-k2": 958.49},
    **{"minimax-m2": 214.32, "kimi-linear-48b-a3b": 91.50, "glm-4.7-flash": 58.15, "llama-3.1-8b": 14.96},
    **{"mixtral-8x7b": 86.99, "qwen2.5-7b": 14.19},
}
"""GiB of all tensors in the published files, by their headers or their index. They include layers of multi-token
prediction (DeepSeek-V3, V3.2, GLM-4.7) and biases of routers, which are not counted."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_of_published_files(name: str) -> None:
    assert 0.95 * PUBLISHED[name] < weights(name) / 2**30 < 1.002 * PUBLISHED[name]


ENDINGS = {True: ("-FP8", "-NVFP4", "-MXFP4", "-MXFP8", "-INT4", "-INT8", "-AWQ", "-GPTQ"), False: ("-BF16", "-FP16")}


@pytest.mark.parametrize("quantized", ENDINGS)
def test_the_format_in_the_name_of_a_page_is_that_of_the_preset(quantized: bool) -> None:
    """Of its own page, and of the other ids that it answers for."""
    about = {name: presets.source(name) for name in presets.names()}
    ids = [(name, id_) for name, source in about.items() for id_ in (source.get("url", ""), *source.get("hub", ()))]
    named = [(name, id_) for name, id_ in ids if id_.upper().endswith(ENDINGS[quantized])]
    assert [id_ for name, id_ in named if presets.load(name).quantized is not quantized] == []
    assert quantized or named  # NVIDIA's pages in bf16 say so


FP8 = {"producer": {"name": "modelopt", "version": "0.23.0"}, "quantization": {"quant_algo": "FP8"}}
ON = {"kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}


def test_model_optimizers_file_next_to_a_config(tmp_path: Path) -> None:
    """Llama-3.1-70B in NVIDIA's FP8: a byte a number of 80 · 7 matrices, two scales for each."""
    quantization = {**FP8, "quantization": {"quant_algo": "FP8", **ON}}
    at = folder(tmp_path, LLAMA_70B, hf_quant_config=quantization)
    block = 2 * 8192 * 8192 + 2 * 1024 * 8192 + 3 * 8192 * 28672
    rest = 2 * 128256 * 8192 + (2 * 80 + 1) * 8192
    assert weights(str(at)) == 80 * (block + 7 * 8) + 2 * rest == 72_656_376_192
    assert weights(str(at / "config.json")) == 72_656_376_192
    (model,) = load(str(at)).memory(ctx=1).models
    assert (model["dtype_from"], model["published_dtype"]) == ("published", "fp8-tensor")
    assert weights(str(at), dtype="bf16") == 2 * 70_553_706_496
    quantization = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    at = folder(tmp_path, {**LLAMA_70B, "quantization_config": quantization}, hf_quant_config=FP8)
    assert weights(str(at)) == weights_of({**LLAMA_70B, "quantization_config": quantization})


def weights_of(config: dict[str, Any]) -> int:
    return int(load(config).memory(ctx=1).models[0]["weights_bytes"])


@pytest.mark.parametrize(
    ("content", "named"),
    [
        *(
            (
                {**FP8, "quantization": {"quant_algo": algorithm, "group_size": 128, "has_zero_point": False}},
                f'hf_quant_config.json: quantization.quant_algo = "{algorithm}" is not supported\n',
            )
            for algorithm in ("W4A8_AWQ", "W4A16_AWQ", "W8A8_SQ_PER_CHANNEL", "NVFP4_AWQ")
        ),
        ({"quantization": {"exclude_modules": []}}, "hf_quant_config.json: quantization.quant_algo is missing"),
        (
            {"quantization": {"quant_algo": "FP8", "exclude_modules": "lm_head"}},
            "hf_quant_config.json: quantization.exclude_modules must be a list",
        ),
        ({"quantization": {"quant_algo": "FP8", "more": 1}}, "hf_quant_config.json: .*more = 1 is not supported"),
        ([], "hf_quant_config.json is a JSON list"),
    ],
)
def test_model_optimizers_file_that_is_not_understood_is_named(tmp_path: Path, content: object, named: str) -> None:
    with pytest.raises(TfacctError, match=named) as refused:
        load(str(folder(tmp_path, LLAMA_70B, hf_quant_config=content))).memory(ctx=1)
    assert "quantization_config" not in str(refused.value)
    assert ("known: NVFP4, W4A16_NVFP4, FP8," in str(refused.value.hint)) is (
        "_" in named.partition("quant_algo = ")[2]
    )


TINY_LLAMA = {**TINY["llama"], "tie_word_embeddings": False}


@pytest.mark.parametrize(
    ("dtype", "named", "label", "known"),
    [
        ("BF16", "float32", "bf16", "bf16"),
        ("F32", "bfloat16", "bf16 (files in fp32)", "fp32"),
        ("F16", None, "bf16 (files in fp16)", "fp16"),
        ("BF16", None, "bf16", "bf16"),
    ],
)
def test_dtypes_of_files_are_those_of_their_headers(
    run, tmp_path, dtype: str, named: str, label: str, known: str
) -> None:
    count = load(TINY_LLAMA).params().total
    at = folder(tmp_path, {**TINY_LLAMA, "torch_dtype": named})
    written(at / "model.safetensors", {"all": (dtype, (count,)), "mask": ("BOOL", (4, 4))})
    assert f": memory in {label}, context" in run("memory", str(at)).out
    (model,) = load(str(at)).memory().models
    assert model["published_dtype"] == known and model["weights_bytes"] == 2 * count
    assert model["dtype_from"] == ("published" if known == "bf16" else "assumed")


def test_ascends_file_is_named(tmp_path: Path) -> None:
    """With a name for all weights, by single tensors, by its older name and of any length."""
    tensors = {"version": "1.0", "lm_head.weight": "FLOAT", "model.layers.0.mlp.up_proj.weight": "W4A8_DYNAMIC"}
    experts = {f"model.layers.{number}.mlp.experts.{number}.weight_scale": "W8A8_DYNAMIC" for number in range(70_000)}
    for name, content, kinds in (
        ("quant_model_description", {**tensors, "model_quant_type": "W8A8"}, " as W8A8"),
        ("quant_model_description", tensors, " as W4A8_DYNAMIC"),
        ("quant_model_description_w8a8_dynamic", experts, ""),
    ):
        at = folder(tmp_path / f"of{kinds}", TINY_LLAMA, **{name: content})
        with pytest.raises(TfacctError, match=rf"{name}\.json gives the format of the weights{kinds}") as refused:
            load(str(at)).memory(ctx=1)
        assert "dtype='bf16'" in str(refused.value.hint)
        assert weights(str(at), dtype="bf16") == 2 * load(str(at)).params().total
    at = folder(tmp_path, LLAMA_70B, quant_model_description={"model_quant_type": "FLOAT"})
    assert weights(str(at)) == 2 * 70_553_706_496


def test_files_of_masks_alone_have_no_format_and_an_unexplained_format_is_refused(run, tmp_path: Path) -> None:
    at = folder(tmp_path / "masks", {**TINY_LLAMA, "torch_dtype": "float16"})
    written(at / "model.safetensors", {"mask": ("BOOL", (4, 4))})
    assert "in bf16 (published in fp16)" in run("memory", str(at)).out
    at = folder(tmp_path, TINY_LLAMA)
    written(at / "model.safetensors", {"matrices": ("I8", (900,)), "others": ("BF16", (50,))})
    with pytest.raises(TfacctError, match="90% of the bytes in its files are int8, but its config does not give"):
        load(str(at)).memory()
    assert load(str(at)).flops().total == load(TINY_LLAMA).flops().total
    assert load(str(at)).memory(dtype="int8").models[0]["dtype_from"] == "given"


def test_bytes_of_files_that_are_not_counted_are_named(run, tmp_path: Path) -> None:
    count = load(TINY_LLAMA).params().total
    at = folder(tmp_path, TINY_LLAMA)
    index: dict[str, Any] = {
        "metadata": {"total_size": 2 * count},
        "weight_map": {"a": "model-00001-of-00001.safetensors"},
    }
    folder(at, TINY_LLAMA, **{"model.safetensors.index": index})
    assert "of tensors" not in run("memory", str(at)).out
    index["metadata"]["total_size"] = 2 * count + 2048 * 1024
    folder(at, TINY_LLAMA, **{"model.safetensors.index": index})
    printed = run("memory", str(at)).out_line
    assert "of tensors, 2.00 MiB more than counted." in printed
    assert "of tensors" not in run("memory", str(at), "--dtype", "fp32").out


def test_a_tied_head_that_files_store_twice_is_no_difference(run, tmp_path: Path) -> None:
    tied = load({**TINY_LLAMA, "tie_word_embeddings": True}).params().total
    at = folder(tmp_path, {**TINY_LLAMA, "tie_word_embeddings": True})
    for count in (tied, load(TINY_LLAMA).params().total):
        written(at / "model.safetensors", {"all": ("BF16", (count,))})
        assert "of tensors" not in run("memory", str(at)).out


def test_the_title_says_which_format_is_assumed(run, tmp_path: Path) -> None:
    """For a config without a dtype, and for one in fp16, whose bytes are the same."""
    config = tmp_path / "plain.json"
    config.write_text(json.dumps(TINY_LLAMA))
    (tmp_path / "half.json").write_text(json.dumps({**TINY_LLAMA, "torch_dtype": "float16"}))
    for command in (["memory"], ["flops", "--bytes"]):
        assert "in bf16 (assumed), context" in run(*command, str(config)).out.splitlines()[1]
    half = run("memory", str(tmp_path / "half.json")).out.splitlines()[1]
    assert "in bf16 (published in fp16), context" in half
    both = run("memory", str(config), str(tmp_path / "half.json")).out_line
    assert " Memory to serve in bf16 (assumed for 1 of 2), context" in both


def test_mxfp8_by_hand() -> None:
    """MiniMax-M3 in MXFP8, the shapes and dtypes of its files but for routers, which these hold in fp32."""
    attention = _mxfp8(8192, 6144) + 2 * _mxfp8(512, 6144) + _mxfp8(6144, 8192) + 2 * (2 * 6144 + 2 * 128)
    indexer = _mxfp8(128, 6144) + _mxfp8(512, 6144) + 2 * 2 * 128
    experts = 129 * (2 * _mxfp8(3072, 6144) + _mxfp8(6144, 3072)) + 2 * 128 * 6144
    dense = 3 * (2 * _mxfp8(12288, 6144) + _mxfp8(6144, 12288))
    total = 60 * attention + 57 * (indexer + experts) + dense + 2 * 6144 + 2 * 200064 * 6144 * 2
    fields = dict(load("minimax-m3").loaded.raw)
    quantization = {
        "quant_method": "mxfp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [1, 32],
        "ignored_layers": ["lm_head", "model.embed_tokens", "vision_tower"],
    }
    assert weights_of({**fields, "quantization_config": quantization}) == total == 441_918_257_664
    for size in ({}, {"weight_block_size": None}):  # OCP's MX formats have blocks of 32
        assert weights_of({**fields, "quantization_config": without(quantization, "weight_block_size") | size}) == total
    for wrong, words in (({"weight_block_size": [1, 16]}, r"weight_block_size = \[1, 16\]"), ({"more": 1}, "more = 1")):
        with pytest.raises(TfacctError, match=f"{words} is not supported"):
            weights_of({**fields, "quantization_config": {**quantization, **wrong}})


ASKED = (
    *("time gpt2 --on h100-sxm", "serve gpt2 --on h100-sxm --prompt 64 --new 4", "memory gpt2 --on h100-sxm,"),
    *("plan gpt2 --gpus 2 --on 80GB", "sweep gpt2 --ctx 8,16 --metric weights_bytes"),
    *("compare --by line gpt2 qwen3-8b", "solve gpt2 --for ctx --until kv_cache_bytes=weights_bytes"),
)


@pytest.mark.parametrize("command", ASKED)
def test_the_json_says_which_format_is_assumed(run, command: str) -> None:
    """The sentences are in tests/printed.toml."""
    (model,) = run(*command.split(), "--json").models
    assert model.get("old_side", model.get("on", model))["dtype_from"] == "assumed"


def test_the_files_of_a_folder_are_compared_with_its_format(run, tmp_path: Path) -> None:
    at = folder(tmp_path, TINY_LLAMA, hf_quant_config={"quantization": {"quant_algo": "FP8"}})
    written(at / "model.safetensors", {"model.norm.weight": ("BF16", (TINY_LLAMA["hidden_size"],))})
    (found,) = run("check", str(at), "--json").models
    assert found["config_bytes"] == load(str(at)).memory().models[0]["weights_bytes"]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("torch_dtype", "float8_e4m3fn", 'torch_dtype = "float8_e4m3fn" without a quantization_config'),
        ("dtype", "torch.float8_e5m2", 'dtype = "torch.float8_e5m2" without a quantization_config'),
        ("torch_dtype", "nope", 'torch_dtype = "nope" is not a supported weight dtype'),
        ("dtype", 3, "dtype = 3 is not a supported weight dtype"),
        ("torch_dtype", ["bfloat16"], "torch_dtype = .* is not a supported"),
    ],
)
def test_a_dtype_that_is_not_counted_is_refused_by_name(field: str, value: object, words: str) -> None:
    config = {**TINY_LLAMA, field: value}
    with pytest.raises(TfacctError, match=words) as refused:
        load(config).memory()
    assert f"give dtype='{'fp8' if 'float8' in words else 'bf16'}'" in str(refused.value.hint)
    count = load(config).params().total
    assert load(config).memory(dtype="bf16").models[0]["weights_bytes"] == 2 * count
    assert load(config).flops().total == load(TINY_LLAMA).flops().total


@pytest.mark.parametrize(
    ("name", "known"), [("half", "fp16"), ("torch.float", "fp32"), ("bf16", "bf16"), ("auto", None)]
)
def test_other_names_of_plain_dtypes(name: str, known: str | None) -> None:
    (model,) = load({**TINY_LLAMA, "torch_dtype": name}).memory().models
    assert model["published_dtype"] == known


def test_the_dtype_next_to_a_quantization_config() -> None:
    """Those that are no quantized matrix are in bf16 where the config names the matrices' own dtype."""
    fp8 = {**TINY_LLAMA, "quantization_config": {"quant_method": "fp8"}}
    assert weights_of({**fp8, "torch_dtype": "float8_e4m3fn"}) == weights_of({**fp8, "torch_dtype": "bfloat16"})
    with pytest.raises(TfacctError, match='torch_dtype = "nope" is not a supported weight dtype'):
        weights_of({**fp8, "torch_dtype": "nope"})


@pytest.mark.parametrize(
    "command", ["memory", "flops --bytes", "memory --on h100-sxm,", "time --on h100-sxm", "plan --on 2x80GB"]
)
def test_an_index_that_contradicts_the_config(run, tmp_path: Path, command: str) -> None:
    """8,019,132,416 parameters take 14.9 GiB in bf16, and the index lists half of that."""
    config = {**LLAMA_70B, "hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336}
    config = {**config, "num_attention_heads": 32, "head_dim": 128}
    count = load(config).params().total
    name, *options = command.split()
    at = str(indexed(tmp_path, config, count, a=SHARD))
    printed = run(name, at, *options).out_line
    assert "bf16 (assumed)" in printed
    assert "The index lists 7.48 GiB of tensors, 7.48 GiB less than counted." in printed
    (model,) = run(name, at, *options, "--json").models
    assert (model.get("on", model)["dtype_from"], model.get("on", model)["published_dtype"]) == ("assumed", None)
    assert any("7.48 GiB less than counted" in note for note in model["notes"])
    given = run(name, at, *options, "--dtype", "bf16").out
    assert "assumed" not in given.split("\n\n")[0] and "The index" not in given


def test_an_index_that_agrees_with_the_config_or_names_no_tensor(run, tmp_path: Path) -> None:
    at = indexed(tmp_path, {**TINY_LLAMA, "torch_dtype": "bfloat16"}, 123_456)
    printed = run("memory", str(at)).out_line
    assert "The index lists 121 KiB of tensors" in printed and "0 B of tensors" not in printed
    count = load(TINY_LLAMA).params().total
    for dtype, width in (("bfloat16", 2), ("float32", 4)):
        at = indexed(tmp_path, {**TINY_LLAMA, "torch_dtype": dtype}, width * count, a=SHARD)
        assert "assumed" not in run("memory", str(at)).out.split("\n\n")[0]
    fp8 = {**TINY_LLAMA, "quantization_config": {"quant_method": "fp8"}}
    for factor, known in ((1, "published"), (2, "assumed")):
        at = indexed(tmp_path, fp8, factor * weights_of(fp8), a=SHARD)
        assert load(str(at)).memory().models[0]["dtype_from"] == known


@pytest.mark.parametrize(
    ("quantization", "bytes_of"),
    [
        ({"quant_algo": "NVFP4", "group_size": 16}, lambda outputs, inputs: outputs * inputs // 16 * 9 + 8),
        ({"quant_algo": "MXFP8", "group_size": 32}, lambda outputs, inputs: outputs * inputs // 32 * 33),
        ({"quant_algo": "FP8_PB_WO", "group_size": 128}, _fp8),
        ({"quant_algo": None}, lambda outputs, inputs: 2 * outputs * inputs),
    ],
)
def test_model_optimizers_algorithms_by_hand(tmp_path: Path, quantization: dict[str, Any], bytes_of: Any) -> None:
    """Llama-3.1-70B: 80 blocks of 7 matrices, all else in bf16; without an algorithm the cache alone is quantized."""
    at = folder(
        tmp_path, LLAMA_70B, hf_quant_config={"quantization": {**quantization, **ON}} | {"producer": FP8["producer"]}
    )
    shapes = [*[(8192, 8192)] * 2, *[(1024, 8192)] * 2, *[(28672, 8192)] * 2, (8192, 28672)]
    rest = 2 * 128256 * 8192 + (2 * 80 + 1) * 8192
    total = 80 * sum(bytes_of(*shape) for shape in shapes) + 2 * rest
    assert weights(str(at)) == total


NEITHER = "stores the cache in nvfp4, which is not supported."


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "stores the cache in 8 bits; --kv-dtype fp8 counts it"),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "INT8"}, "stores the cache in 8 bits; --kv-dtype int8 counts it"),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"}, NEITHER),
        ({"quant_algo": None, "kv_cache_quant_algo": "FP8"}, "stores the cache in 8 bits; --kv-dtype fp8 counts it"),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": None}, None),
    ],
)
def test_a_cache_that_model_optimizer_quantizes(
    run, tmp_path: Path, quantization: dict[str, Any], words: str | None
) -> None:
    at = folder(tmp_path, LLAMA_70B, hf_quant_config={"quantization": quantization, "producer": FP8["producer"]})
    out = run("memory", str(at)).out_line
    assert (f"hf_quant_config.json {words}" in out) if words else ("stores the cache" not in out)
    notes = run("memory", str(at), "--json").models[0]["notes"]
    assert any("stores the cache" in note for note in notes) is (words is not None)
    (tmp_path / "inside").mkdir()
    inside = folder(
        tmp_path / "inside", {**LLAMA_70B, "quantization_config": {**quantization, "quant_method": "modelopt"}}
    )
    assert (words is None) or f"The config {words}" in run("memory", str(inside)).out_line
    assert "stores the cache" not in run("memory", str(at), "--kv-dtype", "fp8").out


COMMANDS = (
    *("kv", "memory --on h200-sxm,", "time --on h200-sxm", "serve --on h200-sxm --prompt 64 --new 4"),
    "plan --on 2x80GB",
)


def test_every_command_that_counts_a_cache_names_its_format(run, tmp_path: Path) -> None:
    quantization = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    at = folder(tmp_path / "own", {**LLAMA_70B, "num_hidden_layers": 8}, hf_quant_config={"quantization": quantization})
    for command in COMMANDS:
        name, *options = command.split()
        expected = "hf_quant_config.json stores the cache in 8 bits; --kv-dtype fp8 counts it so."
        assert expected in run(name, str(at), *options).out_line, command
        assert "stores the cache" not in run(name, str(at), *options, "--kv-dtype", "fp8").out, command
    of_auto_fp8 = {"quant_method": "fp8", "kv_cache_scheme": "static", "activation_scheme": "static"}
    at = folder(tmp_path, {**LLAMA_70B, "quantization_config": of_auto_fp8})
    assert "--kv-dtype fp8 counts it so" in run("memory", str(at)).out_line
