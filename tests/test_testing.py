"""The pytest plugin, the GitHub Action and the pre-commit hook: what a user's project runs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
from tests.test_package import ROOT, imported_by

SMALL = {"n_embd": 48, "n_head": 4, "n_layer": 3, "vocab_size": 101, "n_positions": 64, "n_inner": 190}
USERS_TEST = """
from tests.helpers import own_models as own
from tests.helpers.own_model_configs import GPT2, LLAMA
from tfacct.testing import assert_counts as asserted

def test_right(assert_counts):
    assert assert_counts(own.GPT, GPT2, tokens=9).code_params > 0

def test_wrong(assert_counts):
    assert_counts(lambda: own.Llama(kv=6), LLAMA, tokens=9)

def test_too_wide():
    asserted(lambda: own.GPT(f=192), GPT2, tokens=9)
"""


def plain(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, which finds this checkout."""
    return subprocess.run(
        arguments,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **env},
    )


def test_a_users_test_fails_with_the_differences_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the user's modules are torch modules")
    (tmp_path / "test_mine.py").write_text(USERS_TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words = "-p tfacct.testing -p no:cacheprovider -q --junitxml=found.xml"
    ran = plain(sys.executable, "-m", "pytest", *words.split(), cwd=tmp_path)
    assert ran.returncode == 1 and "2 failed, 1 passed" in ran.stdout, ran.stdout
    # 60 wide, of 6 heads of 10, where the config has 2
    assert (
        "blocks.0.attn.k_proj: 60 wide in the code, 20 in the config  [layers.0.attention.wk.weight; in 3 layers]"
        in ran.stdout
    )
    assert "blocks.0.mlp.up_proj: 192 wide in the code, 190 in the config  [body.layers.0.mlp.0.weight" in ran.stdout
    # 3 blocks: two matrices and a shift are 2 wider
    assert "(+582)" in ran.stdout
    assert "tfacct/api" not in ran.stdout and "reports/check.py" not in ran.stdout  # no frames of ours
    assert 'failures="2"' in (tmp_path / "found.xml").read_text()


def test_the_plugin_imports_nothing_that_a_project_may_not_need() -> None:
    found = imported_by("import tfacct.testing; assert not {'pydantic', 'tfacct.api', 'rich'} & set(sys.modules)")
    assert found == set()


def test_pytest_finds_the_plugin_by_itself_once_installed() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points["pytest11"] == {"tfacct.testing": "tfacct.testing"}  # one name, so that -p does not load it twice


def steps() -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml", reason="the action is YAML")
    action = yaml.safe_load((ROOT / ".github" / "actions" / "check" / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    found: list[dict[str, Any]] = action["runs"]["steps"]
    return found


@pytest.mark.parametrize(
    ("factory", "code"),
    [("untied", 1), *(pytest.param(*case, marks=pytest.mark.slow) for case in (("gpt", 0), ("raises", 2)))],
)
def test_the_action_fails_where_the_check_does_and_leaves_a_summary(tmp_path: Path, factory: str, code: int) -> None:
    pytest.importorskip("torch", reason="the user's modules are torch modules")
    step = steps()[-1]
    (tmp_path / "tfacct").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tfacct "$@"\n')
    (tmp_path / "tfacct").chmod(0o755)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **SMALL}))
    given = {"factory": f"tests.helpers.own_models:{factory}", "config": "config.json", "input-shape": "1,9", "map": ""}
    env = {name: given[value.split("inputs.")[1].rstrip(" }")] for name, value in step["env"].items()}
    summary = tmp_path / "summary.md"
    ran = plain("bash", "-e", "-o", "pipefail", "-c", step["run"], cwd=tmp_path, **env, RUNNER_TEMP=str(tmp_path),
                GITHUB_STEP_SUMMARY=str(summary), PATH=f"{tmp_path}:{os.environ['PATH']}")  # fmt: skip
    assert ran.returncode == code, ran.stderr
    if code < 2:
        assert ran.stdout == summary.read_text() and "| parameters" in ran.stdout
    assert "Traceback" not in ran.stderr


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
    assert found.code == 1 and "124,439,808 parameters, but 124,439,809 are expected" in found.err
    assert run("params", str(wrong)).code == 0  # without --strict it is a warning
    (tmp_path / "broken.toml").write_text("[config]\nmodel_type = 'no-such-type'\n")
    assert run(*words, str(tmp_path / "broken.toml")).code == 2
