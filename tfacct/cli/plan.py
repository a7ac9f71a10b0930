"""How devices divide a model. (Annotations are not postponed: that keeps the start short.)"""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from tfacct.base.errors import UsageError
from tfacct.base.spelling import option
from tfacct.cli import ask
from tfacct.cli import options as opt
from tfacct.cli.root import ACCOUNT, command


class Order(StrEnum):
    """What orders divisions."""

    sent = "sent"
    time = "time"


@command(ACCOUNT, "tfacct plan llama-3.1-70b --gpus 64 --fit 80GB --ctx 8k --batch 512 --train --recompute full")
def plan(
    *,
    one: opt.One,
    gpus: Annotated[int, typer.Option(metavar="N", help="Devices, all alike.", min=1)],
    fit: Annotated[str, typer.Option(metavar="SIZE", help="Memory of each: 80GB, 80GiB, h100-sxm.")],
    usable: opt.Usable,
    whole: opt.Whole,
    global_batch_size: Annotated[
        str | None, typer.Option(metavar="N", help="The same as --batch: sequences of all devices in a step.")
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="A training step, in place of serving.")] = False,
    by: Annotated[
        Order, typer.Option(help="What orders them: bytes sent, or the estimated time on the device that --fit names.")
    ] = Order.sent,
    dtype: opt.Dtype = None,
    kv_dtype: opt.KvDtype = None,
    trained: opt.Planned,
    output: opt.Output,
) -> None:
    """Divisions of devices that hold a model, the one that sends least first."""
    from tfacct.reports.counting import named_of
    from tfacct.reports.plan import plan
    from tfacct.training.recipe import Recipe

    if global_batch_size is not None:
        if whole.batch != "1":
            raise UsageError("--global-batch-size and --batch are the same size: give one")
        whole = replace(whole, batch=global_batch_size)
    given = dict(named_of(vars(trained)))
    if given and not train:
        raise UsageError(f"{option(next(iter(given)))} goes with --train")
    if train:
        ask.apart("--train", {"--kv-dtype": kv_dtype})
    budget = ask.budget(fit, usable, training=train)
    assert budget is not None
    recipe = Recipe(dtype or "bf16", **given).checked() if train else None
    report = plan(
        ask.subject(one),
        ask.request(whole),
        gpus=gpus,
        fit=budget.checked_for(gpus),
        recipe=recipe,
        given=given,
        dtype=dtype,
        kv_dtype=kv_dtype,
        called=one.model,
        by=by.value,
    )
    ask.show(report, output)
