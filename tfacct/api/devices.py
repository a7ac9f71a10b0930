"""The devices, without a model; and a sweep that describes this machine as one."""

from __future__ import annotations

from pathlib import Path

from tfacct.output.answer import answered
from tfacct.output.views import Report


def devices(name: str | None = None) -> Report:
    """Peaks, memory and links of all devices, or all that is known of one; a name may be that of a TOML file.

    >>> from tfacct import devices
    >>> next(row["memory_bytes"] for row in devices().rows if row["device"] == "h100-sxm")
    85029027840

    Raises TfacctError.
    """
    from tfacct.loading import devices as known
    from tfacct.reports.devices import devices as report

    return answered(report([known.load(one) for one in ([name] if name else known.paths())]))


def calibrate(
    *, device: str = "cpu", dtype: str = "fp32", output: str | Path | None = None, force: bool = False
) -> Report:
    """Sweep this machine for some seconds and write a device, which `Model.time(on=...)` takes.

    `device`: cpu, cuda or mps. `output`: a `.toml`, named after the device among your own by default; `force` replaces
    one that is there. Needs torch. Raises TfacctError.
    """
    from tfacct.reports.devices import calibrate as swept

    path = None if output is None else str(output)
    return answered(swept(device=device, dtype=dtype, output=path, force=force))
