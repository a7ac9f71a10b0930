"""DeepSeek-V4: compressed keys, as published and by hand. Kind: golden, refusal."""

import pytest

from tests.families import TINY
from tests.helpers.models import tiny
from tfacct import load
from tfacct.accounts.memory import cache_bytes
from tfacct.ledger.einsum import compressed_pairs
from tfacct.ledger.storage import width
from tfacct.ledger.workload import Workload


def test_parameters_and_cache_by_hand_and_as_published() -> None:
    """284 B and 1.6 T parameters, 13 B and 49 B of them active: the model cards. 9.62 GiB in bf16 for a sequence of 1M
    tokens, of V4-Pro: what was reported of it when it came out."""
    flash, pro = load("deepseek-v4-flash"), load("deepseek-v4-pro")
    assert [round(model.params().total / 10**9) for model in (flash, pro)] == [284, 1573]
    active = [sum(model.loaded.ledger.active_parameters().values()) for model in (flash, pro)]
    assert [count // 10**9 for count in active] == [13, 49]
    assert round(pro.kv(ctx=2**20).total / 2**30, 2) == 9.62
    # After 11 tokens: in three layers a window of 7 keys of 22 numbers. Keys of 2 tokens: five, with 15 numbers each
    # of the indexer; one token is pending with its weights, 44 and 30 numbers, and of the last key's two tokens one
    # share, 22 and 15, with its weights. Keys of 4 tokens: two, and three tokens are pending, with their weights.
    states = tiny("deepseek_v4").ledger.states(Workload(context=11, tokens=1).axes())
    light = 5 * (22 + 15) + 2 * (44 + 30) + 2 * 2 * (22 + 15)
    heavy = 2 * 22 + 2 * 3 * 22
    assert sum(states.values()) == 3 * 7 * 22 + light + heavy
    full = tiny("deepseek_v4").ledger.states(Workload(context=12, tokens=1).axes())
    assert sum(full.values()) < sum(states.values()), "no token is pending"


@pytest.mark.parametrize("rate", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("most", [None, 1, 2, 4])
def test_pairs_with_compressed_keys_equal_a_count(rate: int, most: int | None) -> None:
    for keys in range(1, 17):
        for queries in range(1, keys + 1):
            seen = ((position + 1) // rate for position in range(keys - queries, keys))
            counted = sum(full if most is None else min(full, most) for full in seen)
            assert compressed_pairs(queries, keys, rate, most) == counted


def test_every_context_up_to_the_largest_fits() -> None:
    """Pending tokens take more than the key that they complete: the cache grows and shrinks again."""
    model = tiny("deepseek_v4")
    weights = load(TINY["deepseek_v4"]).memory(dtype="bf16").models[0]["weights_bytes"]
    for slack in (3_000, 20_001, 50_502):
        facts = load(TINY["deepseek_v4"]).memory(dtype="bf16", on=weights + slack).models[0]["fit"]
        sizes = [cache_bytes(model.ledger, Workload(n, 1).axes(), width("bf16")) for n in range(1, 2000)]
        within = next(n for n, size in enumerate(sizes) if size > slack)
        assert facts["largest_context"] == within


@pytest.mark.parametrize("bytes_", [700, 3_000, 20_001, 50_502])
def test_solve_names_the_last_context_of_an_unbroken_run_and_the_last_at_all(bytes_: int) -> None:
    """Compared with a count at every context."""
    ledger = tiny("deepseek_v4").ledger
    sizes = {n: cache_bytes(ledger, Workload(n, 1).axes(), width("bf16")) for n in range(1, 3000)}
    beyond = next(n for n, size in sizes.items() if size > bytes_)
    last = max(n for n, size in sizes.items() if size <= bytes_)
    solved = load(TINY["deepseek_v4"]).solve("ctx", f"kv_cache_bytes={bytes_}B")
    facts = solved.models[0]
    assert (facts["solution"], facts["beyond"], facts["again"]) == (beyond - 1, beyond, last if last > beyond else None)
    assert ("beyond that, only at some contexts" in solved.answer) == (last > beyond)


@pytest.mark.parametrize("contexts", ["4095,4096", "4095,4099"])
def test_a_shrinking_cache_has_no_bar(run, tmp_path, contexts: str) -> None:
    """A token that completes a key makes the cache smaller, and a bar has no negative length."""
    page = tmp_path / "page.html"
    options = ("--ctx", contexts, "--metric", "kv_bytes_next_token", "--output", str(page))
    lines = run("sweep", "deepseek-v4-flash", *options).out.splitlines()
    assert [line for line in lines if "4,095   -5.22 MiB" in line] == [" 4,095   -5.22 MiB"]
    assert 'width="-' not in page.read_text() and 'width="2' not in page.read_text()
