"""`Meter`: MFU and HFU of a training loop, without torch and at about a microsecond a step."""

from __future__ import annotations

import warnings
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from tfacct.base.errors import UsageError

if TYPE_CHECKING:
    from tfacct.accounts.metrics import Recompute
    from tfacct.api.model_base import ModelBase, Source
    from tfacct.timing.utilization import Convention


class Reading(NamedTuple):
    """Utilization in a step, or in all steps so far, by `convention`.

    `mfu`: FLOPs that the tokens need, divided by what the peak allows in `seconds`. `hfu`: the same with recomputation.
    """

    mfu: float
    hfu: float
    tokens_per_second: float
    tokens: int
    seconds: float
    convention: str

    def named(self) -> dict[str, float]:
        """The numbers under names for a log that include the convention: `mfu_full`, `hfu_full`,
        `tokens_per_second`."""
        return {
            f"mfu_{self.convention}": self.mfu,
            f"hfu_{self.convention}": self.hfu,
            "tokens_per_second": self.tokens_per_second,
        }


class Meter:
    """MFU and HFU of training steps, from their tokens and seconds.

    >>> from tfacct import Meter
    >>> meter = Meter("llama-3.1-8b", peak="8x989T", ctx="8k", recompute="full")
    >>> step = meter.step(tokens=8 * 8192, seconds=1.0)
    >>> round(step.mfu, 4), round(step.hfu, 4), step.convention
    (0.4797, 0.5998, 'full')
    >>> {name: round(value, 3) for name, value in step.named().items()}
    {'mfu_full': 0.48, 'hfu_full': 0.6, 'tokens_per_second': 65536.0}
    """

    def __init__(
        self,
        config: ModelBase | Source,
        *,
        peak: float | str,
        ctx: int | str | None = None,
        dtype: str = "bf16",
        convention: Convention = "full",
        recompute: Recompute = "none",
        train: bool = True,
    ) -> None:
        """Count the FLOPs of a token once, and start the clock.

        `config`: a Model, or what `load` takes. `peak`: FLOP/s of all devices together (`989e12`, `"8x989T"`), or
        devices (`"8xh100-sxm"`), of which the peak in `dtype` is used. `ctx`: tokens of a sequence.
        `convention`: `"full"`, every product with all T × S pairs, or `"palm"`, 6·N + 12·L·H·Q·T per token.
        `recompute`: `"full"` or `"attention"` recomputes layers or their attention; HFU counts each recomputed matmul.
        `train=False`: forward passes only. Raises TfacctError.
        """
        from tfacct.api.utilization import peak_flops

        self.convention = convention
        self.peak = peak_flops(peak, dtype)
        self.flops_per_token, self.flops_per_token_again = _counted(config, ctx, train, convention, recompute)
        self._used = self.flops_per_token / self.peak
        self._ran = (self.flops_per_token + self.flops_per_token_again) / self.peak
        self._tokens, self._seconds = 0, 0.0
        self.start()

    def start(self) -> None:
        """Restart the clock, for example after an evaluation or a checkpoint."""
        self._last = perf_counter()

    def step(self, tokens: int, seconds: float | None = None) -> Reading:
        """Utilization in a step of `tokens` tokens on all devices together.

        `seconds`: duration of the step (default: the time since the last step, or since `start`). Raises UsageError.
        """
        if seconds is None:
            now = perf_counter()
            seconds, self._last = now - self._last, now
        if not (seconds > 0 and tokens >= 0):
            raise UsageError(f"tokens and seconds must be above 0, not {tokens!r} in {seconds!r} s")
        self._tokens += tokens
        self._seconds += seconds
        speed = tokens / seconds
        if self._used * speed > 1:
            from tfacct.timing.utilization import above_peak

            warnings.warn(str(above_peak(self._used * speed)), stacklevel=2)
        return Reading(self._used * speed, self._ran * speed, speed, tokens, seconds, self.convention)

    @property
    def total(self) -> Reading:
        """Utilization in all steps so far. Raises UsageError before the first."""
        if not self._seconds:
            raise UsageError("no steps measured yet", "call step(tokens) after each step")
        speed = self._tokens / self._seconds
        return Reading(self._used * speed, self._ran * speed, speed, self._tokens, self._seconds, self.convention)


def _counted(
    config: ModelBase | Source, ctx: int | str | None, train: bool, convention: Convention, recompute: Recompute
) -> tuple[float, float]:
    """FLOPs of a token, and its FLOPs in recomputation."""
    from tfacct.accounts.step_flops import recomputed_flops
    from tfacct.api.model_base import loaded
    from tfacct.api.utilization import Rated
    from tfacct.base.errors import nearest
    from tfacct.loading.selection import workload
    from tfacct.options import request

    ways = ("full", "attention", "none")
    if recompute not in ways:
        raise UsageError(f"recompute must be full, attention or none, not {recompute!r}", nearest(str(recompute), ways))
    if recompute != "none" and not train:
        raise UsageError("recompute does not apply to train=False: a forward pass recomputes nothing")
    model = loaded(config, {})
    once = Rated(model).flops_per_token(ctx=ctx, train=train, convention=convention)
    if recompute == "none":
        return once, 0.0
    work = workload(model, request({"ctx": ctx}))
    again = recomputed_flops(model.ledger, work.axes(), recompute)
    return once, float(again) / work.tokens
