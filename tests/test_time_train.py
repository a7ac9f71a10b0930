"""Estimates of training steps under FSDP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tfacct
from tfacct.accounts import training_time
from tfacct.accounts.kernels import Kernel
from tfacct.accounts.training_time import TRAINING, Trained, Work
from tfacct.base.errors import TfacctError
from tfacct.loading import devices

A100, H100 = devices.load("a100-sxm-80gb"), devices.load("h100-sxm")
MPT = tfacct.load("mpt-7b")


def test_a_step_by_hand() -> None:
    # Products of one second at the peak, attention of one, the head of one, shares of 1 and nothing else: 3 + 3.5 + 3;
    # with recomputation 4 + 4.5 + 3.
    peak = A100.peak["bf16"]
    forward = [
        Kernel("mlp.up_proj", "gemm", 1, flops=peak),
        Kernel("attn.attention", "attention", 1, flops=peak),
        Kernel("lm_head", "gemm", 1, flops=peak),
    ]
    free = replace(TRAINING, products=1.0, attention=1.0, launch=0.0, optimizer=0.0, step=0.0)
    work, trained = Work(forward, 0, 0), Trained(1, 1)
    assert training_time.step(work, A100, trained, free).seconds == pytest.approx(9.5)
    assert training_time.step(work, A100, replace(trained, recompute=True), free).seconds == pytest.approx(11.5)
    assert training_time.step(work, A100, replace(trained, accumulate=2), free).seconds == pytest.approx(19)


def test_gathers_by_hand() -> None:
    # Of 10^9 parameters 8 devices gather 2 GB twice and scatter as much, less their own eighth: 5.25 GB at 300 GB/s.
    work, free = Work([], 0, 10**9), replace(TRAINING, link=1.0)
    assert training_time.step(work, A100, Trained(1, 1, 8), free).gathers == pytest.approx(5.25e9 / 300e9)
    assert training_time.step(work, A100, Trained(1, 1, 1), free).gathers == 0


def test_what_a_step_says() -> None:
    step = MPT.train_time(on="8xa100-sxm-40gb", ctx="2k", batch=6, accumulate=4, recompute=True, tokens_total=10**12)
    assert sum(step.parts_seconds.values()) == pytest.approx(step.value_seconds)
    assert step.tokens_per_second_each == pytest.approx(4 * 6 * 2048 / step.value_seconds)
    assert step.days == pytest.approx(10**12 / (8 * step.tokens_per_second_each) / 86_400)
    # The same as `mfu` has it: FLOPs of a training step for each token, over 312 TFLOP/s.
    flops = MPT.flops(ctx=2048, train=True).total_flops / 2048
    assert step.mfu == pytest.approx(flops * step.tokens_per_second_each / 312e12)
    assert step.constant_utilization_seconds == pytest.approx(step.value_seconds * step.mfu / 0.463)
    assert step.estimate is True and step.interval_80_seconds[0] < step.value_seconds < step.interval_80_seconds[1]
    said = " ".join(step.notes)
    assert "78 of them on this device" in said and "a strong baseline" in said
    assert step.answer.startswith("≈")


def test_recomputation_and_fp8_change_the_step() -> None:
    times = [MPT.train_time(on="8xh100-sxm", ctx=2048, batch=4, **how).value_seconds for how in (
        {"dtype": "fp8"}, {}, {"recompute": True})]  # fmt: skip
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("model", "asked", "message"),
    [
        ("qwen3-30b-a3b", {"on": "8xh100-sxm"}, "no training step with experts was measured"),
        ("mamba-130m", {"on": "h100-sxm"}, "no kernel is known for mamba"),
        ("t5-small", {"on": "h100-sxm"}, "no estimate of its training step"),
        ("bert-base", {"on": "h100-sxm"}, "no estimate of its training step"),
        ("gpt2", {"on": "t4"}, "no bf16 units"),
        ("gpt2", {"on": "a100-sxm-80gb", "dtype": "fp8"}, "no fp8 units"),
        ("gpt2", {"on": "h100-sxm", "dtype": "int4"}, "in bf16 or fp8, not in int4"),
        ("gpt2", {"on": "h100-sxm", "accumulate": 0}, "at least 1"),
        ("gpt2", {"on": "2xrtx-pro-6000"}, "no link between devices is known"),
    ],
)
def test_what_is_refused(model: str, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(TfacctError, match=message):
        tfacct.load(model).train_time(**asked)


@pytest.mark.parametrize("on", ["mi300x", "tpu-v5p"])
def test_no_error_is_claimed_where_nothing_was_measured(on: str) -> None:
    step = MPT.train_time(on=on, ctx=1024)
    assert step.validation is None and step.interval_80_seconds is None and "its error is not known" in step.notes[0]


@pytest.mark.parametrize(("model", "counted"), [("gpt2", True), ("mpt-7b", False), ("gpt-j-6b", False)])
def test_train_is_named_where_it_counts_the_model(model: str, counted: bool) -> None:
    said = " ".join(" ".join(tfacct.load(model).train_time(on="8xh100-sxm").notes).split())
    assert ("counts whether a step fits" in said) == counted
    assert ("fits is not counted" in said) != counted


def test_steps_of_another_maker_are_not_the_same_steps() -> None:
    said = " ".join(" ".join(tfacct.load("gpt2").train_time(on="8xmi300x").notes).split())
    assert "erred 13.1% on steps measured on devices of NVIDIA" in said and "same steps" not in said
