"""Measures how far the formula of a training step is off: its peak against that of the transformers class.

    python -m tests.sweeps.training_bounds ANSWERS.jsonl              # the formula against the answers of that file
    python -m tests.sweeps.training_bounds ANSWERS.jsonl --ask        # ask the class for what the file lacks: hours
    python -m tests.sweeps.training_bounds ANSWERS.jsonl --sample 3   # 3 recipes of each family in a random shape
    python -m tests.sweeps.training_bounds ANSWERS.jsonl --sample 0   # ask for nothing, but only write larger bounds
    python -m tests.sweeps.training_bounds ANSWERS.jsonl --check      # write nothing; exit 1 if a bound is too small
    python -m tests.sweeps.training_bounds --shapes 3 --seed 7        # random shapes, which no bound was measured on

The first prints a table of errors, and writes `tfacct/training/bounds.toml` and the table of docs/training-rules.md. A
sample, drawn by the seed, only writes larger bounds, and bounds that are lacking. An answer is a line of JSON: model (a
preset, `gpt2@4` for its first 4 layers, `gpt2 vocab_size=32000` for another field), family, option (a name of
`RECIPES`), attention, peak and saved (bytes), or refused (why).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from tfacct import families, load
from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Request, Workload
from tfacct.loading import presets, selection
from tfacct.loading.model import LoadedModel, load_model
from tfacct.parallel.mesh import Mesh
from tfacct.training import bounds
from tfacct.training.lora import lora_targets, unknown_targets
from tfacct.training.measured import ANY_FAMILY, NOTHING, Measured, measured_families, row_of
from tfacct.training.memory import TrainingMemory, training_memory
from tfacct.training.recipe import Recipe
from tfacct.training.unsupported import on_attention, reads_images

ROOT = Path(__file__).parents[2]
TOML, PAGE = ROOT / "tfacct" / "training" / "bounds.toml", ROOT / "docs" / "training-rules.md"
MARKED = re.compile(r"(<!-- training bounds -->\n).*?(<!-- end of training bounds -->)", re.DOTALL)
STEPS = (0, 0.1, 0.25, 0.5, 1, 2, 3)
"""Percentages to which an error is rounded up."""

LORA, AUTOCAST = {"lora": "16"}, {"weights_dtype": "fp32"}
DROPOUT, ACCUMULATION = {"lora_dropout": 0.05}, {"gradient_accumulation": 2}
FULL, ATTENTION, CHUNKED = {"recompute": "full"}, {"recompute": "attention"}, {"loss": "chunked"}
SHORT = {"batch": 8, "ctx": 512}
RECIPES: dict[str, dict[str, Any]] = {
    "bf16": {},
    "bf16-full": FULL,
    "bf16-attn": ATTENTION,
    "bf16-chunked": CHUNKED,
    "eager": {"attention": "eager"},
    "eager-full": {"attention": "eager", **FULL},
    "sgd": {"optimizer": "sgd"},
    "fp32": {"dtype": "fp32"},
    "fp32-eager": {"dtype": "fp32", "attention": "eager"},
    "amp": AUTOCAST,
    "amp-full": {**AUTOCAST, **FULL},
    "amp-attn": {**AUTOCAST, **ATTENTION},
    "amp-chunked": {**AUTOCAST, **CHUNKED},
    "lora": LORA,
    "lora-bf16": {**LORA, "adapter_dtype": "bf16"},
    "lora-full": {**LORA, "adapter_dtype": "bf16", **FULL},
    "lora-attn": {**LORA, **ATTENTION},
    "lora-fp32-full": {**LORA, **FULL},
    "lora-chunked": {**LORA, **CHUNKED},
    "lora-dropout": {**LORA, **DROPOUT},
    "lora-dropout-full": {**LORA, **DROPOUT, **FULL},
    "lora-accumulate": {**LORA, **ACCUMULATION},
    "amp-lora": {**LORA, **AUTOCAST},
    "amp-lora-full": {**LORA, **AUTOCAST, **FULL},
    "amp-lora-chunked": {**LORA, **AUTOCAST, **CHUNKED},
    "qlora": {**LORA, "weights_dtype": "nf4"},
    "qlora-full": {**LORA, "weights_dtype": "nf4", **FULL},
    "accumulate": ACCUMULATION,
    "full-accumulate": {**FULL, **ACCUMULATION},
    "amp-accumulate": {**AUTOCAST, **ACCUMULATION},
    "hold-logits": {"keep_logits": True},
    "adamw-8bit": {"optimizer": "adamw-8bit"},
    "bf16-4x4096": {"batch": 4},
    "eager-4x4096": {"attention": "eager", "batch": 4},
    "bf16-full-4x4096": {**FULL, "batch": 4},
    "bf16-8x512": SHORT,
    "bf16-full-8x512": {**FULL, **SHORT},
    "bf16-attn-8x512": {**ATTENTION, **SHORT},
    "bf16-chunked-8x512": {**CHUNKED, **SHORT},
    "eager-8x512": {"attention": "eager", **SHORT},
    "fp32-8x512": {"dtype": "fp32", **SHORT},
    "amp-8x512": {**AUTOCAST, **SHORT},
    "amp-full-8x512": {**AUTOCAST, **FULL, **SHORT},
    "lora-8x512": {**LORA, **SHORT},
    "lora-full-8x512": {**LORA, **FULL, **SHORT},
    "qlora-8x512": {**LORA, "weights_dtype": "nf4", **SHORT},
    "fsdp8-full": {**FULL, "mesh": {"fsdp": 8}},
    "fsdp8-tp4": {"mesh": {"fsdp": 8, "tp": 4}},
    "tp4-sp": {"mesh": {"tp": 4, "sp": True}},
    "pp2": {"mesh": {"pp": 2}},
    "cp4": {"mesh": {"cp": 4}},
}
"""Recipes by name; `ctx` and `batch` are their sizes, 4,096 tokens of one sequence if left out, or all that a model
takes. The layouts were measured on a fake process group, and are not asked again."""
ASKED = [name for name, fields in RECIPES.items() if "mesh" not in fields]
DRAWN = ("bf16", "bf16", "bf16-full", "eager", "fp32", "amp", "lora", "lora-bf16", "bf16-chunked", "bf16-attn")
"""Recipes of random shapes."""


FIELDS: dict[str, dict[str, Any]] = {
    "all-minilm-l6-v2": {"architectures": ["BertForMaskedLM"]},
    "data2vec-text-base": {"architectures": ["Data2VecTextForMaskedLM"]},
    "deit-base-distilled": {"architectures": ["DeiTForImageClassification"]},
    "electra-base": {"architectures": ["ElectraForMaskedLM"]},
    "gte-base-en-v1.5": {"architectures": ["GteForMaskedLM"]},
    "llada-moe-7b-a1b": {"is_causal": True},
    "m2m100-418m": {"decoder_layerdrop": 0, "encoder_layerdrop": 0},
    "mt5-small": {"tie_word_embeddings": True},
    "nomic-embed-text-v1.5": {"architectures": ["NomicBertForMaskedLM"]},
    "phi-3.5-moe": {"input_jitter_noise": 0.0},
    "umt5-small": {"tie_word_embeddings": True},
}
"""Fields to set where a preset has no loss, draws random numbers, or has a head that its class ties."""
LAYERS = """
    num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers max_window_layers
""".split()
"""Fields with a number of layers."""
DEFAULT = "default-"
"""Before a model type without a preset: the default config of its class."""
RECOMPUTES = frozenset(("recompute-full", "recompute-attention", "chunked-loss"))
"""Groups whose saved activations are few: they do not decide the peak of long sequences."""


class Answer(NamedTuple):
    """The class's answer: its peak, saved bytes and attention implementation; or why it refused."""

    model: str
    family: str
    option: str
    attention: str
    peak: int | None
    saved: int | None


class Error(NamedTuple):
    """The formula's error for one answer: its peak over that of the class, less one, and saved bytes likewise."""

    model: str
    family: str
    option: str
    groups: tuple[str, ...]
    share: float
    saved_share: float

    @property
    def percent(self) -> float:
        """The error without its sign, in percent: of the peak, or of saved activations if that is above the limit."""
        saved = 100 * abs(self.saved_share)
        decides = saved > bounds.SAVED_LIMIT and not RECOMPUTES.intersection(self.groups)
        return saved if decides else 100 * abs(self.share)


@lru_cache(maxsize=2)
def model_of(name: str) -> LoadedModel:
    """The model of a name; of `gpt2@4`, its first 4 layers; of `gpt2 vocab_size=32000`, with this field."""
    name, *fields = name.split()
    if fields:
        return model_of(name).with_fields({key: int(size) for key, _, size in (each.partition("=") for each in fields)})
    name, _, layers = name.partition("@")
    if layers:
        return cut_to(model_of(name), int(layers))
    if not name.startswith(DEFAULT):
        model = presets.load(name)
        return model.with_fields(FIELDS[name]) if name in FIELDS else model
    from transformers import CONFIG_MAPPING

    model_type = name.removeprefix(DEFAULT)
    raw = {**CONFIG_MAPPING[model_type]().to_dict(), "model_type": model_type}
    if raw.get("head_dim", 0) is None:
        raw["head_dim"] = raw["hidden_size"] // raw["num_attention_heads"]
    return load_model(name, raw)


def cut_to(model: LoadedModel, layers: int) -> LoadedModel:
    """A model with fewer layers; the same if it has no more."""
    counts = {name: model.raw[name] for name in LAYERS if isinstance(model.raw.get(name), int)}
    lists = {
        name: value[:layers]
        for name, value in model.raw.items()
        if isinstance(value, list) and len(value) in counts.values()
    }
    return model.with_fields({name: min(layers, count) for name, count in counts.items()} | lists)


def names() -> list[str]:
    """Names of all models that are asked: the presets, and a default config of every other family with a class."""
    from transformers import CONFIG_MAPPING

    found = presets.names()
    known = {presets.load(name).family for name in found}
    return [*found, *(f"{DEFAULT}{name}" for name in families.names() if name not in known and name in CONFIG_MAPPING)]


def recipe_of(option: str, model: LoadedModel) -> Recipe:
    """The recipe of a name: LoRA on all linear layers, or on attention's, where peft takes others for the experts'."""
    fields = {name: value for name, value in RECIPES[option].items() if name not in ("ctx", "batch")}
    if "mesh" in fields:
        fields["mesh"] = Mesh(**fields["mesh"])
    if "lora" in fields and unknown_targets(model, lora_targets(fields["lora"])) is not None:
        fields["lora"] = next(iter(on_attention(model, fields["lora"])), fields["lora"])
    return Recipe(**fields).checked()


def work_of(model: LoadedModel, option: str) -> Workload:
    """The tokens and sequences of a name, as far as a model takes them."""
    sizes = RECIPES[option]
    tokens = sizes.get("ctx", 4096)
    ctx = None if reads_images(model) else min(tokens, model.context or tokens)
    return selection.workload(model, Request(ctx=ctx, batch=sizes.get("batch", 1)))


def formula(model: LoadedModel, work: Workload, recipe: Recipe) -> TrainingMemory:
    """The formula's answer, also for what bounds.toml refuses."""
    with mock.patch.object(bounds, "refusal", lambda *_: None):
        return training_memory(model, work, recipe)


def ask(model: LoadedModel, work: Workload, recipe: Recipe) -> dict[str, Any]:
    """The attention that the class ran with, the peak, and the saved bytes."""
    from tfacct.training.exact import exact

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = exact(model, work, recipe)
    return {"attention": found.attention, "peak": found.peak_bytes, "saved": found.saved_bytes}


# Answers of the class, in a file.


def read(path: Path) -> dict[tuple[str, str], Answer]:
    """Answers by model and option; the last one of each."""
    if not path.exists():
        return {}
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    found = (
        Answer(
            row["model"],
            row.get("family", ""),
            row["option"],
            row.get("attention") or "sdpa",
            row.get("peak"),
            row.get("saved"),
        )
        for row in rows
    )
    return {(each.model, each.option): each for each in found if each.option in RECIPES}


def sample(each: int, seed: int) -> list[tuple[str, str]]:
    """The smallest preset of each family that the formula answers, with other sizes, and so many recipes of each."""
    rng, found = random.Random(seed), list[tuple[str, str]]()
    for name in smallest().values():
        fields = drawn(presets.load(name).raw, rng)
        changed = " ".join((name, *(f"{field}={size}" for field, size in fields.items())))
        found += [(changed, option) for option in rng.sample(ASKED, each)]
    return found


def complete(path: Path, pairs: Iterable[tuple[str, str]], say: Callable[[str], object]) -> None:
    """Ask the class for the presets and recipes that the file lacks, and append each answer at once."""
    known = read(path)
    with path.open("a", encoding="utf-8") as out:
        for name, option in pairs:
            if (name, option) not in known:
                row: dict[str, Any] = {"model": name, "option": option}
                try:
                    model = model_of(name)
                    row["family"] = model.family
                    row |= ask(model, work_of(model, option), recipe_of(option, model))
                except TfacctError as error:
                    row["refused"] = error.message
                out.write(f"{json.dumps(row)}\n")
                out.flush()
                say(f"{name} {option}")


# Errors and bounds.


def errors(answers: Iterable[Answer]) -> tuple[list[Error], dict[str, list[str]]]:
    """The formula's errors; and by why, which answers it does not give: for reasons of a config, not of a family."""
    found, without = list[Error](), defaultdict[str, list[str]](list)
    for answer in sorted(answers, key=lambda each: each.model):
        if answer.peak is None:
            continue
        model = model_of(answer.model)
        recipe = recipe_of(answer.option, model)
        if recipe.attention is None:
            recipe = replace(recipe, attention=answer.attention)
        try:
            ours = formula(model, work_of(model, answer.option), recipe)
        except Exception as error:  # a family that the formula was not written for: not measured, so not answered
            why = error.message.partition(": ")[2] if isinstance(error, TfacctError) else repr(error)
            without[why].append(f"{answer.model} {answer.option}")
            continue
        share = int(ours.peak.total) / answer.peak - 1
        saved = int(ours.step.saved_bytes()) / answer.saved - 1 if answer.saved and recipe.mesh is None else 0.0
        found.append(Error(answer.model, answer.family, answer.option, bounds.groups_of(recipe), share, saved))
    return found, without


def rounded_up(percent: float) -> float:
    """A percentage rounded up to a step; above the last step, to a whole number."""
    return next((step for step in STEPS if percent <= step), float(math.ceil(percent)))


Rows = dict[str, dict[str, Measured]]


def by_family(found: Iterable[Error], before: Rows | None = None) -> Rows:
    """The largest error of each family and group, and the number of configs that it was measured on; and what each axis
    of a layout adds to the error of the recipe on one device. `before`: rows with groups that were measured before."""
    sizes = defaultdict[str, dict[str, dict[str, float]]](lambda: defaultdict(dict))  # by family, group and config
    found = sorted(found, key=lambda error: (len(axes_of(error.option)), len(error.groups)))
    alone = {(each.family, each.groups[0]) for each in found if len(each.groups) == 1}
    alone |= {(family, group) for family, row in (before or {}).items() for group in row}
    for each in found:
        row, axes = sizes[each.family], axes_of(each.option)
        if any(_largest(row, group) > bounds.LIMIT for group in each.groups[1:]):
            continue  # refused by that group already
        together = all((each.family, group) in alone for group in each.groups)
        if before and not together:
            continue  # refused, as one of its groups was not measured
        if axes:
            *known, name = *each.groups, *axes
        else:
            known, name = [], bounds.AND.join(each.groups) if together else each.groups[0]
        of_groups = max((_largest(row, group) for group in known if group in bounds.GROUPS), default=0)
        of_axes = sum(_largest(row, axis) for axis in known if axis in bounds.AXES)
        over = max(0.0, each.percent - of_groups - of_axes)
        row[name][each.model] = max(row[name].get(each.model, 0.0), over)
    rows = {
        family: in_order({name: Measured(_largest(row, name), len(row[name])) for name in row})
        for family, row in sorted(sizes.items())
    }
    measured = {axis for row in rows.values() for axis in row}
    any_family = {
        axis: max(row[axis] for row in rows.values() if axis in row) for axis in bounds.AXES if axis in measured
    }
    return {**rows, ANY_FAMILY: any_family}


def _largest(row: dict[str, dict[str, float]], name: str) -> float:
    """The largest of the configs' errors, rounded up."""
    return rounded_up(max(row.get(name, {}).values(), default=0.0))


def axes_of(option: str) -> list[str]:
    """Axes of a layout."""
    return [axis for axis in bounds.AXES if RECIPES[option].get("mesh", {}).get(axis, 1) > 1]


def written() -> Rows:
    """The rows of bounds.toml."""
    return {family: row_of(family) for family in measured_families()}


def widened(rows: Rows) -> Rows:
    """The rows of bounds.toml, with the errors of a sample where they are larger, or where none is written."""
    found: Rows = {}
    for family in sorted({*measured_families(), *rows} - {ANY_FAMILY}):
        known, row = row_of(family), rows.get(family, {})
        pairs = {name: zip(known.get(name, NOTHING), row.get(name, NOTHING), strict=True) for name in {*known, *row}}
        found[family] = in_order({name: Measured(*map(max, pair)) for name, pair in pairs.items()})
    return {**found, ANY_FAMILY: row_of(ANY_FAMILY)}


def in_order(row: dict[str, Measured]) -> dict[str, Measured]:
    """Groups of recipes, combinations of groups, axes."""
    combinations = sorted(row.keys() - {*bounds.GROUPS, *bounds.AXES})
    return {name: row[name] for name in (*bounds.GROUPS, *combinations, *bounds.AXES) if name in row}


def as_toml(rows: Rows) -> str:
    """The measured errors, as bounds.toml has them."""
    lines = [
        "# Largest error of the formula's peak in percent, rounded up, and the number of measured configs:",
        "# by group of recipes, and the additional error per axis of a layout.",
        "# Written by `python -m tests.sweeps.training_bounds ANSWERS.jsonl`, never by hand.",
        f'torch = "{version("torch").partition("+")[0]}"',
        f'transformers = "{version("transformers")}"',
        "",
    ]
    for family, row in rows.items():
        every = ", ".join(f"{name} = [{found.percent:g}, {found.configs}]" for name, found in row.items())
        lines.append(f"{family} = {{{every}}}")
    return "\n".join([*lines, ""])


def quantile(values: Iterable[float], share: float) -> float:
    """A quantile, by the value at or above it."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def error_table(found: Iterable[Error], rows: Rows) -> list[str]:
    """Median, ninth decile and largest error of each recipe, and families above 1%, where the formula answers: a table
    of Markdown."""
    every = defaultdict[str, list[Error]](list)
    for each in found:
        if is_answered(each, rows):
            every[each.option].append(each)
    lines = [
        "| recipe | configs | families | median | p90 | largest | above 1% |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for option in filter(every.get, RECIPES):
        sizes = [abs(each.share) for each in every[option]]
        worst = defaultdict[str, float](float)
        for each in every[option]:
            worst[each.family] = max(worst[each.family], each.share, key=abs)
        above = ", ".join(f"{family} {share:+.1%}" for family, share in sorted(worst.items()) if abs(share) > 0.01)
        numbers = f"{quantile(sizes, 0.5):.4%} | {quantile(sizes, 0.9):.2%} | {max(sizes):.2%}"
        lines.append(f"| {option} | {len(sizes)} | {len(worst)} | {numbers} | {above or 'none'} |")
    return lines


def is_answered(error: Error, rows: Rows) -> bool:
    """True if no error of the same family and group is above the limit."""
    row = rows[error.family]
    needed = (*error.groups, bounds.AND.join(error.groups), "eager" if "16-bit" not in row else "16-bit")
    return all(row[group].percent <= bounds.LIMIT for group in needed if group in row)


def worse(rows: Rows) -> Iterator[str]:
    """Families and groups whose error is above the bound in bounds.toml."""
    for family, row in rows.items():
        for group, found in row.items():
            before = row_of(family).get(group)
            if before is None or (before.percent <= bounds.LIMIT and found.percent > before.percent):
                yield f"{family}, {group}: {found.percent:g}%, written: {before and before.percent}%"


# Random shapes.


def smallest() -> dict[str, str]:
    """The smallest preset of each family that the formula answers."""
    found: dict[str, tuple[int, str]] = {}
    answered = {family for family in measured_families() if bounds.answered_groups(family)}
    for name in presets.names():
        model = presets.load(name)
        if model.family in answered:
            found[model.family] = min(found.get(model.family, (model.parameters, name)), (model.parameters, name))
    return {family: name for family, (_, name) in sorted(found.items())}


def drawn(raw: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Fields of a config with other sizes: layers, key/value heads, widths, vocabulary, window."""
    fields: dict[str, Any] = {}
    for name in ("num_hidden_layers", "n_layer", "num_layers"):
        if isinstance(raw.get(name), int) and "layer_types" not in raw:
            fields[name] = rng.choice((4, 6, 8, 12))
    heads = raw.get("num_attention_heads")
    if isinstance(raw.get("num_key_value_heads"), int) and isinstance(heads, int):
        fields["num_key_value_heads"] = rng.choice([count for count in (1, 2, 4, 8, heads) if heads % count == 0])
    for name in ("intermediate_size", "ffn_dim"):
        if isinstance(raw.get(name), int):
            fields[name] = rng.choice((1, 2, 3)) * raw[name] // 2 // 64 * 64
    if isinstance(raw.get("vocab_size"), int) and raw["vocab_size"] > 20_000:
        fields["vocab_size"] = rng.choice((8_000, 32_000, 50_000, 128_000))
    if isinstance(raw.get("sliding_window"), int):
        fields["sliding_window"] = rng.choice((512, 4096))
    return fields


def shapes(draws: int, seed: int, say: Callable[[str], object]) -> list[float]:
    """Errors of random shapes: so many draws of each family, asked of the class."""
    rng, found = random.Random(seed), list[float]()
    for name in smallest().values():
        raw = dict(presets.load(name).raw)
        for _ in range(draws):
            fields, option = drawn(raw, rng), rng.choice(DRAWN)
            batch, ctx = rng.choice((1, 2, 3, 8)), rng.choice((320, 777, 1024, 2048, 4096))
            try:
                model = load(name, **fields).loaded
                recipe = recipe_of(option, model).for_model(model)
                work = selection.workload(model, Request(ctx=min(ctx, model.context or ctx), batch=batch))
                ours = int(training_memory(model, work, recipe).peak.total)
                theirs = ask(model, work, recipe)["peak"]
            except TfacctError:
                continue
            found.append(ours / theirs - 1)
            if abs(found[-1]) > 0.01:
                say(f"{name} {fields} {option} {batch} x {work.tokens}: {found[-1]:+.2%}")
    return found


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", nargs="?", type=Path, help="answers of the class, a line of JSON each")
    parser.add_argument("--ask", action="store_true", help="ask the class for what the file lacks")
    parser.add_argument("--sample", type=int, metavar="N", help="ask the class for N recipes of each family")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a bound is too small")
    parser.add_argument("--shapes", type=int, metavar="N", help="N random shapes of each family")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if asked.shapes:
        sizes = [abs(share) for share in shapes(asked.shapes, asked.seed, print)]
        within = sum(size <= 0.01 for size in sizes) / len(sizes)
        print(
            f"{len(sizes):,} shapes, seed {asked.seed}: {within:.2%} within 1%, median {quantile(sizes, 0.5):.4%},"
            f" p99 {quantile(sizes, 0.99):.2%}, largest {max(sizes):.2%}"
        )
        return 0
    if asked.answers is None:
        parser.error("ANSWERS.jsonl or --shapes N")
    widens = asked.sample is not None
    if asked.ask or widens:
        every = ((name, option) for name in names() for option in ASKED)
        complete(asked.answers, sample(asked.sample, asked.seed) if widens else every, print)
    found, without = errors(read(asked.answers).values())
    rows = widened(by_family(found, written())) if widens else by_family(found)
    table = error_table(found, rows)
    print("\n".join(table))
    for family, row in rows.items():
        above = [f"{name} {found.percent:g}%" for name, found in row.items() if found.percent > bounds.LIMIT]
        if above:
            print(f"not answered: {family}, {', '.join(above)}")
    for why, which in sorted(without.items()):
        print(f"no formula: {why}: {len(which)}, as {which[0]}")
    if asked.check:
        failed = list(worse(rows))
        print("\n".join(failed))
        return int(bool(failed))
    TOML.write_text(as_toml(rows), encoding="utf-8")
    if widens:
        return 0
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(MARKED.sub(lambda mark: f"{mark[1]}{chr(10).join(table)}\n{mark[2]}", page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
