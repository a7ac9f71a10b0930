"""Seconds of a step: an estimate, from its kernels and the peaks of a device. Never a count.

A kernel takes the time of its FLOPs and that of its bytes, bent into one another, and a launch:

    t = ((FLOPs / (peak · c))^q + (bytes / (bandwidth · m))^q)^(1/q) + launch

One set of constants serves every device: they were fitted together on published runs (docs/time.md) of which none is
here. What they miss, they miss by engine and by model, and `validated` says by how much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.loading.devices import Device
from tfacct.timing.kernels import Kernel

Limit: TypeAlias = Literal["compute", "memory", "launch", "link", "host"]
UNITS: Mapping[str, str] = {
    "fp8": "fp8",
    "fp8-block": "fp8",
    "nvfp4": "fp4",
    "mxfp4": "fp8",
    "fp16": "fp16",
    "fp32": "fp32",
    "tf32": "tf32",
}
"""Units that multiply weights of a format, where a device has them. All others are unpacked and multiplied in bf16, and
so is mxfp4 without fp4 units: devices that have these multiply it by activations in fp8."""
FP4 = ("nvfp4", "mxfp4")
"""Formats that devices with fp4 units multiply without unpacking."""
WIDE = ("bf16", "fp16", "fp32", "tf32")
"""Formats of 16 bits and more."""


@record
class Constants:
    """Constants of the law. Shares are of a device's peak, of its bandwidth or of its link; times are in seconds.

    Fitted: on published runs of engines that serve (docs/time.md), all devices together.
    """

    wide: float = 0.759  # Share of the peak that large products of bf16 attain, also of experts. Fitted.
    fp8: float = 0.659  # The same of fp8 units, activations' quantization included. Fitted.
    fp4: float = 0.492  # The same of fp4 units. Fitted.
    memory: float = 0.773  # Share of the bandwidth at which kernels read and write. Fitted.
    bend: float = 1.32  # Exponent q between the larger of two times (infinite) and their sum (1). Fitted.
    launch: float = 2.77e-6  # Seconds of a kernel's launch and its tail. Fitted.
    launch_narrow: float = 5.03e-6  # The same of products of weights below 16 bits, quantization included. Fitted.
    attention: float = 0.632  # Share of the bf16 peak that attention over long prompts attains. Fitted on kernels.
    prompt: float = 1550.0  # Tokens of a prompt at which attention attains half of that. Fitted on kernels.
    experts_unpacked: float = 0.256  # Share of the bf16 peak that experts attain whose weights are unpacked. Fitted.
    unpacking: float = 989.4e12  # Largest peak of which they attain that share: Hopper's. Read off tables of kernels.
    experts_narrow: float = 0.42  # Share of the peak of fp8 and fp4 units that experts attain. Fitted.
    tile: int = 24  # Rows to which the tokens of an expert are padded, by half of it on average. Not fitted.
    uneven: float = 1.81  # FLOPs of the busiest rank over the mean, where ranks hold different experts. Fitted.
    popularity: float = 0.539  # Gamma shape of how often experts are chosen: the larger, the more alike. Fitted.
    experts_launch: float = 24.9e-6  # Seconds of a launch over all experts, half of a layer's sorting. Fitted.
    experts_launch_fp4: float = 11.3e-6  # The same of fused kernels, for fp4 weights on devices with fp4 units. Fitted.
    link: float = 0.442  # Share of NVLink, one way, that an all-reduce of few bytes attains. Fitted.
    link_large: float = 0.723  # The same of many bytes. Fitted.
    message: float = 16e6  # Bytes of an all-reduce that attains the mean of both. Read off tables of all-reduces.
    link_switch: float = 1.04  # Share for many bytes where switches add the numbers. Read off the same tables.
    message_switch: float = 30e6  # Bytes of an all-reduce that attains the mean there. Read off the same tables.
    link_pcie: float = 0.516  # Share of PCIe that an all-reduce attains. Fitted.
    link_sockets: float = 0.43  # The same of more devices than share a CPU socket, and between nodes. Fitted.
    reduce: float = 8.5e-6  # Seconds of a collective of nothing; times 0.6 + 0.1 for each device. Fitted.
    hop: float = 1.7e-6  # Seconds of its launch over PCIe, and of each step of the ring. Read off the same tables.
    hop_large: float = 5.8e-6  # The same of NCCL's protocol for many bytes. Read off the same tables.
    flags: float = 2.5  # Times as long as by that the protocol for few bytes sends. Read off the same tables.
    engine: float = 0.485e-3  # Seconds of an engine between two steps. Fitted.
    sequence: float = 5.57e-6  # Seconds of an engine for each sequence of a decode step: sampling, text. Fitted.
    amd: float = 1.2  # Seconds of a step on AMD's devices over those of this law. Fitted to MI300X alone.
    pace: float = 1.0  # Seconds of a step over those of this law, as the user's own runs say. Not fitted.
    request: float = 0.02  # Seconds of a request outside the model: HTTP, tokenizer, queue. Not fitted.
    budget: int = 8192  # Prompt tokens that an engine takes in one step. The default of engines.


CONSTANTS = Constants()
SOCKET = 4
"""Devices that share a CPU socket."""
SWITCHED = 8
"""Devices from which on NVLink's switches add the numbers of an all-reduce (SHARP, since Hopper)."""


class Timed(NamedTuple):
    """A kernel with its seconds, and what most of them go to. `bytes`: all that it moves; of experts, those that some
    token is sent to."""

    kernel: Kernel
    seconds: float
    limit: Limit
    bytes: float


class Step(NamedTuple):
    """A step: its kernels, the engine's additional seconds, and the bound that no device of these peaks goes below.

    `compute` and `memory` are the seconds of all FLOPs at the peak and of weights and cache at the bandwidth, of
    experts only those that any routing reads; the bound is the larger, as if both overlapped wholly.
    """

    kernels: list[Timed]
    engine: float
    compute: float
    memory: float

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.kernels) + self.engine

    @property
    def bound(self) -> float:
        return max(self.compute, self.memory)


def units_of(device: Device, stored: str) -> str:
    """Name of the units that multiply weights of this format: its own where the device has them, else bf16, or fp16 or
    fp32 where there is none of these; fp32 for tf32. Raises UsageError for a device with narrower units alone."""
    stored = stored.split("+")[0].strip()
    wanted = "bf16" if stored in FP4 and "fp4" not in device.peak else UNITS.get(stored, "bf16")
    instead = ("fp32", "bf16", "fp16") if wanted == "tf32" else ("bf16", "fp16", "fp32")
    if (found := next((name for name in (wanted, *instead) if name in device.peak), None)) is None:
        raise UsageError(f"{device.id} has no {wanted} units", "give their peak under [peak] in its file")
    return found


def step(kernels: Sequence[Kernel], device: Device, sequences: int, new: int, constants: Constants = CONSTANTS) -> Step:
    """Seconds of a step of so many sequences on one device, with `new` tokens of each."""
    timed = [_timed(kernel, device, constants, new > 1) for kernel in kernels]
    engine = constants.engine + (0.0 if new > 1 else constants.sequence * sequences)
    if (pace := constants.pace * (constants.amd if device.vendor == "AMD" else 1)) != 1:
        timed, engine = [one._replace(seconds=pace * one.seconds) for one in timed], pace * engine
    multiplying = (kernel for kernel in kernels if kernel.flops)
    compute = sum(kernel.flops / device.peak[units_of(device, kernel.format)] for kernel in multiplying)
    memory = sum(map(least_read, kernels)) / device.bandwidth
    return Step(timed, engine, compute, memory)


def least_read(kernel: Kernel) -> float:
    """Bytes of weights and cache that are read wherever tokens are sent: of experts, those of one token."""
    share = 1.0 if kernel.experts is None else kernel.experts[1] / kernel.experts[2]
    return kernel.cache + kernel.read * share


def _reached(kernel: Kernel, c: Constants) -> float:
    """Share of the experts that some token is sent to; 1 of other kernels. Numbers of tokens are Poisson distributed
    around means that are gamma distributed: some experts are chosen far more often than others."""
    if kernel.experts is None:
        return 1.0
    _, chosen, of = kernel.experts
    without_tokens = float((1 + kernel.rows * chosen / of / c.popularity) ** -c.popularity)
    return max(1 - without_tokens, chosen / of)


def _multiplied(kernel: Kernel, c: Constants) -> float:
    """FLOPs that the device waits for: with padded queries; of experts, with each one's rows padded, on the busiest
    rank."""
    if kernel.experts is None:
        return kernel.padded * kernel.flops
    here, chosen, of = kernel.experts
    padding = 1 + _reached(kernel, c) * c.tile / 2 / (kernel.rows * chosen / of)
    return kernel.flops * padding * (c.uneven if here < of else 1)


def _rate(kernel: Kernel, device: Device, c: Constants, prefill: bool) -> float:
    """FLOPs per second of a kernel."""
    units = units_of(device, kernel.format)
    peak = device.peak[units]
    if kernel.kind == "attention":
        return peak * c.attention * (kernel.rows / (kernel.rows + c.prompt) if prefill else 1)
    if units in ("fp8", "fp4"):
        return peak * (c.experts_narrow if kernel.experts else c.fp8 if units == "fp8" else c.fp4)
    if kernel.experts and kernel.format not in WIDE:
        return min(peak, c.unpacking) * c.experts_unpacked
    return peak * c.wide


def _timed(kernel: Kernel, device: Device, c: Constants, prefill: bool) -> Timed:
    if kernel.over > 1:
        return _sent(kernel, device, c)
    moved = kernel.read * _reached(kernel, c) + kernel.cache + kernel.moved
    compute, moving = _multiplied(kernel, c) / _rate(kernel, device, c, prefill), moved / (device.bandwidth * c.memory)
    each = c.launch_narrow if kernel.kind == "gemm" and kernel.format not in WIDE else c.launch
    if kernel.experts is not None:
        each = c.experts_launch_fp4 if kernel.format in FP4 and "fp4" in device.peak else c.experts_launch
    launch = kernel.times * each
    both = (compute**c.bend + moving**c.bend) ** (1 / c.bend)
    limit: Limit = "launch" if launch > max(compute, moving) else "compute" if compute > moving else "memory"
    return Timed(kernel, both + launch, limit, moved)


def _sent(kernel: Kernel, device: Device, c: Constants) -> Timed:
    """A collective: a ring's bytes over the link, and the devices' agreement. An all-reduce goes around twice, an
    all-gather once. `share`: of the link that it attains. Over PCIe, engines leave more than two devices to NCCL, which
    has a protocol for few bytes and one for many."""
    steps = (2 if kernel.kind == "all-reduce" else 1) * (kernel.over - 1)
    ring = steps / kernel.over * kernel.moved
    link, message = device.link(kernel.over), kernel.moved / kernel.times
    share = c.link_pcie if link.devices <= SOCKET else c.link_sockets
    if link.reach == "domain":
        switches_add = link.devices >= SWITCHED and device.vendor == "NVIDIA" and "fp8" in device.peak
        large, half = (c.link_switch, c.message_switch) if switches_add else (c.link_large, c.message)
        share = c.link + (large - c.link) * message / (message + half)
    sending, waiting = ring / (link.rate * share), kernel.times * c.reduce * (0.6 + 0.1 * kernel.over)
    if link.reach == "node":
        few, many = (kernel.times * hop * (1 + steps) for hop in (c.hop, c.hop_large))
        ways = [(sending, few)] if kernel.over == 2 else [(c.flags * sending, few), (sending, many)]
        sending, waiting = min(ways, key=sum)
    return Timed(kernel, sending + waiting, "link" if sending > waiting else "launch", ring)
