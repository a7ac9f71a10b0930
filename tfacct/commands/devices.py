"""Devices by name, and a sweep that describes this machine as one."""

from typing import Annotated, Any

from tfacct.commands.command import Command, Found, Variant, tick
from tfacct.options import Option

Name = Annotated[str | None, Option("A device, or a TOML file of one.", "[NAME]", complete="device", argument=True)]


def devices(*, name: Name = None) -> Found:
    """Cards and chips: peaks, memory, links, and their sources.

    >>> from tfacct import devices
    >>> next(row["memory_bytes"] for row in devices().rows if row["device"] == "h100-sxm")
    85029027840

    A name may be that of a TOML file. Raises TfacctError.
    """
    from tfacct.loading import devices as known
    from tfacct.reports.devices import devices

    return Found(devices([known.load(one) for one in ([name] if name else known.paths())]))


def template() -> str:
    """A file to begin your own device with."""
    from tfacct.loading.devices import TEMPLATE

    return TEMPLATE


def calibrate(
    *,
    device: Annotated[str, Option("Device to run on, for --calibrate.", "cpu|cuda|mps")] = "cpu",
    dtype: Annotated[str, Option("fp32, bf16 or fp16, for --calibrate.", "DTYPE")] = "fp32",
    output: Annotated[list[str] | None, Option("File of the calibrated device, FILE.toml.", "FILE")] = None,
    force: Annotated[bool, Option("Overwrite the file.")] = False,
) -> Found:
    """Sweep this machine for some seconds and write a device, which `Model.time(on=...)` takes.

    `device`: cpu, cuda or mps. `output`: a `.toml`, named after the device among your own by default; `force` replaces
    one that is there. Needs torch. Raises TfacctError.
    """
    from tfacct.reports.devices import calibrate

    file = output[-1] if output else None
    how: Any = {"device": device, "dtype": dtype, "output": file, "force": force}
    return Found(calibrate(**how, progress=tick))


COMMAND = Command(
    devices,
    examples=("tfacct devices h100", "tfacct devices --template > my-card.toml", "tfacct devices --calibrate"),
    variants={
        "template": Variant(template, Option("Print a file to begin your own device with.")),
        "calibrate": Variant(calibrate, Option("Sweep this machine, and write a device for --on.")),
    },
    writes=True,
)
