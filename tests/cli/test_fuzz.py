"""Every command with random valid-looking options prints an answer or one error, never a traceback. Kind: law."""

import random
from pathlib import Path

import pytest

from tests.helpers.cli import Ran
from tests.helpers.fuzz import CHECKS, LEFT_OUT, check, fault, options
from tfacct.cli.root import Commands
from tfacct.commands import NAMES


def test_random_options_are_answered_or_refused(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(run, random.Random(0), sorted({*NAMES} - CHECKS), 300, tmp_path)


def test_every_command_and_option_is_drawn() -> None:
    """All commands and options of the help, except those that open a browser or measure for minutes."""
    for command in NAMES:
        drawn = {option.spelled for option in options(command)}
        shown = {max(param.opts, key=len) for param in Commands()[command].params if param.param_type_name == "option"}
        assert shown - drawn <= LEFT_OUT | {"--help", "--help-all"}, command


def test_the_fuzz_can_fail() -> None:
    assert fault(["flops"], Ran(1, "", "error: no")) and fault(["flops"], Ran(2, "a table", "error: no"))
    assert fault(["flops", "--json"], Ran(0, '{"total": NaN}', "")) and fault(["kv"], Ran(2, "", "error: : no"))
    assert fault(["kv", "--json"], Ran(2, "", '{"error": "no", "hint": "", "kind": "usage"}'))
    assert not fault(["check"], Ran(1, "DIFFERS", "")) and not fault(["kv"], Ran(2, "", "error: no such model"))
