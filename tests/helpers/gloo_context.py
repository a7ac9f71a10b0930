"""Ranks that share a sequence: attention of a rank's tokens, compared with that of one process.

The ring is torch's; gathered keys and sharded heads are written here. `python -m tests.helpers.gloo_context RANK RANKS
STORE JOB` is one of several processes that send to one another by gloo.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.helpers.lazy import lazy

reference, torch, dist = lazy("tfacct.reference.ranks"), lazy("torch"), lazy("torch.distributed")
moves = lazy("torch.distributed._functional_collectives")
torchs = lazy("torch.distributed.tensor.experimental._context_parallel._attention")
SECONDS = 600
"""How long ranks may take: each imports torch, on cores that others use too."""


def pieces_of(rank: int, ranks: int, tokens: int, both: bool) -> Any:
    """Numbers of a rank's tokens: a piece from the front and one from the back, or one piece."""
    if not both:
        return torch.arange(tokens).chunk(ranks)[rank]
    cut = torch.arange(tokens).chunk(2 * ranks)
    return torch.cat([cut[rank], cut[2 * ranks - 1 - rank]])


def kernel(q: Any, k: Any, v: Any, is_causal: bool, **_: Any) -> Any:
    """The attention of a CPU, in the call that torch's ring makes."""
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal)


def backward(**given: Any) -> Any:
    names = ("grad_out", "query", "key", "value", "out", "logsumexp")
    op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return op(*(given[name] for name in names), 0.0, given["is_causal"])


def balanced(torchs: Any, *, causal: bool) -> None:
    """torch's ring, for the whole process: under a mask each rank has a piece of either end."""
    torchs._cp_options.rotate_method, torchs._cp_options.enable_load_balance = torchs._RotateMethod.ALL_TO_ALL, causal


def ring(q: Any, k: Any, v: Any, slope: Callable[[Any], Any], causal: bool) -> Any:
    """torch's ring, keys and values from rank to rank."""
    balanced(torchs, causal=causal)
    group = dist.group.WORLD
    out, logsumexp = torchs._templated_ring_attention(group, 2, kernel, q, k, v, is_causal=causal)

    def back() -> Any:
        return torchs._templated_ring_attention_backward(
            group, 2, backward, slope(out), "grad_out", q, k, v, out, logsumexp, causal
        )[:3]

    return out, back


def gather(q: Any, k: Any, v: Any, slope: Callable[[Any], Any], seen: Any) -> Any:
    """Keys and values of all ranks; they are gathered again for the backward pass."""
    group = dist.group.WORLD

    def whole() -> list[Any]:
        return [moves.all_gather_single(one, 2, group).clone().requires_grad_() for one in (k, v)]

    def attended(query: Any, keys: Any, values: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(query, keys, values, attn_mask=seen)

    out = attended(q, *whole()).detach()

    def back() -> Any:
        query, (keys, values) = q.clone().requires_grad_(), whole()
        attended(query, keys, values).backward(slope(out))
        shares = [moves.reduce_scatter_single(one.grad, "sum", 2, group) for one in (keys, values)]
        return query.grad, *(share.clone() for share in shares)

    return out, back


def heads(q: Any, k: Any, v: Any, slope: Callable[[Any], Any], causal: bool) -> Any:
    """Exchange all heads of some tokens for some heads of all tokens."""
    group, ranks = dist.group.WORLD, dist.get_world_size()

    def moved(one: Any, cut: int, joined: int) -> Any:
        parts = torch.stack(one.chunk(ranks, cut)).contiguous()
        return torch.cat([*moves.all_to_all_single(parts, None, None, group).clone()], joined)

    q, k, v = (moved(one, 1, 2).requires_grad_() for one in (q, k, v))
    whole = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    out = moved(whole.detach(), 2, 1)

    def back() -> Any:
        whole.backward(moved(slope(out), 1, 2))
        return tuple(moved(one.grad, 2, 1) for one in (q, k, v))

    return out, back


def attended(job: dict[str, Any], rank: int, ranks: int, sent: Callable[[str, str, int], None]) -> list[Any]:
    """The attention of a rank's tokens and its gradients; `sent` gets pass, kind and bytes of each collective."""
    method, tokens, causal = job["method"], job["tokens"], job["causal"]
    torch.manual_seed(0)
    whole = [torch.randn(job["batch"], count, tokens, 4) for count in (job["heads"], job["kv"], job["kv"])]
    own = pieces_of(rank, ranks, tokens, both=method != "ulysses" and causal)
    q, k, v = (one[:, :, own] for one in whole)

    def slope(out: Any) -> Any:
        return 2 * out

    def watched(when: str) -> Any:
        def record(_: str, kind: str, size: int) -> None:
            sent(when, "send" if method == "ring" else kind, size)

        return reference.watching(reference.KINDS, record)

    with watched("forward"):
        if method == "gather":
            order = torch.cat([pieces_of(other, ranks, tokens, both=causal) for other in range(ranks)])
            out, back = gather(q, k, v, slope, order[None] <= own[:, None] if causal else None)
        else:
            out, back = (ring if method == "ring" else heads)(q, k, v, slope, causal)
    with watched("backward"):
        slopes = back()
    alone = [one.clone().requires_grad_() for one in whole]
    expected = torch.nn.functional.scaled_dot_product_attention(*alone, is_causal=causal)
    expected.backward(slope(expected.detach()))
    return [(out, expected[:, :, own]), *((mine, one.grad[:, :, own]) for mine, one in zip(slopes, alone, strict=True))]


def reports_of_ranks(ranks: int, folder: Path, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What each rank prints last. All must exit with 0."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    start = [sys.executable, "-W", "ignore", "-m", __name__]
    processes = [
        subprocess.Popen(
            [*start, str(rank), str(ranks), str(folder / "store"), json.dumps(job)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    printed = [process.communicate(timeout=SECONDS) for process in processes]
    failed = [error[-2000:] for process, (_, error) in zip(processes, printed, strict=True) if process.returncode]
    assert not failed, failed
    for out, _ in printed:
        yield json.loads(out.splitlines()[-1])


def main(rank: int, ranks: int, file: str, job: dict[str, Any]) -> None:
    """Print what a rank sends, and how far its results are from those of one process. It leaves when all have come to
    the end: the first rank that passes a barrier and exits closes connections from which others still read, which gloo
    takes for an error."""
    torch.set_num_threads(1)
    store = dist.FileStore(file, ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    counts: list[tuple[str, str, int]] = []
    pairs = attended(job, rank, ranks, lambda *one: counts.append(one))
    apart = max(float((mine - one).detach().abs().max() / one.detach().abs().max()) for mine, one in pairs)
    print(json.dumps({"counts": counts, "apart": apart}))
    dist.barrier()
    store.add("left", 1)
    while store.add("left", 0) < ranks:
        time.sleep(0.01)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
