"""Tables at several widths, pipes, JSON, CSV and Markdown have the same content. Kind: output."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.families import TINY
from tests.helpers.models import by_kind, kind_of_preset
from tests.helpers.weight_files import folder
from tfacct import __version__
from tfacct.commands import NAMES
from tfacct.loading import presets

COMMANDS = ["flops", "params", "memory", "memory --kv"]


@pytest.mark.parametrize(
    "command", [*COMMANDS, "flops --ctx 32k --generate 1m", "flops --bytes --ctx 1m --tokens 7 --dtype int4"]
)
def test_every_preset_has_a_row_or_is_named_as_left_out(run, tmp_path: Path, command: str) -> None:
    file = tmp_path / "facts.json"
    ran = run(*command.split(), "--output", str(file))
    assert ran.code == 0 and "\x1b" not in ran.out  # a pipe gets plain text
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    left_out = {name for name in presets.names() if not any(line.startswith(f" {name} ") for line in lines)}
    document = json.loads(file.read_text())
    assert left_out == {model["model"] for model in document["models_skipped"]}
    assert ("bert-base" in left_out) == (" " in command)
    assert {model["model"] for model in document["models"]} == {*presets.names()} - left_out
    assert len({tuple(model) for model in document["models"]}) == 1  # the same keys


def test_json_is_exact_where_floats_would_round(run) -> None:
    """Llama-3.1-405B at a million tokens is past 2⁶³."""
    model = run("flops", "llama-3.1-405b", "--ctx", "1m", "--json").models[0]
    assert model["total_flops"] > 2**63
    assert model["total_flops"] == sum(2 * i["m"] * i["k"] * i["n"] * i["times"] for i in model["lines"])


LISTED = ("flops", "read_bytes", "written_bytes", "prefill_flops", "decode_flops")
ASKED = ["", "--train", "--masked", "--decode", "--logits last", "--by part", "--by block"]
ASKED += ["--bytes", "--bytes --decode", "--bytes --dtype int8", "--generate 1", "--generate 500"]


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("model", ["gpt2-xl", "qwen2-0.5b"])
def test_columns_re_add_to_their_total(run, model: str, asked: str) -> None:
    """The CSV's rows add up to the JSON's totals: nothing twice, nothing lost."""
    line = ("flops", model, "--ctx", "999", "--batch", "3", *asked.split())
    rows = list(csv.DictReader(io.StringIO(run(*line, "--csv").out)))
    (facts,) = run(*line, "--json").models
    for key in rows[0].keys() & LISTED:
        assert sum(int(row[key]) for row in rows) == facts.get(f"total_{key}", facts.get(key)), key
    assert abs(sum(float(row["share"]) for row in rows) - 1) < 1e-12  # floats only to be read
    assert f"{facts['total_flops']:,}" in run(*line, "--digits").out


SHARED = ["params", "memory", "train --by tensor", "train --by part", "time --on h100", "time --on h100 --prefill"]
SHARED += ["time --on cpu --ctx 64", "time --on h100 --train"]


@pytest.mark.parametrize("line", SHARED)
def test_shares_add_up_to_one(run, line: str) -> None:
    command, *asked = line.split()
    rows = csv.DictReader(io.StringIO(run(command, "gpt2", *asked, "--csv").out))
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1)


@pytest.mark.parametrize("model", by_kind(presets.names(), kind_of_preset))
def test_parameters_and_bytes_re_add(run, model: str) -> None:
    rows = list(csv.DictReader(io.StringIO(run("params", model, "--csv").out)))
    facts = run("params", model, "--json").models[0]
    assert sum(int(row["params"]) for row in rows) == facts["total_params"]
    assert facts["embedding_params"] + facts["non_embedding_params"] == facts["total_params"]
    asked = ("memory", model, "--dtype", "bf16")
    rows = list(csv.DictReader(io.StringIO(run(*asked, "--csv").out)))
    facts = run(*asked, "--json").models[0]
    assert sum(int(row["bytes"]) for row in rows) == facts["total_bytes"]
    assert facts["weights_bytes"] + facts["kv_cache_bytes"] == facts["total_bytes"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("models", [["gpt2"], ["gpt2", "qwen2-7b"]], ids=["one", "two"])
@pytest.mark.parametrize("extra", [[], ["--train"], ["--pointwise"], ["--on", "24GiB"]], ids=" ".join)
def test_every_csv_row_has_its_headers_cells(run, command: str, models: list[str], extra: list[str]) -> None:
    ran = run(*command.split(), *models, *extra, "--csv")
    if ran.code == 2:  # an option of another command
        assert extra and ran.out == "" and (extra[0] in ran.err or command == "memory --kv")
        return
    rows = list(csv.reader(io.StringIO(ran.out)))
    assert len(rows) > 1 and {len(row) for row in rows} == {len(rows[0])}
    assert len(set(rows[0])) == len(rows[0]) and all(key.isidentifier() for key in rows[0])


def test_fit_for_one_and_for_all(run) -> None:
    one = run("memory", "llama-3.1-8b", "--on", "24GiB", "--ctx", "8k").out_line
    # 16,060,522,496 bytes of weights; a request takes 8,192 · 131,072 = 1 GiB; 9 leave 45,544,448 bytes of 24 GiB. With
    # one byte an element it takes half: (25,769,803,776 − 16,060,522,496) / 2²⁹ = 18.1. One can have 74,075 tokens:
    # 74,075 · 131,072 = 9,709,158,400 of the 9,709,281,280 bytes that the weights leave.
    assert one.startswith("Fits in 24 GiB: 9 requests of 8,192 tokens at once.") and " free 0.042 " in one
    needs = "One request needs 1.00 GiB of cache in bf16 (128 KiB per token). With --kv-dtype fp8: 18 requests."
    assert needs in one and "A single request can have 74,075 tokens." in one and "engine" not in one
    rows = list(csv.DictReader(io.StringIO(run("memory", "--on", "24GiB", "--csv").out)))
    assert {row["largest_context"] for row in rows if row["model"] == "llama-3.1-405b"} == {"0"}
    assert all(row["largest_context"].isdigit() for row in rows if row["model"].startswith("gpt2"))


def test_a_terminal_of_no_width_is_taken_for_a_narrow_one(run) -> None:
    for command in (["flops", "gpt2"], ["-h"], ["flops", "-h"]):
        assert run(*command, columns=0) == run(*command, columns=20) and run(*command, columns=0).out
    refused = run("flops", "nothing-like-it", columns=0)
    assert refused.code == 2 and refused.err.startswith("error: no preset or file named")


def test_digits_means_every_digit(run) -> None:
    out = run("memory", "llama-3.1-8b", "--digits", columns=130).out
    assert "17,179,869,184" in out and out.count("17,179,869,184") == 1  # the GB next to it stay GB
    assert ".00" not in run("flops", "gpt2", "--digits").out


def test_version_and_help(run) -> None:
    assert run("--version").out == f"tfacct {__version__}\n"
    assert all(command in run("-h").out for command in NAMES)


def test_a_file_is_called_by_its_folder(run, tmp_path) -> None:
    config = {"model_type": "llama", "vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2}
    at = folder(tmp_path / "my-model", {**config, "num_attention_heads": 4})
    for path in (at, at / "config.json"):
        out = run("flops", str(path), "-v").out
        assert out.splitlines()[1].startswith("my-model: ")
        line = " ".join(out.split()).partition("Defaults (not in the config): ")[2]
        assert line.startswith("intermediate_size = 11,008, ") and "= false" not in line  # sizes before switches
        assert f"4more(`tfacctmodels{path}`liststhem)" in line.replace(" ", "")
        (notes,) = (model["notes"] for model in run("flops", str(path), "--json").models)
        assert "intermediate_size = 11,008" in notes[-1] and "max_position_embeddings = 2,048" in notes[-1]


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONIOENCODING": "utf-8", **environment}
    return subprocess.run([sys.executable, "-m", "tfacct", *arguments], capture_output=True, env=env, timeout=60)


def test_colour_only_where_it_is_wanted() -> None:
    assert b"\x1b[" in process("flops", "gpt2", FORCE_COLOR="1", TERM="xterm-256color").stdout
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert b"\x1b" not in process("flops", "gpt2", **{"FORCE_COLOR": "1", "TERM": "xterm-256color"} | plain).stdout


@pytest.mark.parametrize(
    "command", ["models", "params --json --family llama", "flops gpt2", "models gpt2 --csv", "explore gpt2 -o -"]
)
def test_a_closed_pipe_ends_as_in_other_programs(command: str) -> None:
    """128 + SIGPIPE, as a shell reports it, whether the output fills the pipe or not."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    words = [sys.executable, "-m", "tfacct", *command.split()]
    ran = subprocess.run(words, stdout=write_end, stderr=subprocess.PIPE, timeout=60)
    os.close(write_end)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_a_pipe_that_is_left_early() -> None:
    # 360 kB: more than a pipe and a read of head hold.
    command = f"{sys.executable} -m tfacct models --json | head -1; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert ran.stdout.split() == [b"{", b"141"] and ran.stderr == b""


def test_a_closed_stdout_is_an_error_and_a_closed_stderr_is_silent() -> None:
    for closing, message in (("flops gpt2 >&-", b"error: the output cannot be written"), ("flops nothing 2>&-", b"")):
        ran = subprocess.run(["bash", "-c", f"{sys.executable} -m tfacct {closing}"], capture_output=True, timeout=60)
        assert ran.returncode == 2 and ran.stdout == b"" and ran.stderr.startswith(message)
        assert b"Traceback" not in ran.stderr


def test_files_of_the_same_name_are_distinguished_by_their_path(run, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        folder(tmp_path / name / "cfg", TINY["gpt2"])
    models = run("params", "one/cfg", "two/cfg/config.json", "gpt2", "--json").models
    assert [model["model"] for model in models] == ["one/cfg", "two/cfg/config.json", "gpt2"]
    assert run("params", "one/cfg", "one/cfg", "--json").models[0]["model"] == "cfg"
    assert "124 M each." in run("params", "gpt2", "gpt2").out
