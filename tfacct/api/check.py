"""`check` and `checkpoint`: compare a torch module, or the files of a checkpoint, with a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfacct.base.errors import UsageError, cut
from tfacct.output.answer import answered

if TYPE_CHECKING:
    from tfacct.api.model_base import ModelBase, Source
    from tfacct.reports.check import CheckpointReport, CheckReport


def check(
    module: Any,
    config: ModelBase | Source,
    *,
    tokens: int | None = None,
    batch: int = 1,
    source: int | None = None,
    inputs: Any = None,
    paths: str | Path | Mapping[str, str | Sequence[str]] | None = None,
    propose_map: str | Path | None = None,
    device: str = "meta",
    train: bool = False,
) -> CheckReport:
    """Compare a torch module with a config: parameters by tensor, FLOPs, cached bytes. `.agrees` is the verdict.

    `module`: a `torch.nn.Module`, a function that builds one, or `"MODULE:FACTORY"`. `config`: a Model, or what `load`
    takes. The module runs once on the meta device, which computes nothing, with `tokens` token ids (default: the
    context, at most 128) or with `inputs`: a tuple or a dict, which sets batch and tokens unless `tokens` is given, or
    a function of batch and tokens. `device="cpu"` computes. `paths`: maps names of its tensors to ledger paths, as a
    dict or a TOML file; `propose_map` writes such a file. `train`: also compares the activations that a bf16 step saves
    for backward with those of the transformers class. Needs torch. Raises TfacctError.
    """
    from tfacct.api.model_base import loaded
    from tfacct.ledger.workload import check_size
    from tfacct.loading import maps
    from tfacct.reports import check as reports

    for name, size in {"tokens": tokens, "batch": batch, "source": source}.items():
        if size is not None:
            check_size(name, size)
    if isinstance(paths, Mapping):
        given = {name: (path,) if isinstance(path, str) else tuple(path) for name, path in paths.items()}
    elif paths is None or isinstance(paths, (str, Path)):
        given = {} if paths is None else maps.read(paths)
    else:
        raise UsageError(f"paths must be a dict or a file, not {cut(repr(paths))}")
    from tfacct.verify import user_module

    options = user_module.ModuleOptions(batch, tokens, source, device, given, propose_map, inputs, train)
    return answered(reports.check(loaded(config, {}), module, reports.shown_name(module), options))


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
