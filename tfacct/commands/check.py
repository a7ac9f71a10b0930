"""A user's own module, or the files of a checkpoint, against a config."""

from pathlib import Path
from typing import Annotated, Literal

from tfacct import options as opt
from tfacct.base import units
from tfacct.base.errors import UsageError, cut
from tfacct.base.spelling import option
from tfacct.commands.command import Command, Found, named
from tfacct.options import Option


def check(
    *,
    target: Annotated[
        str, Option("A function that builds a torch module, or a checkpoint.", "MODULE:FACTORY|FILES", argument=True)
    ],
    config: Annotated[
        str | None,
        Option("Model to compare with. Default: the config.json next to the files.", "MODEL", complete="model"),
    ] = None,
    fields: opt.Sets = None,
    input_shape: Annotated[
        str | None, Option("Batch size and tokens of the run. Default: 1 and 128, or the context if shorter.", "B,T")
    ] = None,
    paths: Annotated[str | None, Option("TOML file that maps your tensors to the config's.", "FILE")] = None,
    propose_map: Annotated[str | None, Option("Write a --map file with the pairs found.", "FILE")] = None,
    device: Annotated[Literal["meta", "cpu"], Option("Device of the run; meta computes no values.")] = "meta",
    train: Annotated[bool, Option("Also compare activations saved for backward in bf16.")] = False,
) -> Found:
    """Check your own module, or a checkpoint, against a config."""
    from tfacct.loading import checkpoint_config
    from tfacct.output.progress import spinner

    if fields and config is None:
        raise UsageError(f"{option('fields')} needs {option('config')}")
    model = None if config is None else named(config, fields)
    if not _is_module(target):
        from tfacct.reports.check import checkpoint

        of_modules = {"input_shape": input_shape, "paths": paths, "propose_map": propose_map, "train": train}
        for name, given in {**of_modules, "device": device != "meta"}.items():
            if given not in (None, False):
                raise UsageError(f"{option(name)} works with MODULE:FACTORY, not with a checkpoint")
        with spinner() as waiting:
            files, found, why = checkpoint_config.read(target, compared=model is None, waiting=waiting)
        return Found(checkpoint(files, model or found, why))
    if model is None:
        raise UsageError(f"check MODULE:FACTORY needs {option('config')}", f"such as {option('config', 'gpt2')}")
    from tfacct.loading import maps
    from tfacct.reports.check import check
    from tfacct.verify.user_module import ModuleOptions

    batch, tokens = (1, None) if input_shape is None else _shape(input_shape)
    pairs = None if paths is None else maps.read(paths)
    module_run = ModuleOptions(batch, tokens, device=device, paths=pairs, propose=propose_map, train=train)
    with spinner() as waiting:
        waiting(target)
        return Found(check(model, target, target, module_run))


def _is_module(target: str) -> bool:
    """True for MODULE:FACTORY, and for a Python file whose factory is missing, which is refused later."""
    _, colon, name = target.rpartition(":")
    return target.endswith((".py", ":")) or (bool(colon) and name.isidentifier() and not Path(target).exists())


def _shape(text: str) -> tuple[int, int]:
    """Batch size and tokens of `--input-shape B,T`."""
    words = text.split(",")
    if len(words) != 2:
        raise UsageError(
            f"{option('input_shape')} must be two sizes, batch and tokens, not {cut(text)!r}", "such as 2,64"
        )
    batch, tokens = (units.read_tokens(option("input_shape"), word.strip()) for word in words)
    return batch, tokens


COMMAND = Command(
    check, examples=("tfacct check model.py:build --config gpt2", "tfacct check ./my-model"), fails="disagrees"
)
