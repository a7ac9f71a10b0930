"""Prints the tables of the documentation from the program itself, or checks that they are what it prints.

`python docs/build.py` rewrites every ```console block in README.md and docs/, all of docs/cli.md, docs/support.md,
docs/your-model-keys.md, docs/models.md and docs/config-fields.md, the tables of families in docs/models/, the schemas
under docs/schema, the outputs of notebooks and the list of metric names; `python docs/build.py --check` only compares,
and exits 1 naming the files that are stale.

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
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from json_keys import json_keys
from models_page import models_pages
from own_keys import own_keys

from tfacct.accounts.metrics import METRICS, STEP_METRICS
from tfacct.base.combinations import Unsupported, matrix
from tfacct.base.spelling import on_command_line
from tfacct.commands import NAMES
from tfacct.loading import index, presets
from tfacct.parallel import support
from tfacct.reports.models import listed
from tfacct.reports.schema import KINDS, PAGES, schema
from tfacct.training import recipe, unsupported
from tfacct.training.optimizers import Optimizer, optimizers

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)

EXIT_CODES = """\
Data goes to stdout; hints, warnings and progress to stderr. Exit codes: 0 fine, 1 `verify` or `check` found a
difference, 2 wrong usage or bad input, 130 interrupted, 141 where the reader of stdout stops reading.
`NO_COLOR`, pipes and `TERM=dumb` give plain text.

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
        for part in ("tfacct", "presets"):
            shutil.copytree(ROOT / part, Path(folder, part), ignore=shutil.ignore_patterns("__pycache__"))
        for name, content in files:
            Path(folder, name).write_text(content, encoding="utf-8")
        yield Path(folder)


OPTIMIZER_ROWS = re.compile(r"<!-- optimizers -->\n(.*?)<!-- end of optimizers -->\n", re.DOTALL)


STEPS = {
    "all weights": "a copy of all weights",
    "one tensor": "2 copies of the largest tensor, and one of the tensor before it",
    "factored": "a copy of the largest tensor, and one of the tensor before it",
    "factored, fp32": (
        "4 fp32 copies of the largest tensor (2 with fp32 weights); one may belong to the tensor before it"
    ),
    "orthogonalization": "for the largest matrix r × c, (w + 4) · r · c + 4 · min(r, c)²",
}
"""Temporaries of an optimizer's step, by the rule of `optimizers.toml`."""


def optimizer_rows() -> str:
    """A row for each optimizer: bytes of its state, and of the temporaries of its step."""
    head = "| `--optimizer` | | per element | per row and column | per tensor | temporaries of its step | measured on |"
    rows = [
        f"| `{name}` | {how.description} | {_per_element(how)} |"
        f" {_numbers(1, how.number_bytes) if how.factored else ''} | {how.tensor_bytes or ''} |"
        f" {_temporaries(how)} | {how.source} |"
        for name, how in optimizers().items()
    ]
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows, ""])


def _numbers(count: int, bytes_each: int | None) -> str:
    return (f"{count} · w" if count > 1 else "w") if bytes_each is None else f"{4 * count}"


def _temporaries(how: Optimizer) -> str:
    words = "" if how.step is None else STEPS[how.step]
    return words.replace("a copy", f"{how.copies} copies") if how.step == "all weights" and how.copies > 1 else words


def _per_element(how: Optimizer) -> str:
    if how.number_bytes == 1:
        embeddings = " and for embeddings" if how.embeddings_fp32 else ""
        return f"{how.numbers} · (1 + 4/256); {4 * how.numbers} for tensors below 4,096 elements{embeddings}"
    numbers = _numbers(how.numbers, how.number_bytes) if how.numbers else ""
    if how.matrices is None:
        return numbers
    return f"{_numbers(how.matrices['numbers'], None)} in these matrices, {numbers} in the rest"


PRESETS = re.compile(r"\b[\d,]+ presets\b")
JSON_KEYS = re.compile(r"<!-- json keys -->\n(.*?)<!-- end of json keys -->\n", re.DOTALL)


SOURCE = re.compile(r"<!-- source: (\S+) (\S+) -->\n```python\n.*?```", re.DOTALL)
"""A code block that shows a class of a file, or the statement of it that begins with a word."""


def source(path: str, name: str) -> str:
    """A class of a file, or a statement of it, as it is written there."""
    text = (ROOT / path).read_text(encoding="utf-8")
    found = re.search(rf"^class {re.escape(name)}\b.*?(?=\n\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    found = found or re.search(rf"^( *){re.escape(name)}.*(?:\n\1 +.*)*", text, re.MULTILINE)
    assert found is not None, f"{path} has no {name}"
    return f"<!-- source: {path} {name} -->\n```python\n{found[0].rstrip()}\n```"


def refreshed(text: str) -> str:
    """The text with the output of every `$ command` in its console blocks printed anew, the keys of JSON, the classes
    of code blocks as they are, and the presets counted."""
    text = SOURCE.sub(lambda found: source(found[1], found[2]), text)
    text = PRESETS.sub(f"{len(presets.names()):,} presets", text)
    text = OPTIMIZER_ROWS.sub(lambda _: f"<!-- optimizers -->\n{optimizer_rows()}<!-- end of optimizers -->\n", text)
    text = JSON_KEYS.sub(lambda _: f"<!-- json keys -->\n{json_keys()}<!-- end of json keys -->\n", text)

    def block(match: re.Match[str]) -> str:
        commands = [line for line in match[1].splitlines() if line.startswith("$ ")]
        outputs = (f"{command}\n{printed(command.removeprefix('$ '), place)}" for command in commands)
        return f"```console\n{''.join(outputs)}```"

    with workplace(text) as place:
        return BLOCK.sub(block, text)


def cli_reference() -> str:
    """docs/cli.md: the help of every command."""
    parts = ["# Command line\n\nPrinted by the program: `python docs/build.py`.\n\n" + EXIT_CODES]
    for command in ("", *NAMES):
        words, asked = f"tfacct {command}".strip(), "--help-all" if command else "--help"
        help_text = "\n".join(line.rstrip() for line in printed(f"{words} {asked}").strip().splitlines())
        parts.append(f"## {words}\n\n```text\n{help_text}\n```\n")
    return "\n".join(parts)


SUPPORT: dict[str, tuple[Sequence[Unsupported], Mapping[str, tuple[str, Callable[..., object]]]]] = {
    "Parallel layouts": (support.LAYOUTS, support.FEATURES),
    "Pipeline parallelism": (support.STAGES, support.FEATURES),
    "Context parallelism": (support.SEQUENCES, support.FEATURES),
    "Parts of a model in a parallel layout": (support.PARTS, support.FEATURES),
    "Training recipes": (recipe.RECIPES, unsupported.FEATURES),
    "Training steps in a parallel layout": (unsupported.LAYOUTS, unsupported.FEATURES),
    "Training steps": (unsupported.STEPS, unsupported.FEATURES),
}
"""The rows of unsupported combinations by subject, with the features that they name."""
SUPPORT_INTRO = """\
# What is not supported

A row is a combination of features that do not work together. A command with all features of a row is an error, which
gives the reason and an alternative. If the row has no alternative, the error names the nearest training step that is
supported, or `train --exact`. All other combinations work, if the sizes divide. [sharding.md](sharding.md) lists the
parts without sharding rules, such as Mamba. `python docs/build.py` writes this page from the rows of the errors.
"""


def support_page() -> str:
    """docs/support.md: every unsupported combination, as the command line spells it."""
    parts = [SUPPORT_INTRO]
    with on_command_line():
        for title, (rows, features) in SUPPORT.items():
            table = (f"| {' | '.join(_support_row(row))} |" for row in matrix(rows, features))
            parts.append(
                "\n".join([f"## {title}\n", "| combination | reason | alternative |", "|---|---|---|", *table, ""])
            )
    return "\n".join(parts)


def _support_row(row: dict[str, str]) -> tuple[str, str, str]:
    """The cells of a row, without what only repeats its features."""
    features, reason, instead = row["features"], row["reason"], row["instead"]
    labels = features.split(" + ")
    if len(labels) > 1 and "not support" in reason:
        reason = reason.partition(": ")[2]
    return features, "" if reason in labels else reason, "" if instead in labels else instead


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
    generated = {"cli.md": cli_reference(), "support.md": support_page(), "your-model-keys.md": own_keys()}
    whole = {**generated, **models_pages()}
    whole_pages = {ROOT / "docs" / name: text for name, text in whole.items()}
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    wanted = {page: refreshed(page.read_text(encoding="utf-8")) for page in pages if page not in whole_pages}
    names = {
        ROOT / "tfacct" / "api" / "metric_names.py": metric_names(),
        presets.folder() / index.FILE: preset_index(),
    }
    return wanted | whole_pages | schemas() | notebooks() | names


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
