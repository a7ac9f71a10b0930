"""Suggestions for a misspelled name. Kind: golden."""

from tfacct.base.errors import beginning_alike


def test_a_name_is_completed_from_three_letters_on() -> None:
    assert beginning_alike("gp", ["gpt2", "gpt-j"]) == []
    assert beginning_alike("gpt", ["gpt2", "gpt-j"]) == ["gpt2", "gpt-j"]
