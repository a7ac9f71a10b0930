"""Short convolutions as the transformers classes run them in torch: padded on both sides, and cut to the tokens."""

from __future__ import annotations

from tfacct.profiles import plain
from tfacct.profiles import written_operations as ops
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_storage import Axes, Storage


def short_convolution(t: Trace, x: Value, at: str) -> Value:
    """Lfm2ShortConv: a value and two gates of one product, the convolution between them."""
    by_channel: Axes = ("B", "D", "T")
    made = plain.linear(t, x, f"{at}.in_proj", ("Dg",))
    entry, exit_, value = plain.pieces(t, made, by_channel, 3, ("B", "Dg", "T"))
    mixed = ops.times(t, entry, value, f"{at}.entry_gate")
    mixed = convolved(t, mixed, f"{at}.conv", by_channel)
    mixed = ops.times(t, exit_, mixed, f"{at}.gate")
    return plain.linear(t, mixed.viewed(("B", "T", "D")), f"{at}.out_proj", ("D",))


def convolved(t: Trace, x: Value, name: str, axes: Axes) -> Value:
    """Each channel's last tokens, weighted and summed: as many more than there are as it pads, of which the first are a
    view."""
    t.named(f"{name}.weight")
    read = x.axes

    def back(b: Trace, _g: Storage) -> list[Storage | None]:
        made = b.new(read)
        b.gradient()
        return [made]

    def cut(b: Trace, _g: Storage) -> list[Storage | None]:
        return [plain.longer(b, axes, PADDED)]

    node = t.node((x.node,), back)
    t.save(node, x.storage)
    t.after = True
    whole = plain.longer(t, axes, PADDED, f"{name}.sums")
    t.named(f"{name}.rows")
    return Value(whole, axes, t.node((node,), cut))


PADDED = "T+Kc-1"
"""Tokens of its result before they are cut: one less than it sees is padding."""
