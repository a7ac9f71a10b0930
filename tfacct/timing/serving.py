"""A closed loop of concurrent requests: TTFT, TPOT and throughput, with ranges for what the scheduler decides.
Estimates.

Where so many `requests` are in flight at all times, each lives as long as all their prompts and its own tokens take:

    first token + (new − 1) · time per token = requests · prefill + (new − 1) · decode(requests)

The left side is a request; how it divides into a first token and the others depends on the scheduler.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from tfacct.accounts.memory import largest_that_fits
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.ledger.einsum import rounded_up
from tfacct.ledger.groups import Ledger
from tfacct.ledger.storage import BF16, Storage, Width
from tfacct.ledger.workload import LARGEST, Workload, check_size
from tfacct.loading.devices import Device
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.timing.kernel_time import CONSTANTS, Constants, Step, step
from tfacct.timing.kernels import Kernel, cache_bytes, kernels, weight_bytes

MOST_DRAFTS = 32
"""Largest number of tokens that are drafted in a step."""


class Loop(NamedTuple):
    """A closed loop as kernels: of `prompts` that are taken in at once, and of a step that gives each user a token.

    `prompt` and `new` are tokens of one request; `groups` of requests have devices of their own. `tokens`: new ones of
    a request in a decode step, on average.
    """

    device: Device
    requests: int
    prompt: int
    new: int
    prompts: int
    groups: int
    prefill: list[Kernel]
    decode: list[Kernel]
    tokens: float = 1.0

    def served(self, constants: Constants = CONSTANTS) -> Served:
        first, others = rounded_up(self.prompts, self.groups), rounded_up(self.requests, self.groups)
        prefill = step(self.prefill, self.device, first, self.prompt, constants)
        decode = step(self.decode, self.device, others, 1, constants)
        return Served(self, prefill, decode)


class Served(NamedTuple):
    """A closed loop in seconds."""

    loop: Loop
    prefill: Step
    decode: Step

    @property
    def steps(self) -> float:
        """Decode steps of a request, whose prefill gives its first token."""
        return (self.loop.new - 1) / self.loop.tokens

    @property
    def prompt(self) -> float:
        """Seconds of the engine for one prompt."""
        return self.prefill.seconds / self.loop.prompts

    @property
    def request(self) -> float:
        return self.loop.requests * self.prompt + self.steps * self.decode.seconds + CONSTANTS.request

    @property
    def request_bound(self) -> float:
        """Seconds of a request at the peaks, the FLOPs of prompts overlapped with the reading of decode steps."""
        compute = self.loop.requests * self.prefill.compute / self.loop.prompts + self.steps * self.decode.compute
        return max(compute, self.steps * self.decode.memory)

    @property
    def token(self) -> tuple[float, float]:
        """Time per output token: if new prompts wait for running answers, and if all of them interrupt these."""
        least = self.decode.seconds / self.loop.tokens
        return least, least + (self.loop.requests - 1) / max(1, self.loop.new - 1) * self.prompt

    @property
    def rate(self) -> float:
        """New tokens per second of all requests."""
        return self.loop.requests * self.loop.new / self.request


@record
class Speculation:
    """Speculative decoding: `tokens` are drafted in every step, one after the other, and the model verifies them all at
    once. `acceptance`: the share of drafts that it accepts, where it accepted all before them. `model`: what drafts;
    None for the model's own multi-token prediction layer. Raises UsageError."""

    tokens: int
    acceptance: float
    model: LoadedModel | None = None

    @property
    def accepted(self) -> float:
        """New tokens of a step on average, with the one that the model itself adds: (1 − α^(k+1)) / (1 − α).

        >>> Speculation(3, 0.5).accepted
        1.875
        """
        return sum(self.acceptance**place for place in range(self.tokens + 1))

    def __post_init__(self) -> None:
        check_size(option("draft_tokens"), self.tokens, MOST_DRAFTS)
        if not isinstance(self.acceptance, (int, float)) or not 0 <= self.acceptance <= 1:
            raise UsageError(
                f"{option('acceptance')} must be from 0 to 1, not {self.acceptance!r}",
                "the share of accepted drafts, given that all earlier ones were accepted: engines log it",
            )


@record
class Draft:
    """The `host` that drafts what is `asked`. `shared`: paths of weights that are the model's own."""

    host: Host
    asked: Speculation
    shared: Set[str] = frozenset()

    def stored(self) -> int:
        """Bytes on one device of the weights that only drafts need."""
        every = weight_bytes(self.host.ledger, self.host.weights, self.host.mesh)
        return sum(size for path, size in every.items() if path not in self.shared)


@record
class Adapters:
    """LoRA adapters: the products of one, and how many are `loaded` on each device, in 16 bits. Each sequence uses one,
    and no two the same where there are enough."""

    ledger: Ledger
    loaded: int

    def kernels(self, host: Host, work: Workload) -> list[Kernel]:
        """Their kernels on one device. Their partial sums are added to those of the model before it sums them."""
        used = min(self.loaded, rounded_up(work.batch, host.mesh.dp))
        found = kernels(self.ledger, work.axes(), BF16, host.activations, host.cache, host.mesh)
        return [kernel._replace(read=used * kernel.read) for kernel in found if kernel.kind == "gemm"]

    def stored(self, host: Host) -> int:
        """Bytes of all of them on one device."""
        return self.loaded * sum(weight_bytes(self.ledger, BF16, host.mesh).values())


@record
class Host:
    """A model on devices: what the time of a step depends on, other than its size. `draft`: what drafts tokens."""

    ledger: Ledger
    device: Device
    mesh: Mesh
    weights: Storage
    activations: Width
    cache: Width
    constants: Constants = CONSTANTS
    draft: Draft | None = None
    adapters: Adapters | None = None

    def kernels(self, work: Workload) -> list[Kernel]:
        """Kernels of a step on one device, without drafts."""
        found = kernels(self.ledger, work.axes(), self.weights, self.activations, self.cache, self.mesh)
        return found if self.adapters is None else [*found, *self.adapters.kernels(self, work)]

    def step(self, work: Workload) -> Step:
        sequences = rounded_up(work.batch, self.mesh.dp)
        return step(self.kernels(work), self.device, sequences, work.tokens, self.constants)

    def loop(self, requests: int, prompt: int, new: int) -> Loop:
        """So many requests at all times; tokens are decoded at the middle of an answer."""
        prompts = min(requests, self.mesh.dp * max(1, CONSTANTS.budget // prompt))
        whole, one = Workload(prompt, prompt, prompts, "last"), Workload(prompt + new // 2, 1, requests)
        prefill, decode, tokens = self.kernels(whole), list[Kernel](), 1.0
        if self.draft is not None:
            drafts, tokens = self.draft.asked.tokens, self.draft.asked.accepted
            prefill += self.draft.host.kernels(whole)
            decode += drafts * self.draft.host.kernels(one)
            one = Workload(one.context + drafts, 1 + drafts, requests)
        decode = [*self.kernels(one), *decode]
        return Loop(self.device, requests, prompt, new, prompts, self.mesh.dp, prefill, decode, tokens)

    def served(self, requests: int, prompt: int, new: int) -> Served:
        return self.loop(requests, prompt, new).served(self.constants)

    def stored(self) -> int:
        """Bytes of weights on one device."""
        weights = sum(weight_bytes(self.ledger, self.weights, self.mesh).values())
        weights += 0 if self.adapters is None else self.adapters.stored(self)
        return weights if self.draft is None else weights + self.draft.stored()

    def cached(self, context: int, sequences: int) -> int:
        """Bytes of the cache on one device, of so many sequences of all."""
        at = Workload(context, 1, sequences).axes()
        cache = cache_bytes(self.ledger, at, self.weights, self.activations, self.cache, self.mesh)
        return cache if self.draft is None else cache + self.draft.host.cached(context, sequences)

    def capacity(self, context: int, budget: int, limit: int = LARGEST) -> int:
        """Largest number of sequences whose cache fits next to the weights into so many bytes of each device."""
        free = budget - self.stored()
        return 0 if free < 0 else largest_that_fits(lambda requests: self.cached(context, requests), free, limit)
