"""A run of a model on this machine."""

from typing import TYPE_CHECKING, Annotated, Unpack

from tfacct import options as opt
from tfacct.commands.command import Command, Found, tick
from tfacct.options import Option

if TYPE_CHECKING:
    from tfacct.loading.model import LoadedModel


def measure(
    model: "LoadedModel",
    *,
    decode: Annotated[bool, opt.of(opt.Step.__annotations__["decode"])] = False,
    steps: Annotated[int, Option("Timed runs, or decode steps.", "N")] = 5,
    train: Annotated[bool, Option("Forward and backward.")] = False,
    sdpa: Annotated[bool, Option("Use fused attention: faster, but not counted itself.")] = False,
    device: Annotated[str, Option("Device to run on.", "cpu|cuda|mps")] = "cpu",
    dtype: Annotated[str, Option("fp32, bf16 or fp16.", "DTYPE")] = "fp32",
    **whole: Unpack[opt.Whole],
) -> Found:
    """Run a model on this machine: time, MFU, memory.

    The weights are random. Needs torch and fvcore. Raises TfacctError.
    """
    from tfacct.reports.measure import Plan, measure

    plan = Plan(device=device, dtype=dtype, steps=steps, train=train, sdpa=sdpa)
    return Found(measure(model, opt.request(whole, decode=decode), plan, progress=tick))


COMMAND = Command(
    measure,
    examples=("tfacct measure gpt2 --ctx 128 --steps 3", "tfacct measure gpt2 --ctx 128 --train --device cuda"),
    fails="disagrees",
)
