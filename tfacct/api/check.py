"""A user's own module, checked against a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfacct.base.errors import UsageError
from tfacct.output.answer import answered

if TYPE_CHECKING:
    from tfacct.api.asked import Asked, Source
    from tfacct.reports.check import CheckReport


def check(
    module: Any,
    config: Asked | Source,
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
    """Comparison of a torch module with a config: parameters by tensor, FLOPs, what it keeps; `.agrees` is the verdict.

    `module`: a `torch.nn.Module`, a function that builds one, or `"MODULE:FACTORY"`. `config`: a Model, or what `load`
    takes. The module runs once on meta, where nothing is computed, on ids of `tokens` tokens (default the context, at
    most 128), or on `inputs`: a tuple or a dict, whose batch and tokens are then counted unless `tokens` is given, or a
    function of batch and tokens. `device="cpu"` runs it for real. `paths`: a map from its tensors to paths of the
    ledger, as a dict or a TOML; `propose_map` writes one. `train`: the bytes that a step in bf16 keeps for its
    gradients too, against those that the transformers class keeps. Needs torch. Raises TfacctError.
    """
    from tfacct.api.asked import loaded
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
        raise UsageError(f"paths is a dict or a file, not a {type(paths).__name__}")
    from tfacct.verify import own_code

    asked = own_code.Asked(batch, tokens, source, device, given, propose_map, inputs, train)
    return answered(reports.check(loaded(config, {}), module, reports.shown_name(module), asked))
