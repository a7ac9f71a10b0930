"""`checkpoint`: compare the files of a checkpoint with a config."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfacct.output.answer import answered

if TYPE_CHECKING:
    from tfacct.api.model_base import Source
    from tfacct.reports.check import CheckpointReport


def checkpoint(path: str | Path, *, config: Source | None = None) -> CheckpointReport:
    """Compare the tensors in a checkpoint's file headers with the config in its folder, or with `config`.

    `path`: a folder, a file of safetensors or GGUF, an index, or a hub id; a Path is always a path. `config`: what
    `load` takes. `.agrees` is the verdict; it is also True if there is no config to compare with. Raises TfacctError.
    """
    from tfacct.api.model_base import loaded
    from tfacct.loading import checkpoint_config
    from tfacct.reports.check import checkpoint

    files, found, why = checkpoint_config.read(str(path), compared=config is None, ask_hub=isinstance(path, str))
    return answered(checkpoint(files, found if config is None else loaded(config, {}), why))
