"""`serve --lora`: bytes and matmuls of adapters. Kind: golden, refusal."""

from __future__ import annotations

from typing import Any

import pytest

import tfacct
from tfacct.ledger.workload import Workload
from tfacct.loading import devices
from tfacct.loading.find import find
from tfacct.timing.adapters import ServedLora, with_adapters
from tfacct.timing.placement import Placement, place
from tfacct.timing.serving import Host

EACH = 16 * 32 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
"""Parameters of an adapter of rank 16 on the 7 linear layers of each of the 32 layers of Llama-3.1-8B: peft has as
many. q and o are 4,096 × 4,096, k and v 4,096 × 1,024, gate, up and down 4,096 × 14,336."""


def placed(name: str = "llama-3.1-8b", count: int = 1) -> Placement:
    return place(find(name), count, devices.load("h100-sxm"))


def added(plain: Placement, lora: ServedLora) -> Host:
    host = with_adapters(plain, lora).host
    assert host.adapters is not None
    return host


@pytest.mark.parametrize("loaded", [1, 4])
def test_adapters_are_stored_next_to_the_weights(loaded: int) -> None:
    assert EACH == 41_943_040
    plain = placed()
    assert added(plain, ServedLora("16", loaded)).stored() - plain.host.stored() == 2 * loaded * EACH


def test_devices_share_adapters_as_they_share_the_weights() -> None:
    # On each of 2 devices, A of q, k, v, gate and up is whole and B half; of o and down, A is half and B whole.
    per_layer = 16 * (5 * 4096 + (4096 + 2 * 1024 + 2 * 14336) // 2 + (4096 + 14336) // 2 + 2 * 4096)
    plain = placed(count=2)
    host = added(plain, ServedLora("16"))
    assert host.stored() - plain.host.stored() == 2 * 32 * per_layer
    # No collectives of their own: partial sums are added to those of the layer.
    assert host.adapters is not None
    assert {kernel.kind for kernel in host.adapters.kernels(host, Workload(64, 1, 4))} == {"gemm"}


@pytest.mark.parametrize(("sequences", "used"), [(1, 1), (3, 3), (64, 4)])
def test_each_sequence_reads_an_adapter_of_its_own(sequences: int, used: int) -> None:
    host = added(placed(), ServedLora("16", 4))
    assert host.adapters is not None
    kernels = host.adapters.kernels(host, Workload(1000, 1, sequences))
    assert sum(kernel.read for kernel in kernels) == 2 * used * EACH
    assert sum(kernel.flops for kernel in kernels) == 2 * sequences * EACH
    # A and B of q, k and v are two launches, of o two, of gate and up two, of down two.
    assert sum(kernel.times for kernel in kernels) == 32 * 8


def test_a_fused_linear_layer_has_one_a() -> None:
    # GPT-2 has q, k and v as one layer of 768 × 2,304: 12 · 8 · (768 + 2,304).
    plain = placed("gpt2")
    assert added(plain, ServedLora("8:c_attn")).stored() - plain.host.stored() == 2 * 12 * 8 * (768 + 2304)


def test_a_request_with_adapters_takes_longer_and_has_no_interval() -> None:
    model = tfacct.load("llama-3.1-8b")
    asked: dict[str, Any] = {"on": "h100", "prompt": 1024, "new": 256}
    plain, more = model.serve(**asked, requests=8), model.serve(**asked, requests=8, lora=16, adapters_loaded=8)
    assert more.lines[0]["value_seconds"] > plain.lines[0]["value_seconds"]
    assert more.lines[0]["interval_80_seconds"] is None and more.validation is None
    assert more.adapters == {
        "lora": "16",
        "adapters_loaded": 8,
        "adapter_parameters": EACH,
        "adapters_bytes": 16 * EACH,
    }
    assert plain.adapters is None and more.largest_requests < plain.largest_requests
    said = " ".join(more.notes)
    assert "No run with LoRA adapters was measured" in said and "8 LoRA adapters of rank 16 in bf16: 640 MiB." in said


def test_adapters_and_drafts_work_together() -> None:
    report = tfacct.load("llama-3.1-8b").serve(
        on="h100", prompt=64, new=64, requests=1, lora=8, draft_tokens=2, acceptance=0.5, draft="llama-3.2-1b"
    )
    assert report.adapters["adapter_parameters"] == EACH // 2 and report.drafts["tokens_per_step"] == 1.75
