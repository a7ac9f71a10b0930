"""Formulas of one rank: each line divided by the sizes of the layout's axes that shard it.

Tensor parallelism shards heads, widths and the vocabulary, expert parallelism the experts, pipeline stages the layers,
and context parallelism the tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod
from typing import Any, Literal, NamedTuple

from tfacct.algebra.factored import Factored
from tfacct.algebra.rank_formulas import RankFormula, Ranks, SymbolicLine
from tfacct.algebra.symbols import SymbolicModel
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import AXIS, Size, divisors
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import ACTIVE, Matmul
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh, axis_size, checked_pass, padded_axes, replicated_heads, tp_axis
from tfacct.parallel.rank_flops import check_cached_tokens, check_parts
from tfacct.parallel.shard_model import on_ranks
from tfacct.parallel.support import check_axes, check_mesh, check_shardable, check_sizes, gathers_heads

Layout = Mapping[str, str]
"""Number of ranks, or a letter for it, by axis: `{"tp": "8", "pp": "p"}`."""
AXES = {"tp": "ranks", "ep": "expert-parallel ranks", "pp": "stages", "cp": "context-parallel ranks"}
"""Axes of a layout that a formula can have, and what each counts."""
EXAMPLE = 2
"""Number of ranks used for a letter when a model is checked."""


class RankTotal(NamedTuple):
    """The total of one rank, the axes of the lines that ranks can shard, and the pipeline stage with the largest
    total."""

    total: RankFormula
    axis_names: set[str]
    stage: Literal["first", "last", "each"]


def lines_of_rank(
    lines: Sequence[SymbolicLine], symbolic: SymbolicModel, layout: Layout, of: str
) -> list[SymbolicLine]:
    """The lines of one rank."""
    weights = _weights(symbolic, layout)
    numbers = all(text.isdigit() for text in layout.values())
    experts = expert_paths(symbolic.ledger)

    def divided(line: SymbolicLine) -> SymbolicLine:
        by = ranks_of(line.path, AXIS.findall(line.spec), layout, of, line.path in experts)
        values = {key: value // prod(map(int, by)) for key, value in line.values.items()} if numbers else {}
        if not by and line.weights is None:
            return replace(line, values=values)
        assert isinstance(line.count, Factored)
        count = RankFormula(((line.count, by),)) if by else line.count
        return replace(line, count=count, weights=None if line.weights is None else weights[line.path], values=values)

    return [divided(line) for line in lines]


def total_of_rank(
    ledger: Ledger, symbolic: SymbolicModel, layout: Layout, counts: Mapping[str, Size], of: str
) -> RankTotal:
    """The total of one rank, in a pipeline of the stage with the largest total. `ledger`: the model's ledger with
    numbers."""
    axis_names, experts = _axis_names(symbolic, of), expert_paths(symbolic.ledger)
    ends = _ends(ledger) if "pp" in layout else ({*counts}, {*counts})
    weigh = ledger.parameters() if of == "params" else dict.fromkeys(counts, 1)
    first, last = (sum(weigh[path] for path in end if path in counts) for end in ends)
    here = ends[0] if first > last else ends[1]
    total = _sum(
        symbolic,
        (
            (ranks_of(path, axis_names[path], layout, of, path in experts), count)
            for path, count in counts.items()
            if paths.repeated(path) or path in here
        ),
    )
    counted = (path for path in axis_names if path in counts and not ("ep" in layout and path in experts))
    stage: Literal["first", "last", "each"] = "first" if first > last else "last"
    return RankTotal(total, set().union(*(axis_names[path] for path in counted)), stage if first or last else "each")


def expert_paths(ledger: Ledger) -> frozenset[str]:
    """Paths of the matmuls of experts, and of their weights."""
    lines = [line for group in ledger.groups for line in group.lines if isinstance(line, Matmul) and line.expert_axis]
    return frozenset(path for line in lines for path in (line.path, *(one.path for one in line.parameters())))


def ranks_of(path: str, axis_names: Iterable[str], layout: Layout, of: str, expert: bool = False) -> Ranks:
    """Axis sizes that divide the count of a line with these axes. Expert parallelism leaves each expert (`expert`)
    whole; the ranks of a batch share the experts' tokens."""
    axes = {*axis_names}
    tokens = {"kv": {"S"}, "params": set[str]()}.get(of, {"T", "O"})
    whole_expert = expert and "ep" in layout and of == "params"
    divided = {
        "tp": not whole_expert and any(map(tp_axis, axes)),
        "ep": whole_expert,
        "pp": paths.repeated(path),
        "cp": not axes.isdisjoint(tokens),
    }
    return tuple(text for axis, text in layout.items() if divided[axis])


def _weights(symbolic: SymbolicModel, layout: Layout) -> dict[str, RankFormula]:
    """The parameters of each module. The bias of a row-parallel matmul is whole."""
    known = {path: one for _, weights in symbolic.ledger.weights for path, one in weights.items()}
    modules = groupby(symbolic.ledger.parameters().items(), key=lambda one: paths.module_of(one[0]))
    return {
        module: _sum(
            symbolic,
            (
                (ranks_of(path, known[path].axes, layout, "params", known[path].is_expert), count)
                for path, count in tensors
            ),
        )
        for module, tensors in modules
    }


def _sum(symbolic: SymbolicModel, counts: Iterable[tuple[Ranks, Size]]) -> RankFormula:
    """The sum of counts, each divided by its axis sizes."""
    parts: dict[Ranks, list[Any]] = {}
    for by, count in counts:
        parts.setdefault(by, []).append(count)
    return RankFormula(tuple((symbolic.formula(some).written, by) for by, some in parts.items()))


def _axis_names(symbolic: SymbolicModel, of: str) -> dict[str, set[str]]:
    """The axes of everything that is counted, by path."""
    found: dict[str, set[str]] = {}
    for group in symbolic.ledger.groups:
        for line in group.lines:
            found[line.path] = {*AXIS.findall(getattr(line, "spec", ""))}
            if of == "params":
                found |= {one.path: {*one.axes} for one in line.parameters()}
    return found


def _ends(ledger: Ledger) -> tuple[set[str], set[str]]:
    """Paths of the modules before the layers, and of those after them; a tied embedding is in both."""
    found: tuple[set[str], set[str]] = (set(), set())
    after = False
    for group in ledger.groups:
        after |= bool(group.numbers)
        for line in group.lines if not group.numbers else ():
            found[after].update({line.path, *(one.path for one in line.parameters())})
    return found


def layout_of(options: Mapping[str, str | None]) -> dict[str, str]:
    """Number of ranks, or a letter for it, by axis. Raises UsageError."""
    found = {axis: text for axis in AXES if (text := options.get(axis)) is not None and text != "1"}
    for axis, text in found.items():
        if text.isascii() and text.isdigit():
            if int(text) < 1:
                raise UsageError(f"{option(axis)} must be at least 1, not {int(text)}")
        elif not (text.isascii() and text.isalpha() and text.islower() and len(text) == 1):
            what = f"{option(axis)} must be a number of {AXES[axis]} or a lowercase letter, not {text!r}"
            raise UsageError(what, f"for example {axis[0]}")
    symbols = [text for text in found.values() if not text.isdigit()]
    if len(symbols) > len({*symbols}):
        raise UsageError(f"one letter is used for two axes: {', '.join(symbols)}", "use a different letter for each")
    return found


def check_layout(model: LoadedModel, layout: Layout, of: str, work: Workload | None) -> None:
    """Raises TfacctError for a model that the layout does not divide evenly. `work`: None for a family."""
    numbers = {axis: int(text) if text.isdigit() else None for axis, text in layout.items()}
    if "ep" in layout:
        _check_ep(model, numbers, work)
    if "tp" in layout:
        _check_tp(model, numbers["tp"], numbers.get("ep", 1) or EXAMPLE)
    if "pp" in layout:
        check_axes(model, Mesh(pp=numbers["pp"] or EXAMPLE))
        kinds = [group for group in model.ledger.groups if group.numbers]
        if len(kinds) > 1:
            what = f"{model.name}: pipeline stages with several kinds of layers have no formula"
            raise ConfigError(what, f"`tfacct flops`, `params` and `memory` count them with {option('pp')}")
        layers = len(kinds[0].numbers)
        if layers % (numbers["pp"] or 1):
            what = f"{model.name}: {option('pp', numbers['pp'])} does not divide the layers ({layers:,}) evenly"
            raise UsageError(what, f"supported sizes: {', '.join(map(str, divisors([layers])))}")
    if "cp" in layout:
        if of == "params":
            raise UsageError(f"{option('cp')} shards no parameters: every cp rank has all of them", "leave it out")
        mesh = Mesh(cp=numbers["cp"] or EXAMPLE)
        if work is None or numbers["cp"] is None:
            work = Workload(2 * mesh.sequence_chunks, 2 * mesh.sequence_chunks)
        if of == "kv":
            check_cached_tokens(model, mesh, work)
        else:
            check_parts(model, mesh, work)


def _check_ep(model: LoadedModel, numbers: Mapping[str, int | None], work: Workload | None) -> None:
    """Raises TfacctError for experts that are not whole on a rank, and for token-expert pairs that the ranks of a batch
    do not share evenly."""
    tp, ep = numbers.get("tp", 1), numbers["ep"]
    checked_pass(Mesh(ep=ep or EXAMPLE, cp=EXAMPLE if "cp" in numbers else 1))
    if not any(ACTIVE in group.axes for group in model.ledger.groups):
        raise ConfigError(f"{model.name} has no experts for {option('ep')} to shard", f"leave {option('ep')} out")
    check_mesh(model, Mesh(ep=ep or EXAMPLE), train=False)
    if ep is not None:
        on_ranks(model, tp or 1, ep)
    active = [group.axes[ACTIVE] for group in model.ledger.groups if ACTIVE in group.axes]
    uneven = [n for n in active if work is not None and tp and work.batch * work.tokens * n % tp]
    if work is not None and uneven:
        what = f"{option('tp', tp)} does not divide {work.batch * work.tokens * uneven[0]:,} pairs of token and expert"
        raise UsageError(f"{model.name}: {what} evenly", "`tfacct flops` counts the fullest rank")


def _check_tp(model: LoadedModel, number: int | None, ep: int) -> None:
    if gathers_heads(model):
        what = f"{model.name}: {option('tp')} with a norm over all heads has no formula"
        raise ConfigError(what, "`tfacct flops`, `params` and `memory` count it")
    if number is None:
        check_mesh(model, Mesh(2), train=False)
        return
    mesh = Mesh(number, ep=ep)
    if ep > 1:
        check_sizes(model, mesh, {})
    else:
        check_shardable(model, mesh)
    uneven = [("K", heads) for heads in replicated_heads(model.ledger, mesh)] + padded_axes(model.ledger, mesh)
    if uneven:
        named = " or ".join(axis_size(*each) for each in uneven)
        raise UsageError(f"{model.name}: {option('tp', number)} does not divide {named} evenly")
