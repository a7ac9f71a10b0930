"""The JSON of every command matches its schema in docs/schema. Kind: law."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.helpers.answers import ANSWERS, QUICK
from tests.helpers.cli import Run
from tests.helpers.models import by_kind, kind_of_preset
from tests.helpers.schemas import check_typed, refused
from tfacct.commands import FORMER, NAMES
from tfacct.loading import presets
from tfacct.output.answer import Answer, nullable
from tfacct.output.json_schema import facts
from tfacct.output.report import Report
from tfacct.reports import schema as schemas
from tfacct.reports.models import WrittenGroup, WrittenLine, WrittenWay

jsonschema = pytest.importorskip("jsonschema")
FOLDER = Path(__file__).parents[2] / "docs" / "schema"
KINDS = [param.id for param in by_kind(presets.names(), kind_of_preset) if not param.marks]
"""Presets that together have every kind of layer: to check all presets would take ten times as long."""
STEPPING = [name for name in KINDS if presets.load(name).has_cache]
ASKED: dict[str, list[str]] = {
    "flops": [
        "flops {every}", "flops gpt2 deepseek-v3 --decode", "flops gpt2 --pointwise --train",
        "flops gemma-3-1b --masked --logits last", "flops gpt2 --explain --train",
    ],
    "flops-generate": ["flops --generate 8 --ctx 128 gpt2 deepseek-v3", "flops t5-small --generate 1 --ctx 12"],
    "flops-traffic": ["flops {every} --traffic --dtype bf16", "flops --traffic mamba-130m"],
    "params": [
        "params {every}", "params gpt2 --set n_layer=3", "params mixtral-8x7b --explain",
        "params llama-3.1-8b --tp 2 --fsdp 3",
    ],
    "memory": [
        "memory {stepping} --dtype bf16 --on 80GB", "memory llama-3.1-8b", "memory gpt2 --explain",
        "memory bert-base --on 24GiB", "memory llama-3.1-8b --tp 2",
    ],
    "kv": [
        "memory --kv {stepping}", "memory --kv deepseek-v3", "memory --kv gpt2 --explain",
        "memory --kv t5-small",
    ],
    "formula": [
        "formula llama", "formula gpt2 --of params", "formula gpt2 --of kv", "formula t5-small --of train",
        "formula deepseek-v3 --decode", "formula gpt2 --of saved --attention eager", "formula llama-3.1-8b --tp t",
    ],
    "compare": ["compare {every} --on h100", "compare llama-3.1-8b --ctx 8k,64k --dtype bf16,fp8 --metric share.attn"],
    "diff": [
        "compare gpt2 gpt2-xl --by line", "compare gpt2 gpt-oss-20b --by line",
        "compare llama-3.1-8b --set num_key_value_heads=1",
    ],
    "mfu": [
        "mfu llama-3.1-8b --ctx 8k --tokens-per-second 9k --on 8xh100",
        "mfu deepseek-v3 --ctx 4k --step-time 2s --batch 512 --on 512xh100",
    ],
    "budget": [
        "budget 1e21", "budget 1e21 --model qwen3-8b --on 8xh100", "budget gpt2 --tokens 1B --on h100 --price 2",
    ],
    "sweep": [
        "sweep gpt2 gpt2-xl --ctx 1k..4k", "sweep mamba-130m --batch 1,2", "sweep gpt2 --metric peak_bytes --ctx 64",
    ],
    "solve": [
        "solve gpt2 --for ctx --until share.attn_scores_values=50%",
        "solve llama-3.1-8b --for num_key_value_heads --until kv_cache_bytes=weights_bytes",
        "solve llama-3.1-8b --for batch --until total_bytes=80GB",
        "solve llama-3.1-8b --for ctx --until peak_bytes=80GB",
    ],
    "verify": ["verify gpt2 t5-small --ctx 16", "verify gpt2 --train --ctx 16"],
    "verify-prove": [],  # in test_prove.py, where models are proven
    "check": [],  # in test_check.py, which has modules to ask about
    "checkpoint": [],  # in test_checkpoint.py, which has files to ask about
    "measure": ["mfu --run gpt2 --ctx 8 --steps 1 --set n_layer=2"],
    "models": ["models"],
    "show": ["models gpt2", "models lecture-transformer"],
    "show-ledger": ["models gpt2 --ledger", "models deepseek-v3 --ledger", "models t5-small --ledger"],
    "train": [
        "train --max-params 100m", "train llama-3.1-8b --ctx 4k --on 80GiB",
        "train llama-3.1-8b --ctx 4k --tp 2 --fsdp 2",
    ],
    "train-exact": ["train gpt2 --exact --ctx 16", "train gpt2 --exact --on 1GiB"],
    "comms": ["plan llama-3.1-8b --tp 8", "plan qwen3-8b --tp 2 --fsdp 2 --train"],
    "plan": [
        "plan llama-3.1-8b --gpus 8 --on h100-sxm --batch 16 --ctx 8k",
        "plan llama-3.1-8b --gpus 8 --on 24GB --batch 16 --ctx 8k --train",
    ],
    "time": [
        "time llama-3.1-8b --on h100-sxm", "time qwen3-30b-a3b --on 2xmi300x --prefill --ctx 1k",
        "time deepseek-v3 --on 8xb200-hgx --ep 8 --bound-only", "time gpt2 --on cpu --ctx 64",
    ],
    "time-train": [
        "time llama-3.1-8b --on 64xh100-sxm --train --ctx 4k --tokens-total 1e12",
        "time qwen3-8b --on gaudi3 --train --ctx 1k", "time gpt2 --on cpu --train --ctx 64",
        "time gpt2 --on 8xa100-sxm-80gb --train --tp 4 --pp 2 --sp --ctx 64",
    ],
    "serve": [
        "serve llama-3.1-8b --on h100-sxm --prompt 1k --new 64 --price 2 --within 20ms",
        "serve qwen3-8b --on mi300x --prompt 1k --new 1 --users 1,3",
        "serve deepseek-v3 --on 8xb200 --prompt 1k --new 64 --draft-tokens 3 --acceptance 0.6",
        "serve llama-3.1-8b --on h100 --prompt 1k --new 64 --lora 8:q_proj --adapters-loaded 2",
    ],
    "serve-disaggregated": [
        "serve deepseek-v3 --on 8xb200 --prefill-on 8xb200 --prompt 1k --new 64 --dtype nvfp4 --price 2",
        "serve qwen3-8b --on gaudi3 --prefill-on h100 --prompt 1k --new 9 --users 1,20",
    ],
    "serve-ttft": [
        "serve qwen3-8b --on h100 --prompt 1k --new 64 --ttft 1s --tpot 30ms --requests 8 --price 2",
        "serve qwen3-8b --on gaudi3 --prompt 1k --new 1 --ttft 1s",
    ],
    "engine": [
        "engine vllm llama-3.1-8b --on h100 --engine-version 0.19", "engine vllm gemma-3-12b-text --on 2xl4",
        "engine vllm llama-3.1-8b --on 3xh100",
    ],
    "engines": ["engine"],
    "fit": ["memory llama-3.1-70b --ctx 8k --on all", "memory gpt2 --on t4,tpu-v3"],
    "metrics": ["help metrics"],
    "options": ["help options", "help layout", "help recipe", "help output"],
    "axes": ["help axes"],
    "schemas": ["help schema"],
    "devices": ["devices", "devices h100-sxm"],
    "conventions": ["help counting"],
}  # fmt: skip
PICTURED = {"explore"}
"""Commands that write a page and print no JSON."""
WITHOUT_COUNTS = {
    "show", "show-ledger", "engines", "metrics", "options", "axes", "schemas", "devices", "conventions",
}  # fmt: skip
"""Reports of facts: they have no convention of counting."""
QUESTIONS = [(name, line) for name, asked in ASKED.items() for line in asked]
SHOWN = {
    "training": "flops",
    "generate": "flops-generate",
    "traffic": "flops-traffic",
    "symbolic_ledger": "show-ledger",
    "train_time": "time-train",
    "fewest_devices": "serve-ttft",
    "serve_disaggregated": "serve-disaggregated",
}


def test_every_command_has_a_schema_and_a_question() -> None:
    assert set(ASKED) == {*schemas.KINDS, *schemas.PAGES} == {file.stem for file in FOLDER.glob("*.json")}
    pages = {"options", "axes", "schemas", "engines"}
    assert {name.partition("-")[0] for name in ASKED} == {*NAMES, *FORMER} - PICTURED - {"help", "schema"} | pages


@pytest.mark.parametrize(("name", "line"), QUESTIONS)
def test_printed_json_matches_its_schema(run: Run, name: str, line: str) -> None:
    words = line.format(every=" ".join(KINDS), stepping=" ".join(STEPPING)).split()
    if words[0] == "verify" or {"--run", "--exact"} & {*words}:
        pytest.importorskip("fvcore")
    ran = run(*words, "--json")
    assert ran.code == 0, ran.err
    document = ran.document
    assert document["command"] == name and refused(document, name) == []
    assert bool(document["convention"]) == (name not in WITHOUT_COUNTS)
    jsonschema.validate(document, json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", [name for name in NAMES if name in ASKED])
def test_the_schema_of_options_allows_every_default(run: Run, name: str) -> None:
    options = run("help", "schema", name).document["x-options"]
    for option, kind in options["properties"].items():
        assert "default" not in kind or jsonschema.Draft202012Validator(kind).is_valid(kind["default"]), option


@pytest.mark.parametrize("name", QUICK)
def test_attributes_have_the_types_that_their_class_says(name: str) -> None:
    check_typed(ANSWERS[name](), SHOWN.get(name, name.split()[0] if name != "explain" else "kv"))


OTHER_FORMS = ("ways",)
"""Keys of data with a form of its own: the ledger for other programs, where a size is a number or a formula."""


def kinds_by_key(node: dict[str, Any], names: dict[str, Any], found: dict[str, set[str]]) -> dict[str, set[str]]:
    """JSON types by key, null aside, of everything under a schema; of an array also what it holds."""
    for key, schema in node.get("properties", {}).items():
        if key not in OTHER_FORMS:
            found.setdefault(key, set()).update(kinds_of(schema, names))
            kinds_by_key(schema, names, found)
    for inner in (node.get("items"), node.get("additionalProperties"), *node.get("anyOf", ())):
        if isinstance(inner, dict):
            kinds_by_key(inner, names, found)
    return found


def kinds_of(schema: dict[str, Any], names: dict[str, Any]) -> set[str]:
    """JSON types of a schema, null aside. An integer is a number."""
    if "$ref" in schema:
        return {"object"}
    if "anyOf" in schema:
        return {kind for inner in schema["anyOf"] for kind in kinds_of(inner, names)}
    if "enum" in schema or "const" in schema:
        values = schema.get("enum") or [schema["const"]]
        return {"string" if isinstance(value, str) else type(value).__name__ for value in values if value is not None}
    kinds = schema.get("type", [])
    found = {"number" if kind == "integer" else kind for kind in ([kinds] if isinstance(kinds, str) else kinds)}
    if "array" in found:
        found = found - {"array"} | {f"array of {kind}" for kind in kinds_of(schema["items"], names)}
    return found - {"null"}


ITS_OWN = (WrittenWay, WrittenGroup, WrittenLine)
"""Records in the ledger's words. The keys of `engine` are the engines' words."""


def test_a_key_has_one_type_in_all_commands() -> None:
    found: dict[str, set[str]] = {}
    for name in (*schemas.KINDS, *schemas.PAGES):
        schema = schemas.schema(name)
        names = schema.get("$defs", {})
        for node in (schema, *names.values()):
            if node.get("description") not in {kind.__doc__ for kind in ITS_OWN} and name not in ("engine", "engines"):
                kinds_by_key(node, names, found)
    assert {key: kinds for key, kinds in found.items() if len(kinds) > 1} == {}
    assert len(found) > 300 and found["total_params"] == {"number"}


@pytest.mark.parametrize("name", [*schemas.KINDS])
def test_a_key_of_a_record_is_always_there(name: str) -> None:
    """Null if an answer has no value for it: values are optional, keys are not."""
    model = schemas.schema(name)["properties"]["models"]["items"]
    assert model["required"] == [*model["properties"]]
    typed = facts(schemas.KINDS[name])
    assert {key for key, hint in typed.items() if type(None) in get_args(hint)} == {*nullable(schemas.KINDS[name])}


def records() -> dict[str, set[str]]:
    """Keys by record: of every answer, page and object in them; of the whole document under no name."""
    found: dict[str, set[str]] = {}
    for name in (*schemas.KINDS, *schemas.PAGES):
        whole = schemas.schema(name)
        found.setdefault("", set()).update(whole["properties"])
        if name in schemas.PAGES:
            found[f"{name}_rows"] = {*schemas.PAGES[name]}
        else:
            found[schemas.KINDS[name].__name__] = {*whole["properties"]["models"]["items"]["properties"]}
        found |= {record: {*about["properties"]} for record, about in whole.get("$defs", {}).items()}
    return found


def test_every_object_has_a_meaning_and_every_meaning_an_object() -> None:
    known, written = records(), schemas.meanings()
    general = {key for key, text in written.items() if isinstance(text, str)}
    assert general - set().union(*known.values()) == set()
    for record in written.keys() - general:
        assert written[record].keys() <= known[record], record
        assert all(text != written.get(key) for key, text in written[record].items()), record
    for name in schemas.KINDS:
        for key, about in schemas.schema(name)["properties"]["models"]["items"]["properties"].items():
            plain = {"$ref", "anyOf", "items", "additionalProperties"}.isdisjoint(about)
            assert plain or "description" in about, f"tfacct/reports/keys.toml does not explain {key!r} of {name}"


def test_no_key_has_the_name_of_an_attribute_of_every_report() -> None:
    """A fact named as a method or a field of Report is declared as such: `report.total` stays the headline."""
    for kind in schemas.KINDS.values():
        own = {key for base in kind.__mro__ if issubclass(base, Answer) for key in base.__annotations__}
        own = {key for key in own if not key.startswith("_")} - {"lines"}  # which is the same fact
        assert not own & set(dir(Report)), kind


def test_the_check_above_can_fail(run: Run) -> None:
    document = run("memory", "--kv", "gpt2", "--json").document
    document["models"][0]["surprise"] = 1
    del document["models"][0]["query_heads"]
    document["models"][0]["lines"][0]["mha"] = "many"
    assert len(refused(document, "kv")) == 3
