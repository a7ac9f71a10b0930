"""Headers of GGUF files by llama.cpp's writer, of transformers classes: exact bytes and names. Kind: oracle."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.checkpoints import of_class
from tests.helpers.cli import Run
from tests.helpers.models import tiny
from tfacct.loading import checkpoint
from tfacct.loading.model import LoadedModel
from tfacct.verify.checkpoint import reconcile

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")
FAMILIES = {
    "llama": "LLAMA", "mixtral": "LLAMA", "mistral": "LLAMA", "qwen2": "QWEN2", "qwen2_moe": "QWEN2MOE",
    "qwen3": "QWEN3", "qwen3_moe": "QWEN3MOE", "gemma": "GEMMA", "gemma2": "GEMMA2", "gemma3_text": "GEMMA3",
    "phi3": "PHI3", "gpt2": "GPT2", "olmo2": "OLMO2", "starcoder2": "STARCODER2",
}  # fmt: skip
"""Families, and what llama.cpp calls their architectures."""


def named(ours: LoadedModel, architecture: str) -> dict[str, tuple[int, ...]]:
    """Shapes of a class's tensors by llama.cpp's names: experts by matrix, a Conv1D transposed."""
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture], sum(s.count for s in ours.architecture.stacks))
    found: dict[str, tuple[int, ...]] = {}
    for name, (_, shape) in of_class(ours).items():
        split = {name: shape}
        if name.endswith("experts.gate_up_proj"):
            half = (shape[0], shape[1] // 2, shape[2])
            split = {name.replace("gate_up_proj", f"{which}_proj.weight"): half for which in ("gate", "up")}
        elif name.endswith("experts.down_proj"):
            split = {f"{name}.weight": shape}
        for their, size in split.items():
            transposed = ours.family == "gpt2" and ".h." in their and len(size) == 2
            called = table.get_name(their, try_suffixes=(".weight", ".bias"))
            if called is None and ".experts." in their:  # as its converter merges Mixtral's
                which = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[their.split(".")[-2]]
                merged = f"layers.{their.split('.')[2]}.feed_forward.experts.{which}.weight"
                called = table.get_name(merged, try_suffixes=(".weight",))
            if called is None and their.endswith("mlp.gate.weight"):
                called = f"blk.{their.split('.')[2]}.ffn_gate_inp.weight"
            assert called is not None, their
            found[called] = tuple(reversed(size)) if transposed else size
    return found


def written(file: Path, architecture: str, tensors: Mapping[str, tuple[int, ...]], kind: str = "F16") -> Path:
    """A file by llama.cpp's writer, with a vocabulary; of another kind than F16, the matrices are quantised by it."""
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_block_count(3)
    writer.add_token_list([f"<{n}>" for n in range(5000)])
    writer.add_token_scores([0.5] * 5000)
    for name, shape in tensors.items():
        data = np.zeros(shape, np.float16 if len(shape) > 1 else np.float32)
        if kind != "F16" and len(shape) > 1 and shape[-1] % 32 == 0:
            of = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quants.quantize(data.astype(np.float32), of), raw_dtype=of)
        else:
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_of_llama_cpp_have_their_lines(family: str, tmp_path: Path) -> None:
    dense = {"decoder_sparse_step": 1, "mlp_only_layers": []} if family.startswith("qwen") and "moe" in family else {}
    ours = tiny(family, **dense)  # no layer of theirs is dense
    tensors = named(ours, FAMILIES[family])
    files = checkpoint.local(written(tmp_path / "m.gguf", FAMILIES[family].lower(), tensors))
    assert {tensor.name: tensor.shape for tensor in files.tensors} == tensors
    found = reconcile(ours, files.tensors, gguf=True)
    assert found.differences == []
    assert found.compared == len(ours.ledger.tensors(unfolded=True))


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_0", "Q5_1", "MXFP4"])
def test_bytes_are_those_of_the_package(kind: str, tmp_path: Path) -> None:
    """The package's reader finds the same bytes by tensor, and the rest of the file is the header and padding."""
    ours = tiny("llama", hidden_size=192, intermediate_size=96)
    file = written(tmp_path / "m.gguf", "llama", named(ours, "LLAMA"), kind)
    report = tfacct.load(dict(ours.raw)).checkpoint(file)
    theirs = {tensor.name: int(tensor.n_bytes) for tensor in gguf.GGUFReader(file).tensors}
    assert {tensor.name: tensor.bytes for tensor in checkpoint.local(file).tensors} == theirs
    assert report.total == sum(theirs.values()) and report.agrees
    assert kind == "F16" or kind.lower() in report.dtypes


def test_a_planted_difference_goes_red(run: Run, tmp_path: Path) -> None:
    ours = tiny("qwen3")
    (tmp_path / "config.json").write_text(json.dumps(dict(ours.raw)))
    right: dict[str, Any] = named(ours, "QWEN3")
    file = written(tmp_path / "m.gguf", "qwen3", {**right, "rope_freqs.weight": (5,)})
    ran = run("check", str(file))
    assert ran.code == 0 and "buffer: rotary angles" in ran.out
    wide, hidden = right["blk.0.attn_q.weight"]
    written(file, "qwen3", {**right, "blk.0.attn_q.weight": (wide + 1, hidden)})
    assert f"shape {wide + 1} × {hidden}, expected {wide} × {hidden}" in run("check", str(file)).out_line
    written(file, "qwen3", {name: shape for name, shape in right.items() if name != "blk.0.attn_q.weight"})
    assert run("check", str(file)).code == 1
    written(file, "elephant", right)
    ran = run("check", str(file))
    assert ran.code == 0 and "GGUF tensor names of 'elephant' are not supported" in ran.out_line
