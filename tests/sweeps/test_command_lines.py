"""Random command lines of the day print an answer or one error, never a traceback. Kind: law."""

import random
from pathlib import Path

import pytest

from tests.helpers.fuzz import check
from tests.sweeps.seed import SEED
from tfacct.commands import NAMES


def test_command_lines_of_the_day(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(run, random.Random(SEED), sorted(NAMES), 5_000, tmp_path)
