"""The kernels that a serving engine launches for a ledger's lines, on one of the devices that share the model.

Axes alone decide, as they do for a mesh (`sharding`):
1. Products with weights that read the same axes in one module are one kernel: queries, keys and values; gate and up.
2. Scores, softmax and values are one kernel. It reads queries, keys and values and writes the result; T × S is not
   moved. Where the right operands have no heads, both are one latent, which is read once. Of keys that an indexer
   chooses, each query reads its own; the indexer itself reads all of its keys and moves its T × S scores.
3. Products of experts are one grouped kernel over the tokens' experts.
4. All chunks of a recurrence are one kernel, which reads and writes its state once.
5. All pointwise work is four launches a block: two norms with the addition before them, the rotation, the
   activation.
6. `tp` divides the axes that a mesh does and channels; key/value heads are not divided below one. A divided axis that
   is contracted leaves a partial sum: an all-reduce of the result, one for a part. Divided logits are gathered. Each
   device runs the whole indexer. All devices share the experts: `ep` parts of these, and their width among the rest.
FLOPs are those of the pairs that a mask keeps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias, TypeGuard

from tfacct.base.errors import ConfigError
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, AxisNames, axis_names, rounded_up, size, smaller
from tfacct.ledger.evaluated import as_stored, cached_bytes
from tfacct.ledger.groups import Group, Ledger
from tfacct.ledger.lines import (
    ACTIVE,
    CHOSEN,
    COMPRESSED_MASKS,
    EXPERTS,
    Line,
    Matmul,
    Parameter,
    Pointwise,
    State,
    Table,
    Unused,
)
from tfacct.ledger.storage import Storage, Stored, Width
from tfacct.ledger.workload import CHUNKS, COMPRESSED, ENTRIES, HEAVY_ENTRIES, OF_STEPS, ONE_BY_ONE
from tfacct.parallel.mesh import TP_AXES, VOCABULARY, Mesh

Kind: TypeAlias = Literal["gemm", "experts", "attention", "pointwise", "lookup", "all-reduce", "all-gather"]
HEADS = ("Kd", "Nd", "Og")
"""Axes of heads of the delta rule, and of groups of query heads."""
CHANNELS = "Dc"
"""Axis of the channels of those heads."""
DIVIDED = (*TP_AXES, CHANNELS)
KEYS = frozenset(("S", ENTRIES, HEAVY_ENTRIES))
"""Axes of the keys of a step."""
STATES = KEYS | {*HEADS, CHANNELS} | {axis for each in COMPRESSED.values() for axis in each.values()}
"""Axes of which a state has one where its kernel is known."""
RECURRENCE = frozenset((CHUNKS, ONE_BY_ONE))
"""Axes of the lines of a recurrence."""
CHOICES = frozenset(("chosen", "chosen entries"))
"""Masks of keys that an indexer chooses."""
STREAMS = "Xn"
"""Axis of residual streams, which are mixed with one another."""
INDEXER = "Nx"
"""Axis of an indexer's heads."""
QUERY_TILE = 64
"""Queries to which kernels that read latents pad those of a device: one for each head and token."""
LAUNCHES = 4
"""Launches of a block for its pointwise work, except that of an indexer, of which each line is one."""


class Kernel(NamedTuple):
    """A kernel on one device, in all blocks of its kind together.

    `times`: launches. `flops`: of the pairs that a mask keeps. `read`: bytes of the weights that it can read, of all
    experts; `format` is how they are stored. `cache`: bytes of keys and values read. `moved`: bytes of activations read
    and written; of a collective, of its results. `rows`: new tokens that it runs over, before each is sent to its
    experts; of attention, those of one sequence. `experts`: how many there are here, how many a token is sent to, and
    of how many. `over`: devices of a collective. `padded`: FLOPs of padded queries over these.
    """

    name: str
    kind: Kind
    times: int
    flops: int = 0
    read: int = 0
    format: str = ""
    cache: int = 0
    moved: int = 0
    rows: int = 0
    experts: tuple[int, int, int] | None = None
    over: int = 1
    padded: float = 1.0


def runs_in_kernel(line: Pointwise) -> bool:
    """True for pointwise work inside the kernel of attention or of a recurrence."""
    return not (KEYS | RECURRENCE).isdisjoint(axis_names(line.spec))


def way_of(ledger: Ledger, at: Axes) -> Ledger:
    """The way that engines run a step: latent attention with unpacked keys where all tokens are new and see all keys
    before them, else absorbed."""
    if ledger.instead is None:
        return ledger
    every = ([line for group in way.groups for line in group.lines if isinstance(line, Matmul)] for way in ledger.ways)
    unpacks = [any(line.weight_axes() is not None and "S" in line.einsum.left for line in lines) for lines in every]
    chosen = min((group.axes[CHOSEN] for group in ledger.groups if CHOSEN in group.axes), default=at["S"])
    wanted = bool(at["T"] == at["S"] <= chosen)
    return next((way for way, does in zip(ledger.ways, unpacks, strict=True) if does is wanted), ledger.ways[0])


def kernels(
    ledger: Ledger, at: Axes, weights: Storage, activations: Width, cache: Width, mesh: Mesh | None = None
) -> list[Kernel]:
    """Every kernel of a step on one device. Raises ConfigError for a line that has no kernel here."""
    groups = _lowered(ledger, way_of(ledger, at), weights, activations, cache, mesh or Mesh())
    return [kernel for group in groups for kernel in group.kernels(at)]


def cache_bytes(ledger: Ledger, at: Axes, weights: Storage, activations: Width, cache: Width, mesh: Mesh) -> int:
    """Bytes on one device that stay for the next step. Raises as `kernels` does."""
    groups = _lowered(ledger, way_of(ledger, at), weights, activations, cache, mesh)
    return sum(group.cached(group.axes(at, cached=True)) for group in groups)


def weight_bytes(ledger: Ledger, weights: Storage, mesh: Mesh) -> dict[str, int]:
    """Bytes of weights on one device, by path."""
    found = Counter[str]()
    for one in ledger.tensors(unfolded=weights.by_block):
        tensor = share(one.parameter, one.axes, mesh, one.experts)._replace(path=one.path)
        found[one.path] += int(one.count * weights.bytes(tensor))
    return found


def _lowered(
    ledger: Ledger, way: Ledger, weights: Storage, activations: Width, cache: Width, mesh: Mesh
) -> list[_Lowered]:
    """Groups of layers on one device, lowered once for all steps."""

    def found() -> tuple[Storage, list[_Lowered]]:
        lowered = [_Lowered(group, weights, activations, cache, mesh, way.experts) for group in way.groups]
        return weights, lowered  # an identity is unique only while its object lives

    number = ledger.ways.index(way) if ledger.instead else 0
    return ledger.once((_lowered, number, id(weights), activations, cache, mesh), found)[1]


class _Sizes(NamedTuple):
    """Sizes of a group's axes in a step on one device: of lines, and of the lines of experts."""

    axes: Axes
    experts: Axes


Launch: TypeAlias = Callable[[_Sizes], Kernel]
"""A kernel by the sizes of a step."""


class _Lowered:
    """A group of layers on one device: what no step changes, and the kernels of a step in the order of their first
    lines, then pointwise work and collectives."""

    def __init__(
        self, group: Group, weights: Storage, activations: Width, cache: Width, mesh: Mesh, experts: bool
    ) -> None:
        self.group, self.mesh, self.has_experts = group, mesh, experts
        self.weights, self.activations, self.cache = weights, activations, cache
        self.local = Group((), divided(group.axes, mesh), group.count, group.numbers)
        self.local_experts = Group((), divided(group.axes, mesh, is_expert=True))
        self.launches = list(self._launches())

    def axes(self, at: Axes, *, cached: bool = False) -> Axes:
        """Sizes of its axes in a step, or of what is `cached` after it."""
        return self.local.bound({**at, "B": rounded_up(at["B"], self.mesh.dp)}, cached=cached)

    def kernels(self, at: Axes) -> list[Kernel]:
        """Its kernels in a step."""
        axes = self.axes(at)
        sizes = _Sizes(axes, self.local_experts.bound(at) if EXPERTS in self.group.axes else axes)
        return [launch(sizes) for launch in self.launches]

    def _launches(self) -> Iterator[Launch]:
        for lines in _fused(self._lines()):
            first = lines[0]
            if isinstance(first, Table):
                yield self._lookup(first)
            else:
                yield self._products(lines) if first.weight_axes() is not None else self._attention(lines)
        yield from self._pointwise()
        yield from self._collectives()

    def _lines(self) -> Sequence[Line]:
        """Its lines. Engines skip the keys that an indexer does not choose, also where the class only masks them."""
        masks = {line.mask for line in self.group.lines if isinstance(line, Matmul)}
        if CHOSEN not in self.group.axes or not CHOICES.isdisjoint(masks):
            return self.group.lines
        return [
            replace(line, mask="chosen")
            if isinstance(line, Matmul) and (_scores(line) or _values(line)) and INDEXER not in line.einsum.every
            else line
            for line in self.group.lines
        ]

    def _products(self, lines: Sequence[Matmul]) -> Launch:
        first, count, parts = lines[0], self.group.count, self.mesh.ep
        is_expert, is_windowed = bool(first.expert_axis), {*first.einsum.right} <= {*first.einsum.left}
        every = [parameter for line in lines for parameter in line.parameters()]
        name, stored = _named(lines), sum(self._stored(one) for one in every)
        dtype = Counter(map(self.weights.dtype, self._tensors(first.parameters()[0]))).most_common(1)[0][0]
        tokens = tuple(axis for axis in first.einsum.left if axis in OF_STEPS)

        def launch(sizes: _Sizes) -> Kernel:
            axes = sizes.experts if is_expert else sizes.axes
            flops = sum(line.flops(axes, masked=True) for line in lines)
            out = sum(size(axes, line.einsum.out) for line in lines)
            left = out if is_windowed else size(axes, first.einsum.left)  # windows of a convolution overlap
            experts = None
            if is_expert:
                flops, left, out = (rounded_up(number, parts) for number in (flops, left, out))
                experts = rounded_up(axes[EXPERTS], parts), axes[ACTIVE], axes[EXPERTS]
            kind: Kind = "experts" if is_expert else "gemm"
            moved, rows = count * self.activations.bytes(left + out), size(axes, tokens)
            return Kernel(name, kind, count, count * flops, stored, dtype, moved=moved, rows=rows, experts=experts)

        return launch

    def _attention(self, lines: Sequence[Matmul]) -> Launch:
        """Attention, an indexer's scores, or a recurrence: products of activations with one another."""
        count, first, every = self.group.count, lines[0], {*lines[0].einsum.every}
        recurs, indexes = not RECURRENCE.isdisjoint(every), INDEXER in every
        scores = len(lines) if indexes else len(lines) // 2
        chooses = any(line.mask in CHOICES for line in self._lines() if isinstance(line, Matmul))
        is_usual = [_scores(line) for line in lines] == [at < scores for at in range(len(lines))]
        if not recurs and (not is_usual or (indexes and not chooses)):
            raise NoKernelError(paths.short(first.path))
        is_latent = not (recurs or indexes) and all({"K", "N"}.isdisjoint(line.einsum.right) for line in lines)
        gathers = any(line.mask in CHOICES | COMPRESSED_MASKS for line in lines)  # keys that do not follow one another
        suffix = "" if indexes else ".recurrence" if recurs else ".attention"
        name, read = f"{paths.short(paths.module_of(first.path))}{suffix}", self._read(lines)

        def launch(sizes: _Sizes) -> Kernel:
            axes, padded = sizes.axes, 1.0
            if is_latent:  # a tile holds the heads of tokens that read the same latents
                queries = axes["N"] * (1 if gathers else axes["T"])
                padded = rounded_up(queries, QUERY_TILE) * QUERY_TILE / queries
            return Kernel(
                name,
                "attention",
                count,
                count * sum(line.flops(axes, masked=True) for line in lines),
                cache=2 * self.cached(axes) if recurs else count * self.cache.bytes(read(axes)),
                moved=count * self.activations.bytes(size(axes, first.einsum.left) + size(axes, lines[-1].einsum.out)),
                rows=axes["T"],
                padded=padded,
            )

        return launch

    def _read(self, lines: Sequence[Matmul]) -> Callable[[Axes], int]:
        """Elements of the keys and values that queries read, of chosen ones so many for each query. Keys and values are
        one latent, read once, if neither has heads, or if they are one state."""
        states = [axis_names(line.spec) for line in self.group.lines if isinstance(line, State)]
        found = defaultdict[tuple[str, bool], list[AxisNames]](list)
        for line in lines[:1] if INDEXER in lines[0].einsum.every else lines:
            found[line.queries_and_keys[1], line.mask in CHOICES].append(line.einsum.right)

        def read(axes: Axes) -> int:
            total = 0
            for (keys, chosen), rights in found.items():
                sizes = {**axes, keys: axes["T"] * smaller(axes[keys], axes[CHOSEN])} if chosen else axes
                each = [size(sizes, right) for right in rights]
                is_once = states == rights[:1] or all({"K", "N"}.isdisjoint(right) for right in rights)
                total += max(each) if is_once else sum(each)
            return total

        return read

    def cached(self, axes: Axes) -> int:
        """Bytes that stay for the next step."""
        states = [line for line in self.group.lines if isinstance(line, State)]
        return int(self.group.count * sum(cached_bytes(line, axes, self.cache) for line in states))

    def _lookup(self, line: Table) -> Launch:
        name, rows = paths.short(line.path), ("B", "T", *line.parameters()[0].axes[1:])
        return lambda sizes: Kernel(name, "lookup", 1, moved=self.activations.bytes(2 * size(sizes.axes, rows)))

    def _pointwise(self) -> Iterator[Launch]:
        """All pointwise work, and what mixes residual streams, less what runs inside attention or a
        recurrence."""
        lines = [line for line in self.group.lines if isinstance(line, (Pointwise, Unused)) or _mixes(line)]
        if not lines:
            return
        count, mixing = self.group.count, [line for line in lines if isinstance(line, Matmul)]
        run = [
            (axis_names(line.spec), paths.module_of(line.path).endswith("indexer"))
            for line in lines
            if isinstance(line, Pointwise) and not runs_in_kernel(line)
        ]
        results = [*(names for names, _ in run), *(line.einsum.out for line in mixing)]
        launches = LAUNCHES + sum(is_index for _, is_index in run) if paths.repeated(lines[0].path) else 1
        vectors = [line for line in self.group.lines if _is_vector(line)]
        stored = sum(self._stored(one) for line in (*lines, *vectors) for one in line.parameters())

        def launch(sizes: _Sizes) -> Kernel:
            axes = sizes.axes
            flops = count * sum(line.flops(axes) for line in mixing)
            elements = sum(size(sizes.experts if ACTIVE in names else axes, names) for names in results)
            moved = count * self.activations.bytes(2 * elements)
            return Kernel("pointwise", "pointwise", count * launches, flops, stored, moved=moved)

        yield launch

    def _collectives(self) -> Iterator[Launch]:
        """All-reduces of the partial sums of each part, those of its experts and of its other lines together, and
        all-gathers of logits."""
        found = defaultdict[tuple[str, Kind, AxisNames], set[bool]](set)
        for line in self.group.lines:
            if isinstance(line, Table):
                rows, *width = axis_names(line.spec)
                part, made, contracted = line.path, ("B", "T", *width), {rows}
            elif isinstance(line, Matmul) and line.weight_axes() is not None:
                part, made = str(paths.parse(line.path)._replace(leaf="")), line.einsum.out
                contracted = set(line.einsum.every) - set(made)
            else:
                continue
            is_expert = isinstance(line, Matmul) and bool(line.expert_axis)
            if (self.mesh.ranks if is_expert else self.mesh.tp) > 1:
                if not contracted.isdisjoint(DIVIDED):
                    found[part, "all-reduce", tuple(axis for axis in made if axis != ACTIVE)].add(is_expert)
                elif VOCABULARY in made:
                    found[part, "all-gather", made].add(False)
        for (part, kind, result), of_experts in found.items():
            yield self._collective(part, kind, result, of_experts)

    def _collective(self, part: str, kind: Kind, result: AxisNames, of_experts: set[bool]) -> Launch:
        count, over = self.group.count, self.mesh.ranks if True in of_experts else self.mesh.tp
        name, whole = f"{paths.short(part)} {kind}", over if kind == "all-gather" else 1

        def launch(sizes: _Sizes) -> Kernel:
            elements = whole * max(size(sizes.experts if each else sizes.axes, result) for each in of_experts)
            return Kernel(name, kind, count, moved=count * self.activations.bytes(elements), over=over)

        return launch

    def _tensors(self, parameter: Parameter) -> list[Stored]:
        """A tensor of all layers, or that of each layer where its format depends on the layer's number."""
        tensor = share(parameter, self.group.axes, self.mesh, self.has_experts)
        if not (self.weights.by_block and self.group.numbers and paths.repeated(parameter.path)):
            return [tensor]
        return [tensor._replace(path=paths.numbered(parameter.path, number)) for number in self.group.numbers]

    def _stored(self, parameter: Parameter) -> int:
        """Bytes of a tensor in all layers, each of which reads its own."""
        each = self._tensors(parameter)
        return int(self.group.count // len(each) * sum(map(self.weights.bytes, each)))


def share(parameter: Parameter, axes: Axes, mesh: Mesh, experts: bool) -> Stored:
    """A tensor as one device stores it. `axes`: sizes of its whole group of blocks; `experts`: the model has some."""
    local = divided(axes, mesh, is_expert=bool(parameter.is_expert))
    if parameter.is_expert:
        local[EXPERTS] = rounded_up(local[EXPERTS], mesh.ep)
    return as_stored(parameter, local, experts)


def divided(axes: Axes, mesh: Mesh, *, is_expert: bool = False) -> dict[str, int]:
    """Sizes of a group's axes on one device, rounded up: with `is_expert` those of experts, whose width has its own
    number of devices. The query heads of one key/value head stay on its device."""
    local = dict(axes)
    for axis in DIVIDED:
        if axis in local:
            local[axis] = rounded_up(local[axis], mesh.tp)
    if is_expert and "Fe" in local:
        local["Fe"] = rounded_up(axes["Fe"], rounded_up(mesh.ranks, mesh.ep))
    if "K" in local:
        local["G"] = rounded_up(local["N"], local["K"])
    return local


def _fused(lines: Sequence[Line]) -> list[list[Any]]:
    """Lines that are one kernel, in the order of the first of each. Raises ConfigError for one that has none here."""
    found: dict[Any, list[Any]] = {}
    for line in lines:
        if isinstance(line, State) and STATES.isdisjoint(axis_names(line.spec)):
            raise NoKernelError(paths.short(line.path))
        if isinstance(line, Table) and not _is_vector(line):
            found[line.path] = [line]
        elif isinstance(line, Matmul) and not _mixes(line):
            every, module = {*line.einsum.every}, paths.module_of(line.path)
            if {"I", "J"} & every:
                raise NoKernelError(paths.short(line.path))
            if line.weight_axes() is not None:
                found.setdefault((module, line.einsum.left, line.expert_axis), []).append(line)
            elif (RECURRENCE & every and not every.isdisjoint(HEADS)) or _scores(line) or _values(line):
                found.setdefault(module, []).append(line)
            else:
                raise NoKernelError(paths.short(line.path))
    return list(found.values())


def _mixes(line: Line) -> TypeGuard[Matmul]:
    """True for products of a token's residual streams with one another."""
    return isinstance(line, Matmul) and line.weight_axes() is None and STREAMS in line.einsum.left


def _is_vector(line: Line) -> TypeGuard[Table]:
    """True for a table whose numbers are all read: pointwise work has it as a parameter."""
    return isinstance(line, Table) and len(axis_names(line.spec)) == 1


def _scores(line: Matmul) -> bool:
    return "T" in line.einsum.out and not KEYS.isdisjoint(line.einsum.out)


def _values(line: Matmul) -> bool:
    left = line.einsum.left
    return "T" in left and not KEYS.isdisjoint(left) and "T" not in line.einsum.right


class NoKernelError(ConfigError):
    """A line by its path that has no kernel."""


def _named(lines: Sequence[Matmul]) -> str:
    """Name of a fused product: `attn.qkv_proj`, `mlp.gate_up_proj`."""
    first = paths.short(lines[0].path)
    if len(lines) == 1:
        return first
    stems = [line.path.rpartition(".")[2].removesuffix("_proj") for line in lines]
    joined = ("" if all(len(stem) == 1 for stem in stems) else "_").join(stems)
    return f"{paths.module_of(first)}.{joined}{'_proj' if first.endswith('_proj') else ''}"
