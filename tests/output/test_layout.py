"""Tables fit the terminal: no line is wider, no number is broken, nothing asked for is lost. Kind: output."""

import contextlib
import io
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from tests.helpers.lazy import with_torch
from tests.helpers.terminal import through
from tfacct.output import signs, terminal
from tfacct.output.progress import progress
from tfacct.output.report import Column, Report, unwatched

WIDTHS = (60, 80, 120)
UNBOUND = 1000
METRICS = "total_flops,kv_cache_bytes,kv_bytes_per_token,weights_bytes,total_bytes,total_params,share.attn"
THREE = ("gpt2", "llama-3.1-405b", "deepseek-v3")
COMMANDS = [
    "flops gpt2-xl", "flops deepseek-v3 --train", "flops gpt2-xl --pointwise", "flops gpt2 --by part",
    "flops gemma-3-4b-text --by block", "flops t5-base", "flops mamba-130m", "flops llama-3.1-405b --ctx 1m --batch 64",
    "flops gpt2-xl --generate 100 --ctx 512", "flops gpt2 llama-3.1-405b --ctx 32k --generate 1m",
    "flops gpt2-xl --bytes --ctx 1m --tokens 7 --dtype int4", "flops deepseek-v3 --bytes --dtype bf16",
    f"flops {' '.join(THREE)} --train", f"flops {' '.join(THREE)} --bytes --dtype bf16",
    "flops llama-3.1-70b --ctx 8k --tp 8 --sp --fsdp 8 --pp 4 --cp 2",
    "params deepseek-v3", f"params {' '.join(THREE)}", "params mixtral-8x7b --tp 2 --fsdp 4 --ep 8 --pp 2",
    "memory deepseek-v3 --on 2TiB --dtype bf16", "memory gpt2 llama-3.1-8b --on 2TiB --dtype bf16",
    "memory deepseek-v3 --batch 8 --dtype fp8 --on 2TiB", "memory llama-3.1-405b --dtype fp8 --ctx 32k --on all",
    "memory llama-3.1-70b --tp 8 --on 8xh100-sxm", "memory --kv deepseek-v3 --ctx 8k --tp 8 --cp 2 --pp 2",
    f"kv {' '.join(THREE)}", "kv mamba-130m", "memory --kv gpt2 mamba-130m deepseek-v3 --ctx 1k..8k",
    "train llama-3.1-405b --ctx 8k", "train llama-3.1-8b qwen3-8b --ctx 4k",
    "train llama-3.1-8b --ctx 8k --lora 16 --on 40GiB", "train bart-large --ctx 64 --by part",
    "sweep llama-3.1-8b --ctx 1k..8k --metric saved_bytes,gradients_bytes,optimizer_bytes,peak_bytes",
    "train llama-3.1-70b --ctx 8k --tp 8 --sp --fsdp 8", "train llama-3.1-8b --ctx 8k --fsdp 8 --on 16GiB",
    "plan llama-3.1-70b --tp 8", "plan llama-3.1-8b --gpus 16 --on 80GB --ctx 8k --batch 512 --train",
    "plan mixtral-8x7b --fsdp 8 --ep 8 --imbalance 1.3 --train", "plan gpt2 --on 4xh100-sxm",
    "time llama-3.1-70b --on 4xh100-sxm --dtype fp8 --ctx 8k --batch 32",
    "time llama-3.1-70b --on 8xmi300x --dtype fp8 --ctx 8k --prefill",
    "time llama-3.1-8b --on 64xh100-sxm --train --ctx 4k --batch 2 --recompute --tokens-total 1e12",
    "time deepseek-v3 --on 8xb200-hgx --ep 8 --batch 64 --ctx 8k --tokens 2", "time gpt2 --on cpu --ctx 64",
    "serve llama-3.1-70b --on 4xh100-sxm --dtype fp8 --prompt 2k --new 256 --price 2.50 --within 50ms",
    "serve qwen3-30b-a3b --on mi300x --prompt 1k --new 1k --requests 1,64",
    "formula deepseek-v3", "formula t5-base --of params", "formula llama --tp t --of params",
    "formula llama --of saved", "formula gpt2-xl", "formula qwen2 --of kv", "formula llama-3.1-405b --of train",
    "compare --by line llama-3.1-8b --set num_key_value_heads=1 --ctx 8k", "compare --by line gpt2 llama-3.1-405b",
    "compare --by line gpt2 --dtype ,int4 --batch ,9",
    f"sweep gpt2-xl --ctx 1k..32k --metric {METRICS}", "sweep mamba-130m --ctx 1k..4k",
    "sweep llama-3.1-8b gpt2 --ctx 1k,4k --batch 1,8 --set vocab_size=50257,99991",
    "sweep gpt2 --zip n_embd=768,1024 --zip n_head=12,16",
    "sweep gpt2-xl cs336-gpt2-xl --ctx 1k..16k --batch 1,8", "compare --by line gpt2 llama-3.1-405b --ctx ,128k",
    "sweep llama-3.1-8b --set num_key_value_heads=1..32 --ctx 1k..128k",
    "solve llama-3.1-8b --for ctx --until kv_cache_bytes=weights_bytes",
    "solve llama-3.1-70b --for tp --until total_bytes=80GB --ctx 8k", "models", "models deepseek-v3",
    "models deepseek-v3 --ledger",
    "devices 4090",
    with_torch("verify gpt2 t5-small --ctx 64"), with_torch("verify gpt2 --train --ctx 16 --set n_layer=3"),
    with_torch("train gpt2 --exact --ctx 16 --set n_layer=2"),
    with_torch("mfu --run gpt2 --ctx 8 --set n_layer=1 --decode"),
]  # fmt: skip
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


@pytest.fixture
def drawn(run, monkeypatch: pytest.MonkeyPatch):
    """`drawn("flops gpt2")`: what a command prints, by the width of the terminal, short and with every digit."""

    def call(command: str) -> dict[tuple[int, bool], str]:
        asked = []
        monkeypatch.setattr(terminal, "show", lambda report, **_: asked.append(report))
        ran = run(*command.split())
        monkeypatch.undo()
        assert (ran.code, len(asked)) == (0, 1), ran.err
        found = {}
        for width in (*WIDTHS, UNBOUND):
            for digits in (False, True):
                monkeypatch.setenv("COLUMNS", str(width))
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    terminal.show(asked[0], digits=digits)
                found[width, digits] = out.getvalue()
        return found

    return call


def numbers(text: str) -> Counter[str]:
    """Every printed number, except those in the names of columns that may be left out."""
    return Counter(NUMBER.findall(re.sub(r"[26]·params·tok", "", text)))


@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_terminal_and_no_number_is_broken(drawn, command: str) -> None:
    texts = drawn(command)
    for width in WIDTHS:
        for digits in (False, True):
            text, whole = texts[width, digits], texts[UNBOUND, digits]
            lines = text.splitlines()
            wide = [line.strip() for line in lines if len(line) > width]
            assert all(" " not in line and "://" in line for line in wide), (width, wide)  # an address is not broken
            assert all(line == line.rstrip() for line in lines)
            parts = sum(line.startswith(" ──") for line in lines)
            shown, there = numbers(text), numbers(whole)
            assert parts >= 1  # a table was drawn
            assert not {number for number in shown if shown[number] > parts * there[number]}
            if command.startswith(("sweep", "solve")):  # what was asked for is there at every width
                assert shown.keys() == there.keys()


def test_a_long_table_stops_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """After 20 rows, with the number of the others; a pipe gets all, and one row too many is shown."""

    def shown(rows: int, limit: int | None, tty: bool) -> list[str]:
        monkeypatch.setattr("sys.stdout.isatty", lambda: tty)
        columns = (Column("name", "name"), Column("size", "size", "count"))
        sections = tuple(tuple({"name": f"row {n}", "size": n} for n in part) for part in (range(15), range(15, rows)))
        report = Report("x", "x", columns, sections, ({},), total_rows=({"name": "total", "size": 7},))
        terminal.show(report, limit=limit)
        return [line for line in capsys.readouterr().out.splitlines() if "row" in line]

    assert len(shown(50, None, tty=True)) == 21 and "… 30 more rows" in shown(50, None, tty=True)[-1]
    assert len(shown(50, None, tty=False)) == len(shown(50, 0, tty=True)) == 50
    assert len(shown(21, None, tty=True)) == 21 and len(shown(10, None, tty=True)) == 15
    assert [line.split()[1] for line in shown(50, 3, tty=False)] == ["0", "1", "2", "47"]


@pytest.mark.parametrize("tty", [True, False])
def test_a_terminal_alone_shows_progress(monkeypatch: pytest.MonkeyPatch, tty: bool) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: tty)
    with progress() as tick:
        assert (tick is unwatched) is not tty


def test_the_option_limit(run, tmp_path: Path) -> None:
    rows = len(run("models", "llama", "--csv").out.splitlines()) - 1
    assert rows > 20 and f" … {rows - 2} more rows (--limit 0)" in run("models", "llama", "--limit", "2").out
    assert "more rows" not in run("models", "llama", "--limit", "0").out

    names = {ending: str(tmp_path / f"rows.{ending}") for ending in ("csv", "md", "html")}
    ran = run("flops", "gpt2", "--limit", "2", *(word for name in names.values() for word in ("-o", name)))
    assert "… 7 more rows (--limit 0)" in ran.out
    texts = {ending: Path(name).read_text() for ending, name in names.items()}
    assert texts["csv"] == run("flops", "gpt2", "--limit", "2", "--csv").out
    assert texts["md"] == run("flops", "gpt2", "--limit", "2", "--markdown").out
    for text in texts.values():  # a file has the rows that the same option prints
        assert "attn.k_proj" in text and "attn.v_proj" not in text
    assert run("models", "llama", "--limit", "-1").code == 2


def test_a_table_of_many_metrics_is_split_and_every_part_names_its_rows(run) -> None:
    asked = ("sweep", "gpt2-xl", "--ctx", "1k,2k", "--metric", METRICS, "--digits")
    parts = [part for part in run(*asked, columns=60).out.split("\n\n") if "──" in part]
    assert len(parts) == 2
    for part in parts:
        lines = part.splitlines()
        rule = next(number for number, line in enumerate(lines) if "──" in line)
        assert lines[rule - 1].split()[0] == "ctx"
        assert [row.split()[0] for row in lines[rule + 1 :]] == ["1,024", "2,048"]
    # 2,048 · 2 · 48 blocks · 25 heads · 64 · 2 bytes
    assert " ".join(parts).split().count("629,145,600") == 1


def test_long_texts_are_broken_as_far_as_they_can_be(run) -> None:
    lines = run("devices", "h100-sxm", columns=40).out.splitlines()
    assert max(len(line) for line in lines if "://" not in line) <= 40 and any("──" in line for line in lines)


def test_the_lines_of_a_cell_after_its_first_are_indented(run) -> None:
    """Otherwise the second line of a change looks like another row."""
    lines = run("train", "llama-3.1-8b", "--lora", "8", "--on", "h100", columns=80).out.splitlines()
    first = next(number for number, line in enumerate(lines) if line.endswith("tightly"))
    assert lines[first].split()[:4] == ["--recompute", "full", "--loss", "chunked"]
    assert lines[first + 1] == "   activations" and not lines[first + 2]


def test_an_extension_is_not_broken(run) -> None:
    for columns in range(60, 100):
        assert not re.search(r"[ ,]\.$", run("help", "output", columns=columns).out.partition("--style")[0], re.M)


FLOPS_ASCII = """\
292 G FLOPs (285 M per token), 1.14 times 2*params*tokens.
gpt2: forward FLOPs at context 1,024, batch 1

 operation                   m x k x n  times    each   FLOPs   share
 -------------------------------------------------------------------------------
 attn.q_proj         1,024 x 768 x 768     12  1.21 G  14.5 G    5.0%  ##
 attn.k_proj         1,024 x 768 x 768     12  1.21 G  14.5 G    5.0%  ##
 attn.v_proj         1,024 x 768 x 768     12  1.21 G  14.5 G    5.0%  ##
 attn.scores        1,024 x 64 x 1,024    144   134 M  19.3 G    6.6%  ##
 attn.values        1,024 x 1,024 x 64    144   134 M  19.3 G    6.6%  ##
 attn.o_proj         1,024 x 768 x 768     12  1.21 G  14.5 G    5.0%  ##

 mlp.up_proj       1,024 x 768 x 3,072     12  4.83 G  58.0 G   19.9%  #######
 mlp.down_proj     1,024 x 3,072 x 768     12  4.83 G  58.0 G   19.9%  #######

 lm_head          1,024 x 768 x 50,257      1  79.0 G  79.0 G   27.1%  #########

 total                                                  292 G  100.0%
 per token                                              285 M
 2*params*tokens                                        255 G  x 1.14

"""


def test_a_table_in_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    out = through("ascii", "flops", "gpt2", monkeypatch=monkeypatch)
    assert out.startswith(FLOPS_ASCII)
    assert "Counted: 2*m*k*n per matrix product, full T x S attention" in out


def test_windows_keeps_the_signs_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """cp1252 has × and ·, but neither rules nor blocks."""
    out = through("cp1252", "flops", "gpt2", monkeypatch=monkeypatch)
    table = FLOPS_ASCII.replace(" x ", " × ").replace("*", "·")
    assert out.startswith(table)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437", "latin-1"])
@pytest.mark.parametrize("form", ["", "--csv", "--json", "--markdown"])
@pytest.mark.parametrize("command", ["flops gpt2", "compare gpt2 gpt2-xl", "formula gpt2"])
def test_no_question_marks(command: str, form: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = through(encoding, *f"{command} {form}".split(), monkeypatch=monkeypatch)
    assert out and "?" not in out and "�" not in out
    if not form:  # replaced before it was measured
        assert max(len(line) for line in out.splitlines() if "://" not in line and "hint:" not in line) <= 80


def test_json_keeps_every_character_of_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "modèle-模型-𝕏"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"model_type": "gpt2", "vocab_size": 97, "n_embd": 12, "n_layer": 1, "n_head": 3}'
    )
    for encoding in ("ascii", "cp1252"):
        document = json.loads(through(encoding, "params", str(folder), "--json", monkeypatch=monkeypatch))
        assert document["models"][0]["model"] == "modèle-模型-𝕏"
        assert "embed.weight" in through(encoding, "params", str(folder), "--csv", monkeypatch=monkeypatch)


def test_signs() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    for text, plain in {
        "2·m·k·n ÷ 6": "2*m*k*n / 6",
        "T × S → –": "T x S -> -",
        "10⁻¹² ≤ 2⁵³": "10^-12 <= 2^53",
        "k₁ − k₀ ≈ ½": "k_1 - k_0 ~ 1/2",
        "Δ…": "delta...",
        "─█▌": "-##",
        "模": "?",
        "\udc80": "?",
    }.items():
        assert signs.written(text, stream) == plain
    assert signs.written("÷ ½ – …", io.TextIOWrapper(io.BytesIO(), encoding="cp1252")) == "÷ ½ – …"
    assert signs.written("→ ─", io.StringIO()) == "→ ─"


def test_every_sign_that_is_printed_falls_back() -> None:
    """Those of the program's own text; what a user names may be in any script."""
    package = Path(signs.__file__).parent.parent
    used = {char for file in package.rglob("*.py") for char in file.read_text(encoding="utf-8") if ord(char) > 127}
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert {char for char in used if signs.written(char, stream) == "?"} <= {"�"}


@pytest.mark.parametrize("width", [60, 80, 120])
def test_errors_are_broken_between_words_on_a_terminal_and_whole_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    messages = [
        "error: " + "a word and another " * 12 + "/a/path/" + "x" * 130,
        "hint: " + "leave it out " * 9 + "then",
    ]
    for on_terminal in (True, False):
        stream = io.StringIO()
        console = Console(file=stream, width=width, force_terminal=on_terminal, color_system=None, markup=False)
        monkeypatch.setattr(terminal, "console", lambda _, console=console: console)
        terminal.complain(messages)
        lines = stream.getvalue().splitlines()
        if on_terminal:
            assert " ".join(" ".join(lines).split()) == " ".join(messages)
            assert len(lines) > 2 and all(len(line) <= width for line in lines if "xxx" not in line)
            assert any("x" * 130 in line for line in lines)  # what cannot be broken is whole
        else:
            assert lines == messages
