"""What norms, networks, experts and dropouts of the transformers classes keep, and what their gradients hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tfacct.architecture.parts import Experts, FeedForward, Norm
from tfacct.base.errors import ConfigError
from tfacct.ledger.kept import Held, Kept, Moment, Role, Run
from tfacct.profiles.base import Habits
from tfacct.profiles.transformers_layernorms import layer


class Activation(NamedTuple):
    """What an activation keeps beside its result, and how many gradients it holds, all as wide as its input."""

    keeps: tuple[str, ...] = ("in",)
    holds: int = 2


ACTIVATIONS: Mapping[str, Activation] = {
    "silu": Activation(),
    "swish": Activation(),
    "gelu": Activation(),
    "gelu_pytorch_tanh": Activation(),
    "gelu_new": Activation(keeps=("in", "half", "tanh", "sum"), holds=3),
    "gelu_fast": Activation(keeps=("in", "half", "tanh", "sum", "scaled", "cubic", "inner"), holds=3),
    "relu": Activation(keeps=()),
    "relu2": Activation(keeps=("relu",), holds=4),
}
"""torch's own activations keep their input, relu its result alone; `gelu_new` and `gelu_fast` are written out in Python
(transformers' NewGELUActivation and FastGELUActivation)."""
WRITTEN = 6
"""Tensors that the gradient of BloomGelu holds: its steps are torch's own operations, one after the other."""
STREAM = "stream"
"""The stream behind the last block."""


def norm(
    at: str,
    reads: str,
    part: Norm,
    *,
    full: bool,
    wide: bool = False,
    branches: bool = True,
    casts: bool = False,
    written: bool = False,
) -> Run:
    """A norm of the stream. torch's LayerNorm is one operation; the classes' RMSNorm is written out, in fp32.

    `full`: the pass is in fp32, where the copy is the stream itself.
    """
    if part.shared or not part.called:
        raise ConfigError("transformers: no rule for a norm that is shared or not called")
    if part.kind == "rms":
        copy = reads if full else f"{at}.upcast"
        run = rms(at, "", "D", copy=copy, branches=branches and reads != STREAM)
        if part.learned == "none":
            return bare(run)
        return scaled_wide(at, run, plus_one=part.less_one, casts=casts) if part.less_one or wide else run
    return layer(at, reads, part, full=full, written=written)


def rms(
    at: str, heads: str, last: str, beside: tuple[Held, ...] = (), *, copy: str = "", branches: bool = False
) -> Run:
    """transformers' LlamaRMSNorm over the axis `last`: an fp32 copy, its square, a root, products.

    `copy` names the copy. `beside`: gradients that wait meanwhile. `branches`: its input goes elsewhere too, and in
    fp32, where it is not copied, its gradient is added to what is there.
    """
    one = " ".join(filter(None, ("B T", heads)))
    every = f"{one} {last}"
    squared = (Held(every, "full", 4), Held(every, "copy")) if branches else (Held(every, "full", 5),)
    square, root, scale, weight = (f"{at}.{name}" for name in ("square", "root", "scale", "weight"))
    return Run(
        (square, root, scale, weight),
        (
            Kept(copy or f"{at}.upcast", every, by=(square, scale), role="upcast"),
            Kept(f"{at}.rms", one, by=(root, scale), role="full"),
            Kept(f"{at}.scaled", every, by=(weight,)),
        ),
        (
            # The weight's gradient is summed last: made again for it, what it scaled is gone by then.
            Moment(weight, (Held(every, times=3), *beside), done=False),
            Moment(weight, (Held(every, times=3), *beside), after=True),
            Moment(square, (*squared, *beside)),
        ),
        (Moment(weight, (Held(every, "copy"), Held(one, "full"), Held(every))),),
    )


def bare(run: Run) -> Run:
    """An RMSNorm without a weight: what it scales is its result."""
    square, root, scale, _ = run.order
    upcast, rms_, _ = run.kept
    made, each = Held(upcast.spec, "full"), Held(rms_.spec, "full")
    ahead = (Moment(scale, (made, each, Held(upcast.spec, "cast"))),) if run.ahead else ()
    return Run((square, root, scale), (upcast, rms_), run.moments[-1:], ahead)


def scaled_wide(
    at: str,
    run: Run,
    last: str = "D",
    beside: tuple[Held, ...] = (),
    *,
    heads: str = "",
    plus_one: bool = False,
    casts: bool = False,
) -> Run:
    """An RMSNorm whose weight scales in fp32, before the cast; `plus_one`: it is stored less 1, as Gemma's is; `casts`:
    it is cast to fp32 itself."""
    weight, every = run.order[-1], " ".join(filter(None, ("B T", heads, last)))
    upcast, root, _ = run.kept
    scaled = Kept(f"{at}.scaled", every, by=(weight,), role="full")
    made, multiplied = f"{at}.plus_one" if plus_one else f"{at}.scales", f"{at}.multiplied"
    cast = Kept(made, last, by=(multiplied,), role="full" if plus_one else "copy")  # for what it scales, frozen or not
    own = (scaled, cast) if plus_one or casts else (scaled,)
    variance = () if plus_one else (Held("B T", "full"),)
    return Run(
        (*run.order[:-1], multiplied, weight),
        (upcast, root, *own),
        (Moment(weight, (Held(every, "full", 3), Held(last, "cast"), *beside)), run.moments[-1]),
        (Moment(weight, (Held(every, "full"), Held(every, "cast"), *variance)),),
    )


def network(
    at: str,
    reads: str,
    part: FeedForward,
    beside: tuple[Held, ...] = (),
    *,
    stream: bool = False,
    fused: bool = False,
    written: bool = False,
) -> Run:
    """A feed-forward network; gated, its activated half multiplies the other. `beside`: gradients behind it.

    `stream`: it reads the stream itself, whose gradient takes up that of what up_proj read. `fused`: gate and up are
    halves of one product. `written`: the activation's gradient is written out in Python.
    """
    if part.norm is not None or part.activation not in ACTIVATIONS:
        raise ConfigError(f"transformers: no rule for a network with the activation {part.activation!r}")
    up, down, act = f"{at}.up_proj.weight", f"{at}.down_proj.weight", f"{at}.act"
    held = Held("B T F", times=WRITTEN if written else ACTIVATIONS[part.activation].holds)
    if not part.gated:
        return Run(
            (up, act, down),
            (Kept(reads, "B T D", by=(up,)), *activated(act, f"{at}.up_proj", part.activation, "B T F", (down,))),
            (
                Moment(down, (Held("B T F"), *beside)),
                Moment(act, (held,)),
                Moment(up, (Held("B T F"), Held("B T D"))),
            ),
        )
    gate, product = f"{at}.gate_proj.weight", f"{at}.product"
    if fused:
        return _halves(at, reads, part, beside)
    apart = () if stream else (Held("B T D"),)
    return Run(
        (gate, act, up, product, down),
        (
            Kept(reads, "B T D", by=(gate, up)),
            *activated(act, f"{at}.gate_proj", part.activation, "B T F", (product,)),
            Kept(f"{at}.up_proj", "B T F", by=(product,)),
            Kept(f"{at}.product", "B T F", by=(down,)),
        ),
        (
            Moment(down, (Held("B T F"), *beside)),
            Moment(product, (Held("B T F", times=3),)),
            Moment(up, (Held("B T F", times=2), Held("B T D"))),
            *((Moment(up, (Held("B T F"), Held("B T D", times=2))),) if stream else ()),
            Moment(act, (held, *apart)),
            Moment(gate, (Held("B T F"), Held("B T D"), *apart)),
        ),
    )


def _halves(at: str, reads: str, part: FeedForward, beside: tuple[Held, ...]) -> Run:
    """A gated network whose gate and up are halves of one product: both stay until the activation is done with."""
    gate, up, down = (f"{at}.{which}_proj.weight" for which in ("gate", "up", "down"))
    act, product, split = (f"{at}.{which}" for which in ("act", "product", "split"))
    return Run(
        (gate, up, split, act, product, down),
        (
            Kept(reads, "B T D", by=(gate, up)),
            *activated(act, f"{at}.gate_proj", part.activation, "B T F", (product,)),
            Kept(f"{at}.up_proj", "B T F", by=(act, product)),
            Kept(f"{at}.product", "B T F", by=(down,)),
        ),
        (
            Moment(down, (Held("B T F"), *beside)),
            Moment(product, (Held("B T F", times=3),)),
            Moment(act, (Held("B T F", times=1 + ACTIVATIONS[part.activation].holds),)),
            Moment(split, (Held("B T F", times=4),)),
            Moment(gate, (Held("B T F", times=2), Held("B T D"))),
        ),
    )


def activated(act: str, reads: str, name: str, spec: str, by: tuple[str, ...]) -> Iterator[Kept]:
    """What an activation keeps, and its result, which `by` need."""
    own = ACTIVATIONS[name].keeps
    for which in own:
        yield Kept(reads if which == "in" else f"{act}.{which}", spec, by=(act,))
    yield Kept(f"{act}.result", spec, by=by if own else (act, *by))


def experts(at: str, reads: str, part: Experts, habits: Habits) -> Run:
    """Experts as transformers' grouped products run them: tokens in the order of their experts, none dropped."""
    if part.shared_width is not None or part.bias or part.activation not in ACTIVATIONS:
        raise ConfigError("transformers: no rule for experts with biases or beside a shared network")
    router, own = f"{at}.router.weight", f"{at}.experts"
    routing, sent, ordered = f"{at}.router.softmax", f"{own}.sent", f"{own}.order"
    gate, up, down = (f"{own}.{which}_proj.weight" for which in ("gate", "up", "down"))
    act, product, share, back, grouped = (f"{own}.{name}" for name in ("act", "product", "share", "back", "grouped"))
    width: Role = "work" if habits.narrow_shares else "full"
    summed = (
        Kept(f"{at}.sum", "B T", by=(routing,), role="full"),
        Kept(f"{at}.shares", "B T A", by=(routing,), role="full"),
    )
    wide, alone = width == "full", (Held("B T D", "full", 2), Held("B T D"))  # one expert's result, the sum, its cast
    shares = Held("B T A", width)  # the gradient of what a token's experts are weighted by
    # The gradient of each expert's result: of one it is the stream's, unless it is cast.
    each: tuple[Held, ...] = (Held("B T A D", width),)
    if part.active == 1 and not habits.scales_results:
        each = (Held("B T A D", "copy"),) if wide else ()
    there = (Held("B T A D", path=sent),)  # what experts read: the function's, where frozen banks need it not
    behind = (
        Held("B T E", "full" if habits.chosen_first else "work"),
        shares,
        Held("B T A", "index"),
        Held("B T A", "short"),
        Held("E", "short"),
    )
    run = Run(
        (router, routing, sent, ordered, grouped, gate, up, act, product, down, share, back),
        (
            Kept(reads, "B T D", by=(router,)),
            Kept(f"{at}.routing", "B T A" if habits.chosen_first else "B T E", by=(routing,), role="full"),
            Kept(f"{at}.chosen", "B T A", by=(routing,), role="index"),
            *(summed if habits.shared_out else ()),
            Kept(f"{own}.tokens", "B T A", by=(sent,), role="index"),
            Kept(f"{own}.order", "B T A", by=(ordered,), role="index"),
            Kept(f"{own}.ends", "E", by=(grouped, gate, up, down), role="short"),  # whether banks are trained or not
            Kept(f"{own}.sent", "B T A D", by=(gate, up)),
            Kept(f"{own}.gate_and_up", "B T A Fe", by=(act, product), times=2),
            Kept(f"{own}.act.result", "B T A Fe", by=(product,)),
            Kept(f"{own}.product", "B T A Fe", by=(down,)),
            Kept(f"{own}.share", "B T A", by=(share,), role=width),
            Kept(f"{own}.down_proj", "B T A D", by=(share,)),
            Kept(back, "B T A", by=(back,), role="index"),
        ),
        (
            Moment(back, (Held("B T A D", width, 2), *each)),
            Moment(share, (Held("B T A D", width, 3),)),
            *((Moment(share, (Held("B T A D", width, 3), Held("B T A D", "cast")), after=True),) if wide else ()),
            Moment(down, (Held("B T A D"), Held("B T A Fe"), shares)),
            Moment(product, (Held("B T A Fe", times=3), shares)),
            Moment(gate, (Held("B T A Fe", times=2), Held("B T A D"), shares)),
            Moment(sent, (Held("B T A D"), Held("B T D", times=2), shares)),
            Moment(routing, (Held("B T D"), Held("B T E", "full", 2), shares)),
            Moment(router, (Held("B T D", times=2), Held("B T E"))),
        ),
        (
            Moment(down, (Held("B T A D"), Held("B T A Fe", path=f"{own}.product"), shares, *there, *behind)),
            # A block that runs again stops in front of the last: its index is there, and numbers that it was made of.
            Moment(back, (Held("B T A D", width), Held("B T A", "index"), *there, *behind)),
            Moment(back, (Held("B T A D", width, 2), *there, *behind), after=True),
            *((Moment(back, (*alone, *there, *behind), after=True),) if wide and part.active == 1 else ()),
        ),
        each,
    )
    if habits.exchanged:
        from tfacct.profiles.transformers_exchanged import exchanged

        return exchanged(at, reads, run, width)
    return run


def dropout(at: str) -> Run:
    """Numbers of the stream's width that are dropped: the mask is kept."""
    return Run((at,), (Kept(at, "B T D", by=(at,), role="flag"),), (Moment(at, (Held("B T D"),)),))


def beside(run: Run, *held: Held) -> Run:
    """A run beside which gradients wait in every moment of its backward pass."""
    return run._replace(moments=tuple(moment._replace(held=(*moment.held, *held)) for moment in run.moments))
