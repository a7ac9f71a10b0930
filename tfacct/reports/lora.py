"""LoRA: which products get adapters, what these are, and what a report says of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from tfacct.accounts.training import Adapter
from tfacct.architecture.parts import Embedding, Experts
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes
from tfacct.ledger.kept import FULL, Held, Pass, Section, axes_once
from tfacct.ledger.lines import Matmul
from tfacct.ledger.storage import Stored, storage, width
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.loading.model import LoadedModel
from tfacct.profiles.adapters import adapted
from tfacct.profiles.adapters_parts import STREAM, WEIGHT, Adapters, Sides
from tfacct.profiles.selective import attention_again, lost_angles
from tfacct.reports.stored import names as class_tensors

if TYPE_CHECKING:
    from tfacct.reports.training import Trained
    from tfacct.training.recipe import Recipe

LORA, LORA_ONCE, LORA_SELECTIVE, LORA_WHOLE = "lora", "lora_once", "lora_selective", "lora_whole"
LORA_NETWORKS = "lora_networks"
"""Stand among a family's `trains` where adapters were measured: everywhere, or where no block runs again;
and where attention runs again. `lora_whole`: with the loss of all tokens at once alone. `lora_networks`: on networks
that stand beside routed experts or in blocks without them; elsewhere peft takes their names for the experts' own."""
NARROW = 2
"""A vocabulary of fewer than so many hidden sizes: the forward pass of the loss would be fuller than its gradient."""
ROUTER = ".router"
ATTENTION = paths.in_every(paths.BLOCKS, "attn.")
PEFT_REFUSES = frozenset(("falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h"))
"""Families of which peft takes no out_proj (peft 0.21, `_check_lora_target_modules_mamba`)."""
WORKLOAD = frozenset("BTS")
MATRIX = 2
"""Dimensions of a matrix."""
NF4 = "nf4"
"""Stands there where they were beside weights in 4 bits."""
PACKED = 64
"""Numbers of 4 bits that share a scale."""
CODES = FULL * (1 + 16 + 256)
"""Bytes of the mean of a matrix's scales, and of its codes of numbers and of scales (bitsandbytes 0.50)."""


class Asked(NamedTuple):
    """A rank, and names of products; none for all."""

    rank: int
    names: tuple[str, ...]


def read(text: str) -> Asked:
    """`16` or `16:q_proj,v_proj`. Raises UsageError."""
    rank, colon, names = text.partition(":")
    found = tuple(name.strip() for name in names.split(",") if name.strip())
    if not rank.strip().isascii() or not rank.strip().isdigit() or not int(rank) or (colon and not found):
        raise UsageError(f"{option('lora')} is a rank, or a rank and products, as in 16:q_proj,v_proj, not {text!r}")
    return Asked(int(rank), found)


class Product(NamedTuple):
    """Lines of the ledger that are one product of the class, as q, k and v are where it fuses them; the number of their
    kind of block, and the sizes of what they read and of all that they make."""

    lines: tuple[Matmul, ...]
    number: int
    read: int
    made: int

    @property
    def path(self) -> str:
        """Path of the first."""
        return self.lines[0].path

    @property
    def numbers(self) -> int:
        """Numbers of their weights."""
        return self.read * self.made

    def letter(self, kind: str) -> str:
        """A letter of its own."""
        return f"{kind}{self.path.rpartition('.')[2].replace('_', '')}"

    def sides(self, *, packed: bool) -> Sides:
        """Axes of what it reads and makes, and where its weight is `packed`, of that as it is unpacked."""
        read, weight, made = (" ".join(axes) for axes in self.lines[0].einsum[:3])
        if len(self.lines) > 1:
            made, weight = f"B T {self.letter('O')}", " ".join((self.letter("O"), *_own(self.lines[0])))
        unpacked = Held(weight), Held(self.letter("C"), "full")
        return Sides(read, "" if made == STREAM else made, unpacked if packed else ())

    @property
    def axes(self) -> dict[str, int]:
        """Sizes of its own letters: all that it makes, and blocks of its 4-bit numbers."""
        return {self.letter("O"): self.made, self.letter("C"): -(-self.numbers // PACKED)}


def _own(line: Matmul) -> Iterator[str]:
    """Letters of what a product reads that are none of a step."""
    return (letter for letter in line.einsum.left if letter not in WORKLOAD)


def products(subject: LoadedModel, *, packed: bool = False) -> dict[str, Sides]:
    """Products of the blocks that have weights of their own: what they read, and what they make. `packed`: the weights
    are in 4 bits."""
    return {product.path: product.sides(packed=packed) for product in _products(subject)}


def _products(subject: LoadedModel) -> Iterator[Product]:
    modules = subject.config.paths()
    for number, group in enumerate(subject.ledger.groups):
        found: dict[str, list[Matmul]] = {}
        for line in group.lines if group.numbers else ():
            if isinstance(line, Matmul) and line.weight_axes() is not None and not _bare(line) and _is_layer(line):
                found.setdefault(modules.get(line.path, line.path), []).append(line)
        for lines in found.values():
            (read, *_), made = zip(*(_sides(line, group.axes) for line in lines), strict=True)
            yield Product(tuple(lines), number, read, sum(made))


def _sides(line: Matmul, axes: Axes) -> tuple[int, int]:
    """Sizes of what a product reads and makes."""
    made, read = line.parameters()[0].shape_in_torch(axes)
    return read, made


def _is_layer(line: Matmul) -> bool:
    """True if its class has one matrix for it: not a convolution, nor a matrix for each head."""
    weight = line.parameters()[0]
    each = {*line.einsum.left} & {*line.einsum.out}
    return len(weight.dims) == MATRIX and weight.axes[0] not in each


def _routed(subject: LoadedModel) -> bool:
    """True if a model has routed experts."""
    return any(isinstance(part, Experts) for part in subject.architecture.parts())


def _is_bare(line: object) -> TypeGuard[Matmul]:
    return isinstance(line, Matmul) and line.weight_axes() is not None and _bare(line)


def _bare(line: Matmul) -> bool:
    """True if a weight is a parameter of its own in the classes, no layer: those of routed experts and of routers."""
    return line.bank is not None or line.path.endswith(ROUTER)


def chosen(subject: LoadedModel, asked: Asked) -> frozenset[str]:
    """Paths of the products that names stand for: as the class calls its modules, or by our names where it has none
    that is called so."""
    modules = subject.config.paths()
    every = {line.path: modules.get(line.path, "") for product in _products(subject) for line in product.lines}
    found = set[str]() if asked.names else {*every}
    for name in asked.names:
        by_class = {path for path, module in every.items() if _called(name, module)}
        found |= by_class or {path for path in every if _called(name, path)}
    return frozenset(found)


def layers(subject: LoadedModel, asked: Asked) -> tuple[str, ...]:
    """Names by which peft finds the products' modules: their ends, or all of each where another module ends so too."""
    modules = subject.config.paths()
    ends = [module.rpartition(".")[2] for module in dict.fromkeys(modules.values())]
    on = sorted({modules[path] for path in chosen(subject, asked)})
    short = tuple(module.rpartition(".")[2] for module in on)
    return short if all(ends.count(name) == 1 for name in short) else tuple(on)


def _outside(subject: LoadedModel, name: str) -> str | None:
    """A module outside the blocks that peft takes a name for; None if there is none."""
    inside = tuple(f"{stack}." for stack in (paths.BLOCKS, paths.in_encoder(paths.BLOCKS)))
    found = (module for path, module in subject.config.paths().items() if not path.startswith(inside))
    return next((module for module in found if _called(name, module)), None)


def _name(product: Product, modules: Mapping[str, str]) -> str:
    """Its own name, or the class's where that has several of ours in one."""
    path = product.path if len(product.lines) == 1 else modules[product.path]
    return path.rpartition(".")[2]


def _called(name: str, *places: str) -> bool:
    return any(place == name or place.endswith(f".{name}") for place in places)


def on_attention(subject: LoadedModel, text: str) -> list[str]:
    """The same rank on attention's products, beside those that `text` names and alone. None where adapters were not
    measured."""
    if subject.config.trains.isdisjoint((LORA, LORA_ONCE)):
        return []
    modules, asked = subject.config.paths(), read(text)
    own = [_name(each, modules) for each in _products(subject) if each.path.startswith(ATTENTION)]
    beside = (*asked.names, *own) if asked.names else ()
    return [f"{asked.rank}:{','.join(dict.fromkeys(names))}" for names in (beside, own) if names]


def refusal(subject: LoadedModel, recipe: Recipe) -> str | None:
    """Reason why a model's step with adapters is not counted; None if it is."""
    if recipe.lora is None:
        return None
    shape, asked = subject.architecture, read(recipe.lora)
    trains = subject.config.trains
    if trains.isdisjoint((LORA, LORA_ONCE)):
        return f"the training step of {subject.family} has not been measured with adapters"
    if recipe.recompute == "attention" and LORA_SELECTIVE not in trains:
        return f"adapters on {subject.family} have not been measured with attention that runs again"
    if recipe.recompute == "attention" and recipe.weights_dtype == NF4:
        return "adapters beside weights in nf4 have not been measured with attention that runs again"
    if LORA not in trains and recipe.recompute != "none":
        return f"adapters on {subject.family} have not been measured where blocks run again"
    if LORA_WHOLE in trains and recipe.loss != "whole":
        return f"adapters on {subject.family} have not been measured with a loss in chunks"
    if (why := misplaced(subject, asked)) is not None:
        return why
    if _routed(subject) and not any(path.startswith(ATTENTION) for path in chosen(subject, asked)):
        return (
            "adapters on networks beside routed experts have been measured only beside adapters on attention's products"
        )
    if recipe.weights_dtype == NF4 and NF4 not in trains:
        return f"the training step of {subject.family} is not counted with weights in nf4: some peaks were off"
    if sum(stack.count for stack in shape.stacks) < 2:  # its forward pass can be the fullest: little of it is kept
        return "adapters on a single block have not been measured"
    if isinstance(shape.embed, Embedding) and shape.embed.vocab < NARROW * shape.embed.hidden:
        return "adapters have been measured with vocabularies of twice the hidden size or more"
    return None


def misplaced(subject: LoadedModel, asked: Asked) -> str | None:
    """Reason why it is not known which weights peft gives adapters; None if it is."""
    modules, every = subject.config.paths(), list(_products(subject))
    for name in asked.names:
        if not any(_called(name, line.path, modules.get(line.path, "")) for each in every for line in each.lines):
            bare = (line.path for group in subject.ledger.groups for line in group.lines if _is_bare(line))
            if any(_called(name, path, modules.get(path, "")) for path in bare):
                return f"{name!r} is no layer of the class but a parameter: adapters on it have not been measured"
            known = ", ".join(dict.fromkeys(_name(each, modules) for each in every))
            return f"{name!r} names no product of its blocks, which are {known}"
        outside = _outside(subject, name)
        if outside is not None:
            return f"peft takes {name!r} for {outside} too: adapters have been measured in the blocks alone"
    on = chosen(subject, asked)
    if _routed(subject) and LORA_NETWORKS not in subject.config.trains:
        network = next((each for each in every if each.path in on and not each.path.startswith(ATTENTION)), None)
        if network is not None:
            return (
                f"peft puts adapters on {_name(network, modules)} of the routed experts too: only adapters on"
                " attention's products have been measured here"
            )
    for each in every:
        if 0 < len(on.intersection(line.path for line in each.lines)) < len(each.lines):
            return f"an adapter is on all of {_name(each, modules)}, or on none of it: the class has them in one"
    return None


def parameters(subject: LoadedModel, asked: Asked) -> int | None:
    """Number of parameters of the adapters, also where the step is not counted; None where it is not known which
    weights have them."""
    if misplaced(subject, asked) is not None or any(group.shared for group in subject.ledger.groups):
        return None  # each block has adapters of its own on a tensor that several share
    on, modules, called = chosen(subject, asked), subject.config.paths(), class_tensors(subject)
    every = [line for each in _products(subject) for line in each.lines]
    lines = [line for line in every if line.path in on]
    if any(line.path not in modules for line in every):
        return None  # the class has others
    if not all(_has_layer(subject, modules[line.path]) for line in lines):
        return None
    weights = {line.parameters()[0].path for line in lines}
    sides: dict[tuple[str, int], tuple[int, int, int]] = {}
    for tensor in subject.ledger.tensors():
        if tensor.path in weights:
            made, read = tensor.shape_in_torch
            key = called[tensor.path], id(tensor.axes)
            fused, *_ = sides.get(key, (0,))
            sides[key] = fused + made, read, int(tensor.count)
    return sum(asked.rank * (made + read) * count for made, read, count in sides.values())


def _has_layer(subject: LoadedModel, module: str) -> bool:
    """True if a module of the class is a layer that peft takes, and not one that has others inside."""
    inside = any(other.startswith(f"{module}.") for other in subject.config.paths().values())
    refused = subject.family in PEFT_REFUSES and module.endswith(".out_proj")
    return not inside and not refused


class Lent(NamedTuple):
    """The pass with adapters, their weights, as an optimizer is handed them, the bytes of a number of theirs, and those
    of the frozen weights where they are in 4 bits."""

    run: Pass
    adapters: tuple[Adapter, ...]
    parameters: list[TorchParameter]
    width: int
    frozen: int | None


def adapters_of(subject: LoadedModel, recipe: Recipe) -> Adapters:
    """The adapters of a recipe on a model."""
    from tfacct.reports.passes import habits

    asked, shape, own = read(recipe.lora or ""), subject.architecture, habits(subject)
    packed = recipe.weights_dtype == NF4
    return Adapters(
        asked.rank,
        chosen(subject, asked),
        products(subject, packed=packed),
        wide=recipe.adapter_dtype == "fp32" and not recipe.in_fp32,
        drops=recipe.lora_dropout > 0,
        embedded=recipe.recompute == "full",
        packed=packed,
        apart=own.apart,
        inline=own.inline_network,
        lingers=own.lingers and all(stack.block.order != "parallel" for stack in shape.stacks),
        network_apart=own.norms_sums and own.network,
        leaves=own.norms_sums and _leaves(subject),
        sums_first=own.sums_first,
        autocast=recipe.autocast,
        remakes=shape.embed.factor is not None or shape.positions is not None or own.embedding,
    )


def _leaves(subject: LoadedModel) -> bool:
    """True if attention's last product is no module of attention's own."""
    modules = subject.config.paths()
    return not modules[f"{ATTENTION}o_proj"].startswith(f"{modules[f'{ATTENTION}scores']}.")


def lent(subject: LoadedModel, recipe: Recipe, run: Pass) -> Lent:
    """Adapters of a recipe on a model, and its pass with them."""
    from tfacct.reports.passes import habits

    asked, shape, own = read(recipe.lora or ""), subject.architecture, habits(subject)
    on = chosen(subject, asked)
    wide = recipe.adapter_dtype == "fp32"
    each = FULL if wide else FULL // 2
    made: list[Adapter] = []
    handed: list[TorchParameter] = []
    every = list(_products(subject))
    for product in every:
        numbers = subject.ledger.groups[product.number].numbers
        for which, side in (("A", product.read), ("B", product.made)) if product.path in on else ():
            path = f"{product.path}.lora_{which}.weight"
            made.append(Adapter(path, asked.rank * side, each * asked.rank * side, numbers))
            sides = (asked.rank, side) if which == "A" else (side, asked.rank)
            handed.append(TorchParameter(sides, len(numbers), product.number))
    packed = recipe.weights_dtype == NF4
    whole = run
    if not recipe.autocast:  # whose pass has them already
        run = adapted(run, adapters_of(subject, recipe))
    letters = {letter: size for product in every for letter, size in product.axes.items()}
    run = run._replace(blocks=tuple(_lettered(part, letters) for part in run.blocks))
    if recipe.recompute == "attention" and not recipe.autocast:
        windowed = [block.window is not None for block in shape.blocks()]
        reads = f"blocks.*.{'in' if own.norms_behind else 'attn_norm'}"
        run = run._replace(handed=(*run.handed, *lost_angles(whole, run)))
        run = attention_again(
            run, drops=own.drops_inside and own.residual, reads=reads, apart=own.apart, windowed=windowed
        )
    return Lent(axes_once(run), tuple(made), handed, each, _packed(subject) if packed else None)


def _lettered(part: Section, letters: Mapping[str, int]) -> Section:
    """A section with sizes of products' own letters. Of heads with a latent, what the last product reads is values."""
    values = {"H": part.axes["Hv"]} if "H" not in part.axes and "Hv" in part.axes else {}
    return part._replace(axes={**part.axes, **values, **letters})


def _packed(subject: LoadedModel) -> int:
    """Bytes of a model whose products in the blocks are in 4 bits, with the tables of codes that each of them has."""
    fused = [(product, len(subject.ledger.groups[product.number].numbers)) for product in _products(subject)]
    own = {f"{line.path}{WEIGHT}" for product, _ in fused for line in product.lines}
    nf4 = storage(NF4)
    packed = sum(
        copies * (CODES + int(nf4.bytes(Stored("matrix", product.numbers, product.read)))) for product, copies in fused
    )
    others = (tensor for tensor in subject.ledger.tensors() if tensor.path not in own)  # experts and routers too
    return packed + sum(int(t.count * nf4.wide.bytes(t.stored.copies * t.stored.elements)) for t in others)


def facts(one: Trained) -> dict[str, Any]:
    """The adapters, as in the JSON."""
    asked, modules = read(one.recipe.lora or ""), one.subject.config.paths()
    chosen_ = chosen(one.subject, asked)
    on = list(
        dict.fromkeys(line.path for each in _products(one.subject) for line in each.lines if line.path in chosen_)
    )
    return {
        "rank": asked.rank,
        "dtype": one.recipe.adapter_dtype,
        "dropout": one.recipe.lora_dropout,
        "weights": one.recipe.weights_dtype or one.recipe.dtype,
        "products": [paths.short(path) for path in on],
        "modules": list(dict.fromkeys(modules.get(path, path) for path in on)),
        "params": int(one.step.adapter_bytes) // (units.dtype_bits(one.recipe.adapter_dtype) // 8),
        "bytes": one.step.adapter_bytes,
    }


def notes(one: Trained) -> list[str]:
    """What the adapters are, and where they keep more than full fine-tuning would."""
    from tfacct.reports.training import step_of

    recipe, of = one.recipe, facts(one)
    modules, on = one.subject.config.paths(), chosen(one.subject, read(recipe.lora or ""))
    there = (_name(each, modules) for each in _products(one.subject) if each.path in on)
    names = ", ".join(dict.fromkeys(there))
    others = "tables, norms, routers, experts and head" if _routed(one.subject) else "tables, norms and head"
    stored = (
        f"{NF4}; {others} in {recipe.dtype}" if recipe.weights_dtype == NF4 else recipe.weights_dtype or recipe.dtype
    )
    said = [
        f"Weights are frozen, in {stored}. Adapters of rank {of['rank']:,} in {of['dtype']} on {names}:"
        f" {of['params']:,} parameters, {units.binary(of['bytes'])}; gradients and moments are theirs."
    ]
    if one.subject.architecture.classes is not None:
        said.append(
            "The classes' head is frozen, as where peft is given no task."
            " Given one, it trains the modules classifier, score or qa_outputs whole too, which is not counted."
        )
    if _routed(one.subject):
        said.append(
            "Routers and routed experts have none: in their class they are parameters, not layers."
            " peft can put adapters on these too (target_parameters), which is not counted."
        )
    weights = recipe.weights_dtype if recipe.autocast else None
    whole = step_of(
        one.subject, one.work, replace(recipe, lora=None, adapter_dtype="fp32", lora_dropout=0.0, weights_dtype=weights)
    ).kept()
    kept = one.step.kept()
    if kept > whole:
        wide = recipe.adapter_dtype != recipe.dtype and not recipe.autocast
        copies = "each casts its input to fp32" if wide else "each keeps a copy of its input"
        said.append(
            f"The adapters keep more than full fine-tuning would, {units.binary(kept)} in place of"
            f" {units.binary(whole)}: {copies}."
        )
    if recipe.autocast:
        stays = (
            "" if recipe.recompute == "full" else ", and the cast is kept where a gradient flows through the product"
        )
        said.append(
            f"The pass runs under torch.autocast: each frozen weight is cast to {recipe.dtype} every time it is used"
            f"{stays}."
        )
    if recipe.weights_dtype == NF4:
        largest = max(product.numbers for product in _products(one.subject))
        said.append(
            f"A product's weight is unpacked to {recipe.dtype} for its gradient, one at a time:"
            f" {units.binary(int(width(recipe.dtype).bytes(largest)))} at most."
        )
    return said
