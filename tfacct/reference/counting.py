"""Counters of the reference model: fvcore, FLOPs by module, and the shapes that its modules see."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.flop_counter import flop_registry

from tfacct.base.errors import MissingExtraError
from tfacct.base.record import record
from tfacct.meta.dispatch import DispatchMode
from tfacct.meta.kernels import compiled
from tfacct.reference.blocks import Block
from tfacct.reference.compressed import GroupedLinear
from tfacct.reference.experts import ExpertLinear
from tfacct.reference.latent import PerHead
from tfacct.reference.mixing import Convolution
from tfacct.reference.model import Decoder, Inputs
from tfacct.reference.modules import BatchedProduct, Product, Work
from tfacct.reference.rotary import Rotary

PRODUCTS = ("linear", "matmul", "bmm", "addmm")
"""fvcore's names of the operators that the counted path may use."""

PRODUCT_MODULES = (nn.Linear, Product, ExpertLinear, PerHead, Convolution, BatchedProduct, GroupedLinear)
"""Modules that run one matmul each, with the paths of ledger lines."""

POINTWISE = frozenset(
    f"aten::{name}"
    for name in """
    add add_ mul mul_ neg rms_norm cos sin softmax gelu silu relu triu tril embedding tanh sigmoid sum gather remainder
    clone sub unflatten abs log gt lt clamp where div floor amax exp softplus index_select square
    cumsum rsqrt linalg_solve_triangular rsub diag expand_as ceil le sign maximum ones_like mean
    sqrt std pad expm1 pow clamp_min linalg_vector_norm __or__
    """.split()
)
"""Operators that fvcore does not count and that are not matmuls. Any other skipped operator is an error."""


class UncountedOperatorError(RuntimeError):
    """The model ran an operator that the counter does not support, so the count would be silently too small."""


class PrivateInterfaceError(RuntimeError):
    """torch's private interface of symbolic shapes has changed."""


@compiled()
def multiply_adds(model: Decoder, given: Inputs) -> dict[str, int]:
    """Multiply-adds of each matmul by module path, as fvcore counts them (FLOPs are twice as many)."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", DeprecationWarning)  # fvcore touches torch.jit on import
        try:
            from fvcore.nn import FlopCountAnalysis
        except ImportError:
            raise MissingExtraError("this needs fvcore", "measure") from None
        analysis = FlopCountAnalysis(model, given.all)
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
        # fvcore counts 5 per element of a norm, which are not multiply-adds. A handle of None would not switch it off.
        analysis.set_op_handle("aten::layer_norm", _nothing)
        counted: dict[str, Counter[str]] = analysis.by_module_and_operator()
    unknown = set(analysis.unsupported_ops()) - POINTWISE
    unknown |= {name for name in counted[""] if counted[""][name] and name not in PRODUCTS}
    if unknown:
        raise UncountedOperatorError(f"fvcore does not count {', '.join(sorted(unknown))}")
    leaves = _without_submodules(model, {path: int(sum(counts.values())) for path, counts in counted.items()})
    _no_strays(int(sum(counted[""].values())) - sum(leaves.values()), "multiply-adds")
    return leaves


@compiled()
def module_flops(model: Decoder, given: Inputs) -> dict[str, int]:
    """FLOPs of each matmul of a forward pass by module path, by the formulas of torch's FlopCounterMode."""
    with ByModule(model) as counter, torch.no_grad():
        model(*given.all)
    modules = model.named_modules()
    leaves = {path: counter.by_module[path] for path, module in modules if isinstance(module, PRODUCT_MODULES)}
    _no_strays(sum(counter.by_module.values()) - sum(leaves.values()), "FLOPs")
    return leaves


class _Counted(DispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that counts the FLOPs of operators for which torch has a formula."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs) if kwargs else func(*args)
        formula = flop_registry.get(func.overloadpacket)
        flops = 0 if formula is None else _by(formula, args, kwargs or {}, out)
        if flops:
            self.add(flops)
        return out

    def add(self, flops: int) -> None:
        """Count them."""
        raise NotImplementedError


def _by(formula: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """FLOPs by torch's formula. Its wrapper searches for tensors at any depth, which takes ten times as long as a
    matmul on meta, so results are cached by shape. Symbols are not cached."""
    of_shapes = getattr(formula, "__wrapped__", None)
    if of_shapes is not None and not kwargs:
        try:
            return _of_shapes(of_shapes, _shaped(args), _shaped(out))
        except TypeError:
            pass
    return formula(*args, **kwargs, out_val=out)


@lru_cache(maxsize=4096)
def _of_shapes(formula: Any, args: Any, out: Any) -> Any:
    return formula(*args, out_shape=out)


def _shaped(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape
    return tuple(map(_shaped, value)) if isinstance(value, list | tuple) else value


class _Products(_Counted):  # type: ignore[no-untyped-call]
    """Adds up the FLOPs of all operators."""

    flops = 0

    def add(self, flops: int) -> None:
        self.flops += flops


class ByModule(_Counted):
    """FLOPs of each module of a model in a forward pass, by path, by torch's formulas. An operator belongs to the
    innermost running module."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.by_module: Counter[str] = Counter()
        self._paths = {module: path for path, module in model.named_modules()}
        self._running = [""]
        self._hooks = ExitStack()

    def __enter__(self) -> ByModule:
        self._hooks.callback(register_module_forward_pre_hook(self._begin).remove)
        self._hooks.callback(register_module_forward_hook(self._end).remove)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        self._hooks.close()

    def add(self, flops: int) -> None:
        self.by_module[self._running[-1]] += flops

    def _begin(self, module: nn.Module, _: Any) -> None:
        self._running.append(self._paths.get(module, self._running[-1]))

    def _end(self, *_: object) -> None:
        self._running.pop()


def _without_submodules(model: Decoder, counted: Mapping[str, int]) -> dict[str, int]:
    """FLOPs of each matmul's module alone, without those of modules inside it."""
    paths = [path for path, module in model.named_modules() if isinstance(module, PRODUCT_MODULES)]
    counts = {path: counted.get(path, 0) for path in paths}
    for path in paths:
        holder = path.rpartition(".")[0]
        if holder in counts:
            counts[holder] -= counted.get(path, 0)
    return counts


def _no_strays(strays: int, unit: str) -> None:
    if strays:
        raise UncountedOperatorError(f"{strays:,} {unit} are outside the matmul modules")


def _nothing(_inputs: Any, _outputs: Any) -> int:
    return 0


@record
class Passes:
    """FLOPs of a forward and a backward pass, FLOPs of recomputed layers, and the keys and values after the forward
    pass."""

    forward: int
    backward: int
    redone: int
    caches: list[Tensor]


@compiled()
def passes(model: Decoder, given: Inputs) -> Passes:
    """Both passes, by the formulas of torch's FlopCounterMode: one run, with the counter read between the phases. A
    model that saves its activations recomputes nothing."""
    redone = 0

    @contextmanager
    def rerun() -> Iterator[None]:
        nonlocal redone
        before = counter.flops
        try:
            yield
        finally:  # autograd raises an exception once it has what it needs
            redone += counter.flops - before

    for module in model.modules():
        if isinstance(module, Block):
            module.rerun = rerun
    # The backward pass continues to the inputs of old keys and values, as for new ones.
    given = replace(given, past=tuple(tensor.detach().requires_grad_() for tensor in given.past))
    counter = _Products()  # type: ignore[no-untyped-call]
    with counter:
        logits, *caches = model(*given.all)
        forward = counter.flops
        # Also to the cached states, as from a next step that reads them.
        (logits.sum() + sum(tensor.sum() for tensor in caches)).backward()
    model.zero_grad(set_to_none=True)
    return Passes(forward, counter.flops - forward - redone, redone, caches)


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages of some tensors, each storage once."""
    storages = {storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in tensors)}
    return sum(storage.nbytes() for storage in storages.values())


def parameters(model: nn.Module) -> dict[str, int]:
    """Elements of each parameter by its path; a tied one once."""
    return {path: parameter.numel() for path, parameter in model.named_parameters()}


@record
class Ran:
    """A matmul that ran: `times` × (m × k by k × n), and the elements of both operands and of the result."""

    m: int
    k: int
    n: int
    times: int
    left: int
    right: int
    out: int

    def after(self, before: Ran | None) -> Ran:
        """Both runs of a matmul that runs more than once, such as once per chunk of a recurrence."""
        if before is None:
            return self
        moved = (before.left + self.left, before.right + self.right, before.out + self.out)
        return Ran(self.m, self.k, self.n, before.times + self.times, *moved)


@dataclass(slots=True)
class Seen:
    """What the modules saw in one forward pass, by path: matmuls, elements of other results, elements of the keys and
    values at the end."""

    products: dict[str, Ran] = field(default_factory=dict)
    pointwise: dict[str, int] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)


def _ran(module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> Ran | None:
    """The matmul that a module ran; None for pointwise work."""
    match module:
        case nn.Linear():
            outputs, inputs = module.weight.shape
            m = out.numel() // outputs
            return Ran(m, inputs, outputs, 1, m * inputs, module.weight.numel(), out.numel())
        case ExpertLinear():
            batch, tokens, active, k = args[0].shape
            experts, _, n = module.weight.shape
            touched = min(experts, batch * tokens * active) * k * n
            return Ran(batch * tokens, k, n, active, args[0].numel(), touched, out.numel())
        case PerHead():
            heads, _, k = args[0].shape[-3:]
            m = args[0].numel() // (heads * k)
            return Ran(m, k, out.shape[-1], heads, args[0].numel(), module.weight.numel(), out.numel())
        case BatchedProduct():
            weights = module.get_parameter("weight").numel()
            return Ran(*module.counted(out), args[0].numel(), weights, out.numel())
        case GroupedLinear():
            rows, inputs = module.weight.shape
            m = out.numel() // rows
            read = m * inputs * module.groups  # a convolution's windows, unfolded
            return Ran(m, inputs, rows // module.groups, module.groups, read, module.weight.numel(), out.numel())
        case Convolution():
            channels, kernel = module.weight.shape
            read = kernel * out.numel()
            return Ran(out.numel() // channels, kernel, 1, channels, read, module.weight.numel(), out.numel())
        case Product():
            left, right = args
            *repeats, m, k = left.shape
            dims = (m, k, right.shape[-1], math.prod(repeats))
            if 0 in dims:  # no key is compressed yet, so it moves nothing
                return Ran(*dims, 0, 0, 0)
            return Ran(*dims, left.numel(), right.numel(), out.numel())
    return None


@compiled()
def seen(model: Decoder, given: Inputs) -> Seen:
    """Runs the model once and records the shapes."""
    found = Seen()

    def hook(path: str) -> Any:
        def write(module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
            ran = _ran(module, args, out)
            if ran is None:
                found.pointwise[path] = found.pointwise.get(path, 0) + out.numel()
            elif isinstance(module, Product):
                found.products[path] = ran.after(found.products.get(path))
            else:
                found.products[path] = ran

        return write

    watched = (*PRODUCT_MODULES, nn.LayerNorm, Rotary, Work)
    handles = [
        module.register_forward_hook(hook(path))
        for path, module in model.named_modules()
        if isinstance(module, watched)
    ]
    try:
        _, *caches = model(*given.all)
    finally:
        for handle in handles:
            handle.remove()
    blocks = [(f"blocks.{number}", block) for number, block in enumerate(model.blocks)]
    blocks += [(f"mtp.{number}", ahead) for number, ahead in enumerate(model.mtp)]
    names = [f"{at}.{state}" for at, block in blocks for state in block.states]  # type: ignore[union-attr]
    found.states = {name: cache.numel() for name, cache in zip(names, caches, strict=True)}
    return found
