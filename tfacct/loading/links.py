"""Links between devices that share a model: which link a number of devices uses, and its bandwidth.

Devices reach each other over NVLink or its like within its domain, over PCIe within a node, and over a network between
nodes.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from tfacct.base import units
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option, spelled

NODE = 8
"""Devices of a node, where NVLink or its like joins fewer."""
Reach: TypeAlias = Literal["domain", "node", "network"]
"""How far a link reaches: the domain of NVLink or its like, the other devices of a node over PCIe, or other nodes."""


@record
class Link:
    """The link of some devices. `rate`: bytes per second that each sends in a ring, one way; between nodes a ring uses
    all network cards of a node, and `card` is the rate of one of them."""

    devices: int
    reach: Reach
    kind: str
    rate: int
    node: int
    card: int

    @property
    def words(self) -> str:
        """The link in a sentence: `8 devices are linked by NVLink4 (450 GB/s one way).`"""
        by = f"{self.kind} ({units.decimal_bytes(self.rate)}/s one way)"
        if self.reach == "network":
            carried = units.decimal_bytes(self.card * self.node)
            by = f"a network between nodes of {self.node:,} ({carried}/s one way from each node)"
        return f"{self.devices:,} devices are linked by {by}."

    @property
    def place(self) -> str:
        """Where the link is, in words: `over PCIe`."""
        return "between nodes" if self.reach == "network" else f"over {self.kind}"

    def facts(self) -> dict[str, int | str]:
        """The link, for JSON."""
        return {"devices": self.devices, "reach": self.reach, "kind": self.kind, "bytes_per_second": self.rate}


@record
class Links:
    """Links of a device, in bytes per second, one way: NVLink or its like joins `domain` devices at `one_way`; PCIe
    joins the others of a node; `network` is what all network cards of a node carry."""

    kind: str = ""
    one_way: int | None = None
    domain: int = NODE
    pcie: int | None = None
    network: int | None = None

    @property
    def any(self) -> bool:
        """True if some link is known."""
        return self.one_way is not None or self.pcie is not None

    @property
    def joined(self) -> int:
        """Devices that NVLink or its like joins, 1 where there is none."""
        return 1 if self.one_way is None else self.domain

    @property
    def largest(self) -> int | None:
        """The largest number of devices whose link is known; None where any is."""
        if not self.any:
            return 1
        node = max(NODE, self.joined)
        if self.joined < NODE and self.pcie is None:
            return self.joined
        return node if self.network is None else None

    def known(self, devices: int) -> bool:
        """True if the link of so many devices is known, or they need none."""
        return self.largest is None or devices <= self.largest

    def between(self, devices: int, device: str) -> Link:
        """The link of so many devices. Raises UsageError for one that is not known, which says what to add."""
        node = max(NODE, self.joined)
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
            problem = f"no network between nodes is known for {device}, whose nodes have {node:,} devices"
            raise _unknown(problem, device, node, "node_network")
        return Link(devices, "network", "network", min(inside, self.network), node, self.network // node)


def _unknown(problem: str, device: str, most: int, key: str) -> UsageError:
    fewer = "one device" if most == 1 else f"at most {most:,}"
    on = device if most == 1 else f"{most}x{device}"
    whole = spelled("`tfacct devices --template` shows one", "devices.TEMPLATE shows one")
    return UsageError(problem, f"ask for {fewer}: {option('on', on)}, or add {key} under [link] to its file; {whole}")
