"""Counts of a module as a test: `assert_counts(module, config)`, and a pytest fixture of that name.

pytest finds it by itself where tfacct is installed. Nothing is imported before a test asks: no torch, no config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfacct.api.model_base import ModelBase, Source
    from tfacct.reports.check import CheckDifference, CheckReport


def assert_counts(
    module: Any,
    config: ModelBase | Source,
    *,
    tokens: int | None = None,
    batch: int = 1,
    source: int | None = None,
    inputs: Any = None,
    paths: str | Path | Mapping[str, str | Sequence[str]] | None = None,
    device: str = "meta",
    train: bool = False,
) -> CheckReport:
    """Report of `tfacct.check`, which has the same keywords. Needs torch.

    Raises AssertionError, which lists all differences, where the module is not what the config says, and TfacctError
    where it cannot be asked.
    """
    __tracebackhide__ = True
    from tfacct.api.check import check

    report = check(
        module,
        config,
        tokens=tokens,
        batch=batch,
        source=source,
        inputs=inputs,
        paths=paths,
        device=device,
        train=train,
    )
    if not report.agrees:
        raise AssertionError(_message(report))
    return report


def _message(report: CheckReport) -> str:
    """All differences, the first one first, and the totals that differ."""
    lines = [f"{report.code} does not match {report.model}:"]
    lines += [f"  {one['path']}: {one['difference']}{_where(one)}" for one in report.differences]
    sums = {
        "parameters": (report.code_params, report.total_params),
        "FLOPs": (report.code_flops, report.total_flops),
        "bytes of cache": (report.code_cache_bytes, report.total_cache_bytes),
        "bytes saved for backward": (report.code_saved_bytes, report.total_saved_bytes),
    }
    for what, (code, config) in sums.items():
        if code is not None and config is not None and code != config:
            lines.append(f"  {what} in all: {code:,} in the code, {config:,} in the config ({code - config:+,})")
    return "\n".join(lines)


def _where(one: CheckDifference) -> str:
    """The code's name for a place, and how many layers differ in the same way."""
    found = [one["name"]] if one["name"] and one["name"] != one["path"] else []
    if one["block_count"] > 1:
        found.append(f"in {one['block_count']:,} layers")
    return f"  [{'; '.join(found)}]" if found else ""


with suppress(ImportError):  # a test of unittest calls the function
    import pytest

    @pytest.fixture(name="assert_counts")
    def _assert_counts() -> Callable[..., CheckReport]:
        """Return `tfacct.testing.assert_counts`: `assert_counts(module, config)`."""
        return assert_counts
