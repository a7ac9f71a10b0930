"""`Model.evaluate` on arrays of other libraries gives the same numbers, by their own operations. Kind: law,
refusal.
"""

from typing import Any

import numpy as np
import pytest

from tfacct import TfacctError, load

SMALL = np.arange(1, 20_001)
HEADS = np.array([1, 2, 4, 8, 16, 32])
KNOBS: dict[str, tuple[str, dict[str, np.ndarray[Any, Any]]]] = {
    "context": ("llama-3.1-8b", {"ctx": SMALL}),
    "windows": ("gemma-3-1b", {"ctx": SMALL}),
    "two forms": ("deepseek-v3", {"ctx": SMALL, "tokens": np.minimum(SMALL, 300)}),
    "experts": ("mixtral-8x7b", {"ctx": SMALL, "tokens": SMALL, "batch": SMALL % 7 + 1}),
    "heads": ("llama-3.1-8b", {"num_key_value_heads": HEADS}),
    "axes": ("llama-3.1-8b", {"F": SMALL, "L": SMALL % 90 + 1}),
    "table": ("t5-small", {"ctx": SMALL[:50, None], "batch": SMALL[None, :70]}),
}
METRICS = ("total_flops", "kv_cache_bytes", "share.attn", "total_params", "total_read_bytes")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", KNOBS)
def test_dask_gives_numpys_numbers_and_computes_nothing_before(name: str, metric: str) -> None:
    da = pytest.importorskip("dask.array")
    model, knobs = KNOBS[name]
    computed = []

    def seen(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        computed.append(block.size)
        return block

    lazy = {
        knob: da.from_array(values, chunks=3_000).map_blocks(seen, dtype=values.dtype, meta=values[:0])
        for knob, values in knobs.items()
    }
    asked: dict[str, Any] = {"masked": metric == "total_flops", "dtype": "bf16"}
    found: Any = load(model).evaluate(metric, **asked, **lazy)
    assert isinstance(found, da.Array) and computed == []
    wanted = load(model).evaluate(metric, **asked, **knobs)
    assert found.shape == wanted.shape and found.dtype == np.float64
    assert np.array_equal(found.compute(), wanted) and computed


def test_a_million_points_in_chunks() -> None:
    da = pytest.importorskip("dask.array")
    contexts = da.arange(1, 1_000_001, chunks=50_000)
    found: Any = load("llama-3.1-8b").evaluate("total_flops", ctx=contexts)
    assert found.npartitions == 20 and found.size == 1_000_000
    at = np.array([0, 8_191, 999_999])
    # docs/python.md: 158,140,695,838,720 at 8,192 tokens
    assert found.vindex[at].compute().tolist() == load("llama-3.1-8b").evaluate("total_flops", ctx=at + 1).tolist()
    assert int(found[8_191].compute()) == 158_140_695_838_720


def test_impossible_points_have_no_number() -> None:
    """Lazy arrays cannot be refused before they are computed."""
    da = pytest.importorskip("dask.array")
    model = load("llama-3.1-8b")

    def none(**knobs: Any) -> list[bool]:
        lazy = {name: da.from_array(np.array(values), chunks=2) for name, values in knobs.items()}
        found: Any = model.evaluate("total_flops", **lazy)
        return [bool(value) for value in np.isnan(found.compute())]

    assert none(ctx=[0, 1, -3, 5]) == [True, False, True, False]
    assert none(ctx=[1.5, 2.0]) == [True, False]
    assert none(ctx=[5, 5], tokens=[5, 6]) == [False, True]
    assert none(num_key_value_heads=[3, 4]) == [True, False]
    assert none(H=[63, 64]) == [True, False]
    with pytest.raises(TfacctError, match="no argument 'context'"):
        none(context=[1])
    with pytest.raises(TfacctError, match="exact results need Python integers"):
        model.evaluate("total_flops", ctx=da.arange(1, 5, chunks=2), exact=True)
    with pytest.raises(TfacctError, match="ctx must be whole numbers in an array that can hold float64, not bool"):
        model.evaluate("total_flops", ctx=da.ones(4, dtype=bool))


@pytest.mark.parametrize("name", [name for name in KNOBS if name != "experts"])
def test_the_array_standard_is_enough(name: str) -> None:
    """A library that has nothing but what the standard asks for."""
    xp = pytest.importorskip("array_api_strict")
    model, knobs = KNOBS[name]
    given = {knob: xp.asarray(values) for knob, values in knobs.items()}
    for metric in ("total_flops", "kv_cache_bytes", "total_params"):
        found: Any = load(model).evaluate(metric, **given)
        assert type(found) is type(xp.asarray(1)) and found.dtype == xp.float64
        assert np.array_equal(np.from_dlpack(found), load(model).evaluate(metric, **knobs))


def test_pandas_and_lists_give_numpys_arrays() -> None:
    pandas = pytest.importorskip("pandas")
    model = load("gpt2")
    wanted = model.evaluate("total_flops", ctx=np.array([1024, 2048, 4096]))
    for given in (pandas.Series([1024, 2048, 4096]), [1024, 2048, 4096], "1k..4k"):
        assert type(found := model.evaluate("total_flops", ctx=given)) is np.ndarray and (found == wanted).all()
