"""An accountant for transformers: exact parameters, FLOPs and KV-cache bytes from a config.json.

>>> from tfacct import load
>>> model = load("llama-3.1-8b")  # or a path, a hub id, a dict of config fields
>>> model.params().total, model.flops(ctx="8k").total
(8030261248, 158140695838720)
>>> model.memory(ctx="8k", on="h100").fit["largest_batch"]
54

`Model` has a method for each command (`flops`, `params`, `memory`, `train`, `plan`, `time`, `serve` …). Each returns a
`Report`: `print` shows its table, and the numbers are attributes. `Meter` and `mfu` give the utilization of a training
run. `check` compares your own torch module with a config, `checkpoint` files of weights. `models`, `devices` and
`metrics` list what other calls take. A mistake raises `TfacctError`, a ValueError. In a shell, `tfacct help python`
prints more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfacct.base.version import __version__

if TYPE_CHECKING:
    from tfacct.api.check import check, checkpoint
    from tfacct.api.devices import calibrate, devices, models
    from tfacct.api.meter import Meter
    from tfacct.api.metric_names import MetricName
    from tfacct.api.model import Model, load
    from tfacct.api.utilization import mfu
    from tfacct.base.errors import ConfigError, ModelTypeError, NotFoundError, TfacctError, UsageError
    from tfacct.output.views import Report
    from tfacct.reports.help import metrics

__all__ = [
    "ConfigError",
    "Meter",
    "MetricName",
    "Model",
    "ModelTypeError",
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
    "models",
]

_HOME = {
    "Meter": "api.meter",
    **dict.fromkeys(("check", "checkpoint"), "api.check"),
    **dict.fromkeys(("calibrate", "devices", "models"), "api.devices"),
    **dict.fromkeys(("Model", "load"), "api.model"),
    "MetricName": "api.metric_names",
    "Report": "output.views",
    **dict.fromkeys(("ConfigError", "ModelTypeError", "NotFoundError", "TfacctError", "UsageError"), "base.errors"),
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
