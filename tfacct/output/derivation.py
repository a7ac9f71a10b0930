"""A derivation, and its text for a terminal, Markdown or LaTeX. `reports.explain` builds the steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tfacct.base.errors import printable
from tfacct.base.record import record
from tfacct.output.escaping import markdown as escaped
from tfacct.output.width import broken

WIDTH = 100
"""Characters in a line of a document."""


class Axis(NamedTuple):
    """An axis, its value and its meaning."""

    name: str
    value: int
    meaning: str


class Step(NamedTuple):
    """A line of the ledger: `symbols` = `numbers` = `result`.

    `spec`: einsum spec of the line; `more`: specs of its backward matmuls.
    """

    name: str
    path: str
    spec: str
    symbols: str
    numbers: str
    result: int
    more: tuple[str, ...] = ()


class Component(NamedTuple):
    """Steps that are summed under one name."""

    name: str
    steps: tuple[Step, ...]

    @property
    def total(self) -> int:
        """Sum of the steps."""
        return sum(step.result for step in self.steps)


@record
class Derivation:
    """A count that a reader can repeat by hand: axes, a product for every line, sums.

    `takeaway`: a sentence, `check`: the same in numbers; both may be empty. `rule`: what a step multiplies.
    """

    unit: str
    rule: str
    legend: tuple[Axis, ...]
    components: tuple[Component, ...]
    takeaway: str = ""
    check: str = ""

    @property
    def total(self) -> int:
        """Sum of all components."""
        return sum(component.total for component in self.components)

    @property
    def sums(self) -> list[tuple[str, str, int]]:
        """Every sum: name, terms, result."""
        found = [
            (component.name, _terms(step.result for step in component.steps), component.total)
            for component in self.components
        ]
        return [*found, ("total", _terms(component.total for component in self.components), self.total)]


def lines(derivation: Derivation, width: int, spelled: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Lines of at most `width` columns, with styles. The takeaway is omitted: it is the report's answer. `spelled`
    replaces signs that the screen cannot show."""

    def wrapped(text: str, indent: int, style: str = "") -> Iterator[tuple[str, str]]:
        further = 2 if indent else 0
        for number, line in enumerate(_lines(spelled(printable(text)), width - 2, " " * indent)):
            yield " " * (further if number else 0) + line, style

    if derivation.check:
        yield from wrapped(derivation.check, 2)
        yield "", ""
    yield "Axes", "bold"
    names = max(len(axis.name) for axis in derivation.legend)
    values = max(len(f"{axis.value:,}") for axis in derivation.legend)
    for axis in derivation.legend:
        head = f"  {axis.name:<{names}} = {axis.value:>{values},}  "
        yield from ((line, "") for line in _lines(spelled(printable(axis.meaning)), width, spelled(head)))
    yield "", ""
    yield from wrapped(derivation.rule, 0)
    for component, (_, terms, total) in zip(derivation.components, derivation.sums, strict=False):
        yield "", ""
        yield spelled(component.name), "bold"
        for step in component.steps:
            line = f"{step.name}   {_arrow(step.spec)}"
            if len(spelled(line)) + 2 <= width:
                yield spelled(f"  {printable(line)}"), "dim"
            else:
                yield from wrapped(step.name, 2, "dim")
                yield from wrapped(_arrow(step.spec), 4, "dim")
            for gradient in step.more:
                yield from wrapped(f"gradient: {_arrow(gradient)}", 4, "dim")
            yield from wrapped(f"{step.symbols} = {step.numbers} = {step.result:,} {derivation.unit}", 4)
        if len(component.steps) > 1:
            yield from wrapped("sum", 2, "dim")
            yield from wrapped(f"{terms} = {total:,} {derivation.unit}", 4)
    yield "", ""
    yield "total", "bold"
    _, terms, total = derivation.sums[-1]
    sums = f"{terms} = " if len(derivation.components) > 1 else ""
    yield from wrapped(f"{sums}{total:,} {derivation.unit}", 4, "bold")


def markdown(derivation: Derivation, title: str, answer: str, notes: Iterable[str]) -> str:
    """A document with the derivation as it is printed, after its title and its answer."""
    text = "\n".join(line for line, _ in lines(derivation, WIDTH, str))
    parts = [f"# {escaped(title)}", f"**{escaped(answer)}**", f"```text\n{text}\n```", *map(escaped, notes)]
    return "\n\n".join(parts) + "\n"


def latex(derivation: Derivation, title: str) -> str:
    """The steps and the sums as an `align*` environment, which needs amsmath; the rest in comments."""
    head = [printable(title), derivation.takeaway, derivation.check, r"needs \usepackage{amsmath}"]
    head += [f"  {_tex(one.name)} = {one.value:,}: {printable(one.meaning)}" for one in derivation.legend]
    unit = rf"\ \text{{{derivation.unit}}}"
    rows = []
    for component in derivation.components:
        for step in component.steps:
            rows += [
                rf"\text{{{_text(step.name)}}} &= {_tex(step.symbols)}",
                rf"&= {_tex(step.numbers)}",
                f"&= {_tex(f'{step.result:,}')}{unit}",
            ]
    for name, terms, total in derivation.sums:
        rows += [rf"\textbf{{{_text(name)}}} &= {_tex(terms)}"]
        rows += [f"&= {_tex(f'{total:,}')}{unit}"] if " + " in terms else []
    body = " \\\\\n  ".join(rows)
    return "\n".join([*(f"% {line}" for line in head if line), r"\begin{align*}", f"  {body}", r"\end{align*}", ""])


def _terms(numbers: Iterable[int]) -> str:
    return " + ".join(f"{number:,}" for number in numbers)


def _arrow(spec: str) -> str:
    return spec.replace("->", "→")


def _text(name: str) -> str:
    return re.sub(r"([_%&#$])", r"\\\1", printable(name))


_SIGNS = {
    "·": r"\cdot ", "/": "/", "⌈": r"\left\lceil ", "⌉": r"\right\rceil ", "−": "-", "+": "+", "(": r"\left(",
    ")": r"\right)",
}  # fmt: skip
_TOKEN = re.compile(r"(?P<number>\d[\d,]*)|(?P<axis>[A-Z][a-z]*\d*)|(?P<word>[A-Za-z]+)|(?P<sign>\S)|\s+")


def _tex(text: str) -> str:
    """Arithmetic in LaTeX's math mode."""
    found = []
    for match in _TOKEN.finditer(text):
        if number := match["number"]:
            found.append(number.replace(",", "{,}"))
        elif name := match["axis"]:
            found.append(name if len(name) == 1 else rf"{name[0]}_{{\mathrm{{{name[1:]}}}}}")
        elif (word := match["word"]) or match["sign"]:
            found.append(rf"\ \text{{{word}}}" if word else _SIGNS[match["sign"]])
    return "".join(found)


_BREAK = re.compile(r"(?<= )(?=(?:[·=+→/−*-]|->) )|(?<=[,;.:] )|(?<=\D )(?=[A-Za-z(])")
_LONG = re.compile(r"(?<=[·*(])(?=[A-Z(⌈0-9])")
"""Where a line may be broken: before an operator or a word, but not between a number and its unit; after a factor if
nothing else helps."""


def _lines(text: str, width: int, head: str) -> Iterator[str]:
    """The text after a head, in lines; the others are indented by as much."""
    space = width - len(head)
    parts = [part for line in broken(text, space, _BREAK) for part in broken(line, space, _LONG)]
    yield from (f"{' ' * len(head) if number else head}{part}" for number, part in enumerate(parts))
