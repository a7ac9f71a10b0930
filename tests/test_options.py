"""Options and arguments: what the help says of them, other names for them, and what a shell offers after Tab."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from tfacct.accounts.metrics import METRICS, STEP_METRICS
from tfacct.base import units
from tfacct.base.spelling import shell_option
from tfacct.cli.help_pages import SCREEN
from tfacct.cli.root import command_of
from tfacct.cli.run import parameters_of
from tfacct.cli.spellings import SPELLINGS
from tfacct.commands import FORMER, NAMES
from tfacct.loading import presets
from tfacct.options import of

EXAMPLES = [(name, example) for name in NAMES for example in command_of(name).examples]
SLOW = ("verify", "measure", "check", "explore", "--template", "--calibrate")
"""Whose examples take seconds, take files that are not here, or write one."""


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("command", ["", *NAMES])
def test_a_help_fits_a_screen(run, command: str, columns: int) -> None:
    ran = run(*command.split(), "--help", columns=columns)
    assert (ran.code, ran.err) == (0, "")
    assert "bool" not in ran.out and "list[" not in ran.out and "<str>" not in ran.out
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= max(columns, 80) and (len(lines) <= SCREEN or columns < 80)
    assert not any(f"--{name} " in ran.out for name in SPELLINGS)


@pytest.mark.parametrize("command", NAMES)
def test_the_long_help_has_every_option_once(run, command: str) -> None:
    said = run(command, "--help-all").out
    for name, one in parameters_of(command_of(command)).items():
        if not of(one.annotation).argument:
            typed = shell_option(name)
            assert len(re.findall(rf"^  {typed}(?=\s|$)", said, re.MULTILINE)) == 1, typed


@pytest.mark.parametrize(("command", "example"), [one for one in EXAMPLES if not any(word in one[1] for word in SLOW)])
def test_the_example_works(run, command: str, example: str) -> None:
    program, *arguments = shlex.split(example)
    ran = run(*arguments)
    assert (program, arguments[0], ran.code) == ("tfacct", command, 0) and ran.out


@pytest.mark.parametrize("command", FORMER)
def test_a_former_command_names_the_one_that_answers(run, command: str) -> None:
    words = {"checkpoint": ["nowhere"], "metrics": [], "conventions": []}.get(command, ["gpt2"])
    ran = run(command, *words)
    assert ran.err.startswith(f"hint: `tfacct {command}` is now `tfacct {FORMER[command][0]}")
    assert ran.code == (2 if command == "checkpoint" else 0)


def test_the_program_alone_prints_its_help(run) -> None:
    ran = run()
    assert (ran.code, ran.err) == (0, "") and ran.out == run("--help").out


@pytest.mark.parametrize("typed", ["--context", "--seq-len", "--seqlen"])
def test_other_names_of_the_context(run, typed: str) -> None:
    asked = run("flops", "gpt2", "--ctx", "512").out
    assert run("flops", "gpt2", typed, "512").out == run("flops", "gpt2", f"{typed}=512").out == asked
    assert run("sweep", "gpt2", typed, "1,2").out == run("sweep", "gpt2", "--ctx", "1,2").out


@pytest.mark.parametrize("typed", ["--batch-size", "--bs"])
def test_other_names_of_the_batch(run, typed: str) -> None:
    assert run("kv", "gpt2", typed, "3").out == run("kv", "gpt2", "--batch", "3").out


def test_no_other_name_is_another_option(run) -> None:
    assert run("params", "gpt2", "--context", "9").code == 2
    for command in NAMES:
        said = run(command, "--help-all", columns=200).out.split()
        assert not any(f"--{name}" in said for name in SPELLINGS)


def test_sizes_as_people_write_them(run) -> None:
    """1e3 is 1,000 and not 1,024; a bare G is a GB, and the answer says so."""
    assert run("flops", "gpt2", "--ctx", "1e3").out == run("flops", "gpt2", "--ctx", "1000").out
    assert "context 1,000," in run("flops", "gpt2", "--ctx", "1E3").out
    for typed, said in (("24G", "24 GB"), ("24gb", "24 GB"), ("24Gi", "24 GiB"), ("24gib", "24 GiB")):
        assert f"Fits in {said}: " in run("memory", "llama-3.1-8b", "--ctx", "8k", "--fit", typed).out
    assert "total_bytes = 24 GB," in run("solve", "gpt2", "--for", "ctx", "--until", "total_bytes=24G").out


def named(out: str) -> list[str]:
    """The presets in a table of them."""
    return [line.split()[0] for line in out.splitlines() if line.split() and line.split()[0] in presets.names()]


def test_models_by_a_part_of_their_name(run) -> None:
    found = named(run("models", "llama").out)
    assert {"llama-3.2-1b", "llama-4-scout-vision", "smollm2-135m", "tinyllama-1.1b"} < {*found}  # some by their family
    assert {name for name in presets.names() if "llama" in name} < {*found} and "gpt2" not in found
    assert named(run("models", "LLaMA", "8b").out) == ["llama-3-8b", "llama-3.1-8b"]
    assert set(named(run("models", "qwen3_moe").out)) == {"qwen3-30b-a3b", "qwen3-235b-a22b", "qwen3-coder-480b"}
    assert named(run("models", "llama", "4", "--max-params", "2B").out) == ["llama-4-scout-vision"]
    assert len(named(run("models").out)) == len(presets.names())


def test_no_model_of_that_name(run) -> None:
    ran = run("models", "lamma")
    assert (ran.code, ran.out) == (2, "") and "error: no preset has lamma in its name or family" in ran.err
    assert "did you mean gemma" in ran.err or "did you mean llama" in ran.err
    assert "no preset has llama, 19b in its name or family" in run("models", "llama", "19b").err
    assert "no preset passes these filters" in run("models", "llama", "--family", "qwen2").err


def offered(line: str) -> list[str]:
    """What bash offers at the end of a line."""
    words = line.split(" ")
    environment = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TFACCT_COMPLETE": "complete_bash"}
    ran = subprocess.run(
        [sys.executable, "-m", "tfacct"], capture_output=True, text=True, env={**os.environ, **environment}, check=True
    )
    assert ran.stderr == ""
    return ran.stdout.split()


GPT2_FIELDS = ["n_ctx=", "n_embd=", "n_head=", "n_inner=", "n_layer=", "n_positions="]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("tfacct flops gpt2 --set n_", GPT2_FIELDS),
        ("tfacct sweep gpt2 --set n_", GPT2_FIELDS),
        ("tfacct diff openai-community/gpt2 --ctx 8 --set n_h", ["n_head="]),
        ("tfacct formula mamba --set state", ["state_size="]),
        ("tfacct flops --set state_", ["state_size="]),
        ("tfacct flops gpt2 --set state_", []),
        ("tfacct flops gpt2 --set n_head=", []),
        ("tfacct flops - --set num_exp", ["num_experts=", "num_experts_per_tok="]),
        ("tfacct memory gpt2 --dtype ", [*units.DTYPES]),
        ("tfacct memory gpt2 --dtype fp", ["fp32", "fp16", "fp8", "fp8-block"]),
        ("tfacct memory gpt2 --kv-dtype in", ["int8", "int4", "int8-token"]),
        ("tfacct memory gpt2 --kv --kv-dtype b", ["bf16"]),
        ("tfacct flops --bytes --dtype nv", ["nvfp4"]),
        ("tfacct sweep gpt2 --metric ", [*METRICS, *STEP_METRICS, "flops.", "share."]),
        ("tfacct sweep gpt2 --metric total_flops,share.attn_", [
            "total_flops,share.attn_projections", "total_flops,share.attn_scores_values",
        ]),
        ("tfacct solve --until kv_c", ["kv_cache_bytes="]),
        ("tfacct solve --for ", ["ctx", "batch", "num_key_value_heads", "tp", "fsdp", "pp"]),
        ("tfacct solve gpt2 --for n_", ["n_embd", "n_head", "n_layer", "n_positions"]),
        ("tfacct models --family qwen3_m", ["qwen3_moe"]),
        ("tfacct formula jam", ["jamba", "jamba-1.5-large", "jamba-1.5-mini", "jamba-v0.1"]),
        ("tfacct params gpt2-", ["gpt2-large", "gpt2-medium", "gpt2-xl"]),
        ("tfacct mem", ["memory"]),
    ],
)  # fmt: skip
def test_what_a_shell_offers(line: str, values: list[str]) -> None:
    assert offered(line) == values
