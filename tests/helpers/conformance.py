"""Points to compare a program in another language with: ledgers as data, and their counts.

`python -m tests.helpers.conformance` writes docs/conformance.json; test_export.py says when it is stale.
"""

import json
import random
from collections.abc import Mapping
from math import lcm
from pathlib import Path
from typing import Any

from tfacct.algebra.export import ExportedLedger, export_ledger
from tfacct.algebra.symbols import layer_axes, with_sizes
from tfacct.architecture.transformer import Transformer
from tfacct.ledger.einsum import rounded_up
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import ACTIVE, AROUND, EXPERTS, FRONT, SHARES
from tfacct.ledger.storage import Width, storage, width
from tfacct.loading import presets
from tfacct.loading.model import LoadedModel

FILE = Path(__file__).parents[2] / "docs" / "conformance.json"
NAMES = (
    *("gpt2", "llama-3.1-8b", "gemma-3-27b-text", "gpt-oss-20b", "t5-small", "whisper-tiny", "mixtral-8x7b"),
    *("deepseek-v3", "deepseek-v3.2", "llama-4-scout-text", "modernbert-base", "clip-vit-base-patch32-vision"),
    *("mamba-130m", "mamba2-130m", "qwen3-next-80b-a3b", "gemma-3n-e2b-text", "albert-base-v2", "glm-4.5-air"),
    "lecture-transformer",
)
"""One model of every kind of line: tied heads, windows, sinks, both sides, experts, latents, selected and near keys,
chunks, patches, recurrences, shared layers, multi-token prediction, MLPs that are never called."""
EACH = 54
"""Points of each: 1,026 together."""
STEP = tuple("BTSOIJ")
ABOUT = (
    "Ledgers as `tfacct models MODEL --ledger --json` has them, and points: `model`, `sizes` that differ from the"
    " ledger's, the `step` as numbers for B T S O I J, and `is`, what it comes to, in the order of `of`. Numbers are"
    " texts, because some are above 2^53. FLOPs are of the way with the fewest; `read` and `written` are bytes of all"
    " products in bf16; states are in a cache of `cache` bits, those"
    " that no token adds to (with none of the axes S, J, Sc and Sh) in at least 16."
)


def step(rng: random.Random, ours: LoadedModel, sizes: Mapping[str, int]) -> dict[str, int]:
    """A prefill, a decode step or a chunk."""
    least = 1 + sizes.get(FRONT, 0)
    every = lcm(*(sizes[size] for size in SHARES.values() if size in sizes))
    front = sizes.get(FRONT, 0) if every > 1 else 0
    context = rounded_up(least + int(2 ** rng.uniform(0, 20)), every) * every + front
    tokens = context if not ours.has_cache else rng.choice((1, context, rng.randint(1, context)))
    tokens = max(tokens, least) if FRONT in sizes else tokens
    source = rng.randint(1, 3000) if ours.source is not None else 0
    new = source if tokens == context else 0
    outputs = rng.choice((1, tokens))
    return {"B": rng.choice((1, 1, 3, 64)), "T": tokens, "S": context, "O": outputs, "I": new, "J": source}


def changed(rng: random.Random, model: ExportedLedger) -> dict[str, int]:
    """The sizes with some replaced by random ones that a model may have: E ≥ A, and a window around a query is odd."""
    found = {axis: rng.randint(1, 3 * size + 1) for axis, size in model.sizes.items() if rng.random() < 0.3}
    every = {**model.sizes, **found}
    for axis in found:
        if axis.startswith(ACTIVE) and EXPERTS in every:
            found[axis] = min(found[axis], every[EXPERTS])
        if axis.startswith(EXPERTS):
            found[axis] = max(found[axis], every.get(ACTIVE, 1))
        if axis.startswith(AROUND):
            found[axis] |= 1
    return found


def at_sizes(shape: Transformer, sizes: Mapping[str, int]) -> Ledger:
    """The ledger of the same model at other sizes, from its parts: the exported text is not used."""
    blocks = layer_axes(shape)
    numbers = frozenset({*shape.axis_sizes(), *blocks} - {*sizes})
    return with_sizes(shape, lambda axis: sizes[axis], numbers).ledger()


def counts(ledger: Ledger, at: Mapping[str, int], cache: Width) -> dict[str, int]:
    """Counts of the ledger in a step."""
    cost = ledger.cost(at, storage("bf16"), width("bf16"))
    return {
        "flops": ledger.total_flops(at),
        "masked_flops": ledger.total_flops(at, masked=True),
        "parameters": sum(ledger.parameters().values()),
        "active_parameters": sum(ledger.active_parameters().values()),
        "weights_bytes": sum(ledger.weight_bytes(storage("bf16")).values()),
        "state_elements": sum(ledger.states(at).values()),
        "state_bytes": sum(ledger.state_bytes(at, cache).values()),
        "pointwise": sum(ledger.pointwise(at).values()),
        "read": cost.read,
        "written": cost.written,
    }


def document() -> str:
    """The file: one ledger or point a line."""
    rng = random.Random(19)
    ledgers, points, of = [], [], [""]
    for name in NAMES:
        ours = presets.load(name)
        model = export_ledger(ours.architecture)
        facts = {"sizes": model.sizes, "ways": model.ways}
        ledgers.append(f"{_compact(name)}: {_compact(facts)}")
        for _ in range(EACH):
            point = _point(rng, ours, model)
            of = list(point["is"])
            points.append(_compact({**point, "is": [str(number) for number in point["is"].values()]}))
    head = f'"about": {_compact(ABOUT)},\n"of": {_compact(of)},\n'
    both = ",\n".join(ledgers), ",\n".join(points)
    return f'{{{head}"ledgers": {{\n{both[0]}}},\n"points": [\n{both[1]}]}}\n'


def _point(rng: random.Random, ours: LoadedModel, model: ExportedLedger) -> dict[str, Any]:
    sizes = changed(rng, model)
    every = {**model.sizes, **sizes}
    at, cache = step(rng, ours, every), rng.choice(("fp32", "bf16", "fp8", "int4"))
    is_ = counts(at_sizes(ours.architecture, every), at, width(cache))
    return {
        "model": ours.name,
        "sizes": sizes,
        "step": [at[axis] for axis in STEP],
        "cache": width(cache).bits,
        "is": is_,
    }


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
    print(f"wrote {FILE.name}: {FILE.stat().st_size:,} bytes")
