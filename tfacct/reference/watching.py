"""A user's module, run once on the meta device: FLOPs by module, its result, and uncounted matmuls."""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from math import prod
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from tfacct.base.errors import UsageError
from tfacct.meta.hooks import READS_TOKENS
from tfacct.meta.kernels import compiled
from tfacct.reference.user_module import failure

CACHE_FIELDS = ("past_key_values", "cache_params", "state", "cache", "kv_cache")
"""Names under which modules return their cache."""
CAUSAL = "_detect_is_causal_mask"
"""A function of torch.nn's encoder that reads the values of a mask to choose a kernel."""
UNCOUNTED = frozenset(
    """
    _int_mm _weight_int4pack_mm _weight_int8pack_mm _scaled_grouped_mm _transformer_encoder_layer_fwd
    _native_multi_head_attention _cudnn_rnn _mkldnn_linear mkldnn_rnn_layer mkldnn_linear _thnn_fused_lstm_cell
    _thnn_fused_gru_cell miopen_rnn _trilinear _cdist_forward _sparse_mm _sparse_addmm
    """.split()
)
"""Operators of torch that multiply matrices and are not counted: a module that runs one raises an error."""
PLAIN = ("aten", "prim", "prims", "profiler", "inductor", "debugprims")
"""Namespaces of torch's operators: any other is a custom kernel, which may multiply."""


class Watched(NamedTuple):
    """One run: FLOPs of each module alone, their operators, and the bytes of the returned cache.

    `cache_bytes` and `cache_elements` are None if it returned no cache.
    """

    flops: dict[str, int]
    operators: tuple[str, ...]
    cache_bytes: int | None
    cache_elements: int | None


def _attention(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> int:
    """Scores and values, full T × S: a mask does not reduce them."""
    return 2 * prod(q.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def _grouped(left: Tensor, right: Tensor, *_: Any, **__: Any) -> int:
    if left.dim() == 2 and right.dim() == 3:  # each row is multiplied by the matrix of one group
        return 2 * left.shape[0] * left.shape[1] * right.shape[2]
    if left.dim() == 3 and right.dim() == 3:
        return 2 * prod(left.shape) * right.shape[2]
    raise UsageError("aten._grouped_mm of these shapes is not counted", "run its matmuls one by one to count them")


def _vectors(left: Tensor, right: Tensor, *_: Any, **__: Any) -> int:
    return 2 * left.numel() if right.dim() == 1 else 2 * right.numel()


ATEN = torch.ops.aten
FORMULAS: dict[Any, Callable[..., int]] = {
    ATEN._scaled_dot_product_flash_attention_for_cpu: _attention,
    ATEN._scaled_dot_product_attention_math: _attention,
    ATEN._scaled_dot_product_fused_attention_overrideable: _attention,
    ATEN._grouped_mm: _grouped,
    ATEN.mv: _vectors,
    ATEN.dot: _vectors,
    ATEN.vdot: _vectors,
    ATEN.addmv: lambda _, left, right, **__: _vectors(left, right),
}
"""FLOPs of operators that torch's counter does not count, 2 per multiply-add."""


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that adds the FLOPs of every operator to the running module."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.running = [""]
        self.flops: Counter[str] = Counter()
        self.operators: dict[str, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = getattr(func, "overloadpacket", func)
        formula = FORMULAS.get(packet)
        torch_formula = flop_registry.get(packet) if formula is None else None
        if formula is None and torch_formula is None:
            if hasattr(func, "decompose") and func is not torch.ops.prim.device.default:
                with self:
                    parts = func.decompose(*args, **kwargs)
                if parts is not NotImplemented:
                    return parts
            _refuse(func)
        out = func(*args, **kwargs)
        flops = 0
        if formula is not None:
            flops = formula(*args, **kwargs)
        elif torch_formula is not None:
            flops = torch_formula(*args, **kwargs, out_val=out)
        if flops:
            self.flops[self.running[-1]] += flops
            self.operators[str(packet)] = None
        return out


def _refuse(func: Any) -> None:
    """Raises UsageError for an operator that multiplies, or may multiply, and is not counted."""
    space, _, name = str(func).partition(".")
    if space not in PLAIN:
        raise UsageError(
            f"it runs {func}, a kernel that cannot be counted",
            "fall back to plain torch for the check, such as F.scaled_dot_product_attention",
        )
    if name.partition(".")[0] in UNCOUNTED:
        raise UsageError(f"it runs {func}, which is not counted here", "use plain matmuls for the check")


@compiled()
def watch(
    module: nn.Module, batch: int, tokens: int, *, source: int = 0, given: Any = None, device: str = "meta"
) -> Watched:
    """Runs a module once, without gradients, on token ids or on the given inputs. Raises UsageError.

    `given`: inputs as a tuple, a dict, one tensor, or a function of batch and tokens that returns them. On meta nothing
    is computed; a module that cannot run there, for example under autocast, runs on fake CPU tensors.
    """
    attempts = [_on_meta, _on_fakes] if device == "meta" else [_as_it_is]
    failed: BaseException | None = None
    for attempt in attempts:
        try:
            return attempt(module, batch, tokens, source, given)
        except UsageError:
            raise
        except (Exception, SystemExit) as error:
            if failed is None:
                failed = error
            if isinstance(error, TypeError):
                break
    assert failed is not None
    what = "its own inputs" if given is not None else f"token ids of shape {batch:,} × {tokens:,}"
    refused = failure(f"{type(module).__name__}, given {what}, raised", failed)
    refused.hint = refused.hint or (
        "if its forward takes other inputs, return them from the factory too: return model, (ids, mask)"
    )
    raise refused from None


def _on_meta(module: nn.Module, batch: int, tokens: int, source: int, given: Any) -> Watched:
    tensors = {name: as_meta(tensor) for name, tensor in state(module)}
    with torch.device("meta"):
        return _run(module, tensors, inputs(module, batch, tokens, source, given, "meta"))


def _on_fakes(module: nn.Module, batch: int, tokens: int, source: int, given: Any) -> Watched:
    with (
        unlogged("torch._subclasses.fake_tensor"),
        FakeTensorMode(allow_non_fake_inputs=True) as mode,
        torch.device("cpu"),
    ):
        tensors = {name: torch.empty(one.shape, dtype=one.dtype, device="cpu") for name, one in state(module)}
        taken = tree_map_only(Tensor, mode.from_tensor, inputs(module, batch, tokens, source, given, "cpu"))
        return _run(module, tensors, taken)


@contextmanager
def unlogged(name: str) -> Iterator[None]:
    """Suppresses this log of a failure, a whole traceback, because it is reported as one message."""
    log = logging.getLogger(name)
    was, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was


def _as_it_is(module: nn.Module, batch: int, tokens: int, source: int, given: Any) -> Watched:
    at = next(module.parameters()).device
    with torch.device(at):
        return _run(module, {}, inputs(module, batch, tokens, source, given, str(at)))


def state(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers of a module."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def as_meta(tensor: Tensor) -> Tensor:
    """The tensor on meta; a parameter stays a parameter."""
    if tensor.is_meta:
        return tensor
    empty = torch.empty_like(tensor, device="meta")
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty


def inputs(
    module: nn.Module, batch: int, tokens: int, source: int, given: Any, device: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of the forward pass."""
    if given is not None:
        made = given(batch, tokens) if callable(given) and not isinstance(given, Tensor) else given
        made = tree_map_only(Tensor, lambda tensor: tensor.to(device), made)
        if isinstance(made, Mapping):
            return (), dict(made)
        return (tuple(made) if isinstance(made, (tuple, list)) else (made,)), {}

    def ids(count: int) -> Tensor:
        return torch.zeros(batch, count, dtype=torch.long, device=device)

    names = list(inspect.signature(type(module).forward).parameters)[1:]
    if source and "decoder_input_ids" in names:
        return (), {"input_ids": ids(source), "decoder_input_ids": ids(tokens)}
    if source:
        return (ids(source), ids(tokens)), {}
    return ((), {"input_ids": ids(tokens)}) if "input_ids" in names else ((ids(tokens),), {})


def sizes(given: Any) -> tuple[int, int] | None:
    """Batch and tokens of given inputs, from the first ids or else vectors; None without either."""
    if callable(given) and not isinstance(given, Tensor):
        return None
    tensors = [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
    ids = [one for one in tensors if one.dim() == 2 and not (one.is_floating_point() or one.dtype == torch.bool)]
    found = next(iter(ids + [one for one in tensors if one.dim() == 3 and one.is_floating_point()]), None)
    return None if found is None else (found.shape[0], found.shape[1])


def _run(module: nn.Module, state: Mapping[str, Tensor], inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> Watched:
    watching = _Watch()

    def enter(name: str) -> Any:
        return lambda *_: watching.running.append(name)

    def leave(*_: object) -> None:
        watching.running.pop()

    with ExitStack() as stack:
        stack.enter_context(evaluating(module))
        stack.enter_context(redirect_stdout(sys.stderr))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(torch.no_grad())
        stack.enter_context(patch.object(nn.modules.transformer, CAUSAL, _causal))
        for name, inner in module.named_modules():
            stack.callback(inner.register_forward_pre_hook(enter(name)).remove)
            stack.callback(inner.register_forward_hook(leave).remove)
            if hasattr(inner, READS_TOKENS):
                setattr(inner, READS_TOKENS, lambda *_, **__: None)
                stack.callback(delattr, inner, READS_TOKENS)
        stack.enter_context(watching)
        args, named = inputs
        out = functional_call(module, dict(state), args, named) if state else module(*args, **named)
        tensors = _cache_tensors(out)
    size, elements = (None, None) if tensors is None else (_bytes(tensors), sum(tensor.numel() for tensor in tensors))
    return Watched(dict(watching.flops), tuple(watching.operators), size, elements)


def _causal(_mask: object, is_causal: bool | None = None, _size: object = None) -> bool:
    return bool(is_causal)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode, without torch's fused kernel for a whole encoder layer, which no counter counts."""
    training = {inner: inner.training for inner in module.modules()}
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    module.eval()
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for inner, was in training.items():
            inner.training = was


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _cache_tensors(out: Any) -> list[Tensor] | None:
    """Tensors of a returned cache; None if the module returned none."""
    cache = None
    if isinstance(out, Mapping):
        cache = next((out[name] for name in CACHE_FIELDS if out.get(name) is not None), None)
    elif isinstance(out, (tuple, list)) and len(out) > 1:
        cache = out[1]
    layers = [getattr(side, "layers", None) for side in _sides(cache)]
    if any(layers):
        every = [layer for side in layers for layer in side or ()]
        found = [getattr(layer, name, None) for layer in every for name in ("keys", "values")]
    else:
        found = tree_leaves(cache)
    tensors = [tensor for tensor in found if isinstance(tensor, Tensor) and tensor.dim() > 2]
    return tensors or None


def _sides(cache: Any) -> list[Any]:
    """A cache, or the two caches of an encoder-decoder."""
    both = [getattr(cache, name, None) for name in ("self_attention_cache", "cross_attention_cache")]
    return [side for side in both if side is not None] or [cache]
