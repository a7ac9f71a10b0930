"""The device file of a machine that was swept."""

from typing import Any

import tfacct
from tfacct.ledger.workload import Workload
from tfacct.loading.calibration import BACKWARD, BLOCK, WORK, Calibration, Checks, Curve, Swept
from tfacct.timing.calibrated import reference_pass

FREE = Curve((1,), (1e-30,), (1e-30,))
GPT2 = tfacct.load("gpt2", n_layer=2)


def swept(seconds: float = 1e-9) -> Calibration:
    """A machine that runs 10⁹ multiply-adds of weights a second, and all else in no time."""
    one = float(f"{100 * 100 * seconds:.4g}")
    rows = Curve((1, 1000), (one, float(f"{1000 * one:.4g}")), (float(f"{3 * one:.4g}"), float(f"{3000 * one:.4g}")))
    products = tuple(Swept(100, 100, cold, rows) for cold in (True, False))
    work = dict.fromkeys((*WORK, *BACKWARD, BLOCK), FREE)
    return Calibration("mine", "fp32", 1, "2.13", "process", "2026-11-22", 1, products, work, Checks({"a": 1.0}))


def seconds(model: tfacct.Model, work: Workload, on: Calibration, run: Any = "forward") -> float:
    return reference_pass(model.loaded, work, run == "train", on).seconds
