"""A checkpoint and the config in its folder, by a user's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tfacct.base.errors import ConfigError, NotFoundError
from tfacct.base.spelling import spelled
from tfacct.loading import checkpoint, find, presets
from tfacct.loading.checkpoint import Checkpoint
from tfacct.loading.files import parse_json
from tfacct.loading.files import read as read_bytes
from tfacct.loading.model import LoadedModel

if TYPE_CHECKING:
    from tfacct.loading.hub import Waiting


def read(
    name: str, *, compared: bool = True, ask_hub: bool = True, waiting: Waiting | None = None
) -> tuple[Checkpoint, LoadedModel | None, str]:
    """Checkpoint at a path or hub id, the model of its config, and the reason if there is no model.

    Without `compared`, the config is not read.
    """
    path = Path(name)
    if find.exists(path):
        files = checkpoint.local(path)
        config_file = (path if path.is_dir() else path.parent) / "config.json"
        if files.part_of or not compared or not find.exists(config_file):
            error = find.adapter_alone(config_file.parent) if compared else None
            return files, None, "" if error is None else error.message
        fields = parse_json(str(config_file), read_bytes(config_file))
        return files, *_model(lambda: find.in_folder(files.name, fields, config_file.parent))
    from tfacct.loading import spellings

    hub_id = spellings.hub_id(name) or name
    if not ask_hub or not find.looks_like_hub_id(hub_id):
        hint = "a checkpoint is a folder, a .safetensors, a .gguf or a hub id"
        if name in presets.names():
            hint = spelled(
                f"`tfacct verify {name}` checks the preset; `tfacct check FILES --config {name}` checks files",
                f"load({name!r}).verify() checks the preset; checkpoint(files, config={name!r}) checks files",
            )
        raise NotFoundError(f"no file or folder {name!r} here", hint)
    from tfacct.loading import hub, hub_files

    files = hub_files.read(*hub.read_id(hub_id), waiting=waiting or hub.unwatched)
    if not compared:
        return files, None, ""
    return files, *_model(lambda: find.find(hub_id, waiting=waiting))


def _model(load: Callable[[], LoadedModel]) -> tuple[LoadedModel | None, str]:
    """Model of a config, and the reason if the config is not supported."""
    try:
        return load(), ""
    except (ConfigError, NotFoundError) as error:
        return None, error.message
