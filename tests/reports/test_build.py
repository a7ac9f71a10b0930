"""Columns of tables. Kind: golden."""

from tfacct.reports.build import drop_of


def test_columns_that_fewer_rows_fill_leave_a_narrow_table_first() -> None:
    """Of six rows all, half, two and none fill a column: a column with a higher number leaves first."""
    rows = [{"all": 1, "half": 1, "two": 1}] * 2 + [{"all": 1, "half": 1}] + [{"all": 1}] * 3
    assert [drop_of(key, rows) for key in ("all", "half", "two", "none")] == [1, 1, 8, 10]
