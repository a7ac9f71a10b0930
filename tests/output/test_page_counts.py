"""The page's counting modules in a JavaScript engine equal Python: every line of every preset. Kind: law."""

import json
import random
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers.conformance import FILE, at_sizes, changed, step
from tests.helpers.models import by_kind, kind_of_preset
from tfacct import load
from tfacct.accounts.memory import cache_bytes, largest_that_fits, next_token_bytes
from tfacct.algebra.export import export_ledger
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.ledger.lines import NO_MATRIX, State
from tfacct.ledger.storage import storage, width
from tfacct.ledger.workload import LARGEST, Workload
from tfacct.loading import presets
from tfacct.loading.model import LoadedModel
from tfacct.output import page
from tfacct.reports import explore
from tfacct.timing.kernels import kernels, way_of

racer = pytest.importorskip("py_mini_racer")
HARNESS = (Path(__file__).parents[1] / "helpers" / "counting.js").read_text(encoding="utf-8")
DTYPES = (*units.BITS, *units.BLOCKS, "awq+head", "int4+head+embed", "mxfp4+head", "fp8-block+head+embed")
CACHES = (*units.BITS, *units.CACHES)


class Engine:
    """The page's modules in V8. Callers close it, or the interpreter hangs at exit."""

    def __init__(self, js: Any, text: str) -> None:
        self.js = js
        js.eval(f"{text}\n{HARNESS}")

    def __call__(self, function: str, asked: Any) -> Any:
        return json.loads(self.js.eval(f"{function}({json.dumps(json.dumps(asked))})"))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with racer.MiniRacer() as js:
        yield Engine(js, page.script(page.COUNTING))


def python(ours: LoadedModel, every: dict[str, int], at: dict[str, int], asked: dict[str, Any]) -> dict[str, Any]:
    """The same numbers by the package, from the parts at these sizes."""
    weights, cache, masked = storage(asked["dtype"]), width(asked["cache"]), asked["masked"]
    ledger = at_sizes(ours.architecture, every).settled(at, masked=masked)
    products = [
        [p.path, *p.dims, p.forward, p.backward, *p.moved(weights, width("bf16"))]
        for p in ledger.products(at, masked=masked)
    ]
    tensors = [[t.path, t.count, t.elements, t.active, t.count * weights.bytes(t.stored)] for t in ledger.tensors()]
    cached = ledger.state_bytes(at, cache)
    return {
        "products": texts(products),
        "tensors": texts(tensors),
        "states": {path: [str(n), str(cached[path])] for path, n in ledger.states(at).items()},
        "pointwise": {path: str(n) for path, n in ledger.pointwise(at).items()},
    }


def caches(ours: LoadedModel, every: dict[str, int]) -> list[str]:
    """Dtypes of a cache that the model can have at these sizes: heads must divide into llama.cpp's blocks."""
    groups = at_sizes(ours.architecture, every).groups
    grows = [(group, line) for group in groups for line in group.lines if isinstance(line, State) and line.bits is None]
    ends = {group.axes[line.spec.split()[-1]] for group, line in grows if {"S", "J", "Sc", "Sh"} & {*line.spec.split()}}
    divides = all(isinstance(size, int) and size % 32 == 0 for size in ends)
    return [name for name in CACHES if divides or name not in units.BLOCK_CACHES]


def texts(rows: list[list[Any]]) -> list[list[str]]:
    return [[str(cell) for cell in row] for row in rows]


def summed(rows: list[list[str]]) -> dict[str, Any]:
    """Rows of groups that share a path, added up as the ledger adds them."""
    found: dict[str, list[int]] = {}
    for path, *counts in rows:
        known = found.get(path, [0] * len(counts))
        found[path] = [one + int(more) for one, more in zip(known, counts, strict=True)]
    return {path: [str(n) for n in counts] if len(counts) > 1 else str(counts[0]) for path, counts in found.items()}


def same(engine: Engine, ours: LoadedModel, rng: random.Random) -> None:
    """Every number of a model at one random point is what Python says."""
    model = export_ledger(ours.architecture)
    every = {**model.sizes, **changed(rng, model)}
    at = step(rng, ours, every)
    asked = {"masked": rng.random() < 0.3, "dtype": rng.choice(DTYPES), "cache": rng.choice(caches(ours, every))}
    found = engine("counted", {"facts": {"sizes": every, "ways": model.ways}, "at": at, **asked})
    wanted = python(ours, every, at, asked)
    del found["form"]
    found["states"], found["pointwise"] = summed(found["states"]), summed(found["pointwise"])
    for name, value in wanted.items():
        assert found[name] == value, (ours.name, name, every, at, asked)


def test_weights_that_formats_do_not_quantize_are_those_of_the_package() -> None:
    """Axes of a result that make a weight no matrix, so quantization formats skip it."""
    written = re.search(r"const NO_MATRIX = (\[.*?\]);", page.script(page.COUNTING))
    assert written is not None and tuple(json.loads(written[1])) == NO_MATRIX


@pytest.mark.parametrize("name", by_kind(presets.names(), kind_of_preset))
def test_every_preset_counts_as_python_at_a_random_point(engine: Engine, name: str) -> None:
    same(engine, presets.load(name), random.Random(name))


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(presets.names()), seed=st.integers(0, 2**32))
def test_any_preset_counts_as_python_at_any_point(engine: Engine, name: str, seed: int) -> None:
    same(engine, presets.load(name), random.Random(seed))


KERNELS = ("llama-3.1-8b", "gpt2", "gemma-3-27b-text", "deepseek-v3", "mistral-7b-v0.1", "falcon-7b", "mixtral-8x7b")


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
@pytest.mark.parametrize("name", KERNELS)
def test_fused_attention_moves_what_its_kernel_does(engine: Engine, name: str, cache: str) -> None:
    """Against the kernels that time is estimated from: prefill, a decode step, and new tokens after old ones."""
    ours = presets.load(name)
    model = export_ledger(ours.architecture)
    for work in (Workload(700, 700), Workload(1, 5000, 3), Workload(64, 3000)):
        at = work.axes()
        way = way_of(ours.ledger, at)
        found = kernels(way, at, storage("bf16"), width("bf16"), width(cache))
        wanted = [kernel for kernel in found if kernel.kind == "attention"]
        form = ours.ledger.ways.index(way)
        asked = {"facts": {"sizes": model.sizes, "ways": model.ways}, "at": at, "form": form, "cache": cache}
        assert engine("attention", asked) == {
            "activations": str(sum(kernel.moved for kernel in wanted)),
            "keys_values": str(sum(kernel.cache for kernel in wanted)),
        }, (work, form)


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(presets.names()), seed=st.integers(0, 2**32))
@example(name="deepseek-v4-flash", seed=1)  # whose cache shrinks whenever a compressed key is full
def test_the_longest_context_is_found_to_the_token(engine: Engine, name: str, seed: int) -> None:
    ours, rng = presets.load(name), random.Random(seed)
    model = export_ledger(ours.architecture)
    cache = rng.choice(caches(ours, model.sizes))
    at = step(rng, ours, model.sizes)

    def cached(n: int) -> int:
        return int(cache_bytes(ours.ledger, {**at, "S": n}, width(cache)))

    longest = largest_that_fits(lambda n: max(map(cached, ours.ledger.fullest(n))), 10**10, LARGEST)
    wanted = [str(next_token_bytes(ours.ledger, at, width(cache))), str(longest)]
    assert engine("fitting", {"facts": {"sizes": model.sizes, "ways": model.ways}, "at": at, "cache": cache}) == wanted


@pytest.mark.parametrize("name", ["gpt2-xl", "xglm-564m", "llama-3.1-8b", "gemma-3-1b"])
def test_the_longest_context_on_a_card_is_that_of_memory(engine: Engine, name: str) -> None:
    """The page has the usable bytes of each card, and the positions of an embedding that is stored."""
    ours = presets.load(name)
    data = explore.explore([ours])
    card = next(row for row in data["devices"] if row[0] == "h100-sxm")
    found = load(name).memory(on="h100-sxm", ctx=256)
    assert card[2:4] == [found.fit["memory_bytes"], found.fit["budget_bytes"]]
    assert card[4] == load("llama-3.2-1b").train(ctx=64, on="h100-sxm").fit["budget_bytes"]  # type: ignore[index]
    assert data["usable"]["serving"] == "0.9 of the memory, less 2 GB for the runtime"
    limit = data["models"][0].get("positions")
    assert limit == found.fit["context_limit"]
    model, at = export_ledger(ours.architecture), Workload(256, 256).axes()
    asked = {"at": at, "cache": "bf16", "budget": card[3] - found.weights_bytes, **({"limit": limit} if limit else {})}
    _, longest = engine("fitting", {"facts": {"sizes": model.sizes, "ways": model.ways}, **asked})
    assert int(longest) == found.fit["largest_context"]


def test_a_cache_in_blocks_is_offered_where_heads_divide_into_them() -> None:
    """phi-2's head size is 80: a link that asks for blocks of 32 is answered without them, with a warning."""
    modules = (*page.COUNTING, "paths", "data", "models", "count", "report", "notes", "state")
    data = explore.explore([presets.load("phi-2"), presets.load("llama-3.1-8b")])
    with racer.MiniRacer() as js:
        js.eval(f"{page.script(modules)}\nconst every = models.read({json.dumps(data)});")
        js.eval("const still = { ...state.STILL, ...every.start };")
        read = "(name => { const found = state.parse(`model=${name}&cache=q8_0`, still, every);"
        read += " return JSON.stringify([found.state.cache, found.complaints]); })"
        refused = json.loads(js.eval(f"{read}('phi-2')"))
        taken = json.loads(js.eval(f"{read}('llama-3.1-8b')"))
        js.eval("const asked = state.parse('model=llama-3.1-8b&cache=q8_0&ctx=1000', still, every).state;")
        cached = js.eval("String(count.count(state.chosen(every, asked.model), asked).cached)")
    assert refused == [None, ["the link's cache dtype is ignored: its block size does not divide the head size"]]
    assert taken == ["q8_0", []]
    assert int(cached) == 1000 * 2 * 32 * 8 * 4 * 34


@pytest.fixture(scope="module")
def points() -> dict[str, Any]:
    """Points of the file by model, each with its ledger."""
    document = json.loads(FILE.read_text(encoding="utf-8"))
    own = {name: [point for point in document["points"] if point["model"] == name] for name in document["ledgers"]}
    return {name: {"facts": facts, "points": own[name]} for name, facts in document["ledgers"].items()}


def test_the_file_of_points_is_met(engine: Engine, points: dict[str, Any]) -> None:
    assert {name: engine("disagreeing", asked) for name, asked in points.items()} == dict.fromkeys(points, 0)


def red(engine: Engine, asked: Any) -> bool:
    try:
        return bool(engine("disagreeing", asked))
    except racer.JSEvalException:
        return True


SLIPS = {
    "a window sees one key more": ("keys - queries, window - 1n)", "keys - queries, window)"),
    "a window keeps one key less": ("einsum.smaller(at.S, window)", "einsum.smaller(at.S, window - 1n)"),
    "a causal query does not see itself": ("2n * keys - queries + 1n", "2n * keys - queries - 1n"),
    "a near mask without its own key": ("queries, queries, after) - queries", "queries, queries, after)"),
    "cut instead of rounded up": ("(whole + parts - 1n) / parts", "whole / parts"),
    "every expert is read": (
        "return einsum.smaller(axes[line.expert_axis],",
        "return axes[line.expert_axis]; einsum.smaller(0n,",
    ),
    "experts that a token does not meet": ("(elements / experts) * met", "elements"),
    "an unused line works": ('line.line === "matmul" && !line.unused', 'line.line === "matmul"'),
    "a shared block is stored again": (") ? 1n : group.count", ") ? group.count : group.count"),
    "a tied head is stored twice": ("const owner = line.weight ?? line.path", "const owner = line.path"),
    "an idle encoder reads": ("if (idles(line, axes)) return [0n, 0n, 0n];", ""),
    "the other way": ("< totalFlops(best, at, masked)", "> totalFlops(best, at, masked)"),
    "a decode step in chunks": ("* (1n - oneByOne(queries, keys))", ""),
    "a state in the cache's bits": ("if (line.bits) return {", "if (!line) return {"),
    "doubles": (
        "return numbers.reduce((product, one) => product * one, 1n)",
        "return BigInt(numbers.map(Number).reduce((a, b) => a * b, 1))",
    ),
    "no bias": ("if (line.bias) {", "if (line.bias === 1) {"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_planted_slip_is_red(points: dict[str, Any], slip: str) -> None:
    old, new = SLIPS[slip]
    text = page.script(page.COUNTING)
    assert text.count(old) == 1
    with racer.MiniRacer() as js:
        engine = Engine(js, text.replace(old, new))
        assert any(red(engine, asked) for asked in points.values())


def unscaled(value: int) -> list[str]:
    return [units.si(value), units.people(value), units.binary(value), units.decimal_bytes(value), f"{value:,}"]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**27) | st.integers(1, 90).map(lambda bits: 2**bits - 1), st.integers(1, 10**24))
def test_texts_of_numbers_are_those_of_the_terminal(engine: Engine, value: int, whole: int) -> None:
    share = Fraction(value, whole)
    wanted = [*unscaled(value), units.percent(share), units.decimals(share, 2), units.change(share)]
    assert engine("formatted", [str(value), str(whole)]) == wanted


EDGES = [limit + off for unit in (1000, 1024) for power in range(1, 5) for limit in (unit**power, 999 * unit**power,
         1000 * unit**power, 9995 * unit**power // 10) for off in (-1, 0, 1)]  # fmt: skip


def test_texts_at_the_edges_of_units(engine: Engine) -> None:
    for value in EDGES:
        assert engine("formatted", [str(value), str(80)])[:5] == unscaled(value), value
    for part in range(1, 400):  # ties among them: 23/80 is 28.75%
        share = Fraction(part, 80)
        assert engine("formatted", [str(part), "80"])[5:7] == [units.percent(share), units.decimals(share, 2)]


TOKENS = ("16k", "16,384", "1m", "1e6", "1.5e3", "1.5e0", "", "0x10", "16 k", "1__0", "12,34", "-1", " 7 ", "1e99")


@pytest.mark.parametrize("text", TOKENS)
def test_tokens_are_read_as_by_the_command_line(engine: Engine, text: str) -> None:
    try:
        wanted = str(units.read_tokens("--ctx", text))
    except UsageError:
        wanted = "null"
    assert engine.js.eval(f"read({json.dumps(text)})") == wanted
