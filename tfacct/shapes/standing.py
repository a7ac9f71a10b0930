"""What stands in torch's place: code that was written for it, run over shapes alone.

A module of the program is run once more from its own code, which finds this wherever it asks for torch.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from tfacct.shapes import dtypes, modules
from tfacct.shapes.eager import Tensor
from tfacct.shapes.library import Written
from tfacct.shapes.tensors import function


class _Face:
    """A module of torch: what is not said here is a function of tensors."""

    def __init__(self, **own: Any) -> None:
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = self.__dict__[name] = function(name)
        return made


class _Unknown:
    """A kind of thing that there is none of over shapes."""


FUNCTIONAL = _Face()
NN = _Face(
    functional=FUNCTIONAL,
    **{name: getattr(modules, name) for name in ("Module", "Parameter", "Linear", "Embedding", "LayerNorm")},
    ModuleList=modules.Modules,
    ModuleDict=modules.Modules,
)
TORCH = _Face(
    nn=NN,
    Tensor=Tensor,
    SymInt=_Unknown,
    device=dtypes.Device,
    dtype=dtypes.DType,
    float=dtypes.FP32,
    float32=dtypes.FP32,
    float64=dtypes.FP64,
    bfloat16=dtypes.BF16,
    float16=dtypes.BF16,
    long=dtypes.LONG,
    autograd=_Face(Function=Written),
    linalg=_Face(),
    pi=3.141592653589793,
    get_default_device=lambda: dtypes.Device.default,
    is_grad_enabled=lambda: True,
    finfo=lambda _: _Face(min=-1.0),
)
STANDS = {"torch": TORCH, "torch.nn": NN, "torch.utils.checkpoint": _Face(checkpoint=None)}


class Loader:
    """Modules of a package, run over shapes. `inside`: the package's name, with a dot behind it; `instead`: what
    stands in place of functions of its own, by their names."""

    def __init__(self, inside: str, **instead: Callable[..., Any]) -> None:
        self.inside, self.known, self.instead = inside, dict[str, ModuleType](), instead

    def load(self, name: str) -> ModuleType:
        """A module of the package."""
        if name in self.known:
            return self.known[name]
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None
        code = SourceFileLoader(name, spec.origin).get_code(name)
        assert code is not None
        made = self.known[name] = ModuleType(__name__)  # one that is known by it: dataclasses look for theirs
        made.__dict__.update(__file__=spec.origin, __package__=name.rpartition(".")[0])
        made.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._imports()}
        exec(code, made.__dict__)
        made.__dict__.update({name: own for name, own in self.instead.items() if name in made.__dict__})
        return made

    def _imports(self) -> Callable[..., Any]:
        def found(name: str, given: Any = None, local: Any = None, wanted: Any = (), level: int = 0) -> Any:
            if name in STANDS:
                return STANDS[name] if wanted else STANDS[name.partition(".")[0]]
            if name == self.inside[:-1]:
                return _Face(**{each: self.load(f"{name}.{each}") for each in wanted})
            if name.startswith(self.inside):
                return self.load(name)
            return builtins.__import__(name, given, local, wanted, level)

        return found
