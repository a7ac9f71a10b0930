"""At most three notes under a table, by rank; the others with -v. Kind: output."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from tests.helpers.calibrated import swept
from tests.helpers.cli import Run
from tests.helpers.notes import printed_rows
from tests.helpers.projectors import DEVSTRAL
from tests.helpers.weight_files import LLAMA_70B, SHARD, folder, indexed
from tfacct import load
from tfacct.loading import calibration
from tfacct.loading.calibration import Checks
from tfacct.output import layout
from tfacct.output.report import Note, NoteRow, Report, notes

ROWS = (
    NoteRow("usable", 3, lambda free: {"free": free}, "{free} GiB are usable."),
    NoteRow("full", 1, lambda free: free == 0, "Nothing more fits."),
    NoteRow("units", 2, lambda free: ["GiB", "GB"][: free + 1], "Sizes are in {}."),
)


def reported(*texts: str) -> Report:
    return replace(load("gpt2").params(), notes=texts, convention="tensors", defaulted="", details=("At length.",))


def shown(report: Report, verbose: bool = False) -> list[str]:
    lines = [line.text for line in layout.lines(report, 200, digits=False, spelled=str, verbose=verbose)]
    return lines[len(lines) - lines[::-1].index("") :]


def test_a_row_gives_a_note_where_it_applies() -> None:
    assert notes(ROWS, 0) == ["0 GiB are usable.", "Nothing more fits.", "Sizes are in GiB."]
    assert [(note.key, note.rank) for note in notes(ROWS, 1)] == [("usable", 3), ("units", 2), ("units", 2)]


def test_three_notes_are_shown_by_rank_in_their_order_and_all_with_v() -> None:
    report = reported(*notes(ROWS, 0))
    first = ["0 GiB are usable.", "Nothing more fits.", "Sizes are in GiB. (1 more note: .notes)"]
    assert shown(report) == first  # what was counted is background, and comes after the first of that rank
    assert shown(report, verbose=True) == [
        "0 GiB are usable.", "Nothing more fits.", "Sizes are in GiB.", "Counted: tensors · tfacct help counting",
        "At length.",
    ]  # fmt: skip
    many = reported(Note("a", 3, "A."), Note("b", 2, "B."), Note("c", 2, "C."), Note("d", 1, "D."))
    assert shown(many) == ["B.", "C.", "D. (2 more notes: .notes)"]
    assert "A." not in many.to_markdown() and "<p>A.</p>" in many.to_html()


def test_plain_texts_are_always_shown() -> None:
    assert shown(reported("A.", "B.", "C.", "D."))[:4] == ["A.", "B.", "C.", "D."]


DISTANCE = {
    "model": {"vocab": 227, "hidden": 48, "context": 29, "positions": "sines"},
    "attention": {"heads": 6, "head_dim": 10, "scores": "distance"},
    "feed_forward": {"width": 71},
    "norm": {"kind": "layer"},
    "decoder": {"layers": 2},
}
CASES = """
flops gpt2-xl --train --recompute full
flops gpt2 deepseek-v3 --ctx 1k
flops deepseek-v3 --tp 2
flops albert-base-v2
flops vit-base-patch16-224
flops mistral-7b-v0.1
flops lecture-transformer
flops {distance}
flops {devstral} --part both
flops {index} --traffic
flops {distance} --traffic
flops deepseek-v3 --traffic --ctx 1k --tp 2
flops bart-base --generate 10 --ctx 10
flops deepseek-v3 --generate 10 --ctx 10
flops {distance} --generate 10 --ctx 10
params deepseek-v3
params albert-base-v2
params {devstral} --part both
params lecture-transformer
params transformer-base
params llama-3.1-8b --tp 16
params llama-3.1-8b --tp 2 --pp 2
params llama-3.1-8b --tp 2 --sp
memory qwen3-8b --dtype int4 --on 4090
memory gpt2 llama-3.1-8b --on 80GB
memory gemma-3-1b --pp 4 --ctx 1k --on 2GiB
memory {index}
memory {quantized}
memory {devstral} --part both
memory deepseek-v4-flash --ctx 4095
memory bart-base
memory llama-3.1-8b --on h100 --kv-block 16
kv llama-3.1-8b
kv bart-base
kv mistral-7b-v0.1
kv deepseek-v3 --tp 2
kv mamba2-130m
kv {quantized}
time gpt2 --on h100 --lower-bound
time qwen3-30b-a3b --on h100 --ctx 1k --batch 9
time phi-4 --on h100 --dtype q4_k_m --ctx 1k --prefill
time gpt2 --on {busy} --ctx 8
time olmo-2-1b --on 2xh100 --ctx 1k
serve olmo-2-1b --on 2xh100 --prompt 1k --new 9
time llama-3.1-8b --train --on 8xh100 --ctx 4k --mfu 0.4
time llama-3.1-70b --train --on 8xh100 --ctx 4k
time llama-3.1-70b --train --on 64xa100-sxm-80gb --ctx 4k --tp 8 --pp 8 --sp
memory gemma-3-12b-text --ctx 8k --on h100 --engine vllm
memory llama-3.1-8b --ctx 8k --on all --engine vllm
serve llama-3.2-1b --on 4090 --prompt 256 --new 64 --engine vllm
serve llama-3.1-70b --on 4xh100 --dtype fp8 --prompt 2k --new 256 --price 2 --within 50ms
serve llama-3.1-8b --on h100 --prompt 2k --new 256 --requests 8,1k
serve {index} --on 8xh100 --prompt 1k --new 10
serve llama-3.1-8b --on h100 --prompt 1k --new 9 --ttft 100ms --requests 4
serve llama-3.1-8b --on h100 --prompt 1k --new 9 --lora 16
serve llama-3.1-8b --on h100 --prefill-on 2xh100 --prompt 1k --new 9
serve llama-3.1-8b --on h100 --prompt 1k --new 9 --draft-tokens 3 --acceptance 0.6 --draft llama-3.2-1b
serve olmo-2-7b --on 2xh100 --prompt 100 --new 10
memory {index} --on all --ctx 1k
memory {quantized} --on all --ctx 1k
memory minimax-m2 --on all
memory llama-3.1-405b --on h100,h200 --ctx 1k
memory phi-4 --on all --dtype q4_k_m
plan llama-3.1-70b --train --on 64xh100 --tp 8 --pp 4 --ctx 8k
plan llama-3.1-8b --tp 16
plan olmo-2-1b --ctx 1k --on 2xh100
plan llama-3.1-8b --fsdp 2 --cp 2 --train --ctx 1k
plan llama-3.1-8b --pp 2 --dp 2 --train --ctx 1k
plan mixtral-8x7b --tp 2 --ep 2 --ctx 1k
plan deepseek-v3 --fsdp 8 --train --ctx 1k
plan llama-3.1-8b --train --ctx 8k --batch 512 --tp 2 --pp 4 --on 8xh100
plan llama-3.1-8b --train --ctx 2k --batch 8 --on 8xh100 --optimizer sgd
plan llama-3.1-8b --train --ctx 2k --batch 8 --on 4xh100 --lora 16 --recompute full
plan mixtral-8x7b --train --ctx 2k --batch 16 --on 16xh100
plan {index} --ctx 1k --on 8xh100
plan {quantized} --ctx 1k --on 8xh100
plan phi-4 --dtype q4_k_m --ctx 1k --batch 2 --on 2x80GB
train gpt2 --ctx 1k --master-weights fp32
train llama-3.1-8b --ctx 8k --on 8xh100
train llama-3.1-8b --ctx 512 --on 4090
train llama-3.2-1b --ctx 512 --on 4090 --loss chunked
train llama-3.2-1b --ctx 512 --on 24GB --recompute full
train gpt2 --ctx 4 --on 4090 --optimizer sgd
train gpt2 --ctx 4 --optimizer paged-adamw-8bit --offload optimizer
train gpt2 --ctx 4 --optimizer adafactor-transformers-beta1
train gpt2 --ctx 512 --batch 2 --packing
train gpt2 --ctx 512 --batch 96 --pp 2
train llama-3.2-1b --ctx 512 --lora 16
train llama-3.2-1b --ctx 512 --qlora
train mixtral-8x7b --ctx 512 --qlora
train {bert} --lora 4
train gpt-oss-20b --ctx 512 --attention eager
train vit-base-patch16-224
train llama-3.1-8b --ctx 512 --tp 2 --pp 2 --cp 2
train llama-3.1-8b --ctx 512 --dp 2 --zero 1
train llama-3.1-8b --ctx 512 --tp 16
train mixtral-8x7b --ctx 512 --fsdp 8 --ep 8
train mixtral-8x7b --ctx 512 --fsdp 16
engine vllm gemma-3-12b-text --on h100
engine vllm llama-3.1-8b --on h100 --max-model-len 8192 --engine-version 0.19
engine vllm mistral-7b-v0.1 --on l4
engine vllm opt-125m --on t4
engine sglang llama-3.1-8b --on h100
""".strip().splitlines()
"""Questions whose answers print every note of the reports that count, of estimates, layouts, steps and engines."""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Models in files: with distances for scores, a projector, files that contradict the config, a quantized cache; and
    the sweep of a machine that was busy."""
    named = {name: tmp_path / name for name in ("index", "quantized")}
    for path in named.values():
        path.mkdir()
    indexed(named["index"], LLAMA_70B, 10**9, a=SHARD)
    quantization = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    folder(named["quantized"], LLAMA_70B, hf_quant_config={"quantization": quantization})
    bert = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "num_labels": 3}
    for name, config in {"devstral": DEVSTRAL, "distance": DISTANCE, "bert": bert}.items():
        named[name] = tmp_path / f"{name}.json"
        named[name].write_text(json.dumps(config))
    named["busy"] = tmp_path / "busy.toml"
    busy = replace(swept(), checks=Checks({"a": 3.0}))
    named["busy"].write_text(calibration.written("busy", 10**10, 1e10, 1e11, busy, machine=False))
    return named


def test_every_note_is_printed_by_a_case(run: Run, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    printed = printed_rows(monkeypatch)
    for command in CASES:
        ran = run(*command.format(**files).split())
        assert ran.code == 0, (command, ran.err)
    tables = {
        f"{report}.{name}": table
        for report in ("flops", "params", "memory", "time", "serve", "comms", "plan", "train", "engine")
        for name, table in vars(import_module(f"tfacct.reports.{report}")).items()
        if name.endswith("NOTES") and name != "EXACT_NOTES"  # which need torch
    }
    assert len(tables) == 20
    silent = {name: [row.key for row in table if id(row) not in printed] for name, table in tables.items()}
    # Images are those of models whose configs are no presets.
    assert {name: keys for name, keys in silent.items() if keys} == {"engine.NOTES": ["images"]}
