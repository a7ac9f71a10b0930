"""The pytest plugin, the GitHub Action and the pre-commit hook in a user's project. Kind: output."""

import shlex
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.action import steps
from tests.helpers.cli import Ran
from tests.helpers.imports import imported_by
from tfacct import testing

ROOT = Path(__file__).parent.parent


def test_the_plugin_imports_nothing_that_a_project_may_not_need() -> None:
    found = imported_by("import tfacct.testing; assert not {'pydantic', 'tfacct.api', 'rich'} & set(sys.modules)")
    assert found == set()


def test_pytest_finds_the_plugin_by_itself_once_installed() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points["pytest11"] == {"tfacct.testing": "tfacct.testing"}  # one name, so that -p does not load it twice


def test_no_input_of_the_action_is_pasted_into_its_script() -> None:
    assert all("${{" not in step["run"] for step in steps())


def test_the_hook_reads_files_and_fails_where_a_total_is_not_the_expected_one(run: Any, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="the hook is YAML")
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, *words = shlex.split(hook["entry"])
    files = [str(ROOT / "presets" / f"{name}.toml") for name in ("gpt2", "llama-3.1-8b", "qwen3-0.6b")]
    right: Ran = run(*words, *files)
    assert (program, right.code) == ("tfacct", 0) and "warning" not in right.err
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(Path(files[0]).read_text().replace("124_439_808", "124_439_809"))
    found: Ran = run(*words, *files, str(wrong))
    assert found.code == 1 and "124,439,808 parameters, expected 124,439,809" in found.err
    assert run("params", str(wrong)).code == 0  # without --strict it is a warning
    (tmp_path / "broken.toml").write_text("[config]\nmodel_type = 'no-such-type'\n")
    assert run(*words, str(tmp_path / "broken.toml")).code == 2


def test_a_failed_check_lists_only_the_totals_that_differ() -> None:
    """Equal totals and totals that were not measured (None) are not listed."""
    report: Any = SimpleNamespace(code="Mine", model="gpt2", code_params=10, total_params=8)
    report.differences = [
        {"path": "wte", "difference": "5 wide in the code, 4 in the config", "name": "e", "block_count": 1}
    ]
    report.code_flops = report.total_flops = 96
    report.code_cache_bytes, report.total_cache_bytes = None, 64
    report.code_saved_bytes = report.total_saved_bytes = None
    assert testing._message(report).splitlines() == [
        "Mine does not match gpt2:",
        "  wte: 5 wide in the code, 4 in the config  [e]",
        "  parameters in all: 10 in the code, 8 in the config (+2)",
    ]
