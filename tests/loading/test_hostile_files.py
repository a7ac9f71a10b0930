"""Hostile configs: a short refusal by name, soon, without control of the terminal. Kind: refusal."""

import json
import os
from pathlib import Path

import pytest

from tests.helpers.cli import cpu_limit
from tfacct import load
from tfacct.base.errors import TfacctError

SOURCE = '[source]\nurl = "https://example.org/m"\nkind = "transcribed"\n'
EXPECT = '[expect]\nparameters = 124_439_808\nfrom = "published"\n'
CONFIG = '[config]\nmodel_type = "gpt2"\nvocab_size = 59\nn_embd = 48\nn_layer = 2\nn_head = 6\n'
PRESET = SOURCE + EXPECT + CONFIG
MODEL = '[model]\nvocab = 227\nhidden = 48\ncontext = 29\npositions = "none"\n'
REST = "[attention]\nheads = 6\n[feed_forward]\nwidth = 71\n[norm]\nkind = 'rms'\n[decoder]\nlayers = 2\n"
OWN = MODEL + REST
GPT2 = {"model_type": "gpt2", "vocab_size": 59, "n_embd": 48, "n_layer": 2, "n_head": 6}
MANY = 100_000
LONG = "x" * 900_000


def preset(old: str, new: str, text: str = PRESET) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def own(old: str, new: str) -> str:
    return preset(old, new, OWN)


TABLES = {"config": SOURCE + EXPECT, "source": EXPECT + CONFIG, "expect": SOURCE + CONFIG}
TEXTS = ('"https://example.org/m"', '"transcribed"', '"published"', '"gpt2"')
SIZES = ("124_439_808", "n_layer = 2")
MORE = {"via": "[expect]", "revision": "[expect]", "working": "[config]", "nulls": "[source]"}
"""Fields that the preset lacks, and the table before which they may be added."""
HOSTILE = {
    # tables that are none, facts and fields of the wrong kind
    **{f"{name} = {value}": f"{name} = {value}\n{rest}" for name, rest in TABLES.items()
       for value in ("'url kind'", "['url', 'kind']", "5", "true", "2026-01-01")},
    **{f"tables of {name}": f"{rest}[[{name}]]\nurl = 'u'\n" for name, rest in TABLES.items()},
    "config is empty": SOURCE + EXPECT + "[config]\n",
    **{f"{text} is {value}": preset(text, value) for text in TEXTS
       for value in ("5", '["a"]', "{a = 1}", "2026-01-01")},
    **{f"{size} is {value}": preset(size, f"{size.partition('2')[0] if '=' in size else ''}{value}") for size in SIZES
       for value in ('"many"', "[1]", "{a = 1}", "1.5", "nan", "inf", "true", "1979-05-27T07:32:00Z", "07:32", "-5")},
    **{f"{name} = {value}": preset(before, f"{name} = {value}\n{before}") for name, before in MORE.items()
       for value in ("7", "2026-01-01", "{a = 1}", "[['n_inner']]")},
    "kind is long": preset("transcribed", LONG),
    "model_type is long": preset("gpt2", LONG),
    "a harmless field is a date": PRESET + "bos_token_id = 2026-01-01T00:00:00\n",
    "an unknown field is a date": PRESET + "what = [2026-01-01]\n",
    "a size is long text": preset("n_layer = 2", f'n_layer = "{LONG}"'),
    # endless numbers, endless nesting
    "a number of many digits": preset("n_layer = 2", "n_layer = " + "9" * MANY),
    "a number of many hexadecimal digits": preset("n_layer = 2", "n_layer = 0x" + "f" * MANY),
    "a harmless number of many binary digits": PRESET + "bos_token_id = 0b" + "1" * MANY,
    "parameters of many digits": preset("124_439_808", "1" + "0" * MANY),
    "lists in lists": PRESET + "bos_token_id = " + "[" * MANY + "]" * MANY,
    "lists in lists, not closed": PRESET + "bos_token_id = " + "[" * MANY,
    "tables in tables": PRESET + "what = " + "{a = " * MANY + "1" + "}" * MANY,
    "tables in tables, some": PRESET + "what = " + "{a = " * 60 + "1" + "}" * 60,
    "a key of many parts": PRESET + ".".join("a" * MANY) + " = 1\n",
    "a key of many quoted parts": PRESET + ".".join(['"="'] * MANY) + " = 1\n",
    "a table's name of many parts": PRESET + "[" + ".".join("a" * MANY) + "]\n",
    "many keys of many parts": PRESET + "".join(f"a{n}." + ".".join("a" * 150) + " = 1\n" for n in range(3000)),
    # names and strings without end
    "a table's name is long, twice": f"[{LONG[:400_000]}]\n[{LONG[:400_000]}]\n",
    "a table's name is long": OWN + f"[{LONG}]\na = 1\n",
    "a key is long": own("heads = 6", f"heads = 6\n{LONG} = 1"),
    "a key of [source] is long": preset("[expect]", f"{LONG} = 1\n[expect]"),
    "many tables and no model": REST + "".join(f"[t{n}]\na = 1\n" for n in range(20_000)),
    "an own size is long text": own("heads = 6", f'heads = "{LONG}"'),
    "an own word is long text": own('"none"', f'"{LONG}"'),
    "an own size is a date": own("heads = 6", "heads = 2026-01-01"),
    "an own table is a list": MODEL + REST.replace("[attention]", "[[attention]]"),
    "an own table is a number": "attention = 5\n" + own("[attention]\nheads = 6\n", ""),
    "an own table within a size": own("heads = 6", "heads = {a = {b = 1}}"),
    "an own source is a list": "source = ['about']\n" + OWN,
    "an own source says a number": OWN + "[source]\nabout = 5\n",
    "an own total is text": OWN + "[expect]\nparameters = 'x'\nfrom = 'arithmetic'\nworking = 'w'\n",
    "an own total from a list": OWN + "[expect]\nparameters = 5\nfrom = ['arithmetic']\nworking = 'w'\n",
    "an own working is a number": OWN + "[expect]\nparameters = 5\nfrom = 'arithmetic'\nworking = 5\n",
    "a size too large": PRESET + "#" + "x" * 4_000_000,
    "50 MB of text": PRESET + 'what = "' + "x" * 50_000_000 + '"\n',
    "no text": "\x00",
}  # fmt: skip


def refused(run, *arguments: str) -> None:
    """Two short lines, soon."""
    with cpu_limit(10):
        ran = run(*arguments)
    assert (ran.code, ran.out) == (2, ""), ran.err[:300]
    assert ran.err.startswith("error: ") and "Traceback" not in ran.err
    assert len(ran.err.splitlines()) <= 2 and len(ran.err) < 1_000


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_toml_is_refused_in_two_short_lines(run, tmp_path: Path, name: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(HOSTILE[name], encoding="utf-8")
    for command in ("models", "flops"):
        refused(run, command, str(file))


def test_the_valid_files_are_counted(run, tmp_path: Path) -> None:
    for text in (PRESET, OWN):
        (tmp_path / "mine.toml").write_text(text)
        assert run("models", str(tmp_path / "mine.toml")).code == 0


HOSTILE_JSON = {
    "a field twice, after many": "{" + "".join(f'"k{n}": 1, ' for n in range(70_000)) + '"k69999": 1}',
    "a long field twice": '{"' + LONG[:400_000] + '": 1, "' + LONG[:400_000] + '": 1}',
    "lists in lists": '{"model_type": "gpt2", "what": ' + "[" * 60 + "]" * 60 + "}",
    "a number of 1,000 digits": '{"model_type": "gpt2", "bos_token_id": ' + "9" * 1000 + "}",
    "a long model_type": json.dumps({"model_type": LONG}),
    "a model_type of many tables": json.dumps({"model_type": [{"a": 1}] * 50_000}),
    "a long key of many parts": json.dumps({"model": {"x." * 400_000: 1}}),
}


@pytest.mark.parametrize("name", HOSTILE_JSON)
def test_a_hostile_json_is_refused_in_two_short_lines(run, tmp_path: Path, name: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(HOSTILE_JSON[name], encoding="utf-8")
    refused(run, "flops", str(file))


def test_many_unknown_names_are_not_all_printed(run, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    fields = {**GPT2, LONG[:100_000]: 1, **{f"what_{n}": 1 for n in range(1000)}}
    file.write_text(json.dumps(fields))
    ran = run("params", str(file))
    assert ran.code == 0 and len(ran.err) < 1_000
    assert "x" * 79 + "…, what_0, what_1" in ran.err and "and 981 more" in ran.err


STEERING = "\x1b[31m\x07\x9b2J\u202eabc\u2028\x7f"


def safe(text: str) -> bool:
    return all(char == "\n" or char.isprintable() for char in text)


@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"], ["--markdown"]])
@pytest.mark.parametrize("command", ["models", "params", "flops", "formula"])
def test_a_text_of_others_does_not_steer_the_terminal(run, tmp_path: Path, command: str, form: list[str]) -> None:
    spelled = json.dumps(STEERING)
    preset_file, own_file, config = tmp_path / "mine.toml", tmp_path / f"my{STEERING}own.toml", tmp_path / "config.json"
    text = preset('"https://example.org/m"', spelled).replace("[expect]", f"revision = {spelled}\n[expect]")
    preset_file.write_text(text.replace('"transcribed"', f'"copied"\nvia = {spelled}') + f"{spelled} = {spelled}\n")
    own_file.write_text(f"{OWN}[source]\nabout = {spelled}\n")
    config.write_text(json.dumps({**GPT2, STEERING: "a\ud800", "dtype": STEERING}))
    for file in (preset_file, own_file, config):
        ran = run(command, str(file), *form)
        assert ran.code == 0, ran.err
        assert safe(ran.out) and safe(ran.err), (file, ran.out)
        if command == "models" and not form and file != config:
            assert "abc" in ran.out
        if form == ["--json"] and command == "models" and file == preset_file:
            assert ran.models[0]["origin"]["url"] == STEERING


def test_an_error_in_python_does_not_steer_it_either() -> None:
    with pytest.raises(TfacctError) as raised:
        load({"model_type": STEERING})
    assert "abc" in str(raised.value) and safe(str(raised.value))


def test_no_pipe_and_no_device_is_a_model(run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("mine.json", "mine.toml", "folder/config.json"):
        os.mkfifo(tmp_path / name)
        ran = run("flops", str(tmp_path / name.removesuffix("/config.json")))
        assert (ran.code, ran.out) == (2, "") and "it is not a regular file" in ran.err
        assert len(ran.err.splitlines()) == 2
    for number, device in enumerate(("/dev/zero", "/dev/urandom", "/dev/null", "/proc/kmsg")):
        links = [tmp_path / f"{number}.{ending}" for ending in ("json", "toml")]
        for link in links:
            link.symlink_to(device)
        for file in (device, *map(str, links)):
            ran = run("flops", file)
            assert (ran.code, ran.out) == (2, "") and len(ran.err) < 400 and len(ran.err.splitlines()) <= 2
