"""Costs of one rank, the whole beside them: `kv --tp`, `flops --tp`, `flops --bytes --tp`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tfacct
from tests.conftest import Ran
from tests.test_sharding_sums import SOME, even
from tfacct.accounts.sharding.mesh import Mesh
from tfacct.loading import presets

LARGE = "llama-3.1-70b"


def cache_adds_up(name: str) -> int:
    """Number of meshes that divide a preset evenly, all of whose ranks keep the whole cache between them."""
    model, count = tfacct.load(name), 0
    for tp in (2, 4, 8):
        if even(model.loaded, Mesh(tp=tp)):
            count += 1
            one, latent = model.kv(ctx=512, tp=tp), model.kv(ctx=512).models[0]["kv_heads"] is None
            # A latent is whole on every rank; keys and values are those of its heads.
            assert one.kv_cache_bytes * (1 if latent else tp) == one.whole["kv_cache_bytes"], (name, tp)
            assert one.kv_cache_bytes == model.memory(ctx=512, tp=tp).kv_cache_bytes
    return count


@pytest.mark.parametrize("name", [name for name in SOME if name != "gpt2"])  # its vocabulary is padded
def test_ranks_keep_the_whole_cache(name: str) -> None:
    assert cache_adds_up(name) > 0


@pytest.mark.slow
def test_ranks_of_every_preset_keep_the_whole_cache() -> None:
    assert sum(cache_adds_up(name) > 0 for name in presets.names()) >= 150


def test_a_rank_keeps_its_heads() -> None:
    one = tfacct.load(LARGE).kv(ctx="8k", tp=8)
    # 80 blocks, keys and values of 1 of 8 heads of 128 numbers, in bf16.
    assert one.kv_bytes_per_token == 80 * 2 * 128 * 2
    assert (
        one.lines[-1]["whole"] == one.whole["kv_cache_bytes"] == 8 * one.kv_cache_bytes == 8192 * 80 * 2 * 8 * 128 * 2
    )
    # Of sixteen ranks two have each head.
    assert tfacct.load(LARGE).kv(ctx="8k", tp=16).kv_cache_bytes == one.kv_cache_bytes
    assert "whole" not in tfacct.load(LARGE).kv(ctx="8k").models[0]


def test_the_cache_of_a_rank_is_said(run: Callable[..., Ran]) -> None:
    out = run("kv", LARGE, "--tp", "16", "--ctx", "8k").out
    words = " ".join(out.split())
    assert "KV cache in bf16 on one of 16 ranks" in words and "whole" in words
    assert "2 · L · B · S · ⌈K / 16⌉ · H · bytes" in words
    assert "Of 8 key/value heads each is on 2 ranks" in words
    assert "A latent is whole on every rank" in run("kv", "deepseek-v3", "--tp", "8").out


@pytest.mark.parametrize("command", [("kv",)])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            f"{LARGE} --tp 3",
            "--tp 3 does not divide K = 8 (key/value heads), N = 64 (query heads) sizes that divide all: 1, 2, 4, 8",
        ),
        ("mamba-130m --tp 2", "no rule for Mamba on a mesh"),
        (f"{LARGE} --tp 0", "--tp must be at least 1, not 0"),
        (f"{LARGE} --tp 2 --explain", "--explain does not go with --tp"),
    ],
)
def test_what_ranks_do_not_divide_is_refused(
    run: Callable[..., Ran], command: tuple[str, ...], arguments: str, said: str
) -> None:
    ran = run(command[0], *arguments.split(), *command[1:])
    words = " ".join(ran.err.split()).replace("hint: ", "")
    assert ran.code == 2 and said in words and "Traceback" not in words, words
