"""A model on the devices that share it: the start of every serving estimate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from tfacct.base import units
from tfacct.base.errors import ConfigError, TfacctError, UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option, spelled
from tfacct.ledger.einsum import divisors
from tfacct.ledger.storage import BF16, BF16_EACH, dtypes, width
from tfacct.ledger.workload import Workload, check_size
from tfacct.loading import devices
from tfacct.loading.links import Link, Links
from tfacct.loading.memory_limit import MemoryLimit, device_limit
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.support import CutError, check_mesh, check_shares
from tfacct.timing.kernels import HEADS, STREAMS, NoKernelError, kernels, share
from tfacct.timing.serving import Host
from tfacct.timing.validated import ENOUGH, VALIDATED, Class, Metric, Validation, model_kind, runs_in, unmeasured_on

MOST = 1024
"""Devices that one model is divided among."""


@record
class Placement:
    """A model on `count` devices of one kind. `requested_dtype`: the dtype that was asked for; None for the weights as
    published, which are stored as `dtype` says. `measured_runs`: of each measured run of the user that corrects it, the
    measured time over the corrected estimate."""

    model: LoadedModel
    device: devices.Device
    count: int
    requested_dtype: str | None
    dtype: str
    host: Host
    measured_runs: tuple[float, ...] = ()

    @property
    def where(self) -> str:
        """The devices in words: `4 × H100 SXM5 80GB`."""
        return self.device.several(self.count)

    @property
    def link(self) -> Link | None:
        """The link of the devices; None of one."""
        return None if self.count == 1 else self.device.link(self.count)

    @property
    def kind(self) -> Class:
        """The class of runs whose errors are those of this model here."""
        if self.device.vendor == "AMD":
            return "amd"
        return "pcie" if self.link is not None and self.link.reach == "node" else model_kind(self.model.ledger)

    @property
    def unmeasured(self) -> str:
        """The reason why no error is known; empty where runs like this were measured: of such models, with weights in
        this format, on devices of this maker with bf16 units, and over a link of this reach."""
        ledger, on_amd = self.model.ledger, self.device.id in VALIDATED["amd", "request"].on
        kind, latent = model_kind(ledger), ledger.instead is not None
        mixes_streams = any(STREAMS in group.axes for group in ledger.groups)
        reasons = {
            "No run with a known acceptance rate of drafts was measured": self.host.draft,
            "No run with LoRA adapters was measured": self.host.adapters,
            "The only measured runs of a model with compressed keys had a prefix cache": kind == "compressed",
            "Only recurrent models with experts and without latent attention were measured": kind == "recurrent"
            and (latent or not ledger.experts),
            "Of models with an indexer, only those with latent attention were measured": kind == "indexed"
            and not latent,
            "No run of a model with several residual streams was measured": mixes_streams,
            "No run of a model with experts on AMD devices was measured": on_amd and ledger.experts,
            f"No run with {self.dtype} weights was measured": not on_amd and runs_in(kind, self.dtype) == 0,
        }
        reaches = ("domain", "node") if kind in ("dense", "experts") and not on_amd else ("domain",)
        on_devices = unmeasured_on("run", self.device, self.link, reaches)
        return next((reason for reason, so in reasons.items() if so), on_devices)

    def error(self, metric: Metric = "request") -> Validation | None:
        """Errors on measured runs of this class; None where none was like this. A token's are those of a request where
        only these were measured, but not those of a decode step."""
        if self.unmeasured:
            return None
        if metric == "request" and len(self.measured_runs) >= ENOUGH:
            metric = "corrected"
        found = VALIDATED.get((self.kind, metric))
        return found if found is not None or metric == "decode" else VALIDATED[self.kind, "request"]

    @property
    def scattered(self) -> bool:
        """Whether more runs of the user lie outside the interval of measured runs than those 20% of any that may."""
        error, runs = self.error(), self.measured_runs
        return error is not None and 5 * sum(not error.low <= run <= error.high for run in runs) > len(runs)

    def interval(self, seconds: float, metric: Metric = "request") -> tuple[float, float] | None:
        """Seconds between which 80% of such runs lie, and all runs of the user where they are scattered; None where no
        error is known."""
        error = self.error(metric)
        if error is None:
            return None
        runs = self.measured_runs if self.scattered else ()
        return seconds * min((error.low, *runs)), seconds * max((error.high, *runs))

    def check_fits(self, context: int, sequences: int, memory: MemoryLimit) -> None:
        """Raises UsageError where weights and cache, with those of drafts, do not fit into the usable memory."""
        weights, cache = self.host.stored(), self.host.cached(context, sequences)
        if weights + cache > memory.usable:
            also = f" and {units.binary(cache)} of cache" if weights <= memory.usable else ""
            raise UsageError(
                f"{self.model.name}{' with drafts' if self.host.draft else ''}: {units.binary(weights)} of"
                f" weights{also} exceed the usable {memory.words}",
                "; ".join(self._fitting(Workload(context, 1, sequences), memory)),
            )

    def _fitting(self, work: Workload, memory: MemoryLimit) -> Iterator[str]:
        """What fits instead: more of these devices, fewer sequences on as many, and how other devices are found."""
        if memory.engine or self.host.adapters or self.host.draft:
            yield "use more devices"
            return
        on, dtype = self.device, self.requested_dtype
        kv_dtype = None if self.host.cache.name == dtypes(dtype)[1] else self.host.cache.name
        how = Deployment("all", dtype, kv_dtype, self.host.mesh.ep, memory.use, memory.reserve)
        _, (needed,) = device_counts(self.model, work, [(None, on)], how)
        if needed.share is not None:
            yield f"it fits on {needed.share.devices:,} × {on.id} (tp={needed.share.devices})"
        if largest := self.host.capacity(work.context, memory.usable):
            yield f"the most that fits here is {units.requests(largest)}"
        yield spelled("`tfacct memory MODEL --on all` lists other devices", "fit() lists other devices")


@record
class Deployment:
    """Where and how a model is served: the devices that `on` names, the formats of weights and cache, parts of its
    experts, and the share of memory that may be used. `named`: the option that names the devices."""

    on: str = ""
    dtype: str | None = None
    kv_dtype: str | None = None
    ep: int = 1
    use: float | None = None
    reserve: int | str | None = None
    limit: MemoryLimit | None = None
    named: str = "on"

    def memory(self, *, training: bool = False) -> MemoryLimit:
        """The devices and their memory, or the `limit` that is given. Raises TfacctError."""
        if self.limit is not None:
            return self.limit
        return self.memory_of(*devices.several(option(self.named), self.on), training=training)

    def memory_of(self, count: int, device: devices.Device, *, training: bool = False) -> MemoryLimit:
        """The memory of these devices that may be used."""
        return device_limit(count, device, self.use, self.reserve, training=training)

    def place(self, model: LoadedModel, count: int, device: devices.Device | None) -> Placement:
        """The model on so many devices. Raises TfacctError for one that has no kernels, or that they do not divide."""
        assert device is not None
        if (odd := unsupported_part(model)) is not None:
            problem = f"{model.name}: time estimates do not support {odd} yet"
            raise ConfigError(problem, "supported: decoders with attention, MLPs and experts")
        check_experts(model, self.ep)
        if count % self.ep:
            raise UsageError(
                f"{option('ep', self.ep)} does not divide {count:,} devices",
                f"supported sizes: {', '.join(map(str, divisors([count])))}",
            )
        storage, mesh = model.storage(self.dtype), Mesh(count, ep=self.ep)
        if count > 1:
            device.link(count)
            check_heads(model, count)
            check_mesh(model, Mesh(count), stored=True)
            if on_one_device(model, self.dtype):
                raise UsageError(
                    f"{model.name}: sharding is not supported for {storage.name} weights",
                    f"use one device: {option('on', device.id)}",
                )
            each = (share(one.parameter, one.axes, mesh, one.experts) for one in model.ledger.tensors())
            check_shares(model, self.dtype, each, storage)
        name, activations = dtypes(self.dtype)
        cache = width(dtypes(self.dtype, self.kv_dtype)[1])
        host = Host(model.ledger, device, mesh, storage, width(activations), cache)
        return Placement(model, device, count, self.dtype, storage.name if self.dtype is None else name, host)

    def placements(self, model: LoadedModel, device: devices.Device, counts: Iterable[int]) -> Iterator[Placement]:
        """The model on each of these numbers of devices that cuts no blocks of the format. Raises TfacctError."""
        for count in counts:
            with suppress(CutError):
                yield self.place(model, count, device)


def check_experts(model: LoadedModel, ep: int) -> None:
    """Raises UsageError for parts of experts of a model that has none."""
    check_size(option("ep"), ep)
    if ep > 1 and not model.ledger.experts:
        raise UsageError(f"{model.name} has no experts, so {option('ep')} does not apply", "leave it out")


def on_one_device(model: LoadedModel, dtype: str | None) -> bool:
    """Whether weights are llama.cpp's mixture, whose types follow from whole tensors and the blocks' numbers."""
    return (dtype is not None and units.dtype_name(dtype) in units.GGUF) or model.storage(dtype).by_block


def unsupported_part(model: LoadedModel) -> str | None:
    """The part of a model that has no kernels, in words; None if all parts have."""
    if model.architecture.mtp is not None:
        return "multi-token prediction heads"
    if model.architecture.encoder is not None:
        return model.architecture.encoder.words
    if not model.has_cache:
        return "an encoder"
    try:
        kernels(model.ledger, Workload(1, 1, 1).axes(), BF16, BF16_EACH, BF16_EACH)
    except NoKernelError as error:
        return error.message
    except ConfigError:  # the visible pairs are not known
        return "attention within blocks or prefixes"
    return None


def check_heads(model: LoadedModel, count: int) -> None:
    """Raises UsageError for devices that would have unequal numbers of heads."""
    fitting, undivided = head_divisors(model), _undivided(model, count)
    if fitting and undivided:
        near = [*[one for one in fitting if one < count][-1:], *[one for one in fitting if one > count][:1]]
        reason = f"{model.name}: {count:,} devices do not divide the {undivided}"
        raise UsageError(reason, f"try {' or '.join(map(str, near))}")


def head_divisors(model: LoadedModel) -> list[int]:
    """Numbers of devices that divide all heads of a model; none where there are no query heads."""
    most = max(group.axes.get("N", 0) for group in model.ledger.groups)
    return [count for count in range(1, most + 1) if not _undivided(model, count)]


def _undivided(model: LoadedModel, count: int) -> str:
    """The heads that so many devices do not divide, in words; empty if there are none. Several devices may share one
    key/value head."""
    for what, axes in (
        ("query heads", ("N",)),
        ("key/value heads", ("K",)),
        ("heads of recurrences or groups of heads", HEADS),
    ):
        sizes = {group.axes[axis] for group in model.ledger.groups for axis in axes if axis in group.axes}
        if any(size % count and (axes != ("K",) or count % size) for size in sizes):
            return f"{units.between(sizes)} {what}"
    return ""


class Share(NamedTuple):
    """Bytes on each of so many devices."""

    devices: int
    weights: int
    cache: int

    @property
    def total(self) -> int:
        return self.weights + self.cache


class Needed(NamedTuple):
    """A device, its memory that may be used, and the fewest that hold the model and whose link is known, or as many as
    were `asked` for; None if none do. `unlinked`: the fewest that hold it, where no link of so many is known. `cuts`:
    more devices would hold it, but cut quantization blocks; `most`: the largest number that does not. `unsupported`:
    why an engine does not serve the model on this device; empty if it does."""

    device: devices.Device
    memory: MemoryLimit
    share: Share | None
    unlinked: int | None
    cuts: bool
    most: int
    unsupported: str = ""
    asked: int | None = None


def device_counts(
    model: LoadedModel,
    work: Workload,
    found: Sequence[tuple[int | None, devices.Device]],
    how: Deployment,
    limit: Callable[[MemoryLimit], MemoryLimit | None] | None = None,
) -> tuple[Share, list[Needed]]:
    """The bytes of a model's weights and cache on one device, and the fewest of each device that hold them, or the
    number that is given with it if so many do. `limit`: the memory that an engine leaves on so many devices; None if
    none, and it raises TfacctError where it does not start. Raises TfacctError."""
    if (odd := unsupported_part(model)) is not None:
        raise ConfigError(
            f"{model.name}: devices are not counted for {odd}",
            f"name one: {option('on', 'h100')}",
        )
    asked = {count for count, _ in found if count is not None}
    counts = sorted({*(count for count in device_numbers(model, how.ep, how.dtype) if count % how.ep == 0), *asked})
    joined = replace(found[0][1], links=Links(one_way=1, domain=max({MOST, *asked})))  # no byte depends on the device
    undivided, *shares = (
        Share(one.count, one.host.stored(), one.host.cached(work.context, work.batch))
        for one in (*replace(how, ep=1).placements(model, joined, [1]), *how.placements(model, joined, counts))
    )
    whole = {one.devices for one in shares}
    needed = []
    for number, device in {(number, device.id): (number, device) for number, device in found}.values():
        memory, fewest, unsupported = how.memory_of(1, device), None, ""
        tried = counts if number is None else [number]
        for one in (one for one in shares if one.devices in tried):
            try:
                left = memory if limit is None else limit(how.memory_of(one.devices, device))
            except TfacctError as error:
                unsupported = unsupported or error.message
                continue
            fits = left is not None and one.total <= left.usable
            if left is not None and (fits or number is not None):
                memory, fewest, unsupported = left, one if fits else None, ""
                break
        unlinked = None if fewest is None or device.links.known(fewest.devices) else fewest.devices
        cuts = not unsupported and fewest is None
        cuts = cuts and any(undivided.total <= count * memory.usable for count in tried if count not in whole)
        share = fewest if unlinked is None else None
        needed.append(Needed(device, memory, share, unlinked, cuts, max(whole), unsupported, number))
    if limit is not None and all(one.unsupported for one in needed):
        raise UsageError(needed[0].unsupported, f"leave {option('engine')} out")
    return undivided, needed


def device_numbers(model: LoadedModel, ep: int, dtype: str | None) -> list[int]:
    """Numbers of devices that divide the heads. Raises UsageError for parts of experts that none is divided into."""
    check_experts(model, ep)
    counts = head_divisors(model) or [1 << power for power in range(MOST.bit_length())]
    counts = [1] if on_one_device(model, dtype) else counts
    if all(count % ep for count in counts):
        raise UsageError(
            f"{option('ep', ep)} divides none of {', '.join(map(str, counts))} devices", "a power of two may"
        )
    return counts
