"""Saved activations and peaks by the formula, compared with the classes: class_bytes.toml. Kind: golden."""

import pytest

from tests.helpers.class_bytes import ROWS, TABLES, bytes_of_row, step_of_row


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_bytes_are_those_of_the_class(table: str, row: str) -> None:
    model, asked = step_of_row(table, row)
    step, (saved, peak) = model.train(**asked), bytes_of_row(table, row)
    near = TABLES[table].get("near", 0)
    if near == "bound":
        assert step.error_bound is not None
        near = [step.error_bound and 0.03, step.error_bound * (2 if asked.get("optimizer") == "none" else 1)]
    of_saved, of_peak = near if isinstance(near, list) else (near, near)
    assert step.peak_bytes == pytest.approx(peak, rel=of_peak)
    assert saved is None or step.saved_bytes == pytest.approx(saved, rel=of_saved)
    fullest = max(step.phases, key=lambda phase: phase["total_bytes"])
    assert fullest["operation"] == TABLES[table].get("at", fullest["operation"])
