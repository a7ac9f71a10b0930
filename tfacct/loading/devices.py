"""Devices: one TOML file each, with the manufacturer's figures and their sources."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tfacct.base import units
from tfacct.base.errors import ConfigError, NotFoundError, TfacctError, UsageError, cut, joined, listed, nearest
from tfacct.base.record import record
from tfacct.base.spelling import for_each, option, spelled
from tfacct.loading import files
from tfacct.loading.links import NODE, Link, Links, for_files

if TYPE_CHECKING:
    from tfacct.loading.calibration import Calibration

LARGEST = 10**21
"""Largest bytes, FLOPs per second or bytes per second that are accepted."""
LEAST = 10**6
"""Smallest bytes, bytes per second or FLOPs per second; smaller numbers are probably in giga or tera."""
KEYS = {
    "": "name aliases vendor architecture year memory peak link power source check calibration",
    "memory": "torch_bytes torch_range torch_seen board_bytes board_from bytes bytes_from bandwidth type gpu_share",
    "link": "kind one_way domain pcie node_network",
    "power": "tdp",
    "source": "urls unread read kind confidence note",
    "check": "dtype units flops_per_clock clock clock_from",
}
"""Keys of a device's file and of its tables; [peak] has dtypes, and [calibration] is checked in its module."""
EXAMPLE = {"bytes": "25_757_220_864", "bytes per second": "1.008e12", "FLOPs per second": "165.2e12"}
NOTICEABLE = 0.998
"""Share of the torch total below which the smallest total seen is reported."""
CPU = "cpu"
"""Name of the device for a calibration of a CPU."""
ALL = "all"
"""Name for all devices that are for sale."""
MOST = 1_000_000
"""Most devices in one budget."""
MEMORY: Mapping[str, str] = {
    "torch": "torch's total of the card",
    "nvidia-smi": "the board's memory; torch reports 0.4–3% less",
    "maker": "the manufacturer's figure; torch's total is not known",
    "marketed": "as marketed, in decimal gigabytes; torch's total is not known",
    "machine": "the machine's memory",
    "own": "from the device file; torch's total is not known",
}
"""Sources of a device's memory size, in words. All but `torch` are sizes of the board's memory."""
KINDS = ("vendor", "secondary", "unread", "own", "measured")
"""Sources of the figures: the manufacturer's page, another page, a page that was not read again, the user, or a
sweep."""
SEVERAL = re.compile(r"(\d[\d.,_]*(?:e\d+)?[kmbt]?)\s*[x×]\s*(\S.*)", re.IGNORECASE | re.ASCII)
"""Several devices: `4xh100`, `8 x H100`, `2x24GB`, `16kxh100`."""
COUNT_LAST = re.compile(r"([a-z][\w.+-]*):(\d+)", re.IGNORECASE | re.ASCII)
"""The same in launchers of jobs: `H100:4`."""
NAME = re.compile(r"[a-z0-9][a-z0-9.+]*", re.ASCII)
"""Normalized name or alias of a device (see `fold`)."""
TEMPLATE = """name = "My card"                  # save as ~/.config/tfacct/devices/my-card.toml
aliases = []                      # other names for --on
vendor = "ACME"

[memory]                          # one of the two sizes is enough
torch_bytes = 25_393_364_992      # torch.cuda.get_device_properties(0).total_memory
board_bytes = 25_757_220_864      # or 96e9 for "96 GB" on a data sheet
board_from = "nvidia-smi"         # or "marketed", for a data sheet
bandwidth = 1.008e12              # bytes per second

[peak]                            # FLOPs per second, dense, FP32 accumulation
bf16 = 165.2e12
fp8 = 330.3e12

[link]                            # bytes per second of one device, one way
kind = "NVLink"                   # without kind, one_way and domain there is only PCIe
one_way = 56.25e9
domain = 2                        # devices that it joins
pcie = 32e9                       # among the others of a node of 8
node_network = 50e9               # of all network cards of a node

[power]
tdp = 450                         # watts

[source]
urls = ["https://example.org/my-card"]
read = "2026-11-21"
kind = "own"
"""


@record
class Check:
    """Check of the peak: units · FLOPs per clock · clock in hertz. `circular`: the clock was derived from the peak."""

    dtype: str
    peak: int
    circular: bool


@record
class Memory:
    """Bytes of a device's memory: torch's total with the range that was seen and where, and the board's memory.

    One of the two may be unknown.
    """

    torch: int | None
    torch_range: tuple[int, int] | None
    torch_seen: str
    board: int | None
    board_from: str

    @property
    def torch_ends(self) -> tuple[int | None, int | None]:
        """The least and the greatest total that torch reported; None if it is unknown."""
        return self.torch_range or (self.torch, self.torch)


@record
class Device:
    """A device. Units are bytes, bytes per second, FLOPs per second, and watts."""

    id: str
    name: str
    vendor: str
    totals: Memory
    bandwidth: int
    peak: Mapping[str, int]
    links: Links
    tdp: int | None
    urls: tuple[str, ...]
    read: str | None
    kind: str
    note: str
    check: Check | None = None
    calibration: Calibration | None = None
    aliases: tuple[str, ...] = ()
    architecture: str = ""
    multiprocessors: int | None = None
    gpu_share: float = 1

    def several(self, count: int) -> str:
        """Name with a count: `4 × H100 SXM5 80GB`."""
        return self.name if count == 1 else f"{count:,} × {self.name}"

    @property
    def memory(self) -> int:
        """Bytes of memory: torch's total, or the board's memory if that is unknown."""
        found = self.totals.torch if self.totals.torch is not None else self.totals.board
        assert found is not None
        return found

    @property
    def memory_from(self) -> str:
        """Source of `memory`, a key of MEMORY."""
        return "torch" if self.totals.torch is not None else self.totals.board_from

    @property
    def memory_words(self) -> str:
        """Text of `memory`: `79.2 GiB (torch's total of the card)`, with the least that torch reported if noticeably
        less."""
        least = self.memory if self.totals.torch_range is None else self.totals.torch_range[0]
        less = f"; down to {units.binary(least)} with some drivers" if least < self.memory * NOTICEABLE else ""
        return f"{units.binary(self.memory)} ({MEMORY[self.memory_from]}{less})"

    @property
    def shared_words(self) -> str:
        """What the GPU may use of memory that it shares with a CPU; empty if it has its own."""
        if self.gpu_share == 1:
            return ""
        return f"the GPU may use a part of the memory by default, often {self.gpu_share:.0%}"

    def link(self, devices: int) -> Link:
        """Link of this number of devices. Raises UsageError if it is unknown."""
        return self.links.between(devices, self.id)

    def memory_facts(self) -> dict[str, int | str]:
        """Data of `memory` for JSON."""
        return {"memory_bytes": self.memory, "memory_from": self.memory_from}


def folder() -> Path:
    """Folder of the package's devices."""
    return Path(__file__).parent.parent / "devices"


def user_folder() -> Path:
    """Folder of the user's devices."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "tfacct" / "devices"


@cache
def paths() -> Mapping[str, Path]:
    """Files of all devices by name; the user's take precedence."""
    found = {path.stem: path for path in sorted(folder().glob("*.toml"))}
    try:
        users = {path.stem: path for path in sorted(user_folder().glob("*.toml"))}
    except OSError:
        users = {}
    return MappingProxyType(found | users)


def for_sale() -> list[str]:
    """Names of all devices except the machine of the package's calibration."""
    return [name for name, path in paths().items() if name != CPU or path.parent != folder()]


def fold(name: str) -> str:
    """Device name without case, spaces, `_` and `-`.

    >>> fold("RTX 4090") == fold("rtx_4090") == fold("rtx-4090") == "rtx4090"
    True
    """
    return re.sub(r"[\s_-]+", "", name.casefold())


class Names(NamedTuple):
    """Normalized names of a device, its own name first."""

    device: str
    names: tuple[str, ...]
    year: int


@cache
def index() -> tuple[Names, ...]:
    """Names of all devices, from the beginning of their files. Invalid files have no aliases; loading them raises the
    error."""
    found = []
    for name, path in paths().items():
        try:
            head = files.parse_toml(str(path), files.read(path).partition(b"\n[")[0])
            aliases, year = _aliases(path, head.get("aliases", [])), head.get("year")
        except TfacctError:
            aliases, year = (), None
        found.append(Names(name, (fold(name), *map(fold, aliases)), year if isinstance(year, int) else 9999))
    return tuple(found)


def find(name: str) -> str | None:
    """Device with this name or alias; None if there is none. Raises ConfigError for an alias of two devices.

    >>> find("H100"), find("rtx_4090"), find("4090"), find("h1000")
    ('h100-sxm', 'rtx-4090', 'rtx-4090', None)
    """
    if name in paths():
        return name
    folded = fold(name)
    named = [one.device for one in index() if folded == one.names[0]]
    found = named or [one.device for one in index() if folded in one.names]
    users = [device for device in found if paths()[device].parent != folder()]
    if len(found := users or found) > 1:
        raise ConfigError(f"{cut(name)} is an alias of {listed(found)}", "name one of them in full")
    return found[0] if found else None


def load(name: str) -> Device:
    """Device by name or alias, or from a TOML file. Raises NotFoundError with the nearest name, and ConfigError."""
    if name.endswith(".toml"):
        return _device(Path(name))
    if (found := find(name)) is None:
        raise _unknown(name)
    return _device(paths()[found])


def _unknown(name: str) -> NotFoundError:
    """Error that suggests devices with the same beginning or a similar spelling."""
    folded, problem = fold(name), f"unknown device {cut(name)!r}"
    if is_file(name):
        return NotFoundError(problem, f"{name}.toml is a device file: give its name with the ending")

    after = re.fullmatch(r"(.+?) *[x×*] *(\d+)", name)  # `h100x8`
    if after and find(after[1]):
        return NotFoundError(f"{problem}: the number comes first, {after[2]}x{after[1]}")

    def common(known: str) -> int:
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(folded, known, strict=False)))

    shared = {one: max(map(common, one.names)) for one in index()}
    most = max(shared.values())
    suggested: list[str] = []
    if most >= 3 or 2 * most >= max(len(folded), 4):
        best = [one for one in index() if shared[one] == most]
        best.sort(key=lambda one: (folded[:most] not in one.names, one.year, one.device))
        suggested = [one.device for one in best[:3]]
    elif near := get_close_matches(folded, [known for one in index() for known in one.names], 1):
        suggested = [one.device for one in index() if near[0] in one.names]
    if suggested:
        return NotFoundError(
            f"{problem}. Did you mean {joined(suggested, 'or')}?",
            spelled("`tfacct memory` and `train` also take a size: --on 12GB", "memory and train also take on='12GB'"),
        )
    return NotFoundError(problem, listing())


def is_file(name: str) -> bool:
    """True if the name is that of a device file in this folder, without the ending."""
    return Path(f"{name}.toml") in Path().glob("*.toml")


def listing() -> str:
    """Hint for an unknown device."""
    return spelled(
        "`tfacct devices` lists all; `tfacct devices --template` prints a device file to fill in",
        "devices() lists all; on='my-card.toml' is your own device (docs/devices.md)",
    )


def chosen(names: Sequence[str]) -> list[tuple[int | None, Device]]:
    """Devices with these names, each with its number, or None without one; all for `all` or without names. Raises
    TfacctError."""
    each = [(SEVERAL.fullmatch(name.strip()), *number_and_name(option("on"), name)) for name in names or [ALL]]
    if size := next((name for *_, name in each if units.is_bytes(name) and find(name) is None), None):
        raise UsageError(f"a list in {option('on')} has devices, not sizes", f"one size a run: {option('on', size)}")
    return [
        (count if numbered else None, load(one))
        for numbered, count, name in each
        for one in (for_sale() if fold(name) == ALL else [name])
    ]


def memory_words(found: Sequence[Device]) -> str:
    """Sentence on the sources of the memory of these devices."""
    names: dict[str, list[str]] = {}
    for device in found:
        names.setdefault(device.memory_from, []).append(device.id)
    if len(names) == 1:
        return f"Memory: {MEMORY[next(iter(names))]}."
    usual = [f"Memory: {MEMORY['torch']}."] if "torch" in names else []
    others = [f"{listed(alike, 4)}: {MEMORY[origin]}." for origin, alike in names.items() if origin != "torch"]
    return " ".join([*usual, *others])


def number_and_name(named: str, text: str) -> tuple[int, str]:
    """Number of devices and the remaining text: 1 for `h100`, 4 for `4xh100`. Raises UsageError.

    >>> number_and_name("--on", "8 x H100"), number_and_name("--on", "H100:4"), number_and_name("--on", "h100")
    ((8, 'H100'), (4, 'H100'), (1, 'h100'))
    """
    match = SEVERAL.fullmatch(COUNT_LAST.sub(r"\2x\1", text.strip()))
    number = f"the number in {named} {cut(text)}"
    count, name = (units.read_integer(number, match[1]), match[2]) if match else (1, text.strip())
    if name[-1:] in ("x", "×") and name[:-1].strip().isdecimal():
        raise UsageError(f"{named} {cut(text)} has a number of devices without a device", f"for example {name}h100")
    if not 1 <= count <= MOST:
        raise UsageError(f"{named} {cut(text)}: the number of devices must be 1 to {MOST:,}")
    if SEVERAL.fullmatch(name):
        raise UsageError(f"{named} {cut(text)} has two device counts", f"for example {count}xh100")
    return count, name


def is_card_number(name: str) -> bool:
    """True for a number that names a card, not gigabytes.

    >>> is_card_number("4060"), is_card_number("24")
    (True, False)
    """
    return name.isdecimal() and 1000 <= int(name[:9]) < 10_000


def several(named: str, text: str) -> tuple[int, Device]:
    """Number of devices and the device: 1 for `h100`, 4 for `4xh100`. Raises TfacctError, also for a memory size."""
    count, name = number_and_name(named, text)
    if fold(name) == ALL and find(name) is None:
        raise UsageError(f"{named} must name one kind of device here, not `all`", "for example h100 or 8xh100")
    if units.is_bytes(name) and find(name) is None:
        raise UsageError(
            f"{named} {cut(text)} gives only memory; this needs a device with a known speed",
            "name a device, such as h100 or 8xh100",
        )
    if "," in name and all(find(number_and_name(named, one)[1]) for one in name.split(",")):
        several = spelled(f"`tfacct memory MODEL --on {cut(text)}` compares", "`model.fit` takes several, for")
        hint = f"{for_each()}; {several} the memory of serving and the longest context"
        raise UsageError(f"{named} takes one kind of device here, not {cut(text)!r}", hint)
    if not name.endswith(".toml") and not NAME.fullmatch(fold(name)):
        raise UsageError(f"{named} must name a device, not {cut(text)!r}", f"for example 8xh100; {listing()}")
    if name.isdecimal() and find(name) is None and not is_card_number(name):
        raise UsageError(f"{named} {cut(text)} has no device name", f"for example {int(name[:9]) or 8}xh100")
    return count, load(name)


def _device(path: Path) -> Device:
    """Device from a file. Raises ConfigError with the file."""
    file = files.parse_toml(str(path), files.read(path))
    memory, peak, link, power, source, check = (
        _table(path, file, name) for name in ("memory", "peak", "link", "power", "source", "check")
    )
    for table in KEYS:
        _check_keys(path, table, _table(path, file, table) if table else file)
    if not peak:
        raise ConfigError(f"{path}: [peak] is missing", for_files())
    rates = {name: _rate(path, f"[peak] {name}", value, "FLOPs per second") for name, value in peak.items()}
    if unknown := next((name for name in rates if name not in (*units.BITS, "fp4")), None):
        raise ConfigError(f"{path}: [peak] {cut(unknown)} is not a dtype", nearest(unknown, [*units.BITS, "fp4"]))
    kind = source.get("kind", "own")
    if kind not in KINDS:
        raise ConfigError(f"{path}: [source] kind must be one of {', '.join(KINDS)}, not {cut(repr(kind))}")
    urls = [*_names(path, source.get("urls", [])), *_names(path, source.get("unread", []))]
    return Device(
        id=path.stem,
        aliases=_aliases(path, file.get("aliases", [])),
        name=_text(path, "name", file.get("name", path.stem)),
        vendor=_text(path, "vendor", file.get("vendor", "")),
        totals=_memory(path, memory),
        bandwidth=_rate(path, "[memory] bandwidth", memory.get("bandwidth"), "bytes per second"),
        peak=rates,
        links=_links(path, link),
        tdp=None if "tdp" not in power else _amount(path, "[power] tdp", power["tdp"]),
        urls=tuple(urls),
        read=str(source["read"]) if "read" in source else None,
        kind=kind,
        note=_text(path, "[source] note", source.get("note", "")),
        check=_check(path, check) if check else None,
        calibration=_calibration(path, file["calibration"], rates) if "calibration" in file else None,
        architecture=_text(path, "architecture", file.get("architecture", "")),
        multiprocessors=check.get("units"),
        gpu_share=_share(path, memory.get("gpu_share", 1)),
    )


def _share(path: Path, value: object) -> float:
    """Share of the memory that the GPU may use. Raises ConfigError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise ConfigError(f"{path}: [memory] gpu_share must be above 0 and at most 1, not {cut(repr(value))}")
    return value


def _aliases(path: Path, value: object) -> tuple[str, ...]:
    """Aliases of a device. Raises ConfigError for one with another meaning in `--on`."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ConfigError(f"{path}: aliases must be a list of names")
    for alias in value:
        if not NAME.fullmatch(fold(alias)) or fold(alias) == ALL or SEVERAL.fullmatch(alias) or units.is_bytes(alias):
            raise ConfigError(f"{path}: {cut(repr(alias))} cannot be an alias of a device", "such as h100 or 4090")
    return tuple(value)


def _calibration(path: Path, table: object, rates: Mapping[str, int]) -> Calibration:
    from tfacct.loading import calibration

    found = calibration.read(path, table)
    if found.dtype not in rates:
        raise ConfigError(f"{path}: [calibration] dtype is {found.dtype}, which is missing from [peak]")
    return found


def _links(path: Path, table: Mapping[str, Any]) -> Links:
    """Links of a device. Without `domain`, `one_way` links the devices of a node. Raises ConfigError."""
    rates = {
        key: _rate(path, f"[link] {key}", table[key], "bytes per second") if key in table else None
        for key in ("one_way", "pcie", "node_network")
    }
    if "domain" in table and "one_way" not in table:
        raise ConfigError(f"{path}: [link] domain needs one_way", for_files())
    domain = _amount(path, "[link] domain", table["domain"]) if "domain" in table else NODE
    kind = _text(path, "[link] kind", table.get("kind", ""))
    return Links(kind, rates["one_way"], domain, rates["pcie"], rates["node_network"])


def _memory(path: Path, table: Mapping[str, Any]) -> Memory:
    """Memory of a device. `bytes` is the former key for torch's total, unless `bytes_from` is `marketed`. Raises
    ConfigError."""
    origins = [name for name in MEMORY if name != "torch"]
    if "bytes" in table:
        if both := next((key for key in ("torch_bytes", "board_bytes") if key in table), None):
            raise ConfigError(f"{path}: [memory] bytes is an old name of {both}", "leave bytes out")
        origin = table.get("bytes_from", "framework")
        if origin not in ("framework", "marketed"):
            raise ConfigError(f"{path}: [memory] bytes_from must be framework or marketed, not {cut(repr(origin))}")
        total = _rate(path, "[memory] bytes", table["bytes"], "bytes")
        torch = total if origin == "framework" else None
        return Memory(torch, None, "", None if torch else total, "" if torch else "marketed")
    read = {
        name: _rate(path, f"[memory] {name}", table[name], "bytes") if name in table else None
        for name in ("torch_bytes", "board_bytes")
    }
    torch, board = read["torch_bytes"], read["board_bytes"]
    if torch is None and board is None:
        raise ConfigError(f"{path}: [memory] torch_bytes is missing, and board_bytes too", for_files())
    if torch is not None and board is not None and torch > board:
        raise ConfigError(
            f"{path}: [memory] torch_bytes {torch:,} is more than board_bytes {board:,}", "are they swapped?"
        )
    origin = table.get("board_from", "own")
    if origin not in origins:
        raise ConfigError(f"{path}: [memory] board_from must be one of {', '.join(origins)}, not {cut(repr(origin))}")
    seen = None
    if "torch_range" in table:
        ends = table["torch_range"]
        if not isinstance(ends, list) or len(ends) != 2:
            raise ConfigError(f"{path}: [memory] torch_range must be the minimum and maximum bytes seen")
        low, high = (_rate(path, "[memory] torch_range", end, "bytes") for end in ends)
        if torch is None or not low <= torch <= high:
            raise ConfigError(f"{path}: [memory] torch_bytes is not in torch_range, {low:,} to {high:,}")
        seen = (low, high)
    return Memory(torch, seen, _text(path, "[memory] torch_seen", table.get("torch_seen", "")), board, origin)


def _check(path: Path, table: Mapping[str, Any]) -> Check:
    factors = [_amount(path, f"[check] {name}", table.get(name)) for name in ("units", "flops_per_clock", "clock")]
    dtype, clock_from = (_text(path, f"[check] {name}", table.get(name)) for name in ("dtype", "clock_from"))
    return Check(dtype, factors[0] * factors[1] * factors[2], clock_from == "peak")


def _table(path: Path, file: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = file.get(name, {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path}: [{name}] must be a table", for_files())
    return table


def _check_keys(path: Path, name: str, table: Mapping[str, Any]) -> None:
    known = KEYS[name].split()
    if unknown := next((key for key in table if key not in known), None):
        where = f"[{name}] {cut(unknown)}" if name else cut(unknown)
        raise ConfigError(f"{path}: {where} is not a key of device files", nearest(unknown, known) or for_files())


def _amount(path: Path, what: str, value: object, unit: str = "") -> int:
    """Whole number. Raises ConfigError."""
    if value is None:
        raise ConfigError(f"{path}: {what} is missing", for_files())
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 1 <= value <= LARGEST:  # type: ignore[operator]
        hint = f"in {unit}, such as {EXAMPLE[unit]}" if unit else None
        raise ConfigError(f"{path}: {what} must be a number above 0, not {cut(repr(value))}", hint)
    return round(value)  # type: ignore[call-overload, no-any-return]


def _rate(path: Path, what: str, value: object, unit: str) -> int:
    """Rate or size in its base unit. Raises ConfigError for numbers that are probably in giga or tera."""
    amount = _amount(path, what, value, unit)
    if amount < LEAST:
        raise ConfigError(f"{path}: {what} is {amount:,} {unit}, too small for a device", f"such as {EXAMPLE[unit]}")
    return amount


def _text(path: Path, what: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{path}: {what} must be text, not {cut(repr(value))}")
    return value


def _names(path: Path, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ConfigError(f"{path}: [source] urls must be a list of addresses")
    return value
