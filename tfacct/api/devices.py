"""`models`, `devices` and `calibrate`."""

from __future__ import annotations

from pathlib import Path

from tfacct.base import units
from tfacct.output.answer import answered
from tfacct.output.views import Report


def models(*words: str, family: str | None = None, max_params: int | str | None = None) -> Report:
    """The presets with their parameters; with words, those with each word in name or family. Raises TfacctError.

    >>> from tfacct import models
    >>> small = models("gpt2", max_params="100M").rows
    >>> [(row["model"], row["total_params"], 2 * row["total_params"]) for row in small]  # with its bytes in bf16
    [('distilgpt2', 81912576, 163825152)]
    """
    from tfacct.loading import presets
    from tfacct.reports.models import models as report

    limit = None if max_params is None else units.read_count("max_params", str(max_params))
    return answered(report(presets.list_all(family=family, max_params=limit, words=words)))


def devices(name: str | None = None) -> Report:
    """Peaks, memory and links of all devices, or everything known about one. `name`: a device or a TOML file.

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
    """Measure this machine for some seconds and write a device file, which `Model.time(on=...)` takes.

    `device`: cpu, cuda or mps. `output`: a `.toml` file (default: in your device folder, named after the device);
    `force` overwrites it. Needs torch. Raises TfacctError.
    """
    from tfacct.reports.devices import calibrate as swept

    path = None if output is None else str(output)
    return answered(swept(device=device, dtype=dtype, output=path, force=force))
