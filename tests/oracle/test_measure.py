"""`mfu --run` on this machine: memory and counts equal the prediction. No test asserts a time. Kind: oracle."""

import functools
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.families.llama import STRETCHED
from tests.helpers.lazy import lazy
from tests.helpers.models import tiny
from tfacct import load
from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Request
from tfacct.reports.mfu import measure
from tfacct.verify import measured as measurement
from tfacct.verify.measured import Plan

torch, running = lazy("torch"), lazy("tfacct.reference.running")

PLANS = {
    "prefill": (Request(ctx=23, batch=3), Plan(steps=2)),
    "fused": (Request(ctx=23, batch=3), Plan(steps=2, sdpa=True)),
    "bf16": (Request(ctx=23, batch=3), Plan(steps=2, dtype="bf16")),
    "training": (Request(ctx=23, batch=3), Plan(steps=2, train=True)),
    "decode": (Request(ctx=23, batch=3, decode=True), Plan(steps=4)),
    "decode fused": (Request(ctx=23, batch=3, decode=True), Plan(steps=4, sdpa=True)),
}


@functools.cache
def peak_once() -> Callable[..., float]:
    """`running.matmul_peak` for all tests: it takes most of a measurement of tiny models."""
    return functools.cache(running.matmul_peak)


@pytest.fixture(autouse=True)
def measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfacct.reference.running.matmul_peak", peak_once())


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("family", ["gpt2", "llama", "scaled llama"])
def test_bytes_and_counts_equal_the_prediction(family: str, plan: str) -> None:
    request, what = PLANS[plan]
    model = tiny("llama", rope_scaling=STRETCHED) if family == "scaled llama" else tiny(family)
    (facts,) = measure(model, request, what).models
    width = 2 if what.dtype == "bf16" else 4
    params = sum(model.ledger.parameters().values())
    assert facts["measured_weights_bytes"] == facts["weights_bytes"] == width * params
    shape = model.architecture
    layers, keys_width = shape.stacks[0].count, shape.attentions[0].kv_heads * shape.attentions[0].head_dim
    assert facts["measured_kv_cache_bytes"] == facts["kv_cache_bytes"] == 2 * layers * 3 * 23 * keys_width * width
    assert facts["counted_flops"] == facts["forward_flops"] > 0
    assert facts["runs"] == what.steps and 0 < facts["seconds_min"] <= facts["seconds_median"] <= facts["seconds_max"]
    assert facts["masked_flops"] <= facts["total_flops"]
    assert facts["peak_bytes"] > facts["measured_weights_bytes"]


def test_layers_that_would_fit_are_counted_at_batch_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """(2 · 128,256 · 8,192 + 3 · 855,654,400) · 4 bytes are 18.7 GB; 10/11 of 20 GiB are 19.5."""
    monkeypatch.setattr("tfacct.reference.running.free_bytes", lambda _: 20 * 1024**3)
    with pytest.raises(TfacctError) as refused:
        load("llama-3.1-70b").measure(ctx=64, batch=4096)
    assert "its first 3 of 80 layers would fit" in refused.value.hint


def test_a_mask_of_chunks_has_the_dtype_of_the_run() -> None:
    (facts,) = measure(tiny("llama4_text"), Request(ctx=23), Plan(dtype="bf16")).models
    assert facts["counted_flops"] == facts["forward_flops"]


def test_decode_adds_up_its_steps() -> None:
    """Four steps that end at 23 keys: 20, 21, 22 and 23, one new token each."""
    (facts,) = load("gpt2", n_layer=1).measure(ctx=23, decode=True, steps=4).models
    one = load("gpt2", n_layer=1)
    assert facts["total_flops"] == sum(one.flops(ctx=s, decode=True).total for s in (20, 21, 22, 23))
    assert facts["masked_flops"] == facts["total_flops"]  # the newest token sees every key


def test_the_command_line(run) -> None:
    """The first two blocks of gpt2 at 256 tokens on a CPU, to the byte."""
    ran = run("mfu", "--run", "gpt2", "--set", "n_layer=2", "--ctx", "256", "--steps", "1", "--json")
    (facts,) = ran.models
    assert ran.code == 0
    assert facts["measured_weights_bytes"] == 4 * (124_439_808 - 10 * 7_087_872)
    assert facts["measured_kv_cache_bytes"] == 2 * 2 * 256 * 768 * 4
    assert {"device", "device_name", "torch", "threads", "mfu", "interrupted"} <= set(facts)
    table = run("mfu", "--run", "gpt2", "--set", "n_layer=1", "--ctx", "16", "--steps", "1")
    assert table.code == 0 and "MFU" in table.out
    assert sum(line.endswith("  ok") for line in table.out.splitlines()) == 3
    assert max(map(len, table.out.splitlines())) <= 80


def test_the_hint_names_a_context_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The context in the hint is the largest: it passes the same check, one more does not."""
    model = tiny("llama")
    monkeypatch.setattr("tfacct.reference.running.free_bytes", lambda _: 2_000_000)
    with pytest.raises(TfacctError) as refused:
        measure(model, Request(ctx=5000, batch=3), Plan())
    found = int(refused.value.hint.split("ctx=")[1].split(" ")[0].replace(",", ""))

    def fits(context: int) -> bool:
        work = Request(ctx=context, batch=3).workload(context)
        return measurement._needed(model, work, Plan()) <= 2_000_000 * 10 // 11

    assert fits(found) and not fits(found + 1)


def test_a_decode_step_has_three_caches() -> None:
    """GPT-2 in fp32: 124,439,808 weights, and caches of 2 · 12 · 768 numbers for each of 1,000 tokens."""
    work = Request(ctx=1000, decode=True).workload(1000)
    caches = 3 * 2 * 12 * 768 * 1000
    assert 0 < measurement._needed(load("gpt2").loaded, work, Plan()) - 4 * (124_439_808 + caches) < 2**20


def test_running_out_of_memory_is_an_error(monkeypatch: pytest.MonkeyPatch, run) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("allocate 9 GiB")

    monkeypatch.setattr("tfacct.reference.running.prepare", full)
    ran = run("mfu", "--run", "gpt2", "--ctx", "16")
    assert ran.code == 2 and ran.out == "" and "out of memory on cpu, with" in ran.err


def test_logits_that_are_no_numbers_are_an_error(monkeypatch: pytest.MonkeyPatch, run) -> None:
    honest = running.prepare

    def broken(*args, **kwargs):
        built = honest(*args, **kwargs)
        with torch.no_grad():
            built.final_norm.weight.fill_(float("nan"))
        return built

    monkeypatch.setattr("tfacct.reference.running.prepare", broken)
    ran = run("mfu", "--run", "gpt2", "--set", "n_layer=1", "--ctx", "16")
    assert ran.code == 2 and "results are not finite" in ran.err


def _hears_ctrl_c() -> None:
    """A process started in the background ignores Ctrl-C, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_prints_the_finished_runs() -> None:
    """The terminal's progress bar says when the first runs are done."""
    command = [sys.executable, "-m", "tfacct", "mfu", "--run", "gpt2", "--set", "n_layer=1"]
    command += ["--ctx", "64", "--steps", "100000", "--json"]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with (
        os.fdopen(ours, "rb", buffering=0) as terminal,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=theirs, env=environment, preexec_fn=_hears_ctrl_c
        ) as process,
    ):
        os.close(theirs)
        try:
            seen, until = b"", time.monotonic() + 120
            while not re.search(rb"[1-9]\d*/100000", seen):
                assert time.monotonic() < until and process.poll() is None, seen
                if select.select([terminal], [], [], 1)[0]:
                    seen += terminal.read(4096)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, seen
    (facts,) = json.loads(out)["models"]
    assert facts["interrupted"] and 0 < facts["runs"] < 100_000


def test_ctrl_c_before_the_first_run(monkeypatch: pytest.MonkeyPatch, run) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tfacct.reference.running.prepare", stop)
    ran = run("mfu", "--run", "gpt2", "--ctx", "16")
    assert ran.code == 130 and ran.out == "" and "before the first result" in ran.err
