"""The base class of `Model`, and the sources that `load` accepts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import UsageError, cut
from tfacct.ledger.groups import Ledger
from tfacct.loading import find as sources
from tfacct.loading.model import LoadedModel, load_model


@runtime_checkable
class Config(Protocol):
    """A config object of a library, such as a `PretrainedConfig` of transformers."""

    def to_dict(self) -> dict[str, Any]:
        """Return its fields."""


class Configured(Protocol):
    """A model object with a config, such as a `PreTrainedModel` of transformers."""

    @property
    def config(self) -> Any:
        """The config of the model."""


Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Config | Configured
"""What `load` accepts: a preset's name, a path, a hub id, a config as a dict or an object, or a model with a config."""


class ModelBase:
    """A loaded model."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded

    def __repr__(self) -> str:
        return f"<tfacct model {self.name}: {self.loaded.family}>"

    @property
    def name(self) -> str:
        """The name of the preset or file."""
        return self.loaded.name

    @property
    def config(self) -> Mapping[str, Any]:
        """The config as given, with overrides applied."""
        return self.loaded.raw

    @property
    def architecture(self) -> Transformer:
        """The architecture that the config describes."""
        return self.loaded.architecture

    @property
    def ledger(self) -> Ledger:
        """The ledger, from which every count is derived."""
        return self.loaded.ledger

    def _with(self, sets: Mapping[str, Any]) -> LoadedModel:
        """The same model with config fields overridden."""
        return self.loaded.with_fields({**self.loaded.changed, **sets})


def loaded(source: ModelBase | Source, sets: Mapping[str, Any]) -> LoadedModel:
    """The model of a source, with config fields overridden. Raises TfacctError."""
    if isinstance(source, ModelBase):
        return source._with(sets) if sets else source.loaded
    if isinstance(source, Mapping):
        return load_model("config", source, sets)
    if isinstance(source, str):
        return sources.find(source, sets)
    if isinstance(source, os.PathLike):
        return sources.find(str(Path(source)), sets, ask_hub=False)
    if isinstance(source, type):
        raise _no_model(source)
    if isinstance(source, Config):
        return _of_config(source, {}, sets)
    if isinstance(config := getattr(source, "config", None), Config):
        # The class tells which head the model has: a config that was not read from a checkpoint has no `architectures`.
        return _of_config(config, {"architectures": [type(source).__name__]}, sets)
    raise _no_model(source)


def _of_config(config: Config, over: Mapping[str, Any], sets: Mapping[str, Any]) -> LoadedModel:
    fields = config.to_dict()
    name = fields.get("_name_or_path") or getattr(config, "_name_or_path", "") or fields.get("model_type") or "config"
    return load_model(Path(str(name)).name, {**fields, **over}, sets)


def _no_model(source: object) -> UsageError:
    taken = "a name, a path, a dict of fields, a config object, or an object with a config"
    return UsageError(f"pass {taken}, not {cut(repr(source))}")
