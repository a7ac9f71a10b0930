"""The devices of `--on`, and the usable memory of each (`--use`, `--reserve`). One rule for every command.

On each device, usable = use × memory − reserve. To serve, use is 0.9, what vLLM takes, and the reserve 2 GB; to train,
1 and 2 GB: the CUDA context, NCCL and cuBLAS. Of a size in bytes all is usable unless `use` or `reserve` says
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from tfacct.base import units
from tfacct.base.errors import UsageError, cut
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.loading import devices

USE = {"serving": 0.9, "training": 1.0}
"""Share of a device's memory that may be used."""
RESERVE = 2 * 10**9
"""Bytes of each device that are not the model's: the CUDA context, NCCL, cuBLAS."""


@record
class MemoryLimit:
    """Memory of each of `count` devices; a size in bytes where there is no `device`."""

    memory: int
    use: float = 1
    reserve: int = 0
    count: int = 1
    device: devices.Device | None = None

    @property
    def usable(self) -> int:
        """Bytes of each device that a model may take, rounded down.

        >>> MemoryLimit(80 * 10**9, 0.9, 2 * 10**9).usable
        70000000000
        """
        return max(0, int(self.memory * Fraction(str(self.use))) - self.reserve)

    @property
    def where(self) -> str:
        """The devices after `fits`: `in 24 GiB`, `on H200 SXM`, `on 2 × H200 SXM`."""
        several = "" if self.count == 1 else f"{self.count:,} × "
        if self.device is None:
            return f"in {several}{self.size}"
        return f"on {several}{self.device.name.partition(', one of')[0]}"

    @property
    def size(self) -> str:
        """The usable bytes of each device in words, exact where a size was given."""
        return usable_words(self.facts)

    @property
    def rule(self) -> str:
        """The rule without a device's memory: `0.9 of the memory, less 2 GB …`."""
        return self._rule("the memory")

    def _rule(self, memory: str) -> str:
        taken = f", less {units.decimal_bytes(self.reserve)} for the runtime" if self.reserve else ""
        return f"{'all' if self.use == 1 else f'{self.use:g}'} of {memory}{taken}"

    @property
    def notes(self) -> list[str]:
        """The rule with its numbers; nothing where all of a size is usable."""
        if self.device is None and self.usable == self.memory:
            return []
        whose = "" if self.device is None else f" of {'each ' if self.count > 1 else ''}{self.device.id}"
        usable, whole = (
            (units.budget(self.usable), units.budget(self.memory))
            if self.device is None
            else (units.binary(self.usable), self.device.memory_words)
        )
        return [f"Usable: {usable}{whose}: {self._rule(whole)}."]

    @property
    def words(self) -> str:
        """The usable memory of each device with the rule, after `into the usable`."""
        assert self.device is not None
        return f"{units.binary(self.usable)} of each {self.device.id}: {self._rule(self.device.memory_words)}"

    def options(self, *, training: bool) -> list[str]:
        """The options of a command that change the usual rule."""
        usual = USE["training" if training else "serving"]
        use = [] if self.use == usual else [f"--use {self.use:g}"]
        return use if self.reserve == RESERVE else [*use, f"--reserve {f'{self.reserve}B' if self.reserve else 0}"]

    @property
    def facts(self) -> dict[str, Any]:
        """The limit in the JSON: `budget_bytes` are the usable bytes of each device."""
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
        """The same limit for so many ranks. Raises UsageError where it names another number of devices."""
        if self.count not in (1, ranks):
            each = units.budget(self.memory).replace(" ", "") if self.device is None else self.device.id
            raise UsageError(
                f"{option('on', f'{self.count}x{each}')} names {self.count:,} devices, but there are {ranks:,} ranks",
                f"{option('on', f'{ranks}x{each}')}, or {option('on', each)} for the memory of each",
            )
        return self


def usable_words(fit: Mapping[str, Any]) -> str:
    """The usable bytes of the facts of a limit: `24 GiB`, `69.4 GiB of h100-sxm`."""
    usable, device = fit["budget_bytes"], fit["device"]
    return units.budget(usable) if device is None else f"{units.binary(usable)} of {device}"


def memory_limit(
    on: int | str | None,
    use: float | None = None,
    reserve: int | str | None = None,
    *,
    training: bool = False,
) -> MemoryLimit | None:
    """The memory that `on` names: `h100`, `8xh100`, `24GB`, `2x24GiB` or bytes. Raises TfacctError."""
    if on is None:
        for name, value in (("use", use), ("reserve", reserve)):
            if value is not None:
                raise UsageError(f"{option(name)} needs {option('on')}")
        return None
    count, memory = 1, on
    if isinstance(on, str):
        count, name = devices.number_and_name(option("on"), on)
        if devices.find(name) is not None or not (units.is_bytes(name) or name[:1].isdecimal()):
            count, device = devices.several(option("on"), on)
            if count > 1 and not device.links.any:
                device.link(count)  # raises: they cannot share a model
            return device_limit(count, device, use, reserve, training=training)
        if name.isdecimal():
            devices_of = f" or {name}xh100" if count == 1 else ""
            raise UsageError(
                f"{option('on')} must be devices or a size with its unit, not {cut(on)!r}",
                f"{name}GB, {name}GiB{devices_of}?",
            )
        memory = units.read_bytes(option("on"), name)
    if not isinstance(memory, int) or isinstance(memory, bool) or memory < 1:
        raise UsageError(f"{option('on')} must be a whole number of bytes, not {on!r}")
    return MemoryLimit(memory, _use(use, 1), _reserve(reserve, 0), count)


def device_limit(
    count: int,
    device: devices.Device,
    use: float | None = None,
    reserve: int | str | None = None,
    *,
    training: bool = False,
) -> MemoryLimit:
    """The memory of so many devices. Raises UsageError."""
    usual = USE["training" if training else "serving"]
    return MemoryLimit(device.memory, _use(use, usual), _reserve(reserve, RESERVE), count, device)


def _use(use: float | None, usual: float) -> float:
    if use is None:
        return usual
    if isinstance(use, bool) or not isinstance(use, (int, float)) or not 0 < use <= 1:
        raise UsageError(f"{option('use')} must be above 0 and at most 1, not {use!r}", "for example 0.9")
    return use


def _reserve(reserve: int | str | None, usual: int) -> int:
    if reserve is None:
        return usual
    if isinstance(reserve, str):
        return 0 if reserve.strip() == "0" else units.read_bytes(option("reserve"), reserve)
    if not isinstance(reserve, int) or isinstance(reserve, bool) or reserve < 0:
        raise UsageError(f"{option('reserve')} must be a number of bytes, not {reserve!r}")
    return reserve
