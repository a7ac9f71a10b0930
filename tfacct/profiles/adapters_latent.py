"""Adapters on the products of latent attention: what they read, and what waits beside each while gradients come back.

The products run in this order: queries, by a latent of their own or not, the latent down, keys and values up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tfacct.ledger.kept import TURNS, Held, Moment

AT = "blocks.*.attn"
DOWN, QUERIES, KEYS = f"{AT}.kv_a_proj", f"{AT}.joined", f"{AT}.k_turned"
"""The product down; the last operations of queries and of keys."""
UP = tuple(f"{AT}.{which}_b_proj" for which in "kv")
"""The product up: that of keys and that of values, which the class has in one."""
WEIGHT = ".weight"
STREAM = Held("B T D")
QUERY = (Held("B T N Hq"), Held("B T N Hr"))
"""Of queries, and of what is turned of them: tensors and gradients."""
TURNED, LATENT = Held("B T Hr"), Held("B T Rs", "cast")
"""What is turned of keys; the latent beside it, which in fp32 is kept."""
OF_KEYS = (TURNED, Held("B S Hr"), Held("B S N Hr"), Held("B S R"))
"""Gradients of what the product down has made."""
BACKWARD = (f"{AT}.k_plain", f"{AT}.k_turned", QUERIES, f"{AT}.kv_a_norm.", f"{AT}.q_a_norm.", f"{AT}.q_split")
"""Operations whose moments hold gradients of queries and of keys, whichever are needed."""
READ = {
    "q_b_proj": (Held("B T Rq", path=f"{AT}.q_a_norm"),),
    "k_b_proj": (Held("B T R", path=f"{AT}.kv_a_norm"), Held("B T N Hq", path=f"{AT}.queries")),
}
"""What products read, and what the class's function has beside them, kept or not."""
MADE = {
    "kv_a_proj": (QUERY[0],),
    "k_b_proj": (*QUERY, TURNED, LATENT),
}
"""What it has made, and nothing keeps."""


def sources(order: frozenset[str]) -> Mapping[str, tuple[str, ...]]:
    """For operations of latent attention that read not, or not alone, the result of the one before: those whose results
    they read."""
    if DOWN + WEIGHT not in order:
        return {}
    k, v = (f"{path}{WEIGHT}" for path in UP)
    latent, split = f"{AT}.kv_a_norm{WEIGHT}", f"{AT}.q_split"
    return {
        DOWN + WEIGHT: (f"{AT}_norm{WEIGHT}",),
        QUERIES: (split,),
        **dict.fromkeys(TURNS, (split, DOWN + WEIGHT)),
        k: (latent,),
        v: (latent,),
        f"{AT}.k_plain": (k,),
        KEYS: (k, DOWN + WEIGHT),
        f"{AT}.scores": (QUERIES, KEYS),
        f"{AT}.values": ("", v),
        f"{AT}.sdpa": (QUERIES, KEYS, v),
    }


def waits(product: str, live: frozenset[str], on: frozenset[str]) -> tuple[Held, ...]:
    """Gradients that are there while one of its products' comes back, beside those of what it makes."""
    leaf = product.rpartition(".")[2]
    queries = QUERY if QUERIES in live else ()
    if leaf == "k_b_proj":
        return (*queries[:1], *((Held("B S Hr"),) if _down(live, on) else ()))
    if leaf == "kv_a_proj":
        return queries
    return (STREAM,) if leaf == "q_b_proj" and DOWN + WEIGHT in live else ()


def of_latent(moment: Moment, live: frozenset[str], on: frozenset[str]) -> Moment:
    """A moment of latent attention's backward pass: gradients that nothing needs are not there."""
    if not moment.at.startswith(BACKWARD):
        return moment
    gone: tuple[Held, ...] = () if QUERIES in live else QUERY
    gone += () if _down(live, on) else OF_KEYS
    gone += () if DOWN + WEIGHT in live else (STREAM,)
    return moment._replace(held=tuple(held for held in moment.held if held._replace(times=1) not in gone))


def _down(live: frozenset[str], on: frozenset[str]) -> bool:
    """True if what the product down has made needs a gradient."""
    return DOWN in on or DOWN + WEIGHT in live


def there(product: str, *, read: bool) -> Iterator[Held]:
    """What the class's function has beside one of its products while that runs forwards: what it `read`, or made."""
    yield from (READ if read else MADE).get(product.rpartition(".")[2], ())
