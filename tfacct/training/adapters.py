"""LoRA adapters as peft adds them: which linear layers get them, their weights, and bytes of frozen 4-bit weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeGuard

from tfacct.architecture.parts import Experts
from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.ledger import paths
from tfacct.ledger.lines import Matmul
from tfacct.ledger.storage import Stored, storage
from tfacct.ledger.torch_parameters import TorchParameter
from tfacct.loading.model import LoadedModel
from tfacct.training.graph import Role, Transient
from tfacct.training.recipe import NF4, Recipe
from tfacct.training.step import Adapter

RANK = "Rl"
"""The axis of the adapters' rank."""
WEIGHT, ROUTER = ".weight", ".router"
ATTENTION = paths.in_every(paths.BLOCKS, "attn.")
EXPERTS_APART = frozenset(("qwen2_moe",))
"""Families of which peft tells MLPs next to routed experts, or in layers without them, from the experts' own."""
NO_OUT_PROJ = frozenset(("falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h"))
"""Families of which peft takes no out_proj (peft 0.21, `_check_lora_target_modules_mamba`)."""
CODEBOOKS = 4 * (1 + 16 + 256)
"""Bytes of the mean of a matrix's scales, and of the codebooks of its numbers and its scales (bitsandbytes 0.50)."""


class LoraTargets(NamedTuple):
    """A rank, and names of target modules; none for all linear layers."""

    rank: int
    names: tuple[str, ...]


def lora_targets(text: str) -> LoraTargets:
    """`16` or `16:q_proj,v_proj`. Raises UsageError."""
    rank, colon, names = text.partition(":")
    found = tuple(name.strip() for name in names.split(",") if name.strip())
    if not rank.strip().isascii() or not rank.strip().isdigit() or not int(rank) or (colon and not found):
        raise UsageError(f"{option('lora')} is a rank, or a rank and modules, as in 16:q_proj,v_proj, not {text!r}")
    return LoraTargets(int(rank), found)


class LinearLayer(NamedTuple):
    """Matmuls of the ledger that are one linear layer of the class, as q, k and v are where it fuses them.

    `group`: number of their group in the ledger. `inputs`, `outputs`: sizes of what it reads and of all that it makes.
    """

    matmuls: tuple[Matmul, ...]
    group: int
    inputs: int
    outputs: int

    @property
    def path(self) -> str:
        """Path of the first."""
        return self.matmuls[0].path

    @property
    def reads(self) -> str:
        """Axes of its input."""
        return " ".join(self.matmuls[0].einsum.left)

    @property
    def narrow(self) -> str:
        """Axes of the result of an adapter's A."""
        weight = self.matmuls[0].weight_axes() or ()
        return " ".join((*(axis for axis in self.matmuls[0].einsum.left if axis not in weight), RANK))

    def made(self, role: Role) -> tuple[Transient, ...]:
        """Its result."""
        return tuple(Transient(" ".join(line.einsum.out), role) for line in self.matmuls)

    def weights(self, *, read: bool) -> Iterator[str]:
        """Axes of the adapter's weights: of A, which `read`s the layer's input, or of B, by matmul."""
        for line in self.matmuls[:1] if read else self.matmuls:
            own = line.einsum.left if read else line.einsum.out
            yield " ".join((RANK, *(axis for axis in line.weight_axes() or () if axis in own)))

    def name(self, modules: Mapping[str, str]) -> str:
        """Its own name, or the class's where it is several matmuls."""
        return (self.path if len(self.matmuls) == 1 else modules[self.path]).rpartition(".")[2]


def linear_layers(model: LoadedModel) -> Iterator[LinearLayer]:
    """Linear layers of the model's layers: not parameters of experts and routers, nor convolutions."""
    modules = model.config.hf_module_paths()
    for number, group in enumerate(model.ledger.groups):
        found: dict[str, list[Matmul]] = {}
        for line in group.lines if group.numbers else ():
            if isinstance(line, Matmul) and line.weight_axes() is not None and not _bare(line) and _is_linear(line):
                found.setdefault(modules.get(line.path, line.path), []).append(line)
        for lines in found.values():
            weights = dict.fromkeys(line.parameters()[0] for line in lines)  # two matmuls may read one
            made, (read, *_) = zip(*(weight.shape_in_torch(group.axes) for weight in weights), strict=True)
            yield LinearLayer(tuple(lines), number, read, sum(made))


def _is_linear(line: Matmul) -> bool:
    """True if its class has one matrix for it: not a convolution, nor a matrix for each head."""
    weight = line.parameters()[0]
    return len(weight.dims) == 2 and weight.axes[0] not in {*line.einsum.left} & {*line.einsum.out}


def _bare(line: Matmul) -> bool:
    """True if a weight is a parameter in the classes, not a linear layer: that of routed experts, or of a router."""
    return line.bank is not None or line.path.endswith(ROUTER)


def _is_bare(line: object) -> TypeGuard[Matmul]:
    return isinstance(line, Matmul) and line.weight_axes() is not None and _bare(line)


def routed(model: LoadedModel) -> bool:
    """True if a model has routed experts."""
    return any(isinstance(part, Experts) for part in model.architecture.parts())


def _ends_in(name: str, *places: str) -> bool:
    return any(place == name or place.endswith(f".{name}") for place in places)


def adapted(model: LoadedModel, targets: LoraTargets) -> frozenset[str]:
    """Paths of the matmuls with adapters: as the class calls their modules, or by our names where none is called so."""
    modules = model.config.hf_module_paths()
    every = {line.path: modules.get(line.path, "") for layer in linear_layers(model) for line in layer.matmuls}
    found = set[str]() if targets.names else {*every}
    for name in targets.names:
        by_class = {path for path, module in every.items() if _ends_in(name, module)}
        found |= by_class or {path for path in every if _ends_in(name, path)}
    return frozenset(found)


def adapted_layers(model: LoadedModel, targets: LoraTargets) -> list[LinearLayer]:
    """The linear layers with adapters."""
    on = adapted(model, targets)
    return [layer for layer in linear_layers(model) if layer.path in on]


def target_modules(model: LoadedModel, targets: LoraTargets) -> tuple[str, ...]:
    """Names by which peft finds these modules: their ends, or whole names where another module has such an end too."""
    modules = model.config.hf_module_paths()
    ends = [module.rpartition(".")[2] for module in dict.fromkeys(modules.values())]
    on = sorted({modules[path] for path in adapted(model, targets)})
    short = tuple(module.rpartition(".")[2] for module in on)
    return short if all(ends.count(name) == 1 for name in short) else tuple(on)


def unknown_targets(model: LoadedModel, targets: LoraTargets) -> str | None:
    """Why it is not known which weights peft adapts; None if it is."""
    modules, every = model.config.hf_module_paths(), list(linear_layers(model))
    blocks = tuple(f"{stack}." for stack in (paths.BLOCKS, paths.in_encoder(paths.BLOCKS)))
    outside = [module for path, module in modules.items() if not path.startswith(blocks)]
    for name in targets.names:
        if not any(_ends_in(name, line.path, modules.get(line.path, "")) for each in every for line in each.matmuls):
            bare = (line.path for group in model.ledger.groups for line in group.lines if _is_bare(line))
            if any(_ends_in(name, path, modules.get(path, "")) for path in bare):
                return f"{name!r} is a parameter in the class, not a linear layer: adapters on it are not counted"
            known = ", ".join(dict.fromkeys(layer.name(modules) for layer in every))
            return f"{name!r} is no linear layer of the model: choose from {known}"
        other = next((module for module in outside if _ends_in(name, module)), None)
        if other is not None:
            return f"peft adapts {other} for {name!r} too: only adapters inside the layers are counted"
    on = adapted(model, targets)
    if routed(model) and model.family not in EXPERTS_APART:
        mlp = next((each for each in every if each.path in on and not each.path.startswith(ATTENTION)), None)
        if mlp is not None:
            name = mlp.name(modules)
            return f"peft adapts {name} of the routed experts too: only adapters on attention are counted here"
    for layer in every:
        if 0 < len(on.intersection(line.path for line in layer.matmuls)) < len(layer.matmuls):
            return f"the class has {layer.name(modules)} as one linear layer: all of it gets an adapter, or none of it"
    return None


def adapter_parameters(model: LoadedModel, targets: LoraTargets) -> int | None:
    """Parameters of the adapters, also where the step is not counted; None where it is not known which weights have
    them."""
    if unknown_targets(model, targets) is not None or any(group.shared for group in model.ledger.groups):
        return None  # each layer has adapters of its own on a tensor that several share
    modules, every = model.config.hf_module_paths(), list(linear_layers(model))
    if any(line.path not in modules for layer in every for line in layer.matmuls):
        return None  # the class has other layers
    on = adapted_layers(model, targets)
    for module in (modules[layer.path] for layer in on):
        within = any(other.startswith(f"{module}.") for other in modules.values())
        if within or (model.family in NO_OUT_PROJ and module.endswith(".out_proj")):
            return None  # no linear layer, or none that peft takes
    groups = model.ledger.groups
    copies = {layer.group: 1 if groups[layer.group].once else len(groups[layer.group].numbers) for layer in on}
    return sum(targets.rank * copies[layer.group] * (layer.inputs + layer.outputs) for layer in on)


def parameter_words(model: LoadedModel, recipe: Recipe) -> str | None:
    """How many parameters a recipe trains with LoRA, in words; None without LoRA, or where it is not known."""
    count = None if recipe.lora is None else adapter_parameters(model, lora_targets(recipe.lora))
    return None if count is None else f"the adapters have {count:,} parameters"


def adapters_of(model: LoadedModel, recipe: Recipe) -> tuple[tuple[Adapter, ...], list[TorchParameter]]:
    """The weights of a recipe's adapters, and as an optimizer gets them."""
    targets, bytes_each = lora_targets(recipe.lora or ""), units.dtype_bits(recipe.adapter_dtype) // 8
    found, parameters = list[Adapter](), list[TorchParameter]()
    for layer in adapted_layers(model, targets):
        group = model.ledger.groups[layer.group]
        numbers = group.numbers[:1] if group.once else group.numbers
        for which, shape in ("A", (targets.rank, layer.inputs)), ("B", (layer.outputs, targets.rank)):
            elements = shape[0] * shape[1]
            found.append(Adapter(f"{layer.path}.lora_{which}{WEIGHT}", elements, bytes_each * elements, numbers))
            parameters.append(TorchParameter(shape, len(numbers), layer.group))
    return tuple(found), parameters


def packed_bytes(model: LoadedModel) -> int:
    """Bytes of the weights where linear layers are in nf4 with double quantization, and the others are not."""
    nf4, packed = storage(NF4), 0
    for layer in linear_layers(model):
        matrix = Stored("matrix", layer.inputs * layer.outputs, layer.inputs)
        packed += len(model.ledger.groups[layer.group].numbers) * (CODEBOOKS + int(nf4.bytes(matrix)))
    return packed + int(nf4.wide.bytes(unpacked_elements(model)))


def unpacked_elements(model: LoadedModel) -> int:
    """Elements of the weights that are in no linear layer: of embeddings, norms, head, experts and routers."""
    packed = {f"{line.path}{WEIGHT}" for layer in linear_layers(model) for line in layer.matmuls}
    others = (tensor for tensor in model.ledger.tensors() if tensor.path not in packed)
    return sum(int(tensor.count * tensor.stored.copies * tensor.stored.elements) for tensor in others)
