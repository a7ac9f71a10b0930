"""The package: imports, packed files, and the order of packages. Kind: law."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import tfacct
from tests.helpers.imports import commanded, imported_by
from tfacct.base.errors import MissingExtraError

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("arguments", [["flops"], ["train", "t5-small", "--ctx", "8", "--json"]], ids=" ".join)
def test_no_command_but_verify_imports_what_it_does_not_need(arguments: list[str]) -> None:
    """For all presets, and for two models in JSON; commands for one model have their budgets in test_start.py."""
    assert imported_by(commanded(*arguments)) == set()


def test_the_check_above_can_fail() -> None:
    assert imported_by("import numpy") == {"numpy"}
    with pytest.raises(subprocess.CalledProcessError):
        imported_by(commanded("flops", "no-such-model"))


def test_the_python_api_imports_little() -> None:
    assert imported_by("import tfacct; tfacct.load('gpt2').flops(ctx=99).total") == set()
    assert imported_by("import tfacct; assert 'pydantic' not in sys.modules") == set()


def of_reference(file: Path) -> bool:
    """True of the torch modules of families' own parts."""
    return "families" in file.parts and file.name.endswith("_reference.py")


def imports_of(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line.lstrip().startswith(("import ", "from "))]


def test_torch_is_named_in_reference_and_meta_only() -> None:
    for file in (ROOT / "tfacct").rglob("*.py"):
        if file.parent.name not in ("reference", "meta") and not of_reference(file):
            assert not any(f" {name}" in line for line in imports_of(file) for name in ("torch", "fvcore")), file


def test_only_the_torch_modules_of_families_import_the_reference_model() -> None:
    """The import contract lets all of `families` do so: it has no pattern for their names."""
    files = [*(ROOT / "tfacct" / "families").rglob("*.py")]
    imported = {file: [line for line in imports_of(file) if " tfacct.reference" in line] for file in files}
    assert {file for file in files if imported[file]} == {file for file in files if of_reference(file)}
    assert not any(" tfacct.ledger" in line for file in files if of_reference(file) for line in imports_of(file))


MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in (ROOT / "tfacct").rglob("*.py")
}


def imported_modules(file: Path) -> Iterator[str]:
    """The modules of tfacct that a file imports, at its top or inside a function, but not for type checking alone."""
    tree = ast.parse(file.read_text("utf-8"))
    checks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    typed = {id(node) for check in checks for line in check.body for node in ast.walk(line)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in typed:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in MODULES else str(node.module)
        elif isinstance(node, ast.Import) and id(node) not in typed:
            yield from (name.name for name in node.names)


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle; none if there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports inside functions count: they are for start-up, not to go around the order of the files."""
    graph = {name: {*imported_modules(file)} & {*MODULES} - {name} for name, file in MODULES.items()}
    assert "tfacct.ledger.lines" in graph["tfacct.parallel.mesh"]  # at the top
    assert "tfacct.reports.flops" in graph["tfacct.commands.flops"]  # inside a function
    assert circle(graph) == []


def test_a_circle_is_found() -> None:
    assert sorted(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})[1:]) == ["a", "b", "c"]
    assert circle({"a": {"b", "c"}, "b": {"c"}}) == []


def test_two_flops_per_multiply_add_is_written_once() -> None:
    """FLOPs per multiply-add is one number in one place."""
    defined = [f for f in (ROOT / "tfacct").rglob("*.py") if "FLOPS_PER_MULTIPLY_ADD =" in f.read_text()]
    assert [f.name for f in defined] == ["lines.py"]


KINDS = {"golden", "law", "oracle", "output", "refusal"}
"""Kinds of tests: a number from outside, a property over models, others' code, printed text, and errors."""


def test_every_test_file_names_its_kinds() -> None:
    for file in (ROOT / "tests").rglob("test_*.py"):
        about = " ".join((ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split())
        named = re.search(r"Kind: ([a-z, ]+)\.", about)
        assert named and {*named[1].split(", ")} <= KINDS, file


def test_version_and_help_do_without_pydantic() -> None:
    for arguments in (["--version"], ["--help"]):
        assert imported_by(commanded(*arguments) + "assert 'pydantic' not in sys.modules") == set()


def test_the_source_distribution_has_what_tests_read() -> None:
    """Its parts are listed in pyproject.toml: dot files are in it only if they are named."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packed = {*settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"], "pyproject.toml", "LICENSE"}
    read = (
        re.findall(r'(?:ROOT|parent\.parent|parents\[2\]\)?) / "([^"/]+)', file.read_text())
        for file in (ROOT / "tests").rglob("*.py")
    )
    named = {name for names in read for name in names if (ROOT / name).exists()}
    assert named <= packed and {".github", "docs", "README.md"} <= named
    assert {".ci", ".github"} <= packed and "urls" not in settings["project"]


def test_no_hint_names_a_package_that_no_index_has() -> None:
    """What is installed comes from a checkout: `pip install '.[measure]'`."""
    files = [ROOT / "README.md", *(ROOT / "benchmarks").glob("*.py"), *(ROOT / "docs").glob("*.md")]
    files += [*(ROOT / "examples").iterdir(), *(ROOT / "tfacct").rglob("*.py")]
    named = [file for file in files if file.is_file() and re.search(r"pip install \S*tfacct", file.read_text("utf-8"))]
    assert named == []
    assert MissingExtraError("no torch", "measure").hint == "pip install '.[measure]' in a tfacct checkout"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = (re.findall(r'MissingExtraError\([^)]*?", "(\w+)"', file.read_text()) for file in files)
    assert {name for names in asked for name in names} <= {*extras}


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        _ = tfacct.laod


def test_a_report_shows_itself_in_a_notebook() -> None:
    html = tfacct.load("gpt2").flops(ctx=1024)._repr_html_()
    assert html.startswith('<div class="tfacct">') and "1,024 × 768 × 768" in html and "<th" in html
