"""The package as a user's type checker and libraries see it. Kind: output."""

import subprocess
import sys
from pathlib import Path

import pytest

from tfacct import TfacctError, load

ROOT = Path(__file__).parent.parent
SCRIPT = """
import tfacct
from tfacct import MetricName, Model, Report, TfacctError, load

model: Model = load("gpt2", n_layer=3)
by_config: Model = load({"model_type": "gpt2", "vocab_size": 7, "n_embd": 8, "n_layer": 1, "n_head": 2})


class Config:
    def to_dict(self) -> dict[str, object]:
        return {}


class Network:
    config = Config()


def counted(source: Config | Network | str) -> int:
    try:
        report = load(source).memory(ctx="8k", batch=2, dtype="bf16")
    except TfacctError as error:
        raise SystemExit(str(error)) from error
    total: int = report.total_bytes + report.kv_cache_bytes + report.weights_bytes + report.total
    fits: int | None = report.fit["largest_context"]
    return total + (fits or 0)


def shown(report: Report) -> str:
    return f"{report}{report.to_json()}{report.rows}"


flops: int = model.flops(ctx=1024, decode=True).total_flops
names: list[MetricName] = ["total_flops", "kv_cache_bytes"]
table = model.sweep(*names, "share.attn", ctx="1k..8k", n_layer=[1, 2])
share: float = tfacct.mfu(model, tokens_per_second=1e5, peak="312e12", ctx=1024, convention="palm")
per_token: float = model.flops_per_token(ctx="4k", train=True)
title = model.params().plot().get_title()
shown(table), shown(model.diff("gpt2-xl", to_ctx="2k"))
"""
WRONG = {
    "model.flops().total_bytes": 'FlopsReport" has no attribute "total_bytes"',
    "model.flops(context=3)": 'Unexpected keyword argument "context"',
    'model.flops_per_token(convention="mine")': "incompatible type",
    'name: tfacct.MetricName = "flops"': "Incompatible types in assignment",
}


@pytest.mark.slow
def test_mypy_knows_the_public_api(tmp_path: Path) -> None:
    """Strictly: a user's script has no errors, and each slip is one."""
    pytest.importorskip("mypy")
    pytest.importorskip("matplotlib")
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(SCRIPT)
    bad.write_text("\n".join(["import tfacct", 'model = tfacct.load("gpt2")', *WRONG]) + "\n")
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={ROOT / '.mypy_cache' / 'user'}"]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *options, good, bad], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    errors = [line for line in ran.stdout.splitlines() if ": error: " in line]
    assert len(errors) == len(WRONG), ran.stdout + ran.stderr
    for number, (error, expected) in enumerate(zip(errors, WRONG.values(), strict=True)):
        assert f"bad.py:{number + 3}: error" in error and expected in error


def test_what_only_looks_like_a_model_is_refused() -> None:
    """Wrappers may add weights of their own: their class is refused by name. `load(model.config)` counts without."""

    class Config:
        def to_dict(self) -> dict[str, object]:
            return {**load("gpt2").config, "_name_or_path": "someone/fine-tuned"}

    class PeftModelForCausalLM:
        config = Config()

    assert load(Config()).name == "fine-tuned"
    with pytest.raises(TfacctError, match="PeftModelForCausalLM"):
        load(PeftModelForCausalLM())
    for nothing in (Config, object(), 3.5):
        with pytest.raises(TfacctError, match="a config object, or an object with a config, not"):
            load(nothing)  # type: ignore[arg-type]
