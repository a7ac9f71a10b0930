"""The pytest plugin and the GitHub Action with a user's torch modules. Kind: output."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.action import steps

ROOT = Path(__file__).parents[2]
SMALL = {"n_embd": 48, "n_head": 4, "n_layer": 3, "vocab_size": 101, "n_positions": 64, "n_inner": 190}
USERS_TEST = """
from tests.helpers import user_modules as own
from tests.helpers.user_module_configs import GPT2, LLAMA
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
    (tmp_path / "test_mine.py").write_text(USERS_TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words = "-p tfacct.testing -p no:cacheprovider -q --junitxml=found.xml"
    ran = plain(sys.executable, "-m", "pytest", *words.split(), cwd=tmp_path)
    assert ran.returncode == 1 and "2 failed, 1 passed" in ran.stdout, ran.stdout
    # 60 wide, of 6 heads of 10, where the config has 2
    code = "[layers.0.attention.wk.weight; in 3 layers]"
    assert f"blocks.0.attn.k_proj: 60 wide in the code, 20 in the config  {code}" in ran.stdout
    assert "blocks.0.mlp.up_proj: 192 wide in the code, 190 in the config  [body.layers.0.mlp.0.weight" in ran.stdout
    # 3 blocks: two matrices and a shift are 2 wider
    assert "(+582)" in ran.stdout
    assert "tfacct/api" not in ran.stdout and "reports/check.py" not in ran.stdout  # no frames of ours
    assert 'failures="2"' in (tmp_path / "found.xml").read_text()


@pytest.mark.parametrize(
    ("factory", "code"),
    [("untied", 1), *(pytest.param(*case, marks=pytest.mark.slow) for case in (("gpt", 0), ("raises", 2)))],
)
def test_the_action_fails_where_the_check_does_and_leaves_a_summary(tmp_path: Path, factory: str, code: int) -> None:
    step = steps()[-1]
    (tmp_path / "tfacct").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tfacct "$@"\n')
    (tmp_path / "tfacct").chmod(0o755)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **SMALL}))
    given = {
        "factory": f"tests.helpers.user_modules:{factory}",
        "config": "config.json",
        "input-shape": "1,9",
        "map": "",
    }
    env = {name: given[value.split("inputs.")[1].rstrip(" }")] for name, value in step["env"].items()}
    summary = tmp_path / "summary.md"
    ran = plain("bash", "-e", "-o", "pipefail", "-c", step["run"], cwd=tmp_path, **env, RUNNER_TEMP=str(tmp_path),
                GITHUB_STEP_SUMMARY=str(summary), PATH=f"{tmp_path}:{os.environ['PATH']}")  # fmt: skip
    assert ran.returncode == code, ran.stderr
    if code < 2:
        assert ran.stdout == summary.read_text() and "| parameters" in ran.stdout
    assert "Traceback" not in ran.stderr
