"""Print the seed of the samples before they are tested."""

from tests.sweeps.seed import SEED


def pytest_report_header() -> str:
    return f"samples of families and recipes: SWEEP_SEED={SEED}"
