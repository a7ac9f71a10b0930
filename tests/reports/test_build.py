"""Columns of tables. Kind: golden."""

from tfacct.reports.build import drop_of


def test_columns_that_fewer_rows_fill_leave_a_narrow_table_first() -> None:
    """Of four rows all, half, one and none fill a column: a column with a higher number leaves first."""
    rows = [{"all": 1, "half": 1, "one": 1}, {"all": 1, "half": 1}, {"all": 1}, {"all": 1}]
    assert [drop_of(key, rows) for key in ("all", "half", "one", "none")] == [1, 1, 7, 8]
