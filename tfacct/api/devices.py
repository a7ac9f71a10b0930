"""The devices, asked about without a model."""

from __future__ import annotations

from tfacct.output.report import Report


def devices(name: str | None = None) -> Report:
    """Peaks, memory and links of all devices, or all that is known of one; a name may be that of a TOML file.

    >>> from tfacct import devices
    >>> next(row["memory_bytes"] for row in devices().rows if row["device"] == "h100-sxm")
    85520809984

    Raises TfacctError.
    """
    from tfacct.loading import devices as known
    from tfacct.reports.devices import devices as report

    return report([known.load(one) for one in ([name] if name else known.paths())])
