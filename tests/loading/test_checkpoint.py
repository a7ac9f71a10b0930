"""Files of weights: what is read, and what is broken or hostile and refused in one error. Kind: golden, refusal."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import tfacct
from tests.helpers.checkpoints import BROKEN, laid, one, text, written
from tests.helpers.cli import Run
from tests.helpers.command_lines import check_words
from tests.helpers.models import tiny
from tfacct.base.errors import CheckpointError, TfacctError
from tfacct.ledger.formats import GGML
from tfacct.loading import checkpoint, gguf, headers
from tfacct.loading.gguf import TYPES
from tfacct.verify import checkpoint as comparison
from tfacct.verify.tensor_names import QUANT_TENSORS


def test_files_without_a_config_are_listed_and_a_config_without_files_is_refused(run: Run, tmp_path: Path) -> None:
    written(tmp_path / "some" / "model.safetensors", {
        "layers.0.q.weight": ("F8_E4M3", (8, 4)), "layers.1.q.weight": ("F8_E4M3", (8, 4)), "norm": ("F32", (4,)),
    })  # fmt: skip
    ran = run("check", str(tmp_path / "some"))
    assert ran.code == 0
    printed = ran.out_line
    assert "80 B in one file: 64 B fp8, 16 B fp32; not compared: there is no config.json next to it" in printed
    assert "layers.*.q fp8 2 64 64 B 80.0%" in printed
    report = tfacct.checkpoint(tmp_path / "some")
    assert report.agrees and report.models[0]["agrees"] is None and report.models[0]["family"] is None
    (tmp_path / "some" / "config.json").write_text('{"model_type": "elephant"}')
    ran = run("check", str(tmp_path / "some"))
    assert ran.code == 0 and "unknown model_type 'elephant'" in ran.out_line
    ran = run("check", "gpt2")
    assert ran.code == 2 and "`tfacct verify gpt2`" in ran.err and "`tfacct check FILES --config gpt2`" in ran.err


LAYER = "model.layers.0."
LLAMA = {"model.embed_tokens": (6, 8), "lm_head": (6, 8), "model.norm": (8,)}
LLAMA |= {f"{LAYER}{norm}_layernorm": (8,) for norm in ("input", "post_attention")}
LLAMA |= {f"{LAYER}self_attn.{name}_proj": (8, 8) for name in "qkvo"}
LLAMA |= {f"{LAYER}mlp.{name}_proj": shape for name, shape in {"gate": (4, 8), "up": (4, 8), "down": (8, 4)}.items()}
"""Shapes of a layer by hand: 2 · 6 · 8 + 3 · 8 + 4 · 8 · 8 + 3 · 8 · 4 = 472 weights."""
ATTENTION = f"{LAYER}self_attn."
FOUR = {f"{ATTENTION}{name}_proj": (dtype, (8, 8)) for name, dtype in {"q": "F64", "k": "F16", "v": "F8_E4M3"}.items()}
AGREE = "tensors and config agree."


@pytest.mark.parametrize(
    ("changed", "tied", "words"),
    [
        ({}, False, [f"944 B in one file, all bf16; {AGREE}", "part dtype tensors", "absent", "Not stored", "DIFFERS"]),
        ({"model.norm": ("F32", (8,))}, False, [f"960 B in one file: 928 B bf16, 32 B fp32; {AGREE}"]),
        ({"lm_head": None}, True, [f"848 B in one file, all bf16; {AGREE}", "Not stored, as expected: lm_head.weight"]),
        ({"model.norm": None}, False, ["; 1 tensor differs from the config.", "absent", "like it", "more kinds"]),
        ({"model.norm": None, "lm_head": ("BF16", (5, 8))}, False, ["; 2 tensors differ from the config."]),
        ({"extra": ("BF16", (8,))}, False, ["960 B in one file, all bf16; 1 tensor differs from the config."]),
        (FOUR, False, ["128 B fp16, ", "absent", " more", "not compared"]),
        ({**FOUR, "model.norm": ("F32", (8,))}, False, ["128 B fp16, ", f" and 1 more; {AGREE}"]),
    ],
)
def test_the_answer_says_where_files_and_config_differ(
    run: Run, tmp_path: Path, changed: dict[str, Any], tied: bool, words: list[str]
) -> None:
    tensors = {name: ("BF16", shape) for name, shape in LLAMA.items()} | changed
    written(tmp_path / "model.safetensors", {f"{name}.weight": one for name, one in tensors.items() if one})
    config = {"model_type": "llama", "hidden_size": 8, "intermediate_size": 4, "vocab_size": 6, "dtype": "bfloat16"}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 1, "tie_word_embeddings": tied}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ran = run("check", str(tmp_path), columns=300)
    assert ran.code == ("differ" in ran.out)
    check_words(words, ran.out)


def test_block_sizes_are_those_of_the_gguf_package() -> None:
    package = pytest.importorskip("gguf")
    sizes = {int(kind): size for kind, size in package.constants.GGML_QUANT_SIZES.items()}
    assert {number: (block, taken) for number, (_, block, taken) in TYPES.items() if number in sizes} == {
        number: sizes[number] for number in TYPES if number in sizes
    }
    assert len(set(sizes) & set(TYPES)) > 30
    named = {kind.name.lower(): size for kind, size in package.GGML_QUANT_SIZES.items()}
    assert {name: named[name] for name in GGML} == GGML


def refused(run: Run, file: Path, data: bytes, message: str) -> list[str]:
    """Lines of the error about a folder with this file."""
    file.write_bytes(data)
    ran = run("check", str(file.parent))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ") and len(ran.err.splitlines()) <= 2
    assert message in ran.err and "\x1b" not in ran.err and "Traceback" not in ran.err
    assert len(ran.err) < 600
    return ran.err.splitlines()


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_error(name: str, run: Run, tmp_path: Path) -> None:
    refused(run, tmp_path / "model.safetensors", *BROKEN[name])


def test_unusual_files_are_read(tmp_path: Path) -> None:
    """A padded header, empty tensors, scalars, tensors in any order; the safetensors library reads them too."""
    (tmp_path / "padded.safetensors").write_bytes(laid(json.dumps(one()).encode() + b" " * 5))
    (tensor,) = checkpoint.local(tmp_path / "padded.safetensors").tensors
    assert tuple(tensor) == ("w", "fp32", (2, 3), 24)
    header = {
        "z": {"dtype": "F16", "shape": [], "data_offsets": [0, 2]},
        "none": {"dtype": "F32", "shape": [0, 3], "data_offsets": [2, 2]},
        "a": {"dtype": "F4", "shape": [4], "data_offsets": [2, 4]},
        "__metadata__": {"format": "pt"},
    }
    (tmp_path / "odd.safetensors").write_bytes(laid(header, 4))
    assert [tensor.bytes for tensor in checkpoint.local(tmp_path / "odd.safetensors").tensors] == [2, 0, 2]
    (tmp_path / "none.safetensors").write_bytes(laid({}, 0))
    assert checkpoint.local(tmp_path / "none.safetensors").tensors == []


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=80) | st.binary(max_size=60).map(lambda junk: laid(b"{" + junk)))
@example(laid(one()))
def test_junk_is_an_error_or_a_file(tmp_path: Path, data: bytes) -> None:
    for name, read in (("a.safetensors", headers.safetensors), ("a.gguf", gguf.gguf)):
        (tmp_path / name).write_bytes(data)
        try:
            read(headers.LocalFile(tmp_path / name))
        except CheckpointError as error:
            assert all(line.isprintable() for line in error.lines())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ENTRY = st.fixed_dictionaries({
    "dtype": st.sampled_from([*headers.BITS, "F31"]) | JSON,
    "shape": st.lists(st.integers(-1, 5), max_size=4) | JSON,
    "data_offsets": st.lists(st.integers(-1, 90), min_size=2, max_size=2) | JSON,
})  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=4), ENTRY | JSON, max_size=3), st.integers(0, 60))
def test_headers_of_any_json_are_errors_or_exact(tmp_path: Path, header: dict[str, Any], size: int) -> None:
    """Every accepted file is one that the safetensors library accepts, and its bytes add up."""
    file = tmp_path / "a.safetensors"
    file.write_bytes(laid(header, size))
    try:
        found = headers.safetensors(headers.LocalFile(file))
    except CheckpointError:
        return
    assert sum(tensor.bytes for tensor in found) == size
    assert all(tensor.name.isprintable() and min(tensor.shape, default=0) >= 0 for tensor in found)


ODD = "lm_head.weight mtp.fc.weight blk.0.attn_q.weight blk.*.x a.experts.0.b .experts.*. 0 * .".split()
ODD += [f"model.layers.{name}" for name in (
    "0.self_attn.q_proj.weight", "*.self_attn.q_proj.weight", "99999999999999999999.mlp.up_proj.weight", "٣.x",
    "0.mlp.experts.7.w1.weight", "*.mlp.experts.*.w1.qweight", "1.mlp.gate_up_proj_blocks",
    "1.mlp.down_proj.weight_packed", "0.q.weight.absmax",
)]  # fmt: skip
NAMES = st.sampled_from(ODD) | st.text("ab.*0_", max_size=12)
TENSOR = st.builds(
    headers.FileTensor, NAMES, st.sampled_from(["bf16", "uint8", "int32", "fp8"]),
    st.lists(st.integers(0, 90), max_size=5).map(tuple), st.integers(0, 9),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(TENSOR, max_size=8),
    st.sampled_from(["llama", "mixtral", "gpt2", "deepseek_v3", "bert"]),
    JSON,
    st.booleans(),
)
def test_any_names_and_shapes_can_be_compared(tensors: list[Any], family: str, value: Any, of_gguf: bool) -> None:
    from dataclasses import replace

    ours = tiny(family)
    ours = replace(ours, raw={**ours.raw, "quantization_config": value, "num_nextn_predict_layers": value})
    found = comparison.reconcile(ours, tensors, gguf=of_gguf)
    assert not found.agrees and len(found.found) == len(tensors)


QUANTIZED = st.dictionaries(st.sampled_from(["bits", "w_bit", "quant_method", "config_groups"]), JSON)


@given(QUANTIZED, st.sampled_from(list(QUANT_TENSORS)), TENSOR)
def test_no_config_of_a_format_breaks_the_comparison(quantization: dict[str, Any], ending: str, tensor: Any) -> None:
    how = comparison.packing({"quantization_config": quantization})
    for wanted in ((), (3,), (8, 4), (2, 8, 4)):
        assert how.fits(tensor, wanted, (), QUANT_TENSORS[ending], [comparison.BNB]) in (True, False, None)


def index(path: Path, files: dict[str, str] | object, **more: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / checkpoint.INDEX).write_text(json.dumps({"weight_map": files, **more}))
    return path


def test_an_index_names_files_in_its_folder_and_their_tensors(run: Run, tmp_path: Path) -> None:
    written(tmp_path / "x.safetensors", {"w": ("F32", (2, 3))})
    here = tmp_path / "here"
    for name in ("../x.safetensors", str(tmp_path / "x.safetensors"), "a/../../x.safetensors", "..", "", ".safetensors",
                 "x.safetensors\x00", "x.safetensors\n", "a\\x.safetensors", "config.json", "x.bin"):  # fmt: skip
        ran = run("check", str(index(here, {"w": name})))
        assert ran.code == 2 and "which is not a safetensors file in its folder" in ran.err, name
    ran = run("check", str(index(here, {"w": "missing.safetensors"})))
    assert ran.code == 2 and "No such file" in ran.err
    for broken in ({"w": 3}, ["w"], None, {"w": ["x.safetensors"]}):
        assert "has no weight_map" in run("check", str(index(here, broken))).err
    (here / checkpoint.INDEX).write_text("{")
    assert "is not JSON" in run("check", str(here)).err
    (here / checkpoint.INDEX).write_text('{"weight_map": {' + ",".join(f'"{n}":"a"' for n in range(500_000)) + "}}")
    assert "names more than 300,000 tensors" in run("check", str(here)).err
    index(here, {f"w{n}": f"{n}.safetensors" for n in range(1_001)})
    assert "names 1,001 files" in run("check", str(here)).err
    written(tmp_path / "a.safetensors", {"w": ("F32", (2, 3))})
    written(tmp_path / "b.safetensors", {"v": ("F32", (2, 3))})
    both = {"w": "a.safetensors", "v": "b.safetensors"}
    assert run("check", str(index(tmp_path, both, metadata={"total_size": 48}))).code == 0
    ran = run("check", str(index(tmp_path, both, metadata={"total_size": 47})))
    assert "The index lists 47 bytes of tensors, the files have 48." in ran.out_line
    ran = run("check", str(index(tmp_path, {**both, "u": "b.safetensors"})))
    assert ran.code == 2 and "b.safetensors lacks 'u', which the index lists there" in ran.err
    ran = run("check", str(index(tmp_path, {"w": "a.safetensors", "u": "b.safetensors"})))
    assert ran.code == 2 and "b.safetensors has 'v', which is not in the index" in ran.err
    written(tmp_path / "b.safetensors", {"w": ("F32", (2, 3))})
    ran = run("check", str(index(tmp_path, {"w": "a.safetensors", "v": "b.safetensors"})))
    assert ran.code == 2 and "'w'" in ran.err


def test_folders_of_nothing_loops_pipes_and_shards(run: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no safetensors or GGUF files" in run("check", str(empty)).err
    (empty / "pytorch_model.bin").write_bytes(b"\x80\x02")
    assert "pickles, which can run code, so they are not opened" in run("check", str(empty)).err
    (empty / "model.safetensors").symlink_to("model.safetensors")
    ran = run("check", str(empty))
    assert ran.code == 2 and "cannot read" in ran.err
    (empty / "model.safetensors").unlink()
    (empty / "loop").symlink_to("loop")
    assert run("check", str(empty / "loop")).code == 2
    os.mkfifo(empty / "model.safetensors")
    assert "it is not a regular file" in run("check", str(empty)).err
    (empty / "model.safetensors").unlink()
    (empty / "model.safetensors").mkdir()
    assert "it is not a regular file" in run("check", str(empty)).err
    assert run("check", str(tmp_path / "nowhere")).code == run("check", "").code == 2
    shards = tmp_path / "shards"
    written(shards / "model-00001-of-00002.safetensors", {"a": ("F32", (2, 3))})
    assert "lacks model-00002-of-00002.safetensors" in run("check", str(shards)).err
    ran = run("check", str(shards / "model-00001-of-00002.safetensors"))
    assert ran.code == 0 and "it is one of 2 files" in ran.out_line
    written(shards / "model-00003-of-00003.safetensors", {"b": ("F32", (2, 3))})
    assert "files of several models" in run("check", str(shards)).err
    (shards / "model-00003-of-00003.safetensors").rename(shards / "model-00002-of-00002.safetensors")
    ran = run("check", str(shards))
    assert ran.code == 0 and "48 B in 2 files" in ran.out
    written(shards / "model-00002-of-00002.safetensors", {"a": ("F32", (2, 3))})
    assert "is also in another file" in run("check", str(shards)).err


def tensor(name: str, shape: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def file_of(
    tensors: list[bytes], fields: list[bytes] = [], size: int = 128, *, counts: tuple[int, int] | None = None,  # noqa: B006
    version: int = 3,
) -> bytes:  # fmt: skip
    count, known = counts or (len(tensors), len(fields))
    data = b"GGUF" + struct.pack("<IQQ", version, count, known) + b"".join(fields) + b"".join(tensors)
    return data + bytes(-len(data) % 32) + bytes(size)


ARRAY = text("a") + struct.pack("<I", 9)
BROKEN_GGUF: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "does not start with GGUF"),
    "another file": (laid(one()), "does not start with GGUF"),
    "truncated": (b"GGUF" + struct.pack("<I", 3), "does not start with GGUF"),
    "version 1": (file_of([], version=1), "of version 1"),
    "big-endian": (file_of([], version=3 << 24), "is big-endian"),
    "2^63 tensors": (file_of([], counts=(1 << 63, 0)), "the maximum is 100,000 and 10,000"),
    "2^63 fields": (file_of([], counts=(0, 1 << 63)), "the maximum is 100,000 and 10,000"),
    "fields cut short": (file_of([], counts=(0, 10_000))[:24], "truncated"),
    "a text of 2^63": (file_of([], [struct.pack("<Q", 1 << 63)]), "a string of 9,223,372,036,854,775,808 bytes"),
    "a list of 2^63": (file_of([], [ARRAY + struct.pack("<IQ", 8, 1 << 63)]), "is an unsupported list"),
    "numbers 2^63": (file_of([], [ARRAY + struct.pack("<IQ", 4, 1 << 63)]), "is an unsupported list"),
    "lists in lists": (file_of([], [ARRAY + struct.pack("<IQ", 9, 3)]), "is an unsupported list"),
    "texts past the end": (file_of([], [ARRAY + struct.pack("<IQ", 8, 3) + text("b") + struct.pack("<Q", 1 << 62)]),
                           "truncated"),
    "a type of 99": (file_of([], [text("a") + struct.pack("<I", 99)]), "unknown type 99"),
    "a field twice": (file_of([], [text("a") + struct.pack("<IB", 0, 1)] * 2), "has field 'a' twice"),
    "no alignment": (file_of([], [text("general.alignment") + struct.pack("<II", 4, 0)]), "invalid alignment: 0"),
    "a tensor twice": (file_of([tensor("w"), tensor("w", offset=128)], size=256), "has 'w' twice"),
    "an overlap": (file_of([tensor("w"), tensor("v", offset=64)], size=256), "overlap"),
    "a hole": (file_of([tensor("w"), tensor("v", offset=192)], size=512), "64 bytes before 'v' do not belong"),
    "bytes too many": (file_of([tensor("w")], size=256), "128 bytes at its end do not belong to a tensor"),
    "tensors cut short": (file_of([tensor("w")], size=127), "'w' ends at byte 128 of its tensors, but only 127"),
    "an offset of 2^63": (file_of([tensor("w", offset=1 << 63)]), "sizes that do not fit fp32"),
    "sizes that wrap": (file_of([tensor("w", (1 << 62, 1 << 62))]), "sizes that do not fit fp32"),
    "half a block": (file_of([tensor("w", (48,), 2)]), "sizes that do not fit q4_0"),
    "a type that nobody knows": (file_of([tensor("w", (32,), 77)]), "an unknown type: 77"),
    "many dimensions": (file_of([tensor("w", (1,) * 5)]), "5 dimensions"),
    "a name with an escape": (file_of([tensor("\x1b[31m")]), "control characters"),
    "tensors past the end": (file_of([tensor("w")], size=0, counts=(90_000, 0)), "truncated"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_GGUF)
def test_a_broken_gguf_is_one_error(name: str, run: Run, tmp_path: Path) -> None:
    assert len(refused(run, tmp_path / "a.gguf", *BROKEN_GGUF[name])) == 1


def test_errors_of_the_hub_are_tfacct_errors(tmp_path: Path) -> None:
    from tfacct.loading import checkpoint_config

    with pytest.raises(TfacctError, match="no file or folder"):
        checkpoint_config.read(str(tmp_path / "a" / "b"), ask_hub=False)
