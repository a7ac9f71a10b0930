"""The Python API: arguments, results and errors. Kind: output, refusal."""

import ast
import copy
import inspect
import json
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import tfacct
from tests.families import TINY
from tests.helpers.answers import ANSWERS, QUICK, check_plain
from tests.helpers.cli import Run
from tests.helpers.lazy import with_torch
from tfacct import Model, Report, TfacctError, load, options
from tfacct.accounts.metrics import METRICS, STEP_METRICS
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Request
from tfacct.output.answer import answered
from tfacct.reports.memory import memory


def test_a_second_model_may_be_named(tmp_path: Path) -> None:
    """As on the command line: anything that `load` takes."""
    first, other = load("gpt2"), load("gpt2-xl")
    assert first.diff("gpt2-xl", ctx=7).document() == first.diff(other, ctx=7).document()
    assert first.diff(TINY["gpt2"], ctx=7).document() == first.diff(load(TINY["gpt2"]), ctx=7).document()
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(TINY["gpt2"]))
    assert first.diff(file, ctx=7).title == "gpt2 → mine.json, context 7, batch 1"
    set_over = first.diff("gpt2-xl", ctx=7, n_layer=3)
    assert set_over.document() == first.diff(load("gpt2-xl", n_layer=3), ctx=7).document()


@pytest.mark.parametrize("nothing", [3, {1, 2}, b"gpt2", ["gpt2"], "gpt2xl"], ids=repr)
def test_an_argument_that_is_no_model_is_refused(nothing: Any) -> None:
    for asked in (load, load("gpt2").diff):
        with pytest.raises(TfacctError):
            asked(nothing)


GPT2 = load("gpt2")
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "train": (
        lambda: GPT2.flops(train=True, decode=True),
        "train counts whole sequences; it does not work with decode or",
    ),
    "by": (lambda: GPT2.flops(by="row"), "by must be one of line, part, layer, not 'row'"),  # type: ignore[arg-type]
    "no prompt": (lambda: GPT2.generate(ctx=None, new_tokens=3), "give the prompt length with ctx, for example 2048"),  # type: ignore[arg-type]
    "too long": (lambda: GPT2.generate(ctx=10**12, new_tokens=2), "ctx=1000000000000 with new_tokens=2 reaches"),
    "bytes": (lambda: GPT2.kv(ctx=b"512"), "ctx must be a whole number, not b'512'"),
    "fit": (lambda: GPT2.memory(on=0), "on must be a whole number of bytes, not 0"),
    "half a byte": (lambda: GPT2.memory(on=24e9), "on must be a whole number of bytes, not 24000000000.0"),  # type: ignore[arg-type]
    "of": (lambda: GPT2.formula(of="all"), "of must be one of flops, params, kv, train, saved, not 'all'"),  # type: ignore[arg-type]
    "params": (lambda: GPT2.formula(of="params", ctx=3), "leave ctx, tokens, decode and batch out"),
    "of train": (lambda: GPT2.formula(of="train", decode=True), "of='train' counts whole sequences"),
    "no change": (lambda: GPT2.diff(ctx=3), "set a field by its name, list two values, such as ctx="),
    "no values": (lambda: GPT2.sweep(ctx=[]), "ctx has no values"),
    "fewer than no sequence": (lambda: GPT2.sweep(batch=[-3, 5]), "at least 1, not -3"),
    "one token and a half": (lambda: GPT2.sweep(ctx=[1.5]), "whole numbers"),  # type: ignore[list-item]
    "a switch for a context": (lambda: GPT2.sweep(ctx=True), "whole numbers"),
    "no collection": (lambda: GPT2.sweep(batch=2.5), "batch must be a list of whole"),  # type: ignore[arg-type]
    "no unknown": (
        lambda: GPT2.solve("zebra", "total_bytes=1GB"),
        "unknown is one of ctx, batch, num_key_value_heads, tp, fsdp, pp, ep, or",
    ),
    "mean": (lambda: GPT2.comms(fsdp=2, imbalance=float("nan")), "imbalance must be a number, not nan"),
    "field": (
        lambda: load({**TINY["llama"], "hybrid_override_pattern": "M-M"}),
        "without it: hybrid_override_pattern=None",
    ),
    "class": (lambda: load({**TINY["llama"], "architectures": ["LlamaMoEForCausalLM"]}), "with architectures=None"),
    "no family": (
        lambda: load({**TINY["llama"], "model_type": "mine", "architectures": ["LlamaForCausalLM"]}),
        "its class LlamaForCausalLM belongs to llama: model_type='llama'",
    ),
    "layers of a step": (lambda: GPT2.verify(train=True, all_layers=True), "all_layers does not apply here"),
    "adapters": (lambda: GPT2.verify(lora=8), "lora needs train=True"),
    "steps": (lambda: GPT2.measure(steps=0), "steps must be from 1 to"),
    "few": (lambda: GPT2.measure(ctx=4, decode=True), "ctx must be at least 6, or use fewer steps"),
    "positions": (lambda: GPT2.measure(ctx=2000), "ctx=1024; `flops` counts longer contexts"),
    "texts in a list": (lambda: GPT2.evaluate("total_flops", ctx=["8k"]), "ctx must be whole numbers, not '8k'"),
    "half of the second": (lambda: GPT2.evaluate("total_flops", ctx=[2, 1.5]), "ctx must be whole numbers, not 1.5"),
    "uneven lists": (lambda: GPT2.evaluate("total_flops", ctx=[[1], [2, 3]]), "ctx must be an array, not [[1], ["),
    "half a token": (lambda: GPT2.flops(ctx=0.5), "ctx must be a whole number, not 0.5"),  # type: ignore[arg-type]
    "switch": (lambda: GPT2.flops(ctx=True), "ctx must be a whole number, not True"),
    "one text": (lambda: GPT2.sweep(activation_function="relu"), "must be a list of values, not 'relu'\nactivation"),
    "option of others": (lambda: GPT2.sweep(zero=1), "sweep has no option zero"),
    "a share of no device": (lambda: GPT2.sweep(use=0.9), "use needs on"),
    "no model type": (lambda: load({}), 'add "model_type": "…" to the config'),
    "field of none": (lambda: GPT2.sweep(gpus=8), "no field 'gpus' in gpt2"),
    "half a rank": (lambda: GPT2.sweep(tp=2.0), "tp must be a list of whole numbers, not 2.0"),
    "a word for a switch": (lambda: GPT2.flops(train="no"), "train must be True or False, not 'no'"),  # type: ignore[arg-type]
    "a type for a name": (lambda: GPT2.memory(dtype=np.float32), "dtype must be a string"),  # type: ignore[arg-type]
    "no device": (lambda: GPT2.time(on=None), "on must be a string, not None"),  # type: ignore[arg-type]
    "no equation": (lambda: GPT2.solve("ctx"), "solve needs an equation or a device"),
    "formats": (lambda: GPT2.sweep(dtype=["bf16", "fp8"]), "dtype must be a string, not ['bf16', 'fp8']"),  # type: ignore[arg-type]
    "switches": (lambda: GPT2.sweep(masked=[True]), "masked must be True or False, not [True]"),  # type: ignore[arg-type]
    "switch of a sweep": (lambda: GPT2.sweep(masked="yes"), "masked must be True or False, not 'yes'"),
}
MEASURED = {"steps", "few", "positions"}


@pytest.mark.parametrize("name", [with_torch(name) if name in MEASURED else name for name in REFUSED])
def test_errors_name_keywords(name: str) -> None:
    """In Python an error names keywords, not `--options`."""
    asked, words = REFUSED[name]
    with pytest.raises(TfacctError) as refusal:
        asked()
    assert words in str(refusal.value)
    assert not re.search(r"--\w", str(refusal.value))


def test_sizes_are_written_as_on_the_command_line() -> None:
    """All spellings of 8,192 are one question, and so are those of a range. `8,192` could be two contexts."""
    import numpy as np

    for method in (GPT2.flops, GPT2.kv, GPT2.sweep):
        with pytest.raises(UsageError, match="is ambiguous: one number or several"):
            method(ctx="8,192")
    for method in (GPT2.flops, GPT2.memory, GPT2.traffic):
        asked = [method(ctx=ctx, batch=batch).document() for ctx, batch in ((8192, 2), ("8k", "2"), ("8_192", 2))]
        assert asked[0] == asked[1] == asked[2] == method(ctx=np.int64(8192), batch=np.uint8(2)).document()
    assert GPT2.generate(ctx="1k", new_tokens="8").document() == GPT2.generate(ctx=1024, new_tokens=8).document()
    assert GPT2.diff(ctx="1k", to_ctx="2k").document() == GPT2.diff(ctx=1024, to_ctx=2048).document()
    wanted = GPT2.sweep(ctx=[1024, 2048, 4096], batch=[1, 8], n_layer=[1, 2, 3]).document()
    assert GPT2.sweep(ctx="1k..4k", batch="1,8", n_layer="1..3:1").document() == wanted
    assert GPT2.sweep(ctx=["1k", "2k", "4k"], batch=[1, 8], n_layer=[1, 2, 3]).document() == wanted
    assert GPT2.sweep(ctx="1k..4k", batch="1,8", n_layer=np.arange(1, 4)).document() == wanted
    for recipe, text in ({"recompute": ["none", "full"]}, "none,full"), ({"optimizer": ["adamw", "sgd"]}, "adamw,sgd"):
        typed: Any = dict.fromkeys(recipe, text)
        assert GPT2.sweep(ctx=64, **recipe).document() == GPT2.sweep(ctx=64, **typed).document()  # type: ignore[arg-type]
    one = GPT2.sweep(ctx=[1024], batch=[8], n_layer=[3]).to_json()
    assert GPT2.sweep(ctx=1024, batch=8, n_layer=3).to_json() == one
    assert GPT2.sweep(ctx=1024, batch=8, n_layer=[np.int64(3)]).to_json() == one
    assert load("gpt2", n_layer=np.int64(3)).params().total == load("gpt2", n_layer=3).params().total


def test_public_names_are_listed() -> None:
    """`dir` lists the names that the README uses, which are imported on first use."""
    assert dir(tfacct) == sorted(tfacct.__all__)
    for name in tfacct.__all__:
        assert getattr(tfacct, name) is not None


def test_metric_names_are_those_of_the_accounts() -> None:
    assert get_args(tfacct.MetricName) == (*METRICS, *STEP_METRICS)


FACTS: dict[str, tuple[Callable[[], Report], dict[str, int]]] = {
    # 2 · 12 layers · 1,024 tokens · 12 heads · 64 · 2 bytes; 124,439,808 parameters of 2 bytes
    "memory": (
        lambda: GPT2.memory(ctx=1024),
        {"kv_cache_bytes": 37_748_736, "weights_bytes": 248_879_616, "total_bytes": 286_628_352},
    ),
    "flops": (lambda: GPT2.flops(ctx=1024), {"total_flops": 291_648_307_200, "total_params": 124_439_808}),
    "params": (GPT2.params, {"total_params": 124_439_808}),
    "kv": (lambda: GPT2.kv(ctx=1024), {"kv_cache_bytes": 37_748_736}),
}


@pytest.mark.parametrize("name", FACTS)
def test_totals_are_attributes(name: str) -> None:
    asked, wanted = FACTS[name]
    report = asked()
    assert {key: getattr(report, key) for key in wanted} == wanted
    assert set(wanted) <= set(dir(report))
    assert pickle.loads(pickle.dumps(report)) == report == copy.copy(report)


@pytest.mark.parametrize("name", ["gpt2", "t5gemma-2b-2b", "lecture-transformer"])
def test_a_model_can_be_sent_to_another_process(name: str) -> None:
    ours = load(name)
    ours.supports()  # fills caches
    again = pickle.loads(pickle.dumps(ours))
    assert again.flops(ctx=20).document() == ours.flops(ctx=20).document()


def test_an_unknown_attribute_is_an_error_with_a_hint() -> None:
    with pytest.raises(AttributeError, match=r"^a memory report has no 'total_flops'$"):
        _ = GPT2.memory().total_flops  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"^a memory report has no 'to_dict': `\.models` has its data"):
        GPT2.memory().to_dict()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"^a memory report is no list or dict: `\.rows` has its rows, `\.models`"):
        GPT2.memory()["total_bytes"]  # type: ignore[index]
    with pytest.raises(AttributeError, match=r"^a memory report has no 'fits': use `\.fit\['fits'\]`$"):
        _ = GPT2.memory(on="24GiB").fits  # type: ignore[attr-defined]
    two = answered(memory([GPT2.loaded, load("gpt2-xl").loaded], Request()))
    with pytest.raises(AttributeError, match=r"^total_bytes: this report has 2 models: use `\.models`$"):
        _ = two.total_bytes
    for report in (GPT2.diff(n_layer=6), two):
        assert not hasattr(report, "total") and getattr(report, "total_bytes", None) is None


def test_the_totals_of_a_difference_are_those_of_its_json() -> None:
    report = GPT2.diff(n_layer=6)
    assert report.totals == json.loads(report.to_json())["models"][0]["totals"]
    # 6 of 12 layers of 12·768² weights, 9·768 biases and 4·768 elements of norms
    assert report.totals["total_params"]["delta"] == -6 * (12 * 768**2 + 13 * 768)
    with pytest.raises(AttributeError, match=r"^a diff report has no 'total_flops': use `\.totals\['total_flops'\]`$"):
        _ = report.total_flops  # type: ignore[attr-defined]


RANKS = ["tp", "sp", "fsdp", "ep", "pp", "cp"]


def test_a_group_of_keywords_is_spelled_out() -> None:
    """`help` shows every keyword with its type and default; one of another method is refused, not swallowed."""
    parameters = inspect.signature(GPT2.flops).parameters
    assert (parameters["train"].annotation, parameters["ctx"].annotation) == (bool, int | str | None)
    assert {name: parameters[name].default for name in ("ctx", "tokens", "decode", "batch", "source", "logits")} == {
        "ctx": None, "tokens": None, "decode": False, "batch": 1, "source": None, "logits": "all",
    }  # fmt: skip
    assert list(inspect.signature(GPT2.kv).parameters) == ["kv_dtype", "kv_block", "ctx", "batch", "source", *RANKS]
    assert list(inspect.signature(GPT2.params).parameters) == ["by", *RANKS]
    wrong: dict[str, Any] = {"tokens": 3}
    for method in (GPT2.kv, GPT2.memory, GPT2.measure, GPT2.generate):
        with pytest.raises(TypeError, match=rf"{method.__name__}\(\) got an unexpected keyword argument 'tokens'"):
            method(**wrong)
    with pytest.raises(
        TypeError, match=r"^Model.flops\(\) got an unexpected keyword argument 'cxt': did you mean ctx\?$"
    ):
        GPT2.flops(cxt=3)  # type: ignore[call-arg]
    other_names: list[tuple[Any, str, str]] = [
        (GPT2.flops, "seq_len", "ctx"),
        (GPT2.memory, "max_model_len", "ctx"),
        (GPT2.serve, "gpu_memory_utilization", "use"),
        (GPT2.train, "bf16", "dtype='bf16', or autocast with weights_dtype='fp32'"),
    ]
    for method, name, meant in other_names:
        with pytest.raises(TypeError, match=f"'{name}': did you mean {meant}"):
            method(**{name: 3})
    with pytest.raises(TypeError, match=r"^Model.engine\(\) takes 1 positional argument but 2 were given$"):
        GPT2.engine("vllm")  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"argument 'generate': use Model\.generate\(new_tokens=…\)$"):
        GPT2.flops(ctx=2000, generate=500)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"argument 'train': use Model\.train_time\(\)$"):
        GPT2.time(on="h100", train=True)  # type: ignore[call-arg]


def test_help_describes_every_keyword_in_python_s_spelling() -> None:
    for name in ("flops", "memory", "plan", "train", "serve", "engine", "compare"):
        method = getattr(Model, name)
        options = [one for one in inspect.signature(method).parameters if one not in ("self", "others")]
        text = method.__doc__.rpartition("\n\n")[2]
        assert re.findall(r"^- (\w+)(?: \(.*?\))?: ", text, re.MULTILINE) == options, name
        assert "--" not in text, name
    assert "\n- weights_dtype (FORMAT): fp32: fp32 weights under autocast" in (Model.train.__doc__ or "")


def test_options_of_a_step_are_those_of_python() -> None:
    """The command line, Python and Request have the same names."""
    names = {field.name for field in fields(Request)} - {"logits"}
    assert set(options.Step.__annotations__) == names


def test_errors_name_options_only_while_a_command_runs(run: Run) -> None:
    assert "--ctx must be at least 1" in run("flops", "gpt2", "--ctx", "0").err
    assert run("flops", "gpt2", "--tokens", "2000").err.count("--tokens 2000 exceeds the context 1,024") == 1
    with pytest.raises(TfacctError, match=r"^ctx must be at least 1"):
        GPT2.flops(ctx=0)


def test_the_hint_at_a_field_without_effect_is_spelled_for_python() -> None:
    (facts,) = load("qwen2-7b", sliding_window=4096).params().document()["models"]
    assert any("use_sliding_window=True max_window_layers=0" in note for note in facts["notes"])


def test_no_package_below_the_command_line_raises_with_an_option() -> None:
    """Only notes may name options: they are printed under a table in both interfaces."""

    def spelled(node: ast.AST) -> Iterator[str]:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                yield from re.findall(r"--[a-z]\S*", inner.value)

    found = []
    for file in (Path(tfacct.__file__).parent).rglob("*.py"):
        if file.parent.name != "cli":
            for node in ast.walk(ast.parse(file.read_text())):
                error = isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Error")
                hint = isinstance(node, ast.Assign) and "hint" in ast.unparse(node.targets[0]).split(".")
                read = isinstance(node, ast.Call) and getattr(node.func, "attr", "").startswith("read_")
                if error or hint or read:
                    found += [(file.name, text) for text in spelled(node) if "spelled(" not in ast.unparse(node)]
    assert found == []


def test_every_method_that_answers_is_below() -> None:
    methods = dict(inspect.getmembers(Model, inspect.isfunction))
    returning = {
        name for name, method in methods.items() if method.__annotations__.get("return", "").endswith("Report")
    }
    assert {name.split()[0] for name in ANSWERS} - {"training"} == returning


@pytest.mark.parametrize("name", QUICK)
def test_results_in_python_have_plain_types(name: str) -> None:
    check_plain(ANSWERS[name]())


@pytest.mark.parametrize(
    "ask",
    [
        lambda m: m.solve("ctx", "total_bytes=1GB", batchh=2),
        lambda m: m.explore(ctxx=3),
        lambda m: m.explain("flops", batchh=2),
        lambda m: m.verify(batchh=2),
        lambda m: m.train(ctx=8, checkpoint="full", recompute="none"),
    ],
)
def test_no_keyword_is_dropped(ask) -> None:
    """Each keyword of a group of options, for type checkers and at run time."""
    with pytest.raises(TypeError, match=r"unexpected keyword argument|an old name of it"):
        ask(load("gpt2"))


def test_sizes_of_numpy_and_devices_are_those_of_the_command(run) -> None:
    model = load("llama-3.2-1b")
    found = model.train(ctx=np.int64(64), tp=np.int64(2), sp=np.bool_(True))
    assert found.peak_bytes == model.train(ctx=64, tp=2, sp=True).peak_bytes
    plan = run("plan", "llama-3.2-1b", "--gpus", "8", "--on", "80GB", "--ctx", "64", "--json").document
    assert plan == model.plan(gpus=8, fit="80GB", ctx=64).document() and plan["models"][0]["devices"] == 8
    # 1,024 positions; 24 GB hold the weights and their cache many times over.
    assert load("gpt2").solve("ctx", on="24GB").total == 1024


@pytest.mark.parametrize("options", [{"lora": 16, "fsdp": 8}, {"packing": True, "tp": 2}, {"recompute": "full"}])
def test_supported_steps_are_answered(options: dict[str, Any]) -> None:
    llama = load("llama-3.1-8b")
    if llama.supports(**options):
        assert llama.train(ctx=64, **options).peak_bytes > 0
    else:
        with pytest.raises(TfacctError, match="is not supported"):
            llama.train(ctx=64, **options)


CONTRADICTIONS: list[dict[str, Any]] = [
    {"sp": True},
    {"zero": 1},
    {"adapter_dtype": "bf16"},
    {"lora": 8, "dtype": "fp16", "adapter_dtype": "bf16"},
    {"offload": "activations"},
    {"qlora": True, "weights_dtype": "fp32"},
    {"loss": "chunked", "keep_logits": True},
    {"global_batch_size": 7, "gradient_accumulation": 2},
    {"pp": 2, "microbatches": 4},
    {"on": "8xh100", "fsdp": 4},
    {"use": 0.5},
    {"cp": 2, "ctx": 7},
    {"source": 5},
    {"exact": True, "fsdp": 8},
    {"exact": True, "by": "tensor"},
    {"exact": True, "offload": "activations", "recompute": "full"},
]


@pytest.mark.parametrize("options", CONTRADICTIONS, ids=str)
def test_steps_that_train_refuses_are_not_supported(options: dict[str, Any]) -> None:
    llama = load("llama-3.1-8b")
    assert not llama.supports(**options)
    with pytest.raises(TfacctError):
        llama.train(**{"ctx": 64, **options})


def test_the_class_itself_is_supported_on_one_device() -> None:
    assert load("llama-3.1-8b").supports(exact=True, recompute="full", on="h100")


@pytest.mark.parametrize("options", [{"optimizer": "adamx"}, {"on": "h1000"}, {"recompute": "foo"}, {"offload": "x"}])
def test_a_name_that_does_not_exist_is_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(TfacctError):
        load("llama-3.1-8b").supports(**options)


def test_a_dtype_without_training_is_not_supported_and_an_unknown_one_is_an_error() -> None:
    assert not GPT2.supports(dtype="fp8")
    with pytest.raises(UsageError, match="training runs in bf16, fp16 or fp32, not in fp8"):
        GPT2.train(ctx=64, dtype="fp8")
    with pytest.raises(TfacctError, match="unknown dtype 'fp88'"):
        GPT2.supports(dtype="fp88")
