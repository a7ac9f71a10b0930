"""One call of each method of a model."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.families import TINY
from tests.helpers.checkpoints import written
from tests.helpers.lazy import with_torch
from tfacct import Report, load

LLAMA = load(TINY["llama"])


def checked() -> Report:
    """The tiny model compared with a file that lacks nearly all of it."""
    with TemporaryDirectory() as folder:
        file = written(Path(folder, "some.safetensors"), {"model.norm.weight": ("F32", (48,)), "w": ("I8", (2, 3))})
        return LLAMA.checkpoint(file)


ANSWERS: dict[str, Callable[[], Report]] = {
    "flops": lambda: LLAMA.flops(ctx=19),
    "flops by part": lambda: LLAMA.flops(ctx=19, by="part"),
    "training": lambda: LLAMA.flops(ctx=19, train=True, pointwise=True),
    "generate": lambda: LLAMA.generate(ctx=19, new_tokens=5),
    "traffic": lambda: LLAMA.traffic(ctx=19),
    "params": LLAMA.params,
    "memory": lambda: LLAMA.memory(ctx=19, on="1MiB"),
    "train": lambda: LLAMA.train(ctx=19, attention="eager", on="1MiB"),
    "comms": lambda: LLAMA.comms(fsdp=2, train=True, ctx=19),
    "train_time": lambda: LLAMA.train_time(on="2xh100-sxm", ctx=19, tokens_total=10**9),
    "serve": lambda: LLAMA.serve(on="h100-sxm", prompt=19, new=5, users=[1, 3], price=2.5),
    "fewest_devices": lambda: LLAMA.fewest_devices(on="h100-sxm", prompt=19, new=5, ttft=1.0, price=2.5),
    "serve_disaggregated": lambda: LLAMA.serve_disaggregated(on="h100", prefill_on="h100", prompt=19, new=5),
    "engine": lambda: LLAMA.engine(on="h100-sxm", max_model_len=19),
    "fit": lambda: LLAMA.fit(on="h100-sxm", ctx=19),
    "plan": lambda: LLAMA.plan(gpus=4, on="1GB", train=True, ctx=16, batch=8, attention="eager"),
    "time": lambda: LLAMA.time(on="h100-sxm", ctx=19),
    "kv": lambda: LLAMA.kv(ctx=19),
    "formula": lambda: LLAMA.formula(ctx=19),
    "explain": lambda: LLAMA.explain("kv", ctx=19),
    "compare": lambda: LLAMA.compare(ctx="19, 23", on="h100", metric=["share.attn"]),
    "diff": lambda: LLAMA.diff(ctx=19, to_ctx=23),
    "mfu": lambda: LLAMA.mfu(on="2xh100", ctx=19, tokens_per_second=1e6),
    "budget": lambda: LLAMA.budget(tokens="1B", on="h100", price=2.5),
    "sweep": lambda: LLAMA.sweep(ctx=[19, 23]),
    "solve": lambda: LLAMA.solve("ctx", "share.attn_scores_values=0.3"),
    "show": LLAMA.show,
    "symbolic_ledger": LLAMA.symbolic_ledger,
    "verify": lambda: LLAMA.verify(ctx=9),
    "prove": lambda: LLAMA.prove(),
    "measure": lambda: LLAMA.measure(ctx=9, steps=1),
    "checkpoint": checked,
}
ANSWERS = {name: cache(answer) for name, answer in ANSWERS.items()}  # several files of tests look at each
QUICK = [with_torch(name) if name in ("verify", "measure") else name for name in ANSWERS if name != "prove"]
"""The others: a proof takes seconds, and test_schema asks all of it at once."""


def check_plain(report: Report) -> None:
    """No Fraction and no bar: `json.dumps` and a data frame take rows, lines and facts as they are."""
    json.dumps(report.models)
    for row in report.rows:
        assert {type(cell) for cell in row.values()} <= {int, float, str, bool, type(None)}, row
        assert "bar" not in row and "dims" not in row
    if "lines" in report.models[0]:
        assert json.loads(json.dumps(report.lines)) == json.loads(report.to_json())["models"][0]["lines"]


def check_printed_and_framed(report: Report) -> None:
    """No column of objects, and every number as the rows have it."""
    first, printed = report.answer or report.title, str(report)
    assert printed.startswith(first.split(" → ")[0][:40]) and not printed.endswith("\n")
    assert json.dumps(report.rows) and (len(report.models) > 1 or json.dumps(report.lines))
    pandas = pytest.importorskip("pandas")
    frame = report.to_pandas()
    assert {str(kind) for kind in frame.dtypes} <= {"Int64", "float64", "boolean", "string"}
    assert [list(frame.columns), len(frame)] == [list(report.row_keys), len(report.rows)]
    for key in frame:
        for cell, row in zip(frame[key], report.rows, strict=True):
            assert row[key] is None if pandas.isna(cell) else cell == row[key] or str(row[key]) == cell
