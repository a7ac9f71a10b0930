"""tfacct: an accountant for transformers. Exact parameters, FLOPs and KV-cache bytes from a config.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfacct.base.version import __version__

if TYPE_CHECKING:
    from tfacct.api.check import check
    from tfacct.api.checkpoint import checkpoint
    from tfacct.api.devices import calibrate, devices
    from tfacct.api.meter import Meter
    from tfacct.api.metric_names import MetricName
    from tfacct.api.model import Model, load
    from tfacct.api.utilization import mfu
    from tfacct.base.errors import ConfigError, NotFoundError, TfacctError, UsageError
    from tfacct.output.views import Report
    from tfacct.reports.help import metrics

__all__ = [
    "ConfigError",
    "Meter",
    "MetricName",
    "Model",
    "NotFoundError",
    "Report",
    "TfacctError",
    "UsageError",
    "__version__",
    "calibrate",
    "check",
    "checkpoint",
    "devices",
    "load",
    "metrics",
    "mfu",
]

_HOME = {
    "Meter": "api.meter",
    "calibrate": "api.devices",
    "check": "api.check",
    "checkpoint": "api.checkpoint",
    "devices": "api.devices",
    "load": "api.model",
    "Model": "api.model",
    "MetricName": "api.metric_names",
    "Report": "output.views",
    **dict.fromkeys(("ConfigError", "NotFoundError", "TfacctError", "UsageError"), "base.errors"),
    "mfu": "api.utilization",
    "metrics": "reports.help",
}


def __getattr__(name: str) -> Any:
    """Import the Python API only when it is asked for: the command line does without it."""
    if name not in _HOME:
        raise AttributeError(f"module 'tfacct' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tfacct.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
