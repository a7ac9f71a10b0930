"""Headers of files that transformers, compressed-tensors and bitsandbytes save: exact bytes and names. Kind:
oracle, refusal.
"""

import json
import re
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.checkpoints import BROKEN, Tensors, _all_have_their_line, of_class, saved, written
from tests.helpers.cli import Run
from tests.helpers.lazy import lazy
from tests.helpers.models import tiny
from tests.helpers.quantized import EVEN, FIVE, LLAMA, SCHEMES, built, weighed
from tests.helpers.schemas import refused
from tfacct.loading import checkpoint
from tfacct.loading.headers import BITS, CALLED, FileTensor
from tfacct.loading.model import LoadedModel
from tfacct.verify.checkpoint import reconcile

compressors, quantization = lazy("compressed_tensors.compressors"), lazy("compressed_tensors.quantization")
safetensors, safetensors_torch = lazy("safetensors"), lazy("safetensors.torch")


def folder(path: Path, ours: LoadedModel, tensors: Tensors) -> Path:
    """A model's folder: its config and one file."""
    written(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps(dict(ours.raw)))
    return path


SIX = ("llama", "qwen2_moe", "mixtral", "gpt2", "gemma2", "bert")


@pytest.mark.parametrize("shards", [False, True], ids=["one file", "shards"])
@pytest.mark.parametrize("name", SIX)
def test_what_transformers_saves_is_counted_to_the_byte(name: str, shards: bool, tmp_path: Path) -> None:
    """Bytes and elements by the safetensors library, and every tensor is matched."""
    dtype = "bfloat16" if shards else "float32"
    path = saved(name, tmp_path / "saved", dtype, **({"max_shard_size": "60KB"} if shards else {}))
    report = tfacct.checkpoint(path)
    files = sorted(path.glob("*.safetensors"))
    assert (len(files) > 1) is shards
    elements = count = 0
    for file in files:
        with safetensors.safe_open(file, "pt") as opened:
            for key in opened.keys():  # noqa: SIM118
                elements += prod(opened.get_slice(key).get_shape())
                count += 1
    assert (report.tensors, report.elements) == (count, elements)
    assert report.tensor_bytes == report.total == elements * (2 if shards else 4)
    assert report.file_bytes == sum(file.stat().st_size for file in files)
    assert report.dtypes == {"bf16" if shards else "fp32": report.tensor_bytes}
    assert sum(line["bytes"] for line in report.lines) == report.tensor_bytes
    assert report.agrees and report.differences == []
    assert report.equal_tensors == len(tiny(name).ledger.tensors(unfolded=True))
    assert "tensors and config agree." in report.answer


RENAMED = (
    *("deepseek_v4", "vit", "dinov2, gated", "kimi_linear", "olmo_hybrid", "stablelm, normed", "esm", "deepseek_v3"),
    *("longcat_flash, with choices that are no experts", "bailing_hybrid", "dbrx", "modernbert-decoder", "mamba"),
    *("zamba", "gpt_oss", "t5", "siglip_vision_model", "clip_vision_model", "kimi_k25_vision", "qwen2_vl_vision"),
    *("dinov3_vit", "rwkv", "recurrent_gemma", "t5gemma2", "zaya", "axk2"),
)


@pytest.mark.parametrize("name", RENAMED)
def test_tensors_with_other_names_in_files_have_their_lines(name: str, tmp_path: Path) -> None:
    _all_have_their_line(name, tmp_path / "saved")


def test_a_planted_difference_among_pieces_goes_red(tmp_path: Path) -> None:
    """Heads, convolutions and experts that files store one by one."""
    norm, conv = "model.layers.1.self_attn.q_layernorm.norms.1.weight", "model.layers.0.self_attn.v_conv1d.weight"
    gate = "model.layers.0.mlp.experts.{}.gate_proj.weight"

    def with_files(name: str, change: Callable[[dict[str, Any]], None]) -> list[tuple[str, str]]:
        ours = tiny(name)
        found = {one.name: one for one in checkpoint.local(saved(name, tmp_path / name)).tensors}
        assert reconcile(ours, found.values()).differences == []
        change(found)
        return [tuple(one) for one in reconcile(ours, found.values()).differences]

    without = with_files("stablelm, normed", lambda found: found.pop(norm))
    assert without == [("blocks.1.attn.q_norm.weight", "missing: head 1 of 6")]
    ((_, why),) = with_files("kimi_linear", lambda found: found.update({conv: found[conv]._replace(shape=(35, 1, 5))}))
    assert why.endswith("has shape 107 × 1 × 5, expected 108 × 1 × 5")
    ((_, why),) = with_files("kimi_linear", lambda found: found.pop(conv))
    assert why == "missing: convolution 2 of 3"
    own = "longcat_flash, with choices that are no experts"
    idle = with_files(
        own, lambda found: found.update({gate.format(19): found[gate.format(18)]._replace(name=gate.format(19))})
    )
    assert [why.partition(" have ")[2] for _, why in idle] == ["20 experts, the model's of 15"]


def test_tensors_of_a_custom_model_have_its_paths() -> None:
    """Whether a matrix is transposed is not compared."""
    ours = tiny("custom")
    tensors = {one.path: ("BF16", tuple(map(int, one.shape))) for one in ours.ledger.tensors(unfolded=True)}
    flat = {
        path: (dtype, (prod(shape),)) if path.endswith("bias") else (dtype, shape)
        for path, (dtype, shape) in tensors.items()
    }
    assert all("shape" in one.what for one in reconcile(ours, stored(flat)).differences)


def stored(tensors: Tensors) -> list[Any]:
    return [
        FileTensor(name, CALLED.get(dtype, dtype.lower()), shape, prod(shape) * BITS[dtype] // 8)
        for name, (dtype, shape) in tensors.items()
    ]


def differences(ours: LoadedModel, tensors: Tensors) -> list[tuple[str, str]]:
    return [tuple(one) for one in reconcile(ours, stored(tensors)).differences]


def test_a_planted_difference_goes_red(run: Run, tmp_path: Path) -> None:
    ours = tiny("llama")
    right = of_class(ours)
    assert run("check", str(folder(tmp_path / "right", ours, right))).code == 0
    query = "model.layers.1.self_attn.q_proj.weight"
    hidden, wide = right[query][1][1], right[query][1][0]
    planted = {
        "a shape": ({**right, query: ("BF16", (wide + 1, hidden))}, f"{wide + 1:,} × {hidden}, expected {wide} × "),
        "transposed": (
            {**right, query: ("BF16", (hidden, wide))},
            f"shape {hidden} × {wide}, expected {wide} × {hidden}",
        ),
        "missing": ({k: v for k, v in right.items() if k != query}, f"missing: no {query} in the files"),
        "over": ({**right, "model.layers.1.self_attn.g.weight": ("BF16", (3,))}, "no such tensor in the model"),
        "one layer more": (
            {**right, **{k.replace(".1.", ".9."): v for k, v in right.items()}},
            "model.layers.9.self_attn.q_proj.weight: no such tensor in the model",
        ),
    }
    for what, (tensors, words) in planted.items():
        path = folder(tmp_path / what, ours, tensors)
        ran = run("check", str(path))
        assert ran.code == 1, what
        assert words in ran.out_line, what
        assert not tfacct.checkpoint(path).agrees
        assert not tfacct.load(dict(ours.raw)).checkpoint(path).agrees
    assert run("check", str(tmp_path / "over"), "--config", "gpt2").code == 1


def test_another_config_tells_another_story(run: Run, tmp_path: Path) -> None:
    ours = tiny("gpt2")
    path = folder(tmp_path / "gpt2", ours, of_class(ours))
    ran = run("check", str(path), "--config", str(path), "--set", "n_inner=68")
    assert ran.code == 1
    assert "transformer.h.0.mlp.c_fc.weight has shape 42 × 67, expected 42 × 68 (and 1 like it)" in ran.out_line
    (model,) = run("check", str(path), "--config", str(path), "--set", "n_inner=68", "--json").models
    paths = [f"blocks.0.mlp.{name}" for name in ("up_proj.weight", "up_proj.bias", "down_proj.weight")]
    assert [one["path"] for one in model["differences"]] == paths
    assert {one["tensors"] for one in model["differences"]} == {2}
    assert run("check", str(path), "--set", "n_inner=68").code == 2
    for option in ("--train", "--device cpu", "--input-shape 1,8", "--map x.toml"):
        ran = run("check", str(path), *option.split())
        assert ran.code == 2 and f"{option.split()[0]} works with MODULE:FACTORY" in ran.err


def test_a_router_that_lies_the_other_way_goes_red() -> None:
    ours = tiny("qwen2_moe")
    tensors = of_class(ours)
    for name in ("model.layers.1.mlp.gate.weight", "model.layers.1.mlp.experts.down_proj", "model.embed_tokens.weight"):
        dtype, shape = tensors[name]
        assert len(differences(ours, {**tensors, name: (dtype, (*shape[:-2], shape[-1], shape[-2]))})) == 1, name


def test_older_spellings_and_bodies_have_their_lines() -> None:
    """gpt2's first files have no `transformer.` and include masks; BERT's have gamma and beta; a wrapper adds its name
    as a prefix."""
    ours = tiny("gpt2")
    tensors = {name.removeprefix("transformer."): spec for name, spec in of_class(ours).items()}
    tensors |= {f"h.{n}.attn.bias": ("F32", (1, 1, 37, 37)) for n in (0, 1)}
    found = reconcile(ours, stored(tensors))
    assert found.agrees and [one.why for one in found.found if one.slot is None] == ["buffer: mask"] * 2
    ours = tiny("bert")
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): spec
        for name, spec in of_class(ours).items()
    }
    assert differences(ours, {**renamed, "bert.embeddings.position_ids": ("I64", (1, 37))}) == []
    more = {**renamed, "cls.seq_relationship.weight": ("F32", (2, 42))}
    assert differences(ours, more) == [("cls.seq_relationship.weight", "no such tensor in the model")]
    ours = tiny("llama")
    for prefix in ("language_model.", "_orig_mod.", "module.", "module._orig_mod.", "thinker."):
        assert differences(ours, {f"{prefix}{name}": spec for name, spec in of_class(ours).items()}) == []


SPELLED = {
    "baichuan": {},
    "qwen": {
        "model.embed_tokens.": "transformer.wte.", "model.layers.": "transformer.h.",
        "model.norm.": "transformer.ln_f.", "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2",
        "self_attn.o_proj": "attn.c_proj",
        "mlp.up_proj": "mlp.w1", "mlp.gate_proj": "mlp.w2", "mlp.down_proj": "mlp.c_proj",
    },
    "bailing_moe": {
        "model.embed_tokens.": "model.word_embeddings.", "self_attn.o_proj": "attention.dense",
        "self_attn.q_norm": "attention.query_layernorm", "self_attn.k_norm": "attention.key_layernorm",
    },
    "plamo3": {
        "model.layers.": "model.layers.layers.", "self_attn.": "mixer.", "mlp.gate_proj": "mlp.gate_up_proj",
        "mlp.up_proj": "mlp.gate_up_proj", "input_layernorm": "pre_mixer_norm",
        "post_attention_layernorm": "post_mixer_norm", "pre_feedforward_layernorm": "pre_mlp_norm",
        "post_feedforward_layernorm": "post_mlp_norm",
    },
}  # fmt: skip
"""Names of the class → those of published files, which come with code of their own."""
ONE_MATRIX = {
    "baichuan": "self_attn.W_pack", "qwen": "attn.c_attn", "bailing_moe": "attention.query_key_value",
    "plamo3": "mixer.qkv_proj",
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLED)
def test_files_with_code_of_their_own_have_q_k_and_v_in_one(name: str) -> None:
    ours, files = tiny(name), dict[str, tuple[str, tuple[int, ...]]]()
    for theirs, (dtype, shape) in of_class(ours).items():
        if match := re.search(r"self_attn\.[qkv]_proj", theirs):
            theirs = theirs.replace(match[0], ONE_MATRIX[name])
        for own, published in SPELLED[name].items():
            theirs = theirs.replace(own, published)
        rows = files[theirs][1][0] if theirs in files else 0
        files[theirs] = (dtype, (rows + shape[0], *shape[1:]))
    assert not [path for path in files if "self_attn.qkv_proj" in path or ".q_proj" in path]
    assert differences(ours, files) == []
    files.pop(next(path for path in files if ONE_MATRIX[name] in path))
    assert len(differences(ours, files)) == 3


def test_a_tied_head_is_a_copy_or_not_there_and_nothing_else() -> None:
    ours = tiny("qwen2")
    tensors = of_class(ours)
    assert "lm_head.weight" not in tensors
    found = reconcile(ours, stored(tensors))
    assert [tuple(one) for one in found.unstored] == [("lm_head.weight", "tied to the embedding")]
    table = tensors["model.embed_tokens.weight"]
    twice = reconcile(ours, stored({**tensors, "lm_head.weight": table}))
    assert twice.agrees and not twice.unstored
    assert [one.why for one in twice.found if one.slot is None] == ["copy of a tied embedding"]
    only = {
        ("lm_head.weight" if name.endswith("embed_tokens.weight") else name): spec for name, spec in tensors.items()
    }
    assert reconcile(ours, stored(only)).agrees
    more = {**tensors, "lm_head.weight": ("BF16", (3, 4))}
    assert differences(ours, more) == [("lm_head.weight", "no such tensor in the model")]
    untied = tiny("qwen2", tie_word_embeddings=False)
    assert differences(untied, tensors) == [("lm_head.weight", "missing: no lm_head.weight in the files")]


def test_a_head_of_another_name_is_a_copy_too() -> None:
    """distilbert's is `vocab_projector`; T5's files have the embedding on both sides, and one that no class reads."""
    for name, copies in {
        "distilbert": ["vocab_projector.weight"],
        "whisper": ["proj_out.weight"],
        "t5": ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"],
    }.items():
        ours = tiny(name)
        tensors = of_class(ours)
        table = next(shape for tensor, shape in tensors.items() if tensor.endswith(TABLES))
        found = reconcile(ours, stored({**tensors, **dict.fromkeys(copies, table)}))
        why = [one.why for one in found.found if one.slot is None]
        assert found.agrees and why == ["copy of a tied embedding"] * len(copies)
    unread = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    assert differences(ours, {**tensors, unread: ("F32", (15, 6))}) == []


TABLES = ("word_embeddings.weight", "embed_tokens.weight", "shared.weight")


def test_experts_may_be_one_tensor_each() -> None:
    """Mixtral's files have w1, w2 and w3; the class has two tensors for all experts."""
    ours = tiny("mixtral")
    whole = of_class(ours)
    _, (count, both, hidden) = whole["model.layers.0.mlp.experts.gate_up_proj"]
    each: dict[str, tuple[str, tuple[int, ...]]] = {
        name.replace(".mlp.", ".block_sparse_moe."): spec for name, spec in whole.items() if ".experts." not in name
    }
    for block in (0, 1):
        for expert in range(count):
            at = f"model.layers.{block}.block_sparse_moe.experts.{expert}"
            each |= {f"{at}.{name}.weight": ("BF16", (both // 2, hidden)) for name in ("w1", "w3")}
            each[f"{at}.w2.weight"] = ("BF16", (hidden, both // 2))
    stacked = {name: spec for name, spec in each.items() if ".experts." not in name}
    for block in (0, 1):  # as MLX has them
        at = f"model.layers.{block}.block_sparse_moe.switch_mlp"
        stacked |= {f"{at}.{name}_proj.weight": ("BF16", (count, both // 2, hidden)) for name in ("gate", "up")}
        stacked[f"{at}.down_proj.weight"] = ("BF16", (count, hidden, both // 2))
    assert differences(ours, whole) == differences(ours, each) == differences(ours, stacked) == []
    fewer = {**stacked, f"{at}.down_proj.weight": ("BF16", (count - 1, hidden, both // 2))}
    assert "down_proj.weight has shape" in differences(ours, fewer)[0][1]
    for both_ways in ({**stacked, **each}, {**each, **stacked}):
        assert all(why.startswith("stored twice: ") for _, why in differences(ours, both_ways))
    last = f"model.layers.1.block_sparse_moe.experts.{count - 1}.w3.weight"
    fewer = {name: spec for name, spec in each.items() if name != last}
    why = f"missing: expert {count - 1} of {count}"
    assert differences(ours, fewer) == [("blocks.1.mlp.experts.up_proj.weight", why)]
    more = {**each, last.replace(f".{count - 1}.w3", f".{count}.w3"): each[last]}
    assert f"have {count + 1} experts, the model's of {count}" in differences(ours, more)[0][1]
    both_ways = {**each, "model.layers.0.mlp.experts.down_proj": whole["model.layers.0.mlp.experts.down_proj"]}
    assert differences(ours, both_ways)[0][1].startswith("stored twice: ")


def test_layers_that_predict_further_tokens_are_named() -> None:
    ours = tiny("deepseek_v3", num_nextn_predict_layers=1)
    tensors = of_class(ours)
    blocks = sum(stack.count for stack in ours.architecture.stacks)
    mtp = {f"model.layers.{blocks}.{name}": ("BF16", (48,)) for name in ("enorm.weight", "shared_head.norm.weight")}
    found = reconcile(ours, stored({**tensors, **mtp}))
    assert found.agrees
    assert [one.why for one in found.found if one.slot is None] == ["layer that predicts further tokens (MTP)"] * 2
    for name in ("mtp.fc.weight", "model.mtp_layers.0.input_proj.weight", "model.mtp_emb_norm.0.weight"):
        assert reconcile(ours, stored({**tensors, name: ("BF16", (3,))})).agrees  # Qwen3-Next's, MiMo's, Ernie's
    further = {f"model.layers.{blocks + 1}.enorm.weight": ("BF16", (48,))}
    assert len(differences(ours, {**tensors, **further})) == 1


def quantized(
    tensors: Tensors, pack: Callable[[tuple[int, int]], Mapping[str, tuple[str, tuple[int, ...]]]]
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The matrices of the blocks as a format stores them."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, (dtype, shape) in tensors.items():
        if ".layers." in name and len(shape) == 2:
            found |= {f"{name.removesuffix('.weight')}{end}": spec for end, spec in pack((shape[0], shape[1])).items()}
        else:
            found[name] = dtype, shape
    return found


FORMATS: dict[str, tuple[dict[str, Any], Callable[[tuple[int, int]], dict[str, tuple[str, tuple[int, ...]]]], int]] = {
    "fp8": (
        {"quant_method": "fp8", "weight_block_size": [16, 16]},
        lambda s: {".weight": ("F8_E4M3", s), ".weight_scale_inv": ("F32", (-(-s[0] // 16), -(-s[1] // 16)))},
        0,
    ),
    "fp8, as bytes": (
        {"quant_method": "fp8", "weight_block_size": [16, 16]},
        lambda s: {".weight": ("U8", s), ".weight_scale_inv": ("F32", (-(-s[0] // 16), -(-s[1] // 16)))},
        0,
    ),
    "gptq": (
        {"quant_method": "gptq", "bits": 4, "group_size": 16},
        lambda s: {".qweight": ("I32", (-(-s[1] // 8), s[0])), ".qzeros": ("I32", (3, s[0] // 8)),
                   ".scales": ("F16", (3, s[0])), ".g_idx": ("I32", (s[1],))},
        0,
    ),
    "awq": (
        {"quant_method": "awq", "bits": 4},
        lambda s: {".qweight": ("I32", (s[1], -(-s[0] // 8))), ".qzeros": ("I32", (3, s[0] // 8)),
                   ".scales": ("F16", (3, s[0]))},
        0,
    ),
    "no method": (
        {"bits": 4},
        lambda s: {".qweight": ("I32", (s[1], -(-s[0] // 8))), ".scales": ("F16", (3, s[0]))},
        21,
    ),
    "gptq, with a rule": (
        {"quant_method": "gptq", "bits": 4, "group_size": 16, "dynamic": {"+:.*_proj": {"bits": 8}}},
        lambda s: {".qweight": ("I32", (-(-s[1] // 4), s[0])), ".scales": ("F16", (3, s[0]))},
        21,
    ),
    "mlx": (
        {"bits": 4, "group_size": 32, "model.layers.0.mlp.up_proj": {"bits": 8}},
        lambda s: {".weight": ("U32", (s[0], -(-s[1] // 8))), ".scales": ("BF16", (s[0], 1)),
                   ".biases": ("BF16", (s[0], 1))},
        0,
    ),
    "bitnet": (
        {"quant_method": "bitnet"},
        lambda s: {".weight": ("U8", (-(-s[0] // 4), s[1])), ".weight_scale": ("BF16", (1,))},
        0,
    ),
    "nvfp4": (
        {"quant_method": "modelopt"},
        lambda s: {".weight": ("U8", (s[0], -(-s[1] // 2))), ".weight_scale": ("F8_E4M3", (s[0], 3)),
                   ".weight_scale_2": ("F32", ()), ".input_scale": ("F32", ())},
        0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_quantised_tensors_belong_to_their_matrices(name: str, tmp_path: Path, run: Run) -> None:
    how, pack, unknown = FORMATS[name]
    ours = tiny("llama")
    tensors = quantized(of_class(ours), pack)
    config = {**ours.raw, "quantization_config": how}
    path = tmp_path / "quantized"
    written(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps(config))
    report = tfacct.checkpoint(path)
    assert report.differences == [] and report.agrees
    assert sum(report.not_compared.values()) == unknown
    assert {line["part"] for line in report.lines} == {"embed", "attn", "mlp", "norms", "lm_head"}
    assert sum(line["bytes"] for line in report.lines) == sum(
        prod(shape) * BITS[dtype] // 8 for dtype, shape in tensors.values()
    )
    assert ("some shapes not compared" in report.answer) is bool(unknown)
    if not unknown:
        lost = next(end for end in tensors if end.startswith("model.layers.0.mlp.up_proj."))
        dtype, shape = tensors[lost]
        written(path / "model.safetensors", {**tensors, lost: (dtype, (shape[0] + 1, *shape[1:]))})
        assert run("check", str(path)).code == 1


@pytest.mark.parametrize("method", ["hqq", "torchao", "aqlm"])
def test_a_format_without_known_tensors_is_named(method: str, tmp_path: Path) -> None:
    """HQQ's `W_q` would be a missing `weight`, and a tensor of no class."""
    ours = tiny("llama")
    tensors = quantized(of_class(ours), lambda s: {".W_q": ("U8", s), ".scale": ("F16", (s[0], 1))})
    path = folder(tmp_path / method, ours, tensors)
    (path / "config.json").write_text(json.dumps({**ours.raw, "quantization_config": {"quant_method": method}}))
    report = tfacct.checkpoint(path)
    assert report.equal_tensors is None and report.differences == []
    assert f"not compared: tensors in the format of '{method}' are not supported" in report.answer


def test_fp8_and_fp4_as_deepseek_v4_is_published(tmp_path: Path) -> None:
    """Names without `model.`, `scale` next to `weight`, experts of two numbers to a byte, as its own code reads them.
    The layer of multi-token prediction is no tensor of the class."""
    unquantized = ("compressor", "weights_proj", "gate", "embed", "head")
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    for tensor in checkpoint.local(saved("deepseek_v4", tmp_path / "saved")).tensors:
        name = re.sub("^embed_tokens", "embed", tensor.name.removeprefix("model."))
        stem, (rows, *rest) = name.removesuffix(".weight"), tensor.shape
        if ".experts." in name:
            tensors[name] = ("I8", (rows, -(-rest[0] // 2)))
            tensors[f"{stem}.scale"] = ("F8_E8M0", (rows, -(-rest[0] // 32)))
        elif len(tensor.shape) == 2 and name.endswith(".weight") and not any(part in name for part in unquantized):
            tensors[name] = ("F8_E4M3", tensor.shape)
            tensors[f"{stem}.scale"] = ("F8_E8M0", tuple(-(-size // 128) for size in tensor.shape))
        else:
            tensors[name] = ("BF16", tensor.shape)
    tensors |= {f"mtp.0.{name.removeprefix('layers.0.')}": one for name, one in tensors.items() if "layers.0." in name}
    quantization = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "scale_fmt": "ue8m0",
        "activation_scheme": "dynamic",
    }
    report = tfacct.load(
        {**tiny("deepseek_v4").raw, "expert_dtype": "fp4", "quantization_config": quantization}
    ).checkpoint(written(tmp_path / "published.safetensors", tensors))
    assert report.differences == [] and report.agrees


def test_mxfp4_as_gpt_oss_is_published() -> None:
    """`gate_up_proj_blocks`: experts, outputs, groups of 32 inputs, 16 bytes. Its class stores them transposed."""
    ours = tiny("gpt_oss", hidden_size=64, intermediate_size=32)
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, (dtype, shape) in of_class(ours).items():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, inputs, outputs = shape
            tensors[f"{name}_blocks"] = ("U8", (experts, outputs, inputs // 32, 16))
            tensors[f"{name}_scales"] = ("U8", (experts, outputs, inputs // 32))
        else:
            tensors[name] = dtype, shape
    found = reconcile(ours, stored(tensors))
    assert found.agrees and not found.uncompared
    assert {one.quant.what for one in found.found if one.quant is not None} == {"packed weights", "scales"}
    name = "model.layers.0.mlp.experts.down_proj_blocks"
    assert len(differences(ours, {**tensors, name: ("U8", (7, 64, 2, 16))})) == 1


def test_the_json(run: Run, tmp_path: Path) -> None:
    ours = tiny("gemma2")
    ran = run("check", str(folder(tmp_path / "gemma", ours, of_class(ours))), "--json")
    assert (ran.code, ran.err) == (0, "")
    written(tmp_path / "alone" / "model.safetensors", {"w": ("F32", (2,))})
    for words in (["gemma"], ["gemma", "--config", "gpt2"], ["alone"]):
        found = run("check", str(tmp_path / words[0]), *words[1:], "--json").out
        assert refused(json.loads(found), "checkpoint") == []
    (model,), whole = ran.models, 2 * ours.parameters
    assert (model["tensor_bytes"], model["agrees"], model["compared_with"]) == (whole, True, "gemma")
    assert model["not_stored"] == [{"tensor": "lm_head.weight", "why": "tied to the embedding"}]


def save(path: Path, config: Mapping[str, Any], state: Mapping[str, Any]) -> Path:
    """A folder as the safetensors library writes it."""
    path.mkdir()
    seen: dict[int, str] = {}
    own = {name: t.contiguous() for name, t in state.items() if seen.setdefault(t.data_ptr() or id(t), name) == name}
    safetensors_torch.save_file(own, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config))
    return path


IGNORED = (["lm_head"], [], ["lm_head", "re:.*self_attn.*", "model.layers.1.mlp.down_proj"])
WRITTEN = [("llama", scheme, ignored) for scheme in SCHEMES for ignored in IGNORED]


@pytest.mark.parametrize(("family", "scheme", "ignored"), [*WRITTEN, *((one, "w4a16", ["lm_head"]) for one in FIVE)])
def test_files_of_compressed_tensors(family: str, scheme: str, ignored: list[str], tmp_path: Path) -> None:
    """Every tensor has its line, and the bytes of the config's format are those of the files."""
    form, group = SCHEMES[scheme]
    config = FIVE[family] | (EVEN if "fp4" in scheme or "blocks" in scheme else {})
    format_config = {"config_groups": {"group_0": {"targets": ["Linear"], **group}}, "format": form, "ignore": ignored}
    model = built(config)
    asked = quantization.QuantizationConfig.model_validate(json.loads(json.dumps(format_config)))
    quantization.apply_quantization_config(model, asked)
    compressors.ModelCompressor.from_pretrained_model(model).compress_model(model)
    fields = {**config, "quantization_config": {**format_config, "quant_method": "compressed-tensors"}}
    report = tfacct.checkpoint(save(tmp_path / "saved", fields, model.state_dict()))
    assert report.differences == [] and report.not_compared == {}
    counted = {report.config_bytes, report.ledger_bytes, weighed(config, fields["quantization_config"])}
    assert counted == {report.tensor_bytes}


@pytest.mark.parametrize("double", [True, False])
def test_files_of_bitsandbytes(double: bool, tmp_path: Path) -> None:
    """Its states include a JSON text for each matrix, which is not counted."""
    functional = pytest.importorskip("bitsandbytes.functional")
    state: dict[str, Any] = {}
    texts = 0
    for name, tensor in built(LLAMA).state_dict().items():
        if not name.endswith("_proj.weight"):
            state[name] = tensor
            continue
        packed, how = functional.quantize_4bit(tensor, quant_type="nf4", compress_statistics=double)
        state[name] = packed
        state_dict = how.as_dict(packed=True)
        state |= {f"{name}.{key}": value for key, value in state_dict.items()}
        texts += state_dict["quant_state.bitsandbytes__nf4"].numel()
    quantization = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    fields = {**LLAMA, "quantization_config": {**quantization, "bnb_4bit_use_double_quant": double}}
    report = tfacct.checkpoint(save(tmp_path / "saved", fields, state))
    assert report.differences == [] and report.not_compared == {}
    assert report.ledger_bytes == report.tensor_bytes
    assert report.config_bytes is not None
    offsets = 4 * 21 if double else 0  # the mean of the scales is in the text
    assert report.ledger_bytes - texts == report.config_bytes - offsets
    assert f"the files have {texts - offsets:,} bytes more" in report.notes[-1]


def test_the_library_refuses_the_same_files(tmp_path: Path) -> None:
    """Except files that this program refuses to print or to load."""
    stricter = {"a name with an escape", "a name with a line", "a name without end", "a name of nothing",
                "many braces", "a larger header", "a shape without end", "a key twice", "a name twice"}  # fmt: skip
    for name, (data, _) in BROKEN.items():
        if name in stricter:
            continue
        (tmp_path / "a.safetensors").write_bytes(data)
        with pytest.raises(Exception, match=r".+"), safetensors.safe_open(tmp_path / "a.safetensors", "pt"):
            pass
        (tmp_path / "a.safetensors").unlink()
