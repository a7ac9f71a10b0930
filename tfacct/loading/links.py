"""Links between devices: type and bandwidth for a number of devices.

Devices communicate over NVLink or similar within its domain, over PCIe within a node, and over a network between nodes.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option, spelled

NODE = 8
"""Devices per node, unless NVLink or similar links more."""
Reach: TypeAlias = Literal["domain", "node", "network"]
"""Reach of a link: the domain of NVLink or similar, a node over PCIe, or other nodes."""


class LinkUsed(TypedDict):
    """The link between these devices; bytes per second of one device, one way."""

    devices: int
    reach: Reach
    kind: str
    bytes_per_second: int


@record
class Link:
    """Link of several devices.

    `rate`: bytes per second sent by each device in a ring, one way. Between nodes, a ring uses all network cards of a
    node; `card` is the rate of one.
    """

    devices: int
    reach: Reach
    kind: str
    rate: int
    node: int
    card: int

    @property
    def words(self) -> str:
        """The link in a sentence: `Link between 8 devices: NVLink4 (450 GB/s one way).`"""
        by = f"{self.kind} ({units.decimal_bytes(self.rate)}/s one way)"
        if self.reach == "network":
            carried = units.decimal_bytes(self.card * self.node)
            by = f"a network between nodes of {self.node:,} ({carried}/s one way from each node)"
        return f"Link between {self.devices:,} devices: {by}."

    @property
    def place(self) -> str:
        """Place of the link: `over PCIe`, `between nodes`."""
        return "between nodes" if self.reach == "network" else f"over {self.kind}"

    def facts(self) -> LinkUsed:
        """Data for JSON."""
        return {"devices": self.devices, "reach": self.reach, "kind": self.kind, "bytes_per_second": self.rate}


@record
class Links:
    """Links of a device, in bytes per second, one way.

    NVLink or similar links `domain` devices at `one_way`; PCIe links the devices of a node; `network` is the rate of
    all network cards of a node.
    """

    kind: str = ""
    one_way: int | None = None
    domain: int = NODE
    pcie: int | None = None
    network: int | None = None

    @property
    def any(self) -> bool:
        """True if a link is known."""
        return self.one_way is not None or self.pcie is not None

    @property
    def joined(self) -> int:
        """Number of devices linked by NVLink or similar; 1 without it."""
        return 1 if self.one_way is None else self.domain

    @property
    def node(self) -> int:
        """Number of devices of a node."""
        return max(NODE, self.joined)

    @property
    def largest(self) -> int | None:
        """Largest number of devices with a known link; None without a limit."""
        if not self.any:
            return 1
        if self.joined < NODE and self.pcie is None:
            return self.joined
        return self.node if self.network is None else None

    def known(self, devices: int) -> bool:
        """True if the link of this number of devices is known or not needed."""
        return self.largest is None or devices <= self.largest

    def between(self, devices: int, device: str) -> Link:
        """Link of this number of devices. Raises UsageError if it is unknown, with the keys to add."""
        node = self.node
        if self.one_way is not None and devices <= self.domain:
            return Link(devices, "domain", self.kind or "their own link", self.one_way, node, 0)
        inside = self.one_way if self.joined >= NODE else self.pcie
        if inside is None and self.one_way is None:
            raise _unknown(f"no link between devices is known for {device}", device, 1, "pcie, or one_way and domain,")
        if inside is None:
            raise _unknown(f"{self.kind or 'the link'} joins {self.domain:,} × {device}", device, self.domain, "pcie")
        if devices <= node:
            return Link(devices, "node", "PCIe", inside, node, 0)
        if self.network is None:
            problem = f"no network between nodes is known for {device}, which has {node:,} devices per node"
            raise _unknown(problem, device, node, "node_network")
        return Link(devices, "network", "network", min(inside, self.network), node, self.network // node)


def for_files() -> str:
    """Hint for a device file that is not complete."""
    return spelled("`tfacct devices --template` prints a whole file", "tfacct.loading.devices.TEMPLATE is a whole file")


def _unknown(problem: str, device: str, most: int, key: str) -> UsageError:
    fewer = "one device" if most == 1 else f"at most {most:,}"
    on = device if most == 1 else f"{most}x{device}"
    return UsageError(
        problem, f"use {fewer} ({option('on', on)}), or add {key} under [link] in its file; {for_files()}"
    )
