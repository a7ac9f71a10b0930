"""Estimates of time: the law by hand, for every model and device, and Little's law of a closed loop. Kind: golden,
law.
"""

import re
import subprocess
import sys
from dataclasses import fields, replace
from math import exp
from pathlib import Path

import pytest

from tfacct.base.errors import UsageError
from tfacct.ledger.storage import BF16_EACH, storage
from tfacct.ledger.workload import Workload
from tfacct.loading import devices
from tfacct.loading.find import find
from tfacct.parallel.mesh import Mesh
from tfacct.timing.kernel_time import CONSTANTS, Constants, units_of
from tfacct.timing.kernel_time import step as step_of
from tfacct.timing.kernels import Kernel
from tfacct.timing.serving import Host
from tfacct.timing.validated import VALIDATED

ROOT = Path(__file__).parents[2]
H100 = devices.load("h100-sxm")


def host(name: str, mesh: Mesh | None = None, device: str = "h100-sxm", dtype: str = "bf16") -> Host:
    return Host(find(name).ledger, devices.load(device), mesh or Mesh(), storage(dtype), BF16_EACH, BF16_EACH)


def test_a_product_by_hand() -> None:
    # With q = 2, no launch, and shares of 1, 3 s of FLOPs and 4 s of bytes are 5 s.
    plain = replace(CONSTANTS, bend=2.0, wide=1.0, memory=1.0, launch=0.0, engine=0.0, sequence=0.0)
    kernel = Kernel("up", "gemm", 1, flops=3 * H100.peak["bf16"], read=4 * H100.bandwidth, format="bf16")
    step = step_of([kernel], H100, 1, 1, plain)
    assert step.seconds == pytest.approx(5)
    assert step.bound == 4
    assert step.kernels[0].limit == "memory"


def test_an_all_reduce_by_hand() -> None:
    # Of 4 devices: a ring sends 2 · 3/4 of 1,800 MB, 2.7 GB, at half of 450 GB/s; and 0.6 + 0.4 of a launch.
    shares = {"link": 0.5, "link_large": 0.5, "link_pcie": 0.5, "link_sockets": 0.25}
    plain = replace(CONSTANTS, **shares, reduce=1.0, hop=1.0, hop_large=1.0, engine=0.0, sequence=0.0)
    kernel = Kernel("all", "all-reduce", 1, moved=1_800_000_000, over=4)
    assert step_of([kernel], H100, 1, 1, plain).seconds == pytest.approx(1 + 2.7e9 / 225e9)
    # Of 16 in two nodes: 2 · 15/16 of it, at a quarter of the 400 GB/s of a node's network; and 0.6 + 1.6.
    wide = kernel._replace(over=16)
    assert step_of([wide], H100, 1, 1, plain).seconds == pytest.approx(2.2 + 3.375e9 / 100e9)
    # Of 4 A100 PCIe: no bridge joins more than 2, so they send over PCIe 4.0, 32 GB/s: a launch and 6 steps of a ring.
    # They wait less, and send thrice as long, by the protocol for few bytes; two cards send as long by their own.
    card, protocols = devices.load("a100-pcie-80gb"), replace(plain, hop_large=3.0, flags=3.0)
    assert step_of([kernel], card, 1, 1, plain).seconds == pytest.approx(7 + 2.7e9 / 16e9)
    assert step_of([kernel], card, 1, 1, protocols).seconds == pytest.approx(7 + 3 * 2.7e9 / 16e9)
    many = kernel._replace(moved=1_800_000_000_000)
    assert step_of([many], card, 1, 1, protocols).seconds == pytest.approx(21 + 2.7e12 / 16e9)
    two = kernel._replace(over=2)
    assert step_of([two], devices.load("l40s"), 1, 1, protocols).seconds == pytest.approx(3 + 1.8e9 / 16e9)
    assert step_of([kernel._replace(over=2)], card, 1, 1, plain).seconds == pytest.approx(0.8 + 1.8e9 / 150e9)
    # Of 8 on two sockets: 2 · 7/8 of it at a quarter of PCIe. An all-gather goes around once: half of that.
    eight = kernel._replace(over=8)
    assert step_of([eight], card, 1, 1, plain).seconds == pytest.approx(15 + 3.15e9 / 8e9)
    once = eight._replace(kind="all-gather")
    assert step_of([once], card, 1, 1, plain).seconds == pytest.approx(8 + 3.15e9 / 2 / 8e9)
    # Of 16 MB over NVLink: the mean of the shares of small and of large messages.
    large = replace(plain, link_large=1.0, message=16e6)
    assert step_of([kernel._replace(moved=16_000_000)], H100, 1, 1, large).seconds == pytest.approx(
        1 + 24e6 / (0.75 * 450e9)
    )
    # Of 30 MB and 8 H100, whose switches add: the mean of 0.5 and 1.1 of the link. Those of A100 and MI300X do not add.
    added = replace(large, link_switch=1.1, message_switch=30e6)
    eight = kernel._replace(moved=30_000_000, over=8)
    assert step_of([eight], H100, 1, 1, added).seconds == pytest.approx(1.4 + 52.5e6 / (0.8 * 450e9))
    for name in ("a100-sxm-80gb", "mi300x"):
        other = devices.load(name)
        assert step_of([eight], other, 1, 1, added).seconds == step_of([eight], other, 1, 1, large).seconds


def test_attention_by_hand() -> None:
    # 2 s of FLOPs at the bf16 peak are 8 s where heads are padded to four times as many, and 4 s for a prompt as long
    # as the one at which attention attains half of its share.
    plain = replace(CONSTANTS, attention=1.0, launch=0.0, engine=0.0, sequence=0.0)
    kernel = Kernel("attn.attention", "attention", 1, flops=2 * H100.peak["bf16"], rows=1550)
    padded = kernel._replace(padded=4.0)
    seconds = [step_of([one], H100, 1, new, plain).seconds for one, new in ((kernel, 1), (padded, 1), (kernel, 9))]
    assert seconds == pytest.approx([2, 8, 4])
    assert step_of([padded], H100, 1, 1, plain).bound == pytest.approx(2)


ONLY_EXPERTS = {"bend": 99.0, "experts_launch": 0.0, "engine": 0.0, "sequence": 0.0}


def test_experts_by_hand() -> None:
    # 64 tokens, each sent to 2 of 8 experts: 16 rows an expert. All are reached, and half a tile of 32 rows is padding:
    # twice the FLOPs. Where a device holds 4 of the 8, the busiest one takes 1.5 times the mean.
    plain = replace(CONSTANTS, popularity=1e9, tile=32, uneven=1.5, **ONLY_EXPERTS)
    peak = H100.peak["bf16"]
    kernel = Kernel("up", "experts", 1, flops=peak, read=1, format="bf16", rows=64, experts=(8, 2, 8))
    even = step_of([kernel], H100, 1, 1, replace(plain, wide=0.5)).seconds
    assert even == pytest.approx(2 * 2, rel=1e-6)
    some = kernel._replace(experts=(4, 2, 8))
    assert step_of([some], H100, 1, 1, replace(plain, wide=0.5)).seconds == pytest.approx(1.5 * even)
    # Weights of 4 bits are unpacked on a device without units for them.
    narrow, shares = kernel._replace(format="int4"), replace(plain, experts_unpacked=0.25)
    assert step_of([narrow], H100, 1, 1, shares).seconds == pytest.approx(2 * even)
    # A B200 unpacks no faster, though its bf16 peak is 2.3 times as high; an A100 unpacks at its own peak.
    b200, a100 = (step_of([narrow], devices.load(name), 1, 1, shares).seconds for name in ("b200-hgx", "a100-sxm-80gb"))
    assert b200 == pytest.approx(2 * even) and a100 == pytest.approx(2 * even * 989.4 / 312)


def test_experts_take_one_launch_of_their_device_and_format() -> None:
    """Fused kernels for fp4 weights need units for them, which a B200 has and an H100 has not."""
    plain = replace(CONSTANTS, engine=0.0, sequence=0.0, experts_launch=2.0, experts_launch_fp4=1.0)
    for name, stored, seconds in ("b200-hgx", "nvfp4", 1), ("h100-sxm", "nvfp4", 2), ("b200-hgx", "fp8", 2):
        kernel = Kernel("up", "experts", 1, format=stored, rows=1, experts=(8, 2, 8))
        assert step_of([kernel], devices.load(name), 1, 1, plain).seconds == pytest.approx(seconds)


def test_experts_that_are_reached_by_hand() -> None:
    # Each of 24 tokens is sent to 2 of 16 experts, 3 to each on average. If all are chosen alike, 1 - e⁻³ of them get
    # one; if their popularity has an exponential distribution (shape 1), 3 of 4. A token alone reaches 2 of 16.
    kernel = Kernel("up", "experts", 1, read=H100.bandwidth, format="bf16", experts=(16, 2, 16))
    for popularity, rows, reached in (
        (1e6, 24, 1 - exp(-3)),
        (1.0, 24, 3 / 4),
        (1.0, 1, 1 / 8),
        (0.5, 24, 1 - 7**-0.5),
    ):
        plain = replace(CONSTANTS, popularity=popularity, memory=1.0, **ONLY_EXPERTS)
        seconds = step_of([kernel._replace(rows=rows)], H100, 1, 1, plain).seconds
        assert seconds == pytest.approx(reached, rel=1e-5)


def test_a_device_of_amd_takes_longer_by_a_factor() -> None:
    card, plain = devices.load("mi300x"), replace(CONSTANTS, engine=0.0, sequence=0.0)
    kernel = Kernel("up", "gemm", 1, flops=10**15, read=10**9, format="bf16")
    seconds = [step_of([kernel], card, 1, 1, replace(plain, amd=amd)).seconds for amd in (1.0, 1.25)]
    assert seconds[1] == pytest.approx(1.25 * seconds[0])


@pytest.mark.parametrize("stored", ["bf16", "fp8", "nvfp4", "int4", "mxfp4", "awq+head", "fp8-block + mxfp4"])
@pytest.mark.parametrize("device", ["h100-sxm", "b200-hgx", "a100-sxm-80gb", "t4", "m3-max", "tpu-v5e"])
def test_units_are_those_of_the_device(device: str, stored: str) -> None:
    chip = devices.load(device)
    units = units_of(chip, stored)
    assert units in chip.peak
    if device == "h100-sxm":
        assert units == ("fp8" if stored.startswith("fp8") else "bf16")  # Hopper multiplies no 4-bit floats
    if device == "b200-hgx":
        assert units == {"nvfp4": "fp4", "int4": "bf16", "awq+head": "bf16", "bf16": "bf16"}.get(stored, "fp8")


def test_wide_weights_are_not_multiplied_in_narrower_units() -> None:
    """Weights in fp8 can be; their activations in bf16 cannot."""
    chip = devices.load("h100-sxm")
    narrow = replace(chip, peak={"int8": chip.peak["int8"], "fp8": chip.peak["fp8"]})
    assert units_of(narrow, "fp8") == "fp8"
    with pytest.raises(UsageError, match="h100-sxm has no bf16 units"):
        units_of(narrow, "bf16")


@pytest.mark.parametrize(
    "name", ["llama-3.1-70b", "qwen3-235b-a22b", "deepseek-v3", "gpt-oss-120b", "gemma-4-e2b-text"]
)
@pytest.mark.parametrize("device", ["h100-sxm", "b200-hgx", "mi300x", "t4"])
def test_no_step_is_below_its_bound(name: str, device: str) -> None:
    for mesh in (Mesh(), Mesh(8), Mesh(8, ep=8), Mesh(1, dp=4, ep=4)):
        for work in (Workload(2048, 1, 1), Workload(2048, 1, 64), Workload(2048, 2048, 4, "last")):
            step = host(name, mesh, device, "fp8").step(work)
            assert step.bound < step.seconds
            assert all(one.seconds >= 0 for one in step.kernels)


def test_a_closed_loop_conserves_work() -> None:
    # first token + (new - 1) · token = users · prefill + (new - 1) · decode, for any order of the two.
    loop = host("llama-3.1-8b").loop(16, 2048, 256)
    served = loop.served()
    least, most = served.token
    assert served.request == pytest.approx(16 * served.prompt + 255 * served.decode.seconds + CONSTANTS.request)
    assert 255 * (most - least) == pytest.approx(15 * served.prompt)
    assert served.request_bound < served.request
    assert served.rate == pytest.approx(16 * 256 / served.request)
    assert loop.prompts == 4  # of 2,048 tokens in a budget of 8,192


def test_capacity_is_arithmetic() -> None:
    # Llama-3.1-8B in bf16: 16,060,522,496 bytes of weights, 131,072 of cache for each token: in 80 GB, 2,000 tokens of
    # (80 · 10^9 - 16,060,522,496) // (131,072 · 2,000) = 243 users.
    one = host("llama-3.1-8b")
    assert one.stored() == 16_060_522_496
    assert one.capacity(2000, 80 * 10**9) == 243
    assert one.capacity(2000, 16 * 10**9) == 0
    # On two devices each has half of the heads' cache and of the weights, and all 65 norms of 4,096 numbers.
    two = host("llama-3.1-8b", Mesh(2))
    assert two.stored() == (16_060_522_496 + 65 * 4096 * 2) // 2
    assert two.capacity(2000, 80 * 10**9) == (80 * 10**9 - two.stored()) // (65_536 * 2000)


def test_every_constant_has_a_meaning() -> None:
    source = (ROOT / "tfacct" / "timing" / "kernel_time.py").read_text()
    for field in fields(Constants):
        meaning = re.search(rf'\n    {field.name}: \w+ = \S+(?:  # ([^\n]+)|\n    """([^"]+)""")', source)
        assert meaning is not None, field.name
        text = meaning[1] or meaning[2]
        assert text.endswith(".") and any(origin in text for origin in ("Fitted", "Not fitted", "Read off", "default"))


def test_figures_of_errors_make_sense() -> None:
    for one in VALIDATED.values():
        assert one.low <= 1 < one.high
        assert all(name in devices.paths() for name in one.on)


def test_missing_measurements_are_stated(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "benchmarks" / "time_error.py"), str(tmp_path)]
    ran = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, check=True)
    assert "no measured points" in ran.stdout and "no estimate of time is validated" in ran.stdout
