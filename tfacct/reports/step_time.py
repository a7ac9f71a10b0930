"""How long a training step takes on devices that share it: which steps have an estimate, and what it was measured
against."""

from __future__ import annotations

from tfacct.accounts import divided_time, training_time
from tfacct.accounts.divided_time import Again, DividedParts, Meshed
from tfacct.accounts.kernels import NoKernelError
from tfacct.accounts.training_time import NODE, Parts, Trained
from tfacct.accounts.validated import VALIDATED, Validation
from tfacct.base import units
from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.workload import Workload, check_size
from tfacct.loading import devices
from tfacct.loading.model import LoadedModel
from tfacct.reports.placed import MEASURED, check_heads

DTYPES = ("bf16", "fp8")


@record
class Trains:
    """How a model is trained, as a user words it: micro-batches before an update, recomputed blocks, tokens in all."""

    accumulate: int = 1
    recompute: bool = False
    tokens_total: int | None = None
    recompute_attention: bool = False
    mesh: Meshed = Meshed()

    @property
    def again(self) -> Again:
        """What runs again before its backward pass."""
        return "blocks" if self.recompute else "attention" if self.recompute_attention else ""


def estimated(
    subject: LoadedModel, work: Workload, count: int, device: devices.Device, name: str, how: Trains
) -> tuple[Trained, Parts | DividedParts]:
    """A step on `count` devices with products in the dtype `name`, and its seconds by what they go to. Raises
    TfacctError for one that was not measured in any way."""
    check(subject, count, device, name, how)
    trained = Trained(work.context, work.batch, count, how.accumulate, how.recompute, name == "fp8")
    try:
        if how.mesh.ranks == 1:
            return trained, training_time.step(training_time.work_of(subject.ledger, trained), device, trained)
        _check_mesh(subject, count, device.id, name, how)
        shared = divided_time.work_of(subject.ledger, trained, how.mesh)
        return trained, divided_time.step(shared, device, trained, how.mesh, how.again)
    except NoKernelError as error:
        error.message = f"{subject.name}: {error.message}"
        raise


def validation(divided: bool) -> Validation:
    """Errors of measured steps: of those that tensor or pipeline parallelism divided, or of those under FSDP."""
    return VALIDATED["divided" if divided else "training", "step"]


def error_said(device: devices.Device, divided: bool) -> str:
    """What an estimated step was measured against."""
    if device.vendor != MEASURED:
        maker = device.vendor or "this maker"
        return f"Estimate. No step on devices of {maker} was measured, so its error is not known."
    error, whose = (
        validation(divided),
        "GPT models as Megatron divided them" if divided else "Dense decoders (MPT) under FSDP",
    )
    here = error.on.get(device.id, 0)
    where = f"{here:,} of them" if here else "none of them"
    unknown = ", so its error here is not known" if divided and not here else ""
    return (
        f"Estimate. {whose}, runs never fitted: median error {units.percent(error.median)} on {error.runs:,} measured"
        f" steps, {where} on this device{unknown}."
    )


def check(subject: LoadedModel, count: int, device: devices.Device, name: str, how: Trains) -> None:
    """Raises TfacctError for what was not measured in any way."""
    check_size(option("accumulate"), how.accumulate)
    _check_how(how)
    if how.tokens_total is not None:
        check_size(option("tokens_total"), how.tokens_total, most=10**15)
    if name not in DTYPES:
        raise UsageError(f"a training step is estimated in {' or '.join(DTYPES)}, not in {name}")
    if name not in device.peak:
        said = f"{device.id} has no {name} units"
        raise UsageError(
            said, f"ask in {option('dtype', 'bf16')}" if "bf16" in device.peak else "ask for another device"
        )
    if "bf16" not in device.peak:
        raise UsageError(f"{device.id} has no bf16 units", "ask for another device")
    if count > 1 and device.link is None:
        raise UsageError(
            f"no link between devices is known for {device.id}", f"ask for one device: {option('on', device.id)}"
        )
    if subject.ledger.experts:
        raise ConfigError(
            f"{subject.name}: no training step with experts was measured", "dense decoders have an estimate"
        )
    if subject.architecture.encoder is not None or subject.architecture.mtp is not None or not subject.keeps:
        raise ConfigError(f"{subject.name}: no estimate of its training step", "dense decoders have one")


def _check_mesh(subject: LoadedModel, count: int, device: str, name: str, how: Trains) -> None:
    """Raises TfacctError for a division that is none, or that was not measured."""
    mesh, blocks = how.mesh, sum(int(group.count) for group in subject.ledger.groups if group.numbers)
    if count % mesh.ranks:
        asked = f"{option('tp', mesh.tp)} and {option('pp', mesh.pp)} take {mesh.ranks:,} devices"
        raise UsageError(
            f"{asked}, which do not divide {'1 device' if count == 1 else f'{count:,} devices'}",
            f"give a multiple of {mesh.ranks:,}: {option('on', f'{mesh.ranks}x{device}')}",
        )
    if name != "bf16":
        raise UsageError(f"a divided step is estimated in bf16, not in {name}", option("dtype", "bf16"))
    if mesh.tp > NODE:
        raise UsageError(f"{option('tp', mesh.tp)} is more than the {NODE} devices of a node", option("tp", NODE))
    check_heads(subject, mesh.tp)
    if mesh.pp * mesh.chunks > blocks:
        parts = f" and {option('pp_chunks', mesh.chunks)}" if mesh.chunks > 1 else ""
        raise UsageError(f"{option('pp', mesh.pp)}{parts}: {subject.name} has {blocks:,} blocks")


def _check_how(how: Trains) -> None:
    """Raises UsageError for options that change nothing, or contradict each other."""
    mesh = how.mesh
    for option_name, size in (("tp", mesh.tp), ("pp", mesh.pp), ("pp_chunks", mesh.chunks)):
        check_size(option(option_name), size)
    if mesh.sp and mesh.tp == 1:
        said = f"{option('sp', True)} divides tokens among the devices of {option('tp')}"
        raise UsageError(said, f"give their number: {option('tp', 8)}")
    if mesh.chunks > 1 and mesh.pp == 1:
        raise UsageError(
            f"{option('pp_chunks', mesh.chunks)} divides a stage of {option('pp')}",
            f"give their number: {option('pp', 8)}",
        )
    if how.recompute and how.recompute_attention:
        other = option("recompute_attention", True)
        raise UsageError(f"{option('recompute', True)} does not go with {other}", "leave one of the two out")
    if how.recompute_attention and mesh.ranks == 1:
        said = f"{option('recompute_attention', True)} was measured under {option('tp')} and {option('pp')} alone"
        raise UsageError(said, option("recompute", True))
