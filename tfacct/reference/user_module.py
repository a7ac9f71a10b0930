"""A user's module: built by a factory on the meta device, with its tensors and inputs."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from tfacct.base.errors import UsageError, cut, nearest

ON_META = (
    "meta tensor",
    "meta device",
    "device='meta'",
    "device meta",
    "aten::_local_scalar_dense",
    "Cannot copy out",
    "Meta' backend",
    "nonzero",
    "DataDependent",
)
"""Parts of torch's error messages when code reads the values of a meta tensor."""
ON_CARD = ("CUDA", "cuda", "NVIDIA", "Triton", "triton")


class Built(NamedTuple):
    """A module, and its inputs if the factory returns them."""

    module: nn.Module
    inputs: Any = None


class Weight(NamedTuple):
    """A tensor of a module. `same_as`: its first name, if it is tied; a `buffer` is not trained."""

    name: str
    shape: tuple[int, ...]
    same_as: str = ""
    buffer: bool = False


def build(named: str, device: str = "meta") -> Built:
    """The result of the factory `MODULE:FACTORY`, built on `device`. MODULE is an importable module or a file.

    A factory takes no arguments, and returns a module, or a module and its inputs. Raises UsageError.
    """
    where, colon, attribute = named.rpartition(":")
    if not colon or not where or not attribute:
        raise UsageError(
            f"{cut(named)!r} has no factory", "write MODULE:FACTORY, such as model.py:build or package.model:build"
        )
    with redirect_stdout(sys.stderr):  # stdout is for the report
        return called(_found(where, attribute), named, device)


def called(factory: Any, named: str, device: str = "meta") -> Built:
    """The result of a factory. Raises UsageError."""
    if isinstance(factory, nn.Module):
        return Built(factory)
    if not callable(factory):
        raise UsageError(f"{named} is {_a(factory)}, which cannot be called", "give a function or a class")
    if needed := _required(factory):
        kind = "class" if isinstance(factory, type) else "factory"
        raise UsageError(
            f"{named} is a {kind} that needs arguments: {', '.join(needed)}",
            "write a function without arguments that returns the module, and give that",
        )
    try:
        with torch.device(device):
            made = factory()
    except (Exception, SystemExit) as error:
        raise failure(f"{named} raised", error, building=True) from None
    given: Any = None
    if isinstance(made, tuple) and len(made) == 2:
        made, given = made
    if not isinstance(made, nn.Module):
        raise UsageError(
            f"{named} returned {_a(made)}, not a torch.nn.Module",
            "return the module, or the module and its inputs",
        )
    return Built(made, given)


def _found(where: str, attribute: str) -> Any:
    """An attribute of a module or a file."""
    found: Any = _imported(where)
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise UsageError(f"{where} has no {cut(name)!r}", nearest(name, [n for n in dir(found) if n[0] != "_"]))
        found = getattr(found, name)
    return found


def _imported(where: str) -> Any:
    file = Path(where)
    if file.suffix == ".py" or "/" in where:
        if not file.is_file():
            raise UsageError(
                f"no file {cut(where)!r} here",
                "give a file, such as model.py:build, or an importable module, such as package.model:build",
            )
        spec = importlib.util.spec_from_file_location(f"_checked_{file.stem}", file)
        if spec is None or spec.loader is None:
            raise UsageError(f"{cut(where)!r} does not end in .py", "add .py: model.py:build")
        module = importlib.util.module_from_spec(spec)
        loader = spec.loader
        with _first_on_path(file.resolve().parent):
            sys.modules[spec.name] = module  # dataclasses look up their module there
            return _run(where, lambda: loader.exec_module(module), module)
    with _first_on_path(Path.cwd()):
        return _run(where, lambda: importlib.import_module(where), None)


def _run(where: str, load: Callable[[], Any], module: Any) -> Any:
    try:
        return load() or module
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        if f"{where}.".startswith(f"{missing}."):
            raise UsageError(
                f"no importable module {cut(missing)!r}",
                "give a file, such as model.py:build, or an importable module, such as package.model:build",
            ) from None
        raise UsageError(f"{where} cannot be imported: it imports {missing}, which is not installed") from None
    except (Exception, SystemExit) as error:
        raise failure(f"{where} cannot be imported: it raised", error, building=True) from None


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


def _required(factory: Any) -> list[str]:
    """Names of a factory's required arguments."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return []
    sorts = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in sorts]


def _a(made: object) -> str:
    name = type(made).__name__
    return "nothing" if made is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def failure(what: str, error: BaseException, *, building: bool = False) -> UsageError:
    """A user's exception as one message: type, text, and the line that raised it."""
    try:
        text = str(error)
    except Exception:  # `__str__` is user code too
        text = ""
    first_line = next(iter(text.strip().splitlines()), "")
    at = next((f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in _frames(error) if frame.lineno), "")
    message = f"{what} {type(error).__name__}{f': {cut(first_line, 200)}' if first_line else ''}{at}"
    return UsageError(message, _hint(f"{type(error).__name__} {text}", building))


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of user code, the innermost first, without those of torch."""
    frames = traceback.extract_tb(error.__traceback__)
    foreign = (f"{Path(torch.__file__).parent}", str(Path(__file__).parent), "<frozen", "<string>")
    return [frame for frame in reversed(frames) if not frame.filename.startswith(foreign)]


def _hint(message: str, building: bool) -> str | None:
    if any(word in message for word in ON_META):
        return "it reads tensor values, which do not exist on meta: use device cpu"
    if any(word in message for word in ON_CARD):
        return (
            "it requires a CUDA device: let the caller choose the device, so that it can be built on meta"
            if building
            else "a part of it runs on CUDA only: fall back to plain torch on the meta device"
        )
    return None


def weights(module: nn.Module) -> list[Weight]:
    """Parameters of a module by name, tied ones under each of their names, then its buffers. Raises UsageError."""
    first: dict[int, str] = {}
    found: list[Weight] = []
    try:
        parameters, buffers = [*module.named_parameters(remove_duplicate=False)], [*module.named_buffers()]
    except Exception as error:  # a class may override both
        raise failure(f"the parameters of {type(module).__name__} cannot be listed: it raised", error) from None
    for name, parameter in parameters:
        if isinstance(parameter, nn.UninitializedParameter):
            raise UsageError(f"{name} has no shape yet, because its module is lazy", "run the module once first")
        same = first.setdefault(id(parameter), name)
        found.append(Weight(name, tuple(parameter.shape), "" if same == name else same))
    found += [Weight(name, tuple(buffer.shape), buffer=True) for name, buffer in buffers]
    if not first:
        raise UsageError(f"{type(module).__name__} has no parameters")
    return found


def unwrapped(module: nn.Module) -> nn.Module:
    """The module without the wrappers of torch.compile or parallel training."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and type(module).__name__ in ("DataParallel", "DistributedDataParallel"):
            inner = getattr(module, "module", None)
        if not isinstance(inner, nn.Module):
            return module
        module = inner
