"""Commands that check the numbers. (Annotations are not postponed: that keeps the start short.)"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tfacct.base.errors import UsageError
from tfacct.cli import ask, complete
from tfacct.cli import options as opt
from tfacct.cli.root import TRUST, command

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel


@command(TRUST, "tfacct verify gpt2 --ctx 64")
def verify(
    *,
    step: opt.Step,
    against: Annotated[
        str | None,
        typer.Option(metavar="transformers", help="Also compare with the transformers class, module by module."),
    ] = None,
    all_layers: Annotated[
        bool, typer.Option("--all-layers", help="Run every block, not only one of each kind.")
    ] = False,
    prove: Annotated[
        str | None,
        typer.Option(
            metavar="FAMILY|MODEL", help="Prove the formula for all sizes: it equals the model's count as a polynomial."
        ),
    ] = None,
    by: Annotated[
        opt.ProofChoice | None,
        typer.Option(help="Method of --prove: symbols for all sizes (default), or a grid of small sizes."),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="The bytes of a training step, against the transformers class and torch.")
    ] = False,
    dtype: Annotated[
        str | None,
        typer.Option(metavar="DTYPE", help="Of the training step. Default: bf16.", autocompletion=complete.kv_dtype),
    ] = None,
    shard: Annotated[
        bool,
        typer.Option("--shard", help="What one rank of a mesh holds and sends, against the class that torch divides."),
    ] = False,
    mesh: opt.Mesh,
    trained: opt.Trained,
    which: opt.Which,
    output: opt.Output,
) -> None:
    """Check the formulas against fvcore, torch and published totals. Needs torch and fvcore; allocates no weights."""
    from tfacct.output.progress import progress
    from tfacct.reports.verify import verify

    terms = ask.counting(opt.Counted(dtype=dtype), trained)
    if not train:
        of_step = {} if shard else {"--dtype": dtype}
        ask.apart_from("--train", {**of_step, **{f"--{name}": value for name, value in vars(trained).items()}})
    ranks = ask.mesh(mesh)
    if shard:
        others = {"--train": train, "--prove": prove, "--by": by, "--against": against}
        ask.apart("--shard", others)
    elif ranks is not None:
        raise UsageError(f"{next(iter(ask.given(mesh)))} needs --shard")
    with progress() as tick:
        if prove is not None:
            from tfacct.reports.prove import prove as proven

            narrowed = which.family or which.max_params or which.part
            if vars(step) != vars(opt.Step()) or against or all_layers or narrowed:
                raise UsageError("--prove is for all sizes: it goes with --by and --set only")
            asked = ask.one_of_family(prove, which)
            if train:
                from tfacct.reports.prove_saved import prove_saved

                report = prove_saved(asked, terms, by=None if by is None else by.value, progress=tick)
            else:
                report = proven(asked, by=(by or opt.ProofChoice.symbols).value, progress=tick)
        elif shard:
            from tfacct.reports.verify_ranks import verify_ranks

            chosen = _some(which)
            report = verify_ranks(chosen, ask.request(step), ranks, dtype=dtype, all_layers=all_layers, progress=tick)
        elif by is not None:
            raise UsageError("--by needs --prove")
        elif train:
            from tfacct.reports.verify_train import verify_train

            report = verify_train(
                ask.subjects(which),
                ask.request(step),
                terms,
                against=against,
                progress=tick,
            )
        else:
            report = verify(
                ask.subjects(which),
                ask.request(step),
                all_layers=all_layers,
                against=against,
                progress=tick,
            )
    ask.show(report, output)
    if not report.agrees:
        raise typer.Exit(1)


def _some(which: opt.Which) -> "list[LoadedModel]":
    """The models that were named, or a few."""
    from tfacct.reports.verify_ranks import SOME

    if which.models or which.family is not None or which.max_params is not None or which.part is not None:
        return ask.subjects(which)
    return [ask.subject(opt.One(name, which.sets)) for name in SOME]


@command(TRUST, "tfacct checkpoint ./my-model")
def checkpoint(
    *,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH|HUB_ID",
            help="Folder or file of safetensors or GGUF, the index of several, or a hub id.",
            show_default=False,
        ),
    ],
    config: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Compare with this model. Default: the config.json beside the files.",
            autocompletion=complete.model,
        ),
    ] = None,
    sets: opt.Sets = None,
    output: opt.Output,
) -> None:
    """What the files of a checkpoint hold, from their headers, against the config: bytes, names, shapes."""
    from tfacct.loading import beside
    from tfacct.output.progress import spinner
    from tfacct.reports.checkpoint import checkpoint

    if sets and config is None:
        raise UsageError("--set needs --config")
    with spinner() as waiting:
        files, found, why = beside.read(path, compared=config is None, waiting=waiting)
    report = checkpoint(files, found if config is None else ask.subject(opt.One(config, sets)), why)
    ask.show(report, output)
    if not report.agrees:
        raise typer.Exit(1)


@command(TRUST, "tfacct measure gpt2 --ctx 128 --steps 3")
def measure(
    *,
    whole: opt.Whole,
    decode: opt.Decode = False,
    steps: Annotated[int, typer.Option(metavar="N", help="Timed runs, or decode steps.")] = 5,
    train: Annotated[bool, typer.Option("--train", help="Forward and backward.")] = False,
    sdpa: Annotated[bool, typer.Option("--sdpa", help="Use fused attention: faster, but not counted itself.")] = False,
    device: Annotated[str, typer.Option(metavar="cpu|cuda|mps", help="Device to run on.")] = "cpu",
    dtype: Annotated[str, typer.Option(metavar="DTYPE", help="fp32, bf16 or fp16.")] = "fp32",
    sweep: opt.Sweep,
    one: opt.OneOrNone,
    form: opt.Form,
) -> None:
    """Run the model on this machine, with random weights: time, MFU, bytes held. Needs torch and fvcore."""
    from tfacct.output.progress import progress

    if sweep.calibrate:
        from tfacct.reports.measure import calibrate as swept

        ask.apart("--calibrate", {"a MODEL": one.model, "--set": one.sets, "--decode": decode, "--train": train})
        ask.apart("--calibrate", {"--sdpa": sdpa, "--ctx": whole.ctx, "--source": whole.source})
        with progress() as tick:
            report = swept(device=device, dtype=dtype, output=sweep.file, force=form.force, progress=tick)
        ask.show(report, form)
        return
    ask.apart_from("--calibrate", {"--output": sweep.file})
    from tfacct.reports.measure import Plan, measure

    if one.model is None:
        raise UsageError("measure needs a MODEL, or --calibrate", "for example tfacct measure gpt2")
    subject = ask.subject(opt.One(one.model, one.sets))
    plan = Plan(device=device, dtype=dtype, steps=steps, train=train, sdpa=sdpa)
    try:
        with progress() as tick:
            report = measure(subject, ask.request(whole, decode=decode), plan, progress=tick)
    except KeyboardInterrupt:
        print("interrupted before the first run was finished", file=sys.stderr)
        raise typer.Exit(130) from None
    ask.show(report, form)
    if report.interrupted:
        raise typer.Exit(130)
    if not report.agrees:
        raise typer.Exit(1)


@command(TRUST, "tfacct conventions")
def conventions(*, output: opt.Output) -> None:
    """The conventions on one page: what every number counts."""
    from tfacct.reports.help import conventions

    ask.show(conventions(), output)
