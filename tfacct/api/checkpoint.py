"""The files of a checkpoint, without a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfacct.output.answer import answered

if TYPE_CHECKING:
    from tfacct.api.asked import Source
    from tfacct.reports.check import CheckpointReport


def checkpoint(path: str | Path, *, config: Source | None = None) -> CheckpointReport:
    """What the files of a checkpoint hold, by their headers, against the config beside them, or `config`.

    `path`: a folder, a file of safetensors or GGUF, an index, or a hub id; a Path is always a path. `config`: what
    `load` takes. `.agrees` is the verdict: True too where there is nothing to compare with. Raises TfacctError.
    """
    from tfacct.api.asked import loaded
    from tfacct.loading import checkpoint_config
    from tfacct.reports.check import checkpoint

    files, found, why = checkpoint_config.read(str(path), compared=config is None, ask_hub=isinstance(path, str))
    return answered(checkpoint(files, found if config is None else loaded(config, {}), why))
