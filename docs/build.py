"""Prints the tables of the documentation from the program itself, or checks that they are what it prints.

`python docs/build.py` rewrites every ```console block in README.md and docs/, the whole of docs/cli.md and
docs/models.md, the schemas under docs/schema, the outputs of notebooks and the list of metric names; `python
docs/build.py --check` only compares, and exits 1 naming the files that are stale.

A page may hold files of its own: a block under a line that is only a file's name. Its commands then run in a copy of
the package with those files in it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from tfacct import families
from tfacct.accounts.metrics import METRICS
from tfacct.accounts.optimizers import OPTIMIZERS, Optimizer
from tfacct.accounts.step_metrics import STEP_METRICS
from tfacct.api.schema import KINDS, PAGES, schema
from tfacct.architecture.transformer import Transformer
from tfacct.cli import app as _commands  # noqa: F401  which registers them
from tfacct.cli.root import REGISTERED
from tfacct.families import FamilyConfig
from tfacct.families._fields import CHANGES_COUNTS, HARMLESS, OF_OTHER_LAYERS, RATES, SPELLINGS
from tfacct.families._own_tables import KEYS_OF, LISTED, CrossTable, SideTable, Table
from tfacct.families._rooms import newest_first, released
from tfacct.families._spelled_types import SPELLED
from tfacct.families._texts import TEXTS
from tfacct.families._wrappers import WRAPPERS
from tfacct.ledger.workload import Workload
from tfacct.loading import index, presets
from tfacct.loading.model import LoadedModel
from tfacct.reports.models import listed

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)

EXIT_CODES = """\
Data goes to stdout; hints, warnings and progress to stderr. Exit codes: 0 fine, 1 `verify`, `check` or `checkpoint`
found a difference, 2 wrong usage or bad input, 130 interrupted. `NO_COLOR`, pipes and `TERM=dumb` give plain text.

No table is wider than the terminal, and no number is broken: a narrow one drops bars and specs, breaks headers, drops
columns and names them, or prints the table in parts. A stream whose encoding lacks a sign gets a substitute: `-` for a
rule, `#` for a bar, `x` for ×, `->` for →.
"""


def printed(command: str, place: Path = ROOT) -> str:
    """What a command shows in a terminal of 80 columns: its table, then its hints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "PATH": path, "PYTHONIOENCODING": "utf-8"}
    if place != ROOT:
        env["PYTHONPATH"] = str(place)
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=place, env=env)
    return ran.stdout + ran.stderr


@contextlib.contextmanager
def workplace(text: str) -> Iterator[Path]:
    """Where a page's commands run: the checkout, or, where the page holds files, a copy of the package with them."""
    files = FILE.findall(text)
    if not files:
        yield ROOT
        return
    with TemporaryDirectory() as folder:
        for room in ("tfacct", "presets"):
            shutil.copytree(ROOT / room, Path(folder, room), ignore=shutil.ignore_patterns("__pycache__"))
        for name, content in files:
            Path(folder, name).write_text(content, encoding="utf-8")
        yield Path(folder)


OPTIMIZER_ROWS = re.compile(r"<!-- optimizers -->\n(.*?)<!-- end of optimizers -->\n", re.DOTALL)


def optimizers() -> str:
    """A row for each optimizer: bytes of what it keeps, and of what its step holds."""
    head = "| `--optimizer` | | per element | per row and column | per tensor | its step holds | measured on |"
    rows = [
        f"| `{name}` | {how.about} | {_per_element(how)} | {_moments(1, how.bits) if how.factored else ''} |"
        f" {how.counter or ''} | {how.holds.words if how.holds else ''} | {how.source} |"
        for name, how in OPTIMIZERS.items()
    ]
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows, ""])


def _moments(count: int, bits: int | None) -> str:
    return (f"{count} · w" if count > 1 else "w") if bits is None else f"{4 * count}"


def _per_element(how: Optimizer) -> str:
    if how.bits == 8:
        tables = ", and of embeddings" if how.full_tables else ""
        return f"{how.moments} · (1 + 4/256); {4 * how.moments} of tensors below 4,096 elements{tables}"
    hidden = f"{_moments(how.hidden.moments, how.hidden.bits)} of these matrices, " if how.hidden else ""
    return f"{hidden}{_moments(how.moments, how.bits) if how.moments else ''}"


PRESETS = re.compile(r"\b[\d,]+ presets\b")
KEYS = re.compile(r"<!-- keys -->\n(.*?)<!-- end of keys -->\n", re.DOTALL)


FORMULAS = {
    "kv_heads": "`heads`",
    "key_heads": "`heads`",
    "head_dim": "`hidden` / `heads`",
    "out_bias": "`bias`",
    "activation": "`silu` if gated, else `gelu`",
    "final": "true, but with `post` false",
    "source_vocab": "both sides share a table",
    "source_context": "`context`",
    "source_hidden": "`hidden`",
    "rank": "`hidden` / 16, rounded up",
    "value_dim": "`nope_dim`",
    "decoder.delta_net.value_dim": "`key_dim`",
}
"""What an absent key of an own model means where that is no constant."""


def own_keys() -> str:
    """The keys of an own model, table by table."""
    named = {name: table for name, table in KEYS_OF.items() if "." not in name}
    named |= {"encoder]` and `[decoder": SideTable, "decoder.cross_attention": CrossTable}
    named |= {f"decoder.{name}": table for name, table in LISTED.items()}
    return "\n".join(_keys(name, table) for name, table in named.items())


def _keys(name: str, table: type[Table]) -> str:
    rows = [
        f"| `{key}` | {_values(field.annotation)} | {_otherwise(name, key, field)} | {field.description} |"
        for key, field in table.model_fields.items()
        if field.description
    ]
    about = (table.__doc__ or "").partition("\n")[0]
    return "\n".join([f"### `[{name}]`\n\n{about}\n", "| key | is | absent | |", "|---|---|---|---|", *rows, ""])


def _values(annotation: Any) -> str:
    """What a key may be."""
    words = [kind for kind in (annotation, *get_args(annotation)) if get_origin(kind) is Literal]
    if words:
        return ", ".join(f'`"{word}"`' for word in get_args(words[0]))
    if lists := [kind for kind in (annotation, *get_args(annotation)) if get_origin(kind) is list]:
        return "a list of words" if str in get_args(lists[0]) else "a list of block numbers"
    if "float" in str(annotation):
        return "a number"
    return "true, false" if "bool" in str(annotation) else "a size"


def _otherwise(table: str, key: str, field: FieldInfo) -> str:
    """What its absence means."""
    if field.is_required():
        return "**required**"
    if field.default_factory is not None or (field.default is None and key in FORMULAS):
        return FORMULAS.get(f"{table}.{key}") or FORMULAS[key]
    if field.default is None:
        return "–"
    spelled = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
    return str(field.default).lower() if isinstance(field.default, bool) else f"`{spelled}`"


def refreshed(text: str) -> str:
    """The text with the output of every `$ command` in its console blocks printed anew, the keys of own models, and the
    presets counted."""
    text = PRESETS.sub(f"{len(presets.names()):,} presets", text)
    text = OPTIMIZER_ROWS.sub(lambda _: f"<!-- optimizers -->\n{optimizers()}<!-- end of optimizers -->\n", text)
    text = KEYS.sub(lambda _: f"<!-- keys -->\n{own_keys()}<!-- end of keys -->\n", text)

    def block(match: re.Match[str]) -> str:
        commands = [line for line in match[1].splitlines() if line.startswith("$ ")]
        outputs = (f"{command}\n{printed(command.removeprefix('$ '), place)}" for command in commands)
        return f"```console\n{''.join(outputs)}```"

    with workplace(text) as place:
        return BLOCK.sub(block, text)


def cli_reference() -> str:
    """docs/cli.md: the help of every command."""
    parts = ["# Command line\n\nPrinted by the program: `python docs/build.py`.\n\n" + EXIT_CODES]
    for command in ("", *REGISTERED):
        words = f"tfacct {command}".strip()
        help_text = "\n".join(line.rstrip() for line in printed(f"{words} --help").strip().splitlines())
        parts.append(f"## {words}\n\n```text\n{help_text}\n```\n")
    return "\n".join(parts)


MODELS = """\
# Models

Printed by the program: `python docs/build.py`. One section for each `model_type`, the newest first: by the month in
which its first model, or the paper about it, came out.

A config's field is *read*, *harmless*, *refused* or *unknown* ([conventions.md](conventions.md)). The tables list the
fields that are read and counted, the meaning of an absent field (the default of the transformers class) and of a null
one; where a cell is empty, null is refused. *Refused here* lists the fields that another family understands and this
one does not, once switched on. Fields that no family understands are [at the end](#refused-everywhere), and so are
those that are harmless everywhere.

Totals are parameters, each stored tensor once. *Active* are those that one token uses, embeddings included: everything
stored, but of the experts only those that the token is sent to. `tfacct verify MODEL --against transformers` compares
with the class that a section names, module by module.

*training*: the kinds of attention with which `tfacct train` counts a step of the family, because its class was measured
([training.md](training.md)), and which of these go with it: `--lora`, `--weights nf4` beside it, `--weights fp32` under
autocast, `--checkpoint attention`, `--loss chunked`.
"""


OTHER_NAMES = (
    "Types of older files, and of files with code of their own, that are read as a family here. Their fields and"
    " defaults were read in that code or in public copies of it; it was not run, and the witness is the family's class,"
    " given the same sizes. Fields that their code does otherwise are refused."
)


def models_page() -> str:
    """docs/models.md: what is known of every family."""
    known: dict[str, list[LoadedModel]] = {name: [] for name in newest_first(families.names())}
    for model in presets.load_all():
        known[model.family].append(model)
    rows = [
        f"| [{name}](#{name}) | {released(name) or '–'} | {_differs(name)} | {len(known[name])} | {_trains(name)} |"
        for name in known
    ]
    table = "\n".join(["| family | since | what it is | presets | training |", "|---|---|---|---:|---|", *rows])
    read = {name for family in known for name in _understood(families.config_class(family))}
    refused = f"{_words(CHANGES_COUNTS - read - HARMLESS)}, and all that begin with {_words(OF_OTHER_LAYERS)}."
    harmless = f"{_words(HARMLESS)}, and all with {_words(RATES)} in their names."
    twice = (
        "Converted files keep the old name of a size next to the one the class reads. Both are accepted if they are"
        f" equal, and refused if not. Names of one size: {'; '.join(map(_words, SPELLINGS))}."
    )
    spelled = ", ".join(f"`{name}` as `{one.family}`" for name, one in SPELLED.items())
    end = "\n\n".join(
        [
            f"## Other names\n\n{_wrapped(f'{OTHER_NAMES} {spelled}.')}",
            "## Refused everywhere\n\nNo family understands these when they are switched on.",
            _folded("The fields", _wrapped(refused)),
            "## Harmless everywhere\n\nUnless a family reads them.",
            _folded("The fields", _wrapped(harmless)),
            f"## Sizes given twice\n\n{_wrapped(twice)}\n",
        ]
    )
    return "\n".join([MODELS, table, "", *(_section(name, known[name], read) for name in known), end])


ALSO = {
    "lora": "LoRA",
    "lora_once": "LoRA",
    "nf4": "nf4",
    "autocast": "autocast",
    "selective": "attention again",
    "chunked": "chunked loss",
}
"""What a training step is counted with beside the options that all have, by the marks of a family."""


def _trains(name: str) -> str:
    """Kinds of attention with which its training step is counted, and what else it is counted with."""
    trains = families.config_class(name).trains
    also = [word for mark, word in ALSO.items() if mark in trains]
    return ", ".join([*(kind for kind in ("sdpa", "eager") if kind in trains), *also]) or "–"


def _section(name: str, models: list[LoadedModel], read: set[str]) -> str:
    family = families.config_class(name)
    if name == families.OWN:
        return _own_section(models, family)
    harmless = family.harmless - set(family.model_fields)
    silent = (f"`{field}` ({_absent(family, field)})" for field in sorted(family.uncounted))
    facts = {
        "Also read in": ", ".join(
            f"`text_config` of a `{whole}`, the other models in it are not counted"
            for whole, wrapper in WRAPPERS.items()
            if (TEXTS[wrapper.text].family if wrapper.text in TEXTS else wrapper.text) == name
        ),
        "Other names": ", ".join(f"`{other}` for `{field}`" for other, field in family.aliases.items()),
        "Read for the reference model, for a check, or behind a switch (absent)": ", ".join(silent),
        "Harmless here only": _words(harmless - HARMLESS),
        "Cache": _cache(family, models),
        "Checked against": _witnesses(name, models),
    }
    refused = _words((CHANGES_COUNTS & read) - _understood(family) - HARMLESS)
    rows = [
        f"| `{field}` | {_absent(family, field)} | {_null(family, field)} |"
        for field in family.model_fields
        if field not in family.uncounted
    ]
    routed = any(model.ledger.parameters() != model.ledger.active_parameters() for model in models)
    active, rule = (" active |", "---:|") if routed else ("", "")
    fields = "\n".join(["| field | absent | null |", "|---|---|---|", *rows])
    known = "\n\n".join(_wrapped(f"{title}: {text}.") for title, text in facts.items() if text)
    return "\n\n".join(
        [
            f"## {name}\n\n{_differs(name)}",
            "\n".join(_wrapped(f"- {line}", "  ") for line in family.gotchas),
            "\n".join(
                [
                    f"| preset | parameters |{active} blocks | total from |",
                    f"|---|---:|{rule}---|---|",
                    *(_preset(model, routed) for model in models),
                ]
            ),
            _folded("Fields, witnesses", f"{fields}\n\n{known}"),
            _folded("Refused here", _wrapped(refused)) + "\n",
        ]
    )


def _folded(title: str, text: str) -> str:
    """Text that opens on a click."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _own_section(models: list[LoadedModel], family: type[FamilyConfig]) -> str:
    """The models of parts: their keys have a page of their own."""
    presets_ = [f"| {m.name} | {sum(m.ledger.parameters().values()):,} |" for m in models]
    return "\n\n".join(
        [
            f"## {families.OWN}\n\n{_differs(families.OWN)} [your-model.md](your-model.md) lists its tables and keys.",
            "\n".join(_wrapped(f"- {line}", "  ") for line in family.gotchas),
            "\n".join(["| preset | parameters |", "|---|---:|", *presets_, ""]),
        ]
    )


def _differs(name: str) -> str:
    """What a family's room says of it first."""
    doc = sys.modules[families.config_class(name).__module__].__doc__ or ""
    return " ".join(doc.partition("\n\n")[0].split())


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 125, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _words(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _understood(family: type[FamilyConfig]) -> set[str]:
    return {*family.model_fields, *family.harmless, *family.aliases}


class _Spelled(str):
    """A field's name that a default is computed from: what comes out is the formula."""

    def __mul__(self, factor: object) -> _Spelled:
        return _Spelled(f"{self} · {factor}")

    def __rmul__(self, factor: object) -> _Spelled:
        return _Spelled(f"{factor} · {self}")

    def __mod__(self, _: object) -> Any:
        return 0  # it divides

    def __floordiv__(self, other: object) -> _Spelled:
        return _Spelled(f"{self} / {other}")


def _absent(family: type[FamilyConfig], name: str) -> str:
    """What an absent field means."""
    field = family.model_fields[name]
    if field.is_required():
        return "**required**"
    if field.default_factory is not None:
        formula: Any = field.default_factory
        return str(formula({other: _Spelled(other) for other in family.model_fields}))
    shown = {None: "none", True: "true", False: "false"}
    if field.default is None or isinstance(field.default, bool):
        return shown[field.default]
    return f"{field.default:,}" if isinstance(field.default, int) else str(field.default)


def _null(family: type[FamilyConfig], name: str) -> str:
    """What a null field means; nothing where it is refused."""
    field = family.model_fields[name]
    if name in family.nulls:
        return family.nulls[name]
    if not field.is_required() and (field.default_factory is not None or field.default is None):
        return "as absent"
    return "none" if NoneType in get_args(field.annotation) else ""


def _cache(family: type[FamilyConfig], models: list[LoadedModel]) -> str:
    """Where what the class keeps is not what an engine must keep."""
    at = Workload(context=10**6, tokens=1).axes()
    keeping = [m for m in models if m.keeps]
    other = [m.name for m in keeping if m.config.class_keeps().ledger().states(at) != m.ledger.states(at)]
    return f"the class keeps something else: {family.class_differs} ({', '.join(other)})" if other else ""


def _witnesses(name: str, models: list[LoadedModel]) -> str:
    """Who else says what this family counts."""
    from transformers.models.auto import modeling_auto

    family = families.config_class(name)
    known = family.class_type or name
    autos = dict.fromkeys(ending.auto for ending in family.heads.values()) if family.hf_paths else {}
    makers = {auto: getattr(modeling_auto, auto, None) for auto in autos}  # None: a class of its own
    built = [auto if of is None else of._model_mapping._model_mapping[known] for auto, of in makers.items()]
    found = [f"`{name}`" for name in built]
    totals = [model.provenance.expected_from for model in models if model.provenance]
    for witness, words in (("published", "published totals"), ("arithmetic", "hand arithmetic")):
        found += [f"{words} for {totals.count(witness)} of {len(totals)} presets"] if witness in totals else []
    return ", ".join(["the reference model", *found])


def _preset(model: LoadedModel, routed: bool) -> str:
    total, active = (sum(counts.values()) for counts in (model.ledger.parameters(), model.ledger.active_parameters()))
    source = model.provenance.expected_from if model.provenance else ""
    middle = f" {active:,} |" if routed else ""
    return f"| {model.name} | {total:,} |{middle} {_blocks(model.architecture)} | {source} |"


def _blocks(shape: Transformer) -> str:
    """How many blocks there are of each kind; of how many kinds, where no word tells these apart."""
    stacks, kinds = shape.every_stack, shape.kinds()
    if len(kinds) > 1 and all(kind.isdigit() for kind in kinds):
        return f"{sum(int(stack.count) for stack in stacks):,}, of {len(kinds)} kinds"
    parts = []
    for stack, kind in zip(stacks, kinds, strict=True):
        window = f", window {stack.block.window:,}" if stack.block.window else ""
        parts.append(f"{stack.count:,} {kind or ('decoder' if shape.encoder else '')}".strip() + window)
    return "; ".join(parts)


def schemas() -> dict[Path, str]:
    """docs/schema: a JSON Schema for the answer of each command."""
    written = {name: json.dumps(schema(name), indent=2, ensure_ascii=False) for name in (*KINDS, *PAGES)}
    return {ROOT / "docs" / "schema" / f"{name}.json": f"{text}\n" for name, text in written.items()}


def notebook(text: str) -> str:
    """A notebook with the outputs of its code cells as they are: what is printed, and the last expression's value."""
    book = json.loads(text)
    names: dict[str, Any] = {}
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        cell |= {"execution_count": number, "outputs": list(_outputs("".join(cell["source"]), number, names))}
    return f"{json.dumps(book, indent=1, ensure_ascii=False)}\n"


def _outputs(source: str, number: int, names: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a cell shows, as a notebook stores it."""
    *body, end = ast.parse(source).body
    last = end.value if isinstance(end, ast.Expr) else None
    body += [] if last else [end]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(ast.Module(body, []), f"cell {number}", "exec"), names)
        value = eval(compile(ast.Expression(last), f"cell {number}", "eval"), names) if last else None
    if printed := said.getvalue():
        yield {"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)}
    if value is not None:
        shown = {"text/html": html()} if (html := getattr(value, "_repr_html_", None)) else {}
        data = {**{kind: text.splitlines(keepends=True) for kind, text in shown.items()}, "text/plain": [repr(value)]}
        yield {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}


def notebooks() -> dict[Path, str]:
    """The notebooks among the examples, in a terminal of 80 columns and without a window."""
    os.environ |= {"COLUMNS": "80", "MPLBACKEND": "agg"}
    found = sorted((ROOT / "examples").glob("*.ipynb"))
    return {page: notebook(page.read_text(encoding="utf-8")) for page in found}


METRIC_NAMES = '''\
"""Names of metrics, for type checkers and editors. Written by `python docs/build.py` from `accounts.metrics`."""

from __future__ import annotations

from typing import Literal, TypeAlias

MetricName: TypeAlias = Literal[
{}]
"""Metrics that every model has. `share.NAME` and `flops.NAME` of a product or part are names too."""
'''


def metric_names() -> str:
    """tfacct/api/metric_names.py: a `Literal` of every metric."""
    return METRIC_NAMES.format("".join(f'    "{name}",\n' for name in (*METRICS, *STEP_METRICS)))


def preset_index() -> str:
    """presets/index.json: every preset's file, and what `models` says of it."""
    files = {name: (presets.folder() / f"{name}.toml").read_bytes() for name in presets.names()}
    return index.text(
        (data, index.Entry(tomllib.loads(data.decode()), listed(presets.load(name)))) for name, data in files.items()
    )


def documents() -> dict[Path, str]:
    """Every page as it should be."""
    whole = {ROOT / "docs" / "cli.md": cli_reference, ROOT / "docs" / "models.md": models_page}
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    wanted = {page: refreshed(page.read_text(encoding="utf-8")) for page in pages if page not in whole}
    names = {
        ROOT / "tfacct" / "api" / "metric_names.py": metric_names(),
        presets.folder() / index.FILE: preset_index(),
    }
    return wanted | {page: text() for page, text in whole.items()} | schemas() | notebooks() | names


def main(arguments: list[str]) -> int:
    """Rewrite, or check."""
    stale = [
        (page, text)
        for page, text in documents().items()
        if not page.exists() or page.read_text(encoding="utf-8") != text
    ]
    for page, text in stale:
        name = page.relative_to(ROOT)
        if "--check" in arguments:
            print(f"stale: {name}: run `python docs/build.py`", file=sys.stderr)
        else:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text, encoding="utf-8")
            print(f"printed {name}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
