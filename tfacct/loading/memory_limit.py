"""Devices of `--on` and their usable memory (`--use`, `--reserve`), for all commands.

On each device, usable = use × memory − reserve. Defaults: for serving, use 0.9, as in vLLM before 0.20, and reserve 2
GB (CUDA context, NCCL, cuBLAS); for training, use 1 and reserve 2 GB; for a size in bytes, use 1 and no reserve.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypedDict

from tfacct.base import units
from tfacct.base.errors import NotFoundError, UsageError, cut
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.loading import devices

USE = {"serving": 0.9, "training": 1.0}
"""Default share of a device's memory that may be used, unless its GPU may use less."""
RESERVE = 2 * 10**9
"""Default bytes per device for the CUDA context, NCCL and cuBLAS."""
ALLOCATED = Fraction(117, 100)
"""Memory that the CUDA allocator reserves, over the counted peak of a training step: 1.17 to 1.24 in 4 runs of
torchtitan, 1.12 in a fifth."""


class LimitFacts(TypedDict):
    """Memory of each of several devices; `budget_bytes`: what may be used."""

    budget_bytes: int
    memory_bytes: int
    memory_from: str | None
    use: float
    reserve_bytes: int
    device: str | None
    devices: int


class ExactFit(LimitFacts):
    """Whether a step fits a budget of memory."""

    fits: bool


class Budgeted(ExactFit):
    """A memory limit, whether the question fits in it, and the largest context and batch that do."""

    context_limit: int | None
    largest_context: int | None
    largest_batch: int | None


@record
class MemoryLimit:
    """Memory of each of `count` devices; a size in bytes without a `device`. `engine`: whose pool it leaves, and a
    sentence on what is `not_included` in it; `paged`: the number of requests of so many tokens that its pages
    hold; `most_requests`: those that it runs at once, None for any number."""

    memory: int
    use: float = 1
    reserve: int = 0
    count: int = 1
    device: devices.Device | None = None
    engine: str = ""
    not_included: str = ""
    paged: Callable[[int], int] | None = None
    most_requests: int | None = None

    @property
    def usable(self) -> int:
        """Usable bytes per device, rounded down.

        >>> MemoryLimit(80 * 10**9, 0.9, 2 * 10**9).usable
        70000000000
        """
        return max(0, int(self.memory * Fraction(str(self.use))) - self.reserve)

    @property
    def roomy(self) -> int:
        """The largest peak of a training step that fits with what the CUDA allocator reserves, in bytes."""
        return int(self.usable / ALLOCATED)

    def is_tight(self, peak: int) -> bool:
        """True for the peak of a training step that fits, but not with what the CUDA allocator reserves."""
        return self.roomy < peak <= self.usable

    def fits(self, peak: int) -> str | None:
        """The peak of a training step in a table: `fits`, `tightly` if `is_tight`, or None."""
        return None if peak > self.usable else "tightly" if self.is_tight(peak) else "fits"

    @property
    def where(self) -> str:
        """Text of the devices: `in 24 GiB`, `on H200 SXM`, `on 2 × H200 SXM`."""
        several = "" if self.count == 1 else f"{self.count:,} × "
        if self.device is None:
            return f"in {several}{self.size}"
        return f"on {several}{self.device.name.partition(', one of')[0]}"

    @property
    def size(self) -> str:
        """Text of the usable memory per device; exact for a given size."""
        return usable_words(self.facts)

    @property
    def rule(self) -> str:
        """Text of the rule: `0.9 of the memory, less 2 GB …`."""
        return self.rule_of("the memory")

    def rule_of(self, memory: str) -> str:
        """Text of the rule for this text of the memory."""
        taken = f", less {units.budget(self.reserve)} for {self.engine or 'the runtime'}" if self.reserve else ""
        return f"{'all' if self.use == 1 else f'{self.use:g}'} of {memory}{taken}"

    @property
    def notes(self) -> list[str]:
        """Note on the rule with its numbers; none if all memory is usable."""
        if self.device is None and self.usable == self.memory:
            return []
        of_device = "" if self.device is None else f" of {'each ' if self.count > 1 else ''}{self.device.id}"
        usable, memory = (
            (units.budget(self.usable), units.budget(self.memory))
            if self.device is None
            else (units.binary(self.usable), self.device.memory_words)
        )
        return [f"Usable: {usable}{of_device} = {self.rule_of(memory)}."]

    @property
    def unreserved(self) -> str:
        """Note on a size in bytes that leaves nothing for the runtime."""
        if self.device is not None or self.usable != self.memory:
            return ""
        each = f"each {self.size}" if self.count > 1 else self.size
        reserve = option("reserve", "2GB")
        return f"All of {each} counts as usable. To reserve memory for the runtime: {reserve}."

    @property
    def pool_words(self) -> str:
        """Whose pool the cache has; nothing where a share of the memory is usable."""
        return (
            f"The KV cache gets the memory that {self.engine} leaves at start.{self.not_included}"
            if self.engine
            else ""
        )

    @property
    def words(self) -> str:
        """Text of the usable memory per device: `69.4 GiB of each h100-sxm`."""
        assert self.device is not None
        return f"{units.binary(self.usable)} of each {self.device.id}"

    @property
    def each(self) -> str:
        """One of the devices as `--on` takes it: its id, or its memory to the byte."""
        return _typed(self.memory) if self.device is None else self.device.id

    def options(self, *, training: bool) -> list[str]:
        """Options that differ from the defaults."""
        usual = (1, 0) if self.device is None else (_usual_use(self.device, training=training), RESERVE)
        use = [] if self.use == usual[0] else [f"--use {self.use:g}"]
        return use if self.reserve == usual[1] else [*use, f"--reserve {_typed(self.reserve) if self.reserve else 0}"]

    @property
    def facts(self) -> LimitFacts:
        """Data for JSON."""
        return {
            "budget_bytes": self.usable,
            "memory_bytes": self.memory,
            "memory_from": None if self.device is None else self.device.memory_from,
            "use": self.use,
            "reserve_bytes": self.reserve,
            "device": None if self.device is None else self.device.id,
            "devices": self.count,
        }

    def checked_for(self, ranks: int) -> MemoryLimit:
        """The same limit. Raises UsageError if its number of devices differs from the number of ranks."""
        if self.count not in (1, ranks):
            each = units.budget(self.memory).replace(" ", "") if self.device is None else self.device.id
            raise UsageError(
                f"{option('on', f'{self.count}x{each}')} has {self.count:,} devices for a layout of {ranks:,} ranks",
                f"{option('on', f'{ranks}x{each}')}, or {option('on', each)} for the memory of one rank",
            )
        return self


def usable_words(fit: LimitFacts) -> str:
    """Text of the usable memory in a limit's facts: `24 GiB`, `69.4 GiB of h100-sxm`."""
    usable, device = fit["budget_bytes"], fit["device"]
    return units.budget(usable) if device is None else f"{units.binary(usable)} of {device}"


def memory_limit(
    on: int | str | None,
    use: float | None = None,
    reserve: int | str | None = None,
    *,
    training: bool = False,
) -> MemoryLimit | None:
    """Memory limit for `on`: `h100`, `8xh100`, `24GB`, `2x24GiB` or bytes. Raises TfacctError."""
    if on is None:
        for name, value in (("use", use), ("reserve", reserve)):
            if value is not None:
                raise UsageError(f"{option(name)} needs {option('on')}")
        return None
    count, memory = 1, on
    if isinstance(on, str):
        count, name = devices.number_and_name(option("on"), on)
        size = units.is_bytes(name) or (units.is_tokens(name) and not devices.is_card_number(name))
        if devices.find(name) is not None or not size:
            try:
                count, device = devices.several(option("on"), on)
            except NotFoundError as error:
                if not devices.is_file(name):
                    error.hint = f"{option('on', '12GB')} gives a size of memory instead of a name; {devices.listing()}"
                raise
            if count > 1 and not device.links.any:
                device.link(count)  # raises UsageError: no link is known
            return device_limit(count, device, use, reserve, training=training)
        if name.isdecimal():
            devices_of = f" or {name}xh100" if count == 1 else ""
            raise UsageError(
                f"{option('on')} must be devices or a size with its unit, not {cut(on)!r}",
                f"{name}GB, {name}GiB{devices_of}? `tfacct devices` lists the devices",
            )
        memory = units.read_bytes(option("on"), name)
    if not isinstance(memory, int) or isinstance(memory, bool) or memory < 1:
        raise UsageError(f"{option('on')} must be a whole number of bytes, not {on!r}", devices.listing())
    return MemoryLimit(memory, _use(use, 1), _reserve(reserve, 0), count)


def device_limit(
    count: int,
    device: devices.Device,
    use: float | None = None,
    reserve: int | str | None = None,
    *,
    training: bool = False,
) -> MemoryLimit:
    """Memory limit for devices. Raises UsageError."""
    usual = _usual_use(device, training=training)
    return MemoryLimit(device.memory, _use(use, usual), _reserve(reserve, RESERVE), count, device)


def _usual_use(device: devices.Device, *, training: bool) -> float:
    """The default share of a device's memory that may be used."""
    return min(USE["training" if training else "serving"], device.gpu_share)


def _typed(size: int) -> str:
    """A number of bytes as an option takes it: with its unit if that is exact."""
    text = units.budget(size).replace(" ", "")
    return text if "," not in text and units.read_bytes("", text) == size else f"{size}B"


def _use(use: float | None, usual: float) -> float:
    if use is None:
        return usual
    check_share("use", use)
    return use


def check_share(name: str, value: object) -> None:
    """Raise UsageError for an option that is no share of the memory."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise UsageError(f"{option(name)} must be above 0 and at most 1, not {value!r}", "for example 0.9")


def _reserve(reserve: int | str | None, usual: int) -> int:
    if reserve is None:
        return usual
    if isinstance(reserve, str):
        return 0 if reserve.strip() == "0" else units.read_bytes(option("reserve"), reserve)
    if not isinstance(reserve, int) or isinstance(reserve, bool) or reserve < 0:
        raise UsageError(f"{option('reserve')} must be a number of bytes, not {reserve!r}")
    return reserve
