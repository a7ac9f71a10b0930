"""Experts beside a network that every token passes through, as transformers' Qwen2MoeSparseMoeBlock runs them."""

from __future__ import annotations

from dataclasses import replace

from tfacct.architecture.parts import Experts, FeedForward
from tfacct.base.errors import ConfigError
from tfacct.ledger.kept import Held, Kept, Moment, Run, joined
from tfacct.profiles.base import Habits
from tfacct.profiles.transformers_parts import beside, experts, network

STREAM_WIDE = Held("B T D")


def shared_experts(at: str, reads: str, part: Experts, habits: Habits) -> Run:
    """The shared network runs first, then the experts, then the gate that weights the network's result.

    Backwards the gate comes first: the gradients of the network's result and of what the gate read wait meanwhile.
    """
    if part.shared is None or part.shared_alike or not part.shared_gate or part.shared_bias:
        raise ConfigError("transformers: no rule for a shared network without its gate, or with biases")
    shape = FeedForward(hidden=part.hidden, width=part.shared, gated=True, activation=part.activation)
    shared = lettered(network(f"{at}.shared", reads, shape, (STREAM_WIDE,), stream=True))
    routed = experts(at, reads, replace(part, shared=None, shared_gate=False), habits)
    return joined(beside(shared, STREAM_WIDE), _waited(at, routed), _gate(at, reads))


def followed_experts(at: str, reads: str, part: Experts, habits: Habits) -> Run:
    """Experts, then the shared network, whose gate and up are halves of one product: GraniteMoeShared's. Backwards it
    comes first, beside the gradient of both results; that of what it read waits until the experts' is added."""
    if part.shared is None or part.shared_gate or part.shared_bias:
        raise ConfigError("transformers: no rule for a shared network with a gate or biases behind experts")
    routed = experts(at, reads, replace(part, shared=None), habits)
    taken = (f"{at}.router.softmax", f"{at}.router.weight")
    moments = (m if m.at in taken else m._replace(held=(*m.held, STREAM_WIDE)) for m in routed.moments)
    shape = FeedForward(hidden=part.hidden, width=part.shared, gated=True, activation=part.activation)
    shared = beside(lettered(network(f"{at}.shared", reads, shape, fused=True)), STREAM_WIDE)
    return joined(routed._replace(moments=tuple(moments)), shared._replace(early=(STREAM_WIDE,)))


def _gate(at: str, reads: str) -> Run:
    weight, sigmoid = f"{at}.shared_gate.weight", f"{at}.shared_sigmoid"
    weighting, added = f"{at}.shared_weighting", f"{at}.shared_add"
    routed = Held("B T E"), Held("B T A")  # the router's scores and shares are the block's, as are both results
    results = STREAM_WIDE, STREAM_WIDE
    return Run(
        (weight, sigmoid, weighting, added),
        (
            Kept(reads, "B T D", by=(weight,)),
            Kept(sigmoid, "B T U", by=(sigmoid, weighting)),
            Kept(f"{at}.shared.result", "B T D", by=(weighting,)),
        ),
        (
            Moment(weighting, (Held("B T D", times=2), Held("B T U"))),
            Moment(weight, (Held("B T D", times=2), Held("B T U"))),
        ),
        (Moment(weight, (Held("B T U"), *routed, *results)), Moment(added, (Held("B T D", times=3), *routed))),
    )


def _waited(at: str, run: Run) -> Run:
    """Experts beside whose gradients two wait: the network's, and that of the gate's input, which takes up theirs."""
    sent, taken = f"{at}.experts.sent", (f"{at}.router.softmax", f"{at}.router.weight")
    moments = [
        moment._replace(held=(*moment.held, Held("B T D", times=1 if moment.at in taken else 2)))
        for moment in run.moments
    ]
    summed = Moment(sent, (Held("B T D", times=4), Held("B T A", "work")))
    ahead = tuple(moment._replace(held=(*moment.held, STREAM_WIDE)) for moment in run.ahead)
    return run._replace(moments=(*moments, summed), ahead=ahead)


def lettered(run: Run) -> Run:
    """The run of a network whose width is the shared one's."""

    def spec(one: str) -> str:
        return " ".join("Fs" if letter == "F" else letter for letter in one.split())

    kept = tuple(Kept(line.path, spec(line.spec), line.by, line.role, line.times) for line in run.kept)
    moments = (m._replace(held=tuple(held._replace(spec=spec(held.spec)) for held in m.held)) for m in run.moments)
    return run._replace(kept=kept, moments=tuple(moments))
