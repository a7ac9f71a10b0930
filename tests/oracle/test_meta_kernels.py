"""Torch's two kinds of meta kernels agree, and the faster ones run where no size is a symbol. Kind: law."""

import sys
from typing import Any

import pytest

from tests.families import TINY
from tests.helpers.lazy import lazy
from tests.helpers.models import in_whole_rows
from tfacct.loading.model import load_model

torch, kernels, step = lazy("torch"), lazy("tfacct.meta.kernels"), lazy("tfacct.meta.step")
meta_model = lazy("tfacct.meta.model")


@pytest.mark.parametrize(
    ("family", "attention", "recompute"),
    [
        *(("llama", "sdpa", "full"), ("gemma2", "eager", "none"), ("mixtral", "sdpa", "none")),
        *(("bart", "eager", "full"), ("bloom", "eager", "full")),
    ],
)
def test_a_step_saves_and_peaks_alike_with_both(family: str, attention: str, recompute: str) -> None:
    model = load_model(family, in_whole_rows(TINY[family]) if family == "mixtral" else TINY[family])

    def asked() -> tuple[Any, ...]:
        auto = model.config.task_head.auto
        built = meta_model.build_model(model.of_class, attention, "bf16", recompute=recompute, auto=auto)
        batch = meta_model.inputs(built, 3, 17, 16 if model.source else 0)
        return step.saved(built, batch), step.watch(built, batch).peak

    with kernels.of_symbols():
        assert not in_use()
        slow = asked()
    with kernels.compiled():
        assert in_use()
        assert asked() == slow


def in_use() -> bool:
    """True if a sum on meta runs the compiled kernel: the other is a function in Python."""
    calls = []
    one = torch.empty(2, 3, device="meta")
    sys.setprofile(lambda frame, *_: calls.append(frame.f_code.co_filename))
    try:
        one + one
    finally:
        sys.setprofile(None)
    return not any("_refs" in call for call in calls)


def test_the_kernels_are_restored() -> None:
    before = in_use()
    with kernels.compiled():
        with kernels.of_symbols():
            with kernels.compiled():
                assert not in_use()
            assert not in_use()
        assert in_use()
    assert in_use() == before


def test_another_torch_keeps_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfacct.meta.kernels._python_kernels", None)
    monkeypatch.setattr("tfacct.meta.kernels.LIBRARY", "_missing")
    before = in_use()
    with kernels.compiled():
        assert in_use() == before
