"""Times the operations of the reference model: matmuls, attention, copies and pointwise work, at a few sizes each.

Every case is timed in several rounds over all cases, and the fastest time counts: a shared machine is sometimes slow,
but never fast by chance. Weights of a matmul are in a pool larger than any cache, like those of a model that has run
all its other layers since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from tfacct.architecture.transformer import Transformer
from tfacct.reference import running
from tfacct.reference.attention import Softmax
from tfacct.reference.model import inputs
from tfacct.reference.modules import ACTIVATIONS, Add, LayerNorm, Product, RMSNorm

POOL = 2**26
"""Elements of the pool of weights; on a small device, a quarter of the free memory."""
ROWS = (1, 2, 8, 32, 128, 256)
SHAPES = ((512, 512), (1024, 1024), (2048, 2048), (1024, 8192), (512, 32768))
WARM = ((128, 128), (512, 512))
"""Weights of matmuls by inputs and outputs: read from memory, and from a cache."""
ELEMENTS = (2**9, 2**14, 2**18, 2**21)
TOKENS = (16, 64, 256, 1024)
KEYS = (32, 256, 2048)
SIZE, HEADS, GROUP = 64, 8, 4
"""Head size, query heads, and query heads per key/value head with sharing."""
WIDTH = 512
TABLES = ((1024, 512), (32768, 512))
ACTIVATED = {"gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu", "relu": "relu"}
MOST = 9e9
"""FLOPs of the largest matmul."""
ROUNDS, LONG = 4, 0.15
"""Rounds, and seconds after which a case gets no more rounds."""
LEAST = 1e-3
"""Seconds of work between two readings of the clock."""


@dataclass
class Case:
    """One kind of work at one size: its forward pass, and the forward and backward pass. `seconds`: of one of the
    `heads` that run at once."""

    kind: str
    size: int
    forward: Callable[[], object] | None
    train: Callable[[], object] | None
    shape: tuple[int, int, bool] = (0, 0, False)
    heads: int = 1
    seconds: dict[str, float] = field(default_factory=dict)


def clock_of(on: torch.device) -> str:
    """The clock of a device: events of a GPU's stream; on a CPU, process time with a single thread, because other
    processes do not affect it, else wall time."""
    if on.type == "cuda":
        return "events"
    return "process" if on.type == "cpu" and torch.get_num_threads() == 1 else "wall"


def seconds_of(run: Callable[[], object], on: torch.device) -> float:
    """Seconds of a run by the clock of the device."""
    if clock_of(on) != "process":
        return running.timed(run, on)[0]
    began = time.process_time()
    run()
    return time.process_time() - began


@dataclass
class Checked:
    """A whole pass of a reference model, timed together with the cases."""

    shape: Transformer
    sizes: dict[str, int]
    train: bool


def sweep(
    on: torch.device, of: torch.dtype, checked: Sequence[Checked], tick: Callable[[int, int], None]
) -> list[Case]:
    """All cases with their seconds, then each whole pass. Takes some seconds."""
    torch.manual_seed(0)
    free = running.free_bytes(on) // 4 // torch.empty(0, dtype=of).element_size()
    pool = torch.randn(min(POOL, free), dtype=of, device=on)
    cases = [*_products(pool), *_attention(on, of), *_work(on, of), *_tables(on, of), _copy(pool)]
    cases += [_full_pass(number, one, on, of) for number, one in enumerate(checked)]
    loops: dict[tuple[int, str], int] = {}
    spent: dict[tuple[int, str], float] = {}
    # the first run warms up, and determines how often a case runs between two readings
    for number in range(ROUNDS + 1):
        tick(number, ROUNDS + 1)
        for index, case in enumerate(cases):
            for name, run in (("forward", case.forward), ("train", case.train)):
                key = index, name
                if run is None or (spent.get(key, 0.0) > LONG and case.kind != "whole"):
                    continue
                if number == 0:
                    run()
                    loops[key] = max(1, min(500, round(LEAST / max(seconds_of(run, on), 1e-7))))
                    continue
                if case.kind == "whole":
                    run()  # as in the measurement: a pass after one of the same kind
                seconds = seconds_of(partial(_repeat, run, loops[key]), on)
                spent[key] = spent.get(key, 0.0) + seconds
                if seconds > 0:  # a coarse clock may not have moved
                    case.seconds[name] = min(case.seconds.get(name, seconds), seconds / loops[key] / case.heads)
    return cases


def _repeat(run: Callable[[], object], times: int) -> None:
    for _ in range(times):
        run()


def _full_pass(number: int, one: Checked, on: torch.device, of: torch.dtype) -> Case:
    model = running.prepare(one.shape, on, of, fused=False, logits="all")
    given = inputs(one.shape, **one.sizes, device=str(on), dtype=of)
    return Case("whole", number, partial(running.one_pass, model, given, one.train), None)


def _products(pool: Tensor) -> list[Case]:
    cases = []
    for cold, shapes in ((True, SHAPES), (False, WARM)):
        for k, n in shapes:
            count = max(1, pool.numel() // (k * n)) if cold else 1
            weights = [pool[i * k * n : (i + 1) * k * n].view(n, k) for i in range(count)]
            cases += [_product(weights, m, (k, n, cold)) for m in ROWS if 2 * m * k * n <= MOST]
    return cases


def _product(weights: Sequence[Tensor], m: int, shape: tuple[int, int, bool]) -> Case:
    like = weights[0]
    x = torch.randn(m, shape[0], dtype=like.dtype, device=like.device)
    learned = [weight.detach().requires_grad_() for weight in weights]
    read = x.clone().requires_grad_()
    gradient = torch.randn(m, shape[1], dtype=like.dtype, device=like.device)
    turn = 0

    def next_one() -> int:
        nonlocal turn
        turn = (turn + 1) % len(weights)
        return turn

    def forward() -> None:
        with torch.no_grad():
            nn.functional.linear(x, weights[next_one()])

    def train() -> None:
        weight = learned[next_one()]
        nn.functional.linear(read, weight).backward(gradient)  # type: ignore[no-untyped-call]
        weight.grad = read.grad = None

    return Case("product", m, forward, train, shape)


def _both(
    kind: str, size: int, run: Callable[..., Tensor | tuple[Tensor, ...]], given: Sequence[Tensor], heads: int = 1
) -> Case:
    learned = [one.requires_grad_() for one in given]

    def results() -> tuple[Tensor, ...]:
        found = run(*given)
        return found if isinstance(found, tuple) else (found,)

    with torch.no_grad():
        gradients = [torch.randn_like(one) for one in results()]

    def forward() -> None:
        with torch.no_grad():
            run(*given)

    def train() -> None:
        torch.autograd.backward(results(), gradients)
        for one in learned:
            one.grad = None

    return Case(kind, size, forward, train, heads=heads)


def _attention(on: torch.device, of: torch.dtype) -> list[Case]:
    """Attention with and without shared key/value heads: many new tokens, or one."""
    made = partial(torch.randn, dtype=of, device=on)
    cases = []
    for group, kind in ((1, "own"), (GROUP, "shared")):
        product = Product(group)

        def run(q: Tensor, k: Tensor, p: Tensor, v: Tensor, product: Product = product) -> tuple[Tensor, ...]:
            return product(q, k.transpose(2, 3)), product(p, v)

        for tokens in TOKENS:
            heads = HEADS if tokens <= TOKENS[2] else GROUP
            cached = made(1, heads // group, tokens, SIZE)
            given = (made(1, heads, tokens, SIZE), cached, made(1, heads, tokens, tokens), cached.clone())
            cases.append(_both(f"{kind}_heads", tokens, run, given, heads))
        for keys in KEYS:
            cached = made(1, HEADS // group, keys, SIZE)
            given = (made(1, HEADS, 1, SIZE), cached, made(1, HEADS, 1, keys), cached.clone())
            cases.append(_both(f"{kind}_token", keys, run, given, HEADS))
    softmax = Softmax(SIZE**-0.5)
    for tokens in TOKENS:
        heads = HEADS if tokens <= TOKENS[2] else GROUP
        mask = torch.full((tokens, tokens), float("-inf"), dtype=of, device=on).triu(1)
        scores = made(1, heads, tokens, tokens)
        cases.append(_both("softmax", scores.numel(), partial(softmax, mask=mask), (scores,)))
    return cases


def _work(on: torch.device, of: torch.dtype) -> list[Case]:
    made = partial(torch.randn, dtype=of, device=on)
    layer, rms, add = LayerNorm((WIDTH,), 1e-5), RMSNorm(WIDTH, 1e-6), Add()
    for module in (layer, rms):
        module.to(device=on, dtype=of)
        for parameter in module.parameters():
            nn.init.ones_(parameter)
    cases = []
    for elements in ELEMENTS:
        rows, by_head = elements // WIDTH, elements // SIZE // HEADS
        cases += [
            _both("layer_norm", elements, layer, [made(rows, WIDTH)]),
            _both("rms_norm", elements, rms, [made(rows, WIDTH)]),
            _both("add", elements, add, [made(rows, WIDTH), made(rows, WIDTH)]),
            _both("mean", elements, lambda x: x.float().mean(), [made(rows, WIDTH)]),
            _both("rearrange", elements, lambda x: x.transpose(0, 1).contiguous(), [made(HEADS, by_head, SIZE)]),
            _both(
                "join",
                elements,
                lambda one, more: torch.cat((one, more), dim=1),
                [made(HEADS, max(1, by_head - 1), SIZE), made(HEADS, 1, SIZE)],
            ),
            _both("rotary", elements, _turn(made, by_head), [made(HEADS, by_head, SIZE)]),
        ]
        for kind, name in ACTIVATED.items():
            cases.append(_both(kind, elements, ACTIVATIONS[name], [made(rows, WIDTH)]))
    return cases


def _turn(made: Callable[..., Tensor], tokens: int) -> Callable[[Tensor], Tensor]:
    from tfacct.architecture import parts
    from tfacct.reference.rotary import Rotary

    return partial(Rotary(parts.Rotary(base=1e4), SIZE), cos=made(tokens, SIZE), sin=made(tokens, SIZE))


def _tables(on: torch.device, of: torch.dtype) -> list[Case]:
    """The gradient of an embedding, and the sum of two tensors of its size, which a tied head needs."""
    cases = []
    for rows, width in TABLES:
        table = torch.randn(rows, width, dtype=of, device=on).requires_grad_()
        tokens = torch.zeros(64, dtype=torch.long, device=on)
        gradient = torch.randn(64, width, dtype=of, device=on)

        def train(table: Tensor = table, tokens: Tensor = tokens, gradient: Tensor = gradient) -> None:
            nn.functional.embedding(tokens, table).backward(gradient)  # type: ignore[no-untyped-call]
            table.grad = None

        one, other = torch.randn_like(table), torch.randn_like(table)
        cases.append(Case("table", rows * width, None, train))
        cases.append(Case("sum", rows * width, None, partial(torch.add, one, other)))
    return cases


def _copy(pool: Tensor) -> Case:
    half = pool.numel() // 2
    return Case("bandwidth", half, partial(pool[:half].copy_, pool[half : 2 * half]), None)
