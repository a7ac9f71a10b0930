"""A user's own module against the ledger: where tensors, FLOPs and the cache differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.evaluated import Tensor
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD, Matmul
from tfacct.ledger.workload import Request, Workload
from tfacct.loading import maps, selection
from tfacct.loading.model import LoadedModel
from tfacct.verify.checks import Counts, cache_by_block, class_flops, reference_module
from tfacct.verify.matching import HEAD, CodeTensor, Match, Matched, match
from tfacct.verify.places import TABLE

if TYPE_CHECKING:
    from tfacct.reference.user_module import Built, Weight
    from tfacct.reference.watching import Watched

OUTSIDE, WHOLE_MODEL = "outside the layers", "the whole model"


class Mismatch(NamedTuple):
    """A difference between the code and the config. `name`: the name in the code; `what`: a phrase.

    `unit` is `parameters`, `FLOPs` or `bytes`; `code` and `config` are the counts of both sides, over all `blocks` with
    the same difference.
    """

    path: str
    name: str
    what: str
    unit: str
    code: int
    config: int
    blocks: int = 1

    @property
    def words(self) -> str:
        """The place and the difference."""
        return f"{self.path}: {self.what}"


@record
class Compared:
    """A module compared with a model: all tensors, all FLOPs, the returned cache, and the differences."""

    matched: Matched
    mismatches: Sequence[Mismatch]
    parameters: tuple[int, int]
    """Of the code, and of the config."""
    flops: tuple[int, int] | None
    cache: tuple[int, int] | None
    saved: tuple[int, int] | None
    """Bytes that a training step saves for backward, if asked for."""
    work: Workload
    notes: Sequence[str] = ()
    operators: Sequence[str] = ()
    saved_bound: Fraction = Fraction(0)
    """How far the config's formula of them may be off, as a share."""
    by_fvcore: int | str = ""
    """FLOPs of the code as fvcore counts them, or why it does not."""

    @property
    def agrees(self) -> bool:
        """True if nothing differs."""
        return not self.mismatches


def compare(
    model: LoadedModel,
    weights: Sequence[Weight],
    watched: Watched | None,
    work: Workload,
    given: Mapping[str, Sequence[str]] | None = None,
    saved: tuple[int, int] | None = None,
    saved_bound: Fraction = Fraction(0),
    by_fvcore: int | str = "",
) -> Compared:
    """Compares a module's tensors and its recorded run with a model's ledger. Raises ConfigError.

    `saved`: bytes that a training step saves, by the code and by the config's formula, whose error is at most
    `saved_bound`, a share. `by_fvcore`: multiply-adds that fvcore counts in the code, or the reason why it counts none.
    """
    matched = match(model, weights, given)
    mismatches = _folded(_tensors(model, matched, weights))
    flops = cache = None
    notes: list[str] = []
    if watched is not None:
        expected, work, note = _as_run(model, work, watched, _holders(matched))
        notes += note
        flops = sum(watched.flops.values()), sum(expected.values())
        if flops[0] != flops[1]:
            found = _further(_folded(_flops(model, matched, weights, watched.flops, expected)), mismatches)
            mismatches += found or ([] if mismatches else [_differ(WHOLE_MODEL, flops, "FLOPs")])
        if watched.cache_bytes is not None and watched.cache_elements:
            cache, note = _cache(model, work, watched)
            notes += note
            if cache[0] != cache[1]:
                mismatches.append(_differ(model.cache_name or "cache", cache, "bytes"))
    if isinstance(by_fvcore, int):
        by_fvcore *= FLOPS_PER_MULTIPLY_ADD
        if flops is not None and by_fvcore != flops[0]:
            what = f"{by_fvcore:,} FLOPs in the code by fvcore, {flops[0]:,} by torch's formulas"
            mismatches.append(Mismatch(WHOLE_MODEL, "", what, "FLOPs", by_fvcore, flops[0]))
    if saved is not None and abs(saved[0] - saved[1]) > saved_bound * saved[0]:
        mismatches.append(_differ("saved activations", saved, "bytes"))
    return Compared(
        matched,
        mismatches,
        (matched.elements[0], model.parameters),
        flops,
        cache,
        saved,
        work,
        notes,
        () if watched is None else watched.operators,
        saved_bound,
        by_fvcore,
    )


def _further(flops: Sequence[Mismatch], known: Sequence[Mismatch]) -> list[Mismatch]:
    """Differences in FLOPs that do not follow from different sizes or numbers of layers."""
    if any(one.path == "blocks" for one in known):
        return [one for one in flops if one.path.startswith("lm_head")]
    sized = {one.path for one in known}
    return [one for one in flops if one.path not in sized and not (one.path == "lm_head" and "embed" in sized)]


def _two(code: int, config: int, unit: str) -> str:
    return f"{code:,} {unit} in the code, {config:,} in the config"


def _differ(path: str, both: tuple[int, int], unit: str, name: str = "") -> Mismatch:
    return Mismatch(path, name, _two(*both, unit), unit, *both)


def _tensors(model: LoadedModel, matched: Matched, weights: Sequence[Weight]) -> Iterator[Mismatch]:
    """Differences in tensors: sizes, then tensors missing on one side, last pairs of missing tensors with equal
    sizes."""
    unequal = matched.blocks != (0, 0)
    if unequal:
        code, config = matched.blocks
        what = f"{code:,} in the code, {config:,} in the config"
        both = sum(one.code.elements for one in matched.matches if paths.parse(one.config_tensors[0].path).stack)
        each = both // min(code, config)
        yield Mismatch("blocks", "", what, "parameters", each * code, each * config)
    found: list[tuple[int, Mismatch]] = []
    unpaired = Counter(int(tensor.elements) for tensor in matched.missing) & Counter(
        over.elements for over in matched.over
    )
    renamed: list[Mismatch] = []

    def real(mismatch: Mismatch) -> bool:
        """False for a tensor that the other side may have under another name."""
        if not unpaired[mismatch.code or mismatch.config]:
            return True
        renamed.append(mismatch)
        return False

    order = {tensor.path: number for number, tensor in enumerate(model.ledger.tensors(unfolded=True))}
    for one in matched.matches:
        if not one.fits:
            path = named(one.config_tensors)
            mismatch = Mismatch(path, one.code.name, _sizes(one), "parameters", one.code.elements, one.elements)
            found.append((order[one.config_tensors[0].path], mismatch))
    tied = {weight.name: weight.same_as for weight in weights if weight.same_as}
    for tensor in matched.missing:
        if unequal and paths.parse(tensor.path).stack:
            continue
        if real(mismatch := _missing(tensor, tied)):
            found.append((len(order) + order[tensor.path], mismatch))
    yield from (mismatch for _, mismatch in sorted(found, key=lambda each: each[0]))
    modules = {paths.module_of(each.name): one.config_tensors for one in matched.matches for each in one.code.weights}
    embeddings = (one.code.weights for one in matched.matches if one.config_tensors[0].path == TABLE)
    embedded = {weight.name for weights in embeddings for weight in weights}
    heads = {paths.module_of(name) for name, same in tied.items() if same in embedded}
    known = {one.code.container for one in matched.matches}
    for over in matched.over:
        if unequal and over.container and over.container not in known:
            continue  # in a layer that the config does not have
        if real(mismatch := _over(model, over, modules, heads)):
            yield mismatch
    yield from renamed


def named(tensors: Sequence[Tensor]) -> str:
    """Path of a module or a bias; for several that are one in the code, all paths."""
    return together([tensor.path for tensor in tensors])


def together(every: Sequence[str]) -> str:
    """Paths of weights, biases or matmuls of one part, with the part named once."""
    bias = ".bias" if every[0].endswith(".bias") else ""
    first, *others = (path.removesuffix(".weight").removesuffix(".bias") for path in every)
    return " + ".join([first, *(path.rpartition(".")[2] for path in others)]) + bias


def _sizes(one: Match) -> str:
    """A phrase for the difference between the sizes of two tensors."""
    wanted, found = list(one.shape), [size for size in one.code.shape if size != 1] or [1]
    code, config = one.code.elements, one.elements
    if len(wanted) == 2 and len(found) == 2:
        straight = found[0] == wanted[0] or found[1] == wanted[1]
        if not straight and (found[0] == wanted[1] or found[1] == wanted[0]):
            found = found[::-1]  # the code's weights have the input axis first
        embedding = one.config_tensors[0].embedding
        if found[1] == wanted[1]:
            kind = "rows" if embedding else "wide"
            return f"{found[0]:,} {kind} in the code, {wanted[0]:,} in the config"
        if found[0] == wanted[0]:
            kind = "wide" if embedding else "inputs"
            return f"{found[1]:,} {kind} in the code, {wanted[1]:,} in the config"
        return f"{_by(found)} in the code, {_by(wanted)} in the config"
    if len(wanted) == len(found) > 2:
        return f"{_by(found)} in the code, {_by(wanted)} in the config"
    if len(found) == 1:
        return f"{code:,} wide in the code, {config:,} in the config"
    return _two(code, config, "elements")


def _by(sizes: Iterable[int]) -> str:
    return " × ".join(f"{size:,}" for size in sizes)


def _missing(tensor: Tensor, tied: Mapping[str, str]) -> Mismatch:
    """The difference for a tensor that is missing in the code, or tied to another there."""
    elements, path = int(tensor.elements), tensor.path.removesuffix(".weight")
    if path == "lm_head" and tied:
        name = next((name for name in tied if HEAD.intersection(name.lower().split("."))), next(iter(tied)))
        what = f"tied to {tied[name]} in the code, a separate weight in the config"
        return Mismatch(path, name, what, "parameters", 0, elements)
    return Mismatch(path, "", f"{elements:,} parameters in the config, not in the code", "parameters", 0, elements)


def _over(
    model: LoadedModel, over: CodeTensor, modules: Mapping[str, Sequence[Tensor]], heads: Collection[str]
) -> Mismatch:
    """The difference for a tensor that is missing in the config."""
    tensors = modules.get(paths.module_of(over.name))
    head = model.architecture.head
    words = set(over.name.lower().split("."))
    if head is not None and head.tied and not over.container and len(over.shape) == 2 and words & HEAD:
        what = "a separate weight in the code, tied to the embedding in the config"
        return Mismatch("lm_head", over.name, what, "parameters", over.elements, 0)
    path = over.name
    if tensors is not None and tensors[0].path.endswith(".weight") and "bias" in over.name.rpartition(".")[2]:
        path = f"{named(tensors)}.bias"
    elif paths.module_of(over.name) in heads and "bias" in over.name.rpartition(".")[2]:
        path = "lm_head.bias"
    what = f"{over.elements:,} parameters in the code, not in the config"
    return Mismatch(path, over.name, what, "parameters", over.elements, 0)


def _folded(mismatches: Iterable[Mismatch]) -> list[Mismatch]:
    """Equal differences in several layers as one: the first, with their number and sum."""
    found: dict[tuple[str, str, str], Mismatch] = {}
    for one in mismatches:
        key = _starred(one.path), one.what, one.unit
        known = found.get(key)
        found[key] = one if known is None else known._replace(
            code=known.code + one.code, config=known.config + one.config, blocks=known.blocks + 1
        )  # fmt: skip
    return list(found.values())


def _starred(path: str) -> str:
    return ".".join("*" if word.isdecimal() else word for word in path.split("."))


def _as_run(
    model: LoadedModel, work: Workload, watched: Watched, holders: Mapping[str, str]
) -> tuple[Counts, Workload, list[str]]:
    """Expected FLOPs of the code: by default those of the ledger; those of the transformers class if the total matches
    them; with logits of the last position only if the FLOPs outside the layers are nearer to that."""
    measured = sum(watched.flops.values())
    at = work.axes()
    expected: Counts = {path: int(count) for path, count in model.ledger.flops(at, unfolded=True).items()}
    if sum(expected.values()) == measured:
        return expected, work, []
    if model.config.hf_module_paths():
        as_class, note = class_flops(model, work)
        if note and sum(as_class.values()) == measured:
            return {path: int(count) for path, count in as_class.items()}, work, [note]
    if work.logits == "all" and work.tokens > 1:
        last = replace(work, logits="last")
        fewer: Counts = {path: int(n) for path, n in model.ledger.flops(last.axes(), unfolded=True).items()}
        outside = sum(count for module, count in watched.flops.items() if not _block_of(module, holders))
        every, one = (sum(count for path, count in side.items() if not _block(path)) for side in (expected, fewer))
        if abs(outside - one) < abs(outside - every):
            return fewer, last, ["The code computes only the last position's logits, so these are compared."]
    return expected, work, []


def _cache(model: LoadedModel, work: Workload, watched: Watched) -> tuple[tuple[int, int], list[str]]:
    """Bytes of the cache that the code returned, and of the config's cache in the same dtype."""
    assert watched.cache_bytes is not None and watched.cache_elements
    each = watched.cache_bytes // watched.cache_elements
    expected = sum(int(count) for count in model.ledger.states(work.axes()).values())
    if expected != watched.cache_elements and model.config.hf_module_paths():
        as_class = sum(cache_by_block(model.config.hf_cache().ledger().states(work.axes(), unfolded=True)).values())
        if as_class == watched.cache_elements:
            return (watched.cache_bytes, as_class * each), ["The cache is compared in the transformers class's layout."]
    return (watched.cache_bytes, expected * each), []


def _flops(
    model: LoadedModel, matched: Matched, weights: Sequence[Weight], measured: Mapping[str, int], expected: Counts
) -> Iterator[Mismatch]:
    """Layers with different FLOPs, and in each the modules, or the matmuls without weights, that differ. Those of
    unpaired tensors are left out, because the tensors are differences themselves."""
    holders, lines = _holders(matched), _lines(model)
    paired = {paths.module_of(weight.name) for one in matched.matches for weight in one.code.weights}
    over = {paths.module_of(weight.name) for one in matched.over for weight in one.weights} - paired
    missing = {path for tensor in matched.missing for path in lines.get(tensor.path, ())}
    code: dict[str, Counter[str]] = defaultdict(Counter)
    for module, count in measured.items():
        if module not in over:
            code[_block_of(module, holders)][module] += count
    config: dict[str, Counter[str]] = defaultdict(Counter)
    for path, count in expected.items():
        if path not in missing:
            config[_block(path)][path] += count
    if not any(code[block] for block in config if block):
        return  # the code runs its layers outside their modules
    of_tables = {weight.name: weight.same_as for weight in weights if weight.same_as}
    groups: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for one in matched.matches:
        products = tuple(path for tensor in one.config_tensors for path in lines.get(tensor.path, ()))
        modules = tuple(dict.fromkeys(paths.module_of(weight.name) for weight in one.code.weights))
        if one.config_tensors[0].path == TABLE:
            modules = (*modules, *(paths.module_of(name) for name in of_tables))
        if products:
            groups.append((products, modules))
    for block in dict.fromkeys((*config, *code)):
        if sum(code[block].values()) != sum(config[block].values()):
            yield from _in_block(block, code[block], config[block], groups)


def _in_block(
    block: str, code: Counter[str], config: Counter[str], groups: Sequence[tuple[tuple[str, ...], tuple[str, ...]]]
) -> Iterator[Mismatch]:
    rest = [Counter(code), Counter(config)]
    found = False
    for products, modules in groups:
        if not any(product in config for product in products):
            continue
        both = sum(code[module] for module in modules), sum(config[product] for product in products)
        for side, names in zip(rest, (modules, products), strict=True):
            for name in names:
                del side[name]
        if both[0] != both[1] and both[0]:
            found = True
            yield _differ(together(products), both, "FLOPs", modules[0])
    left = rest[0].total(), rest[1].total()
    total = code.total(), config.total()
    if left[0] != left[1] and (left[1] or not found):
        where = block or OUTSIDE
        if total[0] - total[1] == left[0] - left[1]:
            what = f"{_two(*left, 'FLOPs')}, in matmuls without weights, such as scores and values"
            yield Mismatch(where, "", what, "FLOPs", *left)
        elif not found:
            yield _differ(where, total, "FLOPs")


def _lines(model: LoadedModel) -> dict[str, list[str]]:
    """Matmuls by the tensor that they read, both as unfolded paths."""
    found: dict[str, list[str]] = defaultdict(list)
    for group in model.ledger.groups:
        for line in group.lines:
            if isinstance(line, Matmul) and line.weight_axes() is not None:
                reads = f"{line.weight or line.path}.weight"
                for (path, _), (tensor, _) in zip(
                    group.places(line.path, True), group.places(reads, True), strict=True
                ):
                    found[tensor].append(path)
    return found


def _holders(matched: Matched) -> dict[str, str]:
    """Layers of the code by the names of their containers, with the matching layers of the config."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for one in matched.matches:
        if one.code.container:
            votes[one.code.container][_block(one.config_tensors[0].path)] += 1
    beyond = {over.container: over.container for over in matched.over if over.container}
    return {**beyond, **{holder: found.most_common(1)[0][0] for holder, found in votes.items()}}


def _block(path: str) -> str:
    """The layer part of a path; empty outside the layers."""
    at = paths.parse(path)
    return str(at._replace(part="", leaf="")) if at.stack else ""


def _block_of(module: str, holders: Mapping[str, str]) -> str:
    while module:
        if module in holders:
            return holders[module]
        module = paths.module_of(module)
    return ""


TOKENS = 128
"""Default number of tokens for a module: enough for every matmul to run."""


@record
class ModuleOptions:
    """Options of a check of a module. `device`: `meta`, or `cpu` for real values; `given`: inputs, None for token
    ids."""

    batch: int = 1
    tokens: int | None = None
    source: int | None = None
    device: str = "meta"
    paths: Mapping[str, Sequence[str]] | None = None
    propose: str | Path | None = None
    given: Any = None
    train: bool = False


def checked(model: LoadedModel, module: Any, named: str, options: ModuleOptions) -> Compared:
    """Compares a module, a factory or the name of one with a model. Needs torch. Raises TfacctError."""
    user_module, user_module_fvcore, watching = (
        reference_module(name, "check needs torch", "measure")
        for name in ("user_module", "user_module_fvcore", "watching")
    )
    if options.device not in ("meta", "cpu"):
        raise UsageError(f"{option('device')} is meta or cpu, not {options.device!r}")
    make = user_module.build if isinstance(module, str) else partial(user_module.called, named=named)
    built: Built = make(module, device=options.device)
    inner = user_module.unwrapped(built.module)
    given = options.given if options.given is not None else built.inputs
    batch, tokens = options.batch, min(model.context, TOKENS) if options.tokens is None else options.tokens
    if options.tokens is None and model.source is None:
        batch, tokens = watching.sizes(given) or (batch, tokens)
    source = None if model.source is None else min(model.source, tokens) if options.source is None else options.source
    work = selection.workload(model, Request(ctx=tokens, batch=batch, source=source))
    weights = user_module.weights(inner)
    watched = watching.watch(inner, batch, tokens, source=source or 0, given=given, device=options.device)
    by_fvcore = user_module_fvcore.multiply_adds(inner, batch, tokens, source=source or 0, given=given)
    saved, bound = _saved(model, built, module, work) if options.train else (None, Fraction(0))
    found = compare(model, weights, watched, work, options.paths, saved, bound, by_fvcore)
    if options.propose is not None:
        missing = dict.fromkeys(paths.starred(tensor.path) for tensor in found.matched.missing)
        alone = dict.fromkeys(over.name for over in found.matched.over)
        maps.write(options.propose, found.matched.pairs, list(alone), list(missing), model.name)
    return found


def _saved(model: LoadedModel, built: Built, module: Any, work: Workload) -> tuple[tuple[int, int], Fraction]:
    """Bytes that a bf16 training step saves for backward, by the code and by the formula for the transformers class,
    and the error bound of the formula."""
    from tfacct.training.bounds import LEAST_TOKENS
    from tfacct.training.memory import training_memory
    from tfacct.training.recipe import Recipe
    from tfacct.verify.training import bound_of

    problem = f"{option('train')} needs transformers"
    user_module_step = reference_module("user_module_step", problem, others="transformers")
    if built.module is module:
        raise UsageError(
            f"{option('train')} changes the module's dtype, so it does not accept an instance",
            "give the function that builds the module",
        )
    if not model.logits:
        raise UsageError(f"{model.name} has no logits and no loss: {option('train')} does not apply")
    recipe = Recipe("bf16").checked().for_model(model)
    expected = int(training_memory(model, work, recipe).step.saved_bytes())
    long = replace(work, context=LEAST_TOKENS, tokens=LEAST_TOKENS)  # bounds hold from this number of tokens on
    saved = user_module_step.saved_bytes(built.module, work.batch, work.tokens)
    return (saved, expected), bound_of(model, long, recipe)
