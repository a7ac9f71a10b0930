"""Options and arguments: their help, their other names, and completion. Kind: output, refusal."""

import csv
import json
import re
import shlex
from pathlib import Path

import pytest

import tfacct
from tfacct.accounts.metrics import METRICS, STEP_METRICS
from tfacct.base import units
from tfacct.base.spelling import SPELLINGS, shell_option
from tfacct.cli import spellings
from tfacct.cli.help_pages import SCREEN
from tfacct.cli.parameters import parameters_of
from tfacct.cli.root import built, command_of
from tfacct.commands import FORMER, NAMES
from tfacct.commands.help import TOPICS
from tfacct.loading import presets
from tfacct.options import Layout, of
from tfacct.reports import schema as schemas

EXAMPLES = [(name, example) for name in NAMES for example in command_of(name).examples]
SLOW = ("verify", "--run", "check", "explore", "--template", "--calibrate")
"""Commands whose examples take seconds, need files that are not here, or write one."""


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("command", ["", *NAMES])
def test_a_help_fits_a_screen(run, command: str, columns: int) -> None:
    ran = run(*command.split(), "--help", columns=columns)
    assert (ran.code, ran.err) == (0, "")
    assert "bool" not in ran.out and "list[" not in ran.out and "<str>" not in ran.out
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= max(columns, 80) and (len(lines) <= SCREEN or columns < 80)
    assert not any(f"--{name} " in ran.out for name in SPELLINGS)
    assert columns < 80 or not any(line.endswith(" …") for line in lines)  # no text is cut
    assert "\n\n\n" not in ran.out


@pytest.mark.parametrize("topic", ["python", "json"])
def test_the_help_of_help_names_pages_for_programs(run, topic: str) -> None:
    assert f"\ntfacct help {topic}\n" in run("help", "--help").out and run("help", topic).code == 0


@pytest.mark.parametrize("command", NAMES)
def test_the_long_help_has_every_option_once(run, command: str) -> None:
    printed = run(command, "--help-all").out
    assert printed.endswith("\n") and not printed.endswith("\n\n")
    assert not re.search(r"\w-$", printed, re.MULTILINE)  # no name is broken at a hyphen
    for name, one in parameters_of(command_of(command)).items():
        if not of(one.annotation).argument:
            typed = shell_option(name)
            assert len(re.findall(rf"^  {typed}(?=\s|$)", printed, re.MULTILINE)) == 1, typed


@pytest.mark.parametrize("command", NAMES)
def test_no_spelling_takes_the_place_of_an_option_of_the_command(command: str) -> None:
    own = parameters_of(command_of(command)).items()
    for word in (shell_option(name) for name, one in own if not of(one.annotation).argument):
        assert spellings._of_command(command, word) == word == f"--{spellings.normalized(word[2:])}"


@pytest.mark.parametrize(("command", "example"), [one for one in EXAMPLES if not any(word in one[1] for word in SLOW)])
def test_the_example_works(run, command: str, example: str) -> None:
    program, *arguments = shlex.split(example)
    ran = run(*arguments)
    assert program == "tfacct" and arguments[0] in (command, "compare")  # which takes several values of its options
    assert ran.code == 0 and ran.out


@pytest.mark.parametrize("command", FORMER)
def test_a_former_command_names_the_one_that_answers(run, command: str) -> None:
    own = {"metrics": "", "conventions": "", "schema": "memory", "diff": "gpt2 --set n_layer=3", "comms": "gpt2 --tp 2"}
    own |= {"checkpoint": "nowhere", "measure": "gpt2 --steps 0"}  # which are refused
    ran = run(command, *own.get(command, "gpt2").split())
    assert ran.err.startswith(f"hint: `tfacct {command}` is now `tfacct {FORMER[command][0]}")
    assert ran.code == (2 if command in ("checkpoint", "measure") else 0)


def test_a_refusal_in_json_is_one_object_under_a_former_name_too(run) -> None:
    refused = run("fit", "bert-base", "--json")
    assert refused.code == 2 and not refused.out
    assert json.loads(refused.err)["hint"] == "name one: --on h100"


def test_no_message_names_a_former_command() -> None:
    """In the code, backticks of `tfacct NAME`: what a hint tells a reader to type."""
    code = "".join(file.read_text() for file in Path(tfacct.__file__).parent.rglob("*.py"))
    named = set(re.findall(r"`tfacct ([a-z]+)", code))
    assert {"flops", "memory", "check"} <= named and named <= {*NAMES}


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("topic", ["topics", *TOPICS])
def test_a_topic_is_a_page(run, topic: str, columns: int) -> None:
    ran = run("help", topic, columns=columns)
    assert (ran.code, ran.err) == (0, "") and max(map(len, ran.out.splitlines())) <= columns
    assert ran.out.startswith("Options that several commands share") == (topic == "options")
    assert len(run("help", topic, "--json").document["rows"]) > 10


def test_topics_explain_the_shared_options_where_they_are_declared(run) -> None:
    listed = {row["option"].split()[0] for row in run("help", "layout", "--json").document["rows"]}
    assert listed == {shell_option(name) for name in Layout.__annotations__}
    assert " Layout " not in run("help", "layout").out.partition("\n")[2]  # only the title names the group
    every = run("help", "options", "--json").document["rows"]
    for name in NAMES:
        for other, one in parameters_of(command_of(name)).items():
            if of(one.annotation).group and not of(one.annotation).argument and other not in command_of(name).options:
                assert shell_option(other) in {row["option"].split()[0] for row in every}
    axis_names = {row["axis"]: row["about"] for row in run("help", "axes", "--json").document["rows"]}
    assert {"K": "key/value heads", "V": "vocabulary", "T": "new tokens (queries)"}.items() <= axis_names.items()
    assert "did you mean axes" in run("help", "axs").err


@pytest.mark.parametrize("name", schemas.KINDS)
def test_the_schema_of_an_answer_and_of_its_options(run, name: str) -> None:
    found = run("help", "schema", name).document
    options = found.pop("x-options")
    assert found == schemas.schema(name)
    command = command_of(options["title"].rpartition(" ")[2])
    assert {*command.options} - {"models", "model"} == {*options["properties"]} - {"models", "model"}
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(options)


def test_a_printed_schema_refuses_other_documents(run) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    checked = jsonschema.Draft202012Validator(run("help", "schema", "memory").document)
    answer = run("memory", "gpt2", "--json").document
    assert checked.is_valid(answer)
    for changed in ({}, {"answer": answer}, answer | {"schema": 1}):
        assert not checked.is_valid(changed)


def test_options_fit_their_schema(run) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    checked = jsonschema.Draft202012Validator(run("help", "schema", "train").document["x-options"])
    assert checked.is_valid({"models": ["gpt2"], "tp": 2, "ctx": "8k", "zero": 2})
    for wrong in ({"ctxx": 3}, {"zero": 4}, {"sp": "yes"}):
        assert not checked.is_valid(wrong)
    for line, message in (("schema nothing", "no schema 'nothing'"), ("layout x", "layout takes no NAME")):
        assert message in run("help", *line.split()).err
    assert "--csv does not work with text output" in run("help", "schema", "train", "--csv").err


def test_the_program_alone_prints_its_help(run) -> None:
    ran = run()
    assert (ran.code, ran.err) == (0, "") and ran.out == run("--help").out == run("help").out


def parsed(line: str) -> dict:
    """Options of a command line."""
    name, *words = spellings.read(shlex.split(line))
    return built(name).make_context(name, words, token_normalize_func=spellings.normalized).params


SPELLED = {
    "flops m --ctx 8": "--context 8 | --seq-len=8 | --sequence-length 8",
    "memory m --ctx 8": "--max-model-len 8 | --ctx-size 8",
    "flops m --batch 8": "--batch-size 8 | --bs 8",
    "train m --batch 8": "--per-device-train-batch-size 8",
    "memory m --dtype fp8": "--precision fp8 | --torch-dtype fp8 | --quantization fp8",
    "memory m --kv-dtype fp8": "--kv-cache-dtype fp8",
    "memory m --kv-dtype q8_0": "--cache-type-k q8_0",
    "train m --tp 8": (
        "--tensor-parallel 8 | --tensor-parallel-size 8 | --tensor-model-parallel-size 8"
        " | --tensor-parallel-degree=8 | --tp-size 8"
    ),
    "train m --pp 2": "--pipeline-parallel-size 2 | --pipeline-model-parallel-size 2",
    "train m --dp 2": "--data-parallel-size 2",
    "train m --fsdp 2": "--data-parallel-shard-degree 2",
    "train m --ep 2": "--expert-parallel-size 2 | --expert-model-parallel-size 2",
    "train m --cp 2": "--context-parallel-degree 2",
    "train m --sp --tp 2": "--sequence-parallel --tp 2",
    "train m --zero 2": "--zero-stage 2",
    "train m --recompute full": (
        "--recompute | --activation-checkpointing | --gradient-checkpointing | --activation-checkpoint"
        " | --recompute-granularity full"
    ),
    "train m --recompute full --ctx 8": "--recompute --ctx 8",
    "train m --dp 8 --zero 1": "--dp 8 --use-distributed-optimizer",
    "solve m --on h100 --for ctx": "solve m ctx --on h100 | --on h100 --ctx",
    "solve m --on h100 --for batch": "--batch --on h100",
    "help kv-dtype": "help --kv-dtype",
    "train m --recompute attention": "--checkpoint attention",
    "train m --keep-logits": "--hold-logits",
    "train m --recompute selective": "--recompute-activations | --activation-checkpointing selective",
    "train m --global-batch-size 64": "--global-batch 64",
    "train m --optimizer adamw-8bit": "--optimizer adamw8bit",
    "time m --train --on h100 --mfu 0.4": "--train --on h100 --mfu 40%",
    "budget m --on h100 --mfu 0.375": "--on h100 --mfu=37.5%",
    "solve m --ctx 4k --on h100 --for batch": "solve batch m --ctx 4k --on h100",
    "train m --accumulate 4": "--gradient-accumulation-steps 4 | --grad-accum 4",
    "train m --qlora --lora 32": "--qlora 32",
    "solve m --train --weights nf4 --lora 16 --for ctx": "solve ctx m --train --qlora",
    "sweep m --train --weights nf4 --lora 32": "--train --qlora 32",
    "train m --lora 8 --weights nf4": "--lora 8 --dtype nf4 | --lora=8 --dtype=nf4",
    "train m --optimizer sgd": "--optim sgd",
    "memory m --on h100": "--gpu h100 | --hw h100 | --device h100 | --fit h100",
    "memory m --digits": "--exact",
    "train m --exact": "--exact",
    "memory m --on 8xh100": "--gpus 8 --fit h100 | --on=h100 --gpus=8",
    "train m --on 8xh100": "--num-gpus 8 --gpu h100",
    "memory m --on 24GB": "--vram 24GB",
    "train m --weights fp32 --dtype bf16": "--mixed-precision bf16",
    "train m --attention eager": "--attn-implementation eager",
    "serve m --prompt 9 --new 9 --on h100 --use 0.8": "--prompt 9 --new 9 --on h100 --gpu-memory-utilization 0.8",
    "serve m --prompt 9 --new 9 --on h100 --requests 8": (
        "--prompt 9 --new 9 --on h100 --max-num-seqs 8 | --prompt 9 --new 9 --on h100 --users 8"
        " | --prompt 9 --new 9 --on h100 --concurrency 8"
    ),
    "serve m --on h100 --prompt 1k --new 128": (
        "--on h100 --isl 1k --osl 128 | --on h100 --in=1k --out 128 | --on h100 --input-len 1k --output-len 128"
    ),
    "serve m --on h100 --prompt 1k --new 500": "--on h100 --input 1k --output 500",
    "serve m --on h100 --output 500.md": "--on h100 --output 500.md",
    "train m --lora 16 --ctx 8": "--lora --ctx 8",
    "memory m --dtype bf16": "--bf16",
    "memory m --dtype nf4": "--load-in-4bit",
    "params c.json": "params --config=c.json",
    "flops m": "flops --model m",
    "mfu m --on h100": "--train --on h100",
    "memory --help-all": "help memory",
}
"""A command line and other spellings of it, or of its options after the model."""


@pytest.mark.parametrize("ours", SPELLED)
def test_options_by_the_names_of_trainers_and_engines(ours: str) -> None:
    assert spellings.read(shlex.split(ours)) == shlex.split(ours)
    for other in SPELLED[ours].split(" | "):
        typed = f"{' '.join(ours.split()[:2])} {other}" if other.startswith("--") else other
        if "--help-all" in ours:
            assert spellings.read(shlex.split(typed)) == shlex.split(ours), typed
        else:
            assert parsed(typed) == parsed(ours), typed


def test_no_other_name_is_another_option(run) -> None:
    assert run("params", "gpt2", "--context", "9").code == 2
    for command in NAMES:
        listed = run(command, "--help-all", columns=200).out.split()
        assert not any(f"--{name}" in listed for name in SPELLINGS)


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


def test_rows_by_a_column(run) -> None:
    """llama-2-7b has 6.74 B parameters, llama-3-8b 8.03 B, tinyllama-1.1b 1.1 B."""
    rising, falling = (named(run("models", "llama", "--sort", column).out) for column in ("params", "-total_params"))
    assert rising.index("tinyllama-1.1b") < rising.index("llama-2-7b") < rising.index("llama-3-8b")
    assert {*rising} == {*falling} == {*named(run("models", "llama").out)} and falling[0] == "llama-3.1-405b"
    watts = [row["tdp"] for row in csv.DictReader(run("devices", "--sort", "-watts", "--csv").out.splitlines())]
    inner = [int(row["k"]) for row in csv.DictReader(run("flops", "gpt2", "--sort", "-k", "--csv").out.splitlines())]
    assert inner[:2] == [3072, 1024] and inner == sorted(inner, reverse=True)  # one number of the column m × k × n
    operations = run("flops", "gpt2", "--ctx", "512", "--sort", "-each", "--csv").out.splitlines()
    assert operations[1].startswith("lm_head,")  # over all sections: its 50,257 columns are most
    known = [int(one) for one in watts if one]
    assert known == sorted(known, reverse=True) and not any(watts[len(known) :])  # devices without a figure come last


def test_the_word_moe_lists_the_presets_with_experts(run) -> None:
    """Mixtral's name does not have the word; granite-4.0-h-micro is of a family with experts but has none."""
    listed = {row["model"] for row in run("models", "moe", "--json").models}
    assert {"mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"} <= listed
    assert not {"llama-3.1-8b", "granite-4.0-h-micro"} & listed
    counted = run("params", "--json").models
    assert listed == {one["model"] for one in counted if one["active_params"] < one["total_params"]}
    assert "`tfacct models moe`" in run("models", "--moe").err


def test_options_for_devices_models_and_fields_are_completed() -> None:
    words = {"DEVICE": "device", "MODEL": "model", "FIELD=": "assignment"}
    for command in NAMES:
        options = [of(one.annotation) for one in parameters_of(command_of(command)).values()]
        for word, completion in words.items():
            assert all(completion in one.complete for one in options if word in (one.metavar or "")), (command, word)


@pytest.fixture
def offered(run, monkeypatch: pytest.MonkeyPatch):
    """Completions that bash offers at the end of a line."""

    def call(line: str) -> list[str]:
        words = line.split(" ")
        environment = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TFACCT_COMPLETE": "complete_bash"}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        ran = run()
        assert (ran.code, ran.err) == (0, "")
        return ran.out.split()

    return call


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
        ("tfacct devices mi35", ["mi350x", "mi355x"]),
        ("tfacct mem", ["memory"]),
    ],
)  # fmt: skip
def test_completion_in_a_shell(offered, line: str, values: list[str]) -> None:
    assert offered(line) == values
