"""Torch's modules over shapes alone: what they hold, by name, and how they are called."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from tfacct.shapes.dtypes import DType
from tfacct.shapes.eager import Leaf, Tensor
from tfacct.shapes.tensors import function, meter


class Parameter(Tensor):
    """What is trained."""

    __slots__ = ()

    def __init__(self, x: Tensor, requires_grad: bool = True) -> None:
        super().__init__(x.storage, x.shape, x.strides, x.each)
        self.requires_grad = requires_grad

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "requires_grad":
            super().__setattr__(name, value)
        else:
            self.node = Leaf(self.storage.bytes) if value else None

    def cast(self, each: DType) -> None:
        """Hold the same in another dtype."""
        more = prod(self.shape) * each - self.storage.bytes
        self.storage.bytes += more
        self.storage.meter.now += more
        self.each = each
        if isinstance(self.node, Leaf):
            self.node.bytes = self.storage.bytes


class Module:
    """A module. `place`: what its operations count to, if anything."""

    place: object = None

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self.place is not None:
            meter().place = self.place
        return self.forward(*given, **named)  # type: ignore[attr-defined]

    def add_module(self, name: str, module: Module | None) -> None:
        setattr(self, name, module)

    register_parameter = add_module

    @property
    def _modules(self) -> dict[str, Module]:
        return {name: one for name, one in vars(self).items() if isinstance(one, Module)}

    def named_modules(self, prefix: str = "", known: set[int] | None = None) -> Iterator[tuple[str, Module]]:
        known = set() if known is None else known
        if id(self) in known:
            return
        known.add(id(self))
        yield prefix, self
        for name, module in self._modules.items():
            yield from module.named_modules(f"{prefix}.{name}" if prefix else name, known)

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def named_parameters(self, recurse: bool = True) -> Iterator[tuple[str, Parameter]]:
        known = set[int]()
        for prefix, module in self.named_modules() if recurse else [("", self)]:
            for name, one in vars(module).items():
                if isinstance(one, Parameter) and id(one) not in known:
                    known.add(id(one))
                    yield f"{prefix}.{name}" if prefix else name, one

    def parameters(self) -> Iterator[Parameter]:
        return (one for _, one in self.named_parameters())

    def get_submodule(self, path: str) -> Any:
        found: Any = self
        for name in path.split(".") if path else ():
            found = found._modules[name]
        return found

    def to(self, each: DType) -> Any:
        for one in self.parameters():
            one.cast(each)
        return self


class Modules(Module):
    """Modules by name or number."""

    def __init__(self, given: Any = ()) -> None:
        pairs = given.items() if isinstance(given, dict) else enumerate(given)
        for name, module in pairs:
            setattr(self, str(name), module)

    def append(self, module: Module) -> None:
        setattr(self, str(len(self)), module)

    def __getitem__(self, at: Any) -> Module:
        return self._modules[str(at)]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())


class Linear(Module):
    """A product with a weight."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        self.in_features, self.out_features = inputs, outputs
        self.weight = Parameter(EMPTY(outputs, inputs))
        self.bias = Parameter(EMPTY(outputs)) if bias else None

    def forward(self, x: Tensor) -> Any:
        return LINEAR(x, self.weight, self.bias)


class Embedding(Module):
    """A table."""

    def __init__(self, rows: int, size: int) -> None:
        self.num_embeddings, self.embedding_dim = rows, size
        self.weight = Parameter(EMPTY(rows, size))

    def forward(self, rows: Tensor) -> Any:
        return EMBEDDING(rows, self.weight)


class LayerNorm(Module):
    """torch's LayerNorm."""

    def __init__(
        self, shape: tuple[int, ...], eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True
    ) -> None:
        self.normalized_shape, self.eps = tuple(shape), eps
        self.weight = Parameter(EMPTY(*shape)) if elementwise_affine else None
        self.bias = Parameter(EMPTY(*shape)) if elementwise_affine and bias else None

    def forward(self, x: Tensor) -> Any:
        return LAYER_NORM(x, self.normalized_shape, self.weight, self.bias, self.eps)


EMPTY, LINEAR, EMBEDDING, LAYER_NORM = map(function, ("empty", "linear", "embedding", "layer_norm"))
