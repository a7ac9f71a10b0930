"""Training steps without an error bound, and steps that the formula does not cover. Kind: output."""

from __future__ import annotations

from collections.abc import Callable

from tests.helpers.cli import Ran
from tfacct import load


def test_an_axis_that_was_measured_on_no_family_has_no_bound(run: Callable[..., Ran]) -> None:
    assert load("mixtral-8x7b").train(ctx=2048, ep=8, dp=8).error_bound is None
    ran = run("train", "mixtral-8x7b", "--ctx", "2k", "--ep", "8", "--dp", "8")
    assert "≈: the error for this layout was not measured." in ran.out and "0 configs" not in ran.out


def test_the_hint_promises_no_seconds_of_a_class_that_loops_over_the_tokens(run: Callable[..., Ran]) -> None:
    assert run("train", "mamba-130m").err.rstrip().endswith("--exact runs the transformers class itself")
    assert "itself (about 2 s)" in run("train", "deepseek-v3.2").err
