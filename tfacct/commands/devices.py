"""Devices by name, and a sweep that describes this machine as one."""

from typing import Annotated

from tfacct.commands.command import Command, Found, Variant, tick
from tfacct.options import Option

Name = Annotated[str | None, Option("A device, or its TOML file.", "[NAME]", complete="device", argument=True)]


def devices(*, name: Name = None) -> Found:
    """Devices: peaks, memory and links, with sources."""
    from tfacct.loading import devices as known
    from tfacct.reports.devices import devices

    return Found(devices([known.load(one) for one in ([name] if name else known.paths())]))


def template() -> str:
    """A template for your own device."""
    from tfacct.loading.devices import TEMPLATE

    return TEMPLATE


def calibrate(
    *,
    device: Annotated[str, Option("Device to calibrate, with --calibrate.", "cpu|cuda|mps")] = "cpu",
    dtype: Annotated[str, Option("With --calibrate: fp32, bf16 or fp16.", "DTYPE")] = "fp32",
    output: Annotated[list[str] | None, Option("With --calibrate: file to write, FILE.toml.", "FILE")] = None,
    force: Annotated[bool, Option("Overwrite the file.")] = False,
) -> Found:
    """Measure this machine for some seconds and write a device file."""
    from tfacct.reports.devices import calibrate

    file = output[-1] if output else None
    return Found(calibrate(device=device, dtype=dtype, output=file, force=force, progress=tick))


COMMAND = Command(
    devices,
    examples=("tfacct devices h100", "tfacct devices --template > my-card.toml", "tfacct devices --calibrate"),
    variants={
        "template": Variant(template, Option("Print a device file to fill in, for --on my-card.toml.")),
        "calibrate": Variant(calibrate, Option("Measure this machine and write a device file for --on.")),
    },
    writes=True,
)
