"""Custom models of the tests, as tables of TOML files."""

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tests.families
from tfacct.ledger.groups import Ledger
from tfacct.ledger.workload import Request, Workload
from tfacct.loading.model import LoadedModel
from tfacct.reports.formula import formula

LECTURE = "lecture-transformer"
# Refused changes of the tables of a small decoder, or of an encoder and a decoder, with words of the error.
DECODER = {
    "model": {"vocab": 64, "hidden": 48, "context": 32, "positions": "rotary"},
    "attention": {"heads": 6},
    "feed_forward": {"width": 96},
    "norm": {"kind": "rms"},
    "decoder": {"layers": 2},
}
EXPERTS = {"experts": 8, "active": 2, "width": 16}
LATENT = {"heads": 6, "kv_rank": 8, "nope_dim": 4, "rope_dim": 2}


def over(base: dict, **changes: object) -> dict:
    """The tables with some keys, by dotted name with `__`, set or, None, taken out."""
    file = copy.deepcopy(base)
    for path, value in changes.items():
        *outer, name = path.split("__")
        at = file
        for word in outer:
            at = at.setdefault(word, {})
        if value is None:
            at.pop(name)
        else:
            at[name] = value
    return file


def as_toml(file: dict) -> str:
    """The tables as TOML: JSON's values are TOML's, but for tables in values."""

    def value(this: object) -> str:
        if isinstance(this, dict):
            return "{" + ", ".join(f"{json.dumps(k)} = {value(v)}" for k, v in this.items()) + "}"
        return "[" + ", ".join(map(value, this)) + "]" if isinstance(this, list) else json.dumps(this)

    return "".join(f"{json.dumps(name)} = {value(this)}\n" for name, this in file.items())


LATENTS = over(DECODER, attention=None, latent_attention=LATENT)
MIXED = {
    "model": {"vocab": 227, "hidden": 48, "context": 29, "positions": "rotary", "latent_attention": "expanded"},
    "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10, "qk_norm": "rms"},
    "feed_forward": {"width": 71, "gated": True},
    "norm": {"kind": "rms", "order": "sandwich"},
    "decoder": {
        "layers": 5,
        "pattern": ["local", "latent", "full", "ssm"],
        "local": {"attention": {"window": 5, "rotated": False, "head_dim": 11}},
        "latent": {
            "latent_attention": {**LATENT, "heads": 5, "kv_rank": 14, "nope_dim": 8, "rope_dim": 6}
            | {"value_dim": 12, "q_rank": 22, "bias": True}
        },
        "ssm": {"mamba": {"inner": 58, "state": 13, "kernel": 3, "rank": 21, "mlp": True}},
        "every": {"2": {"experts": {"experts": 7, "active": 4, "width": 37, "shared": 19}}},
        "first": {"1": {"feed_forward": {"width": 53}}},
    },
}


def alike(own: Ledger, family: Ledger, *steps: tuple[int, int]) -> None:
    """Check that parameters, FLOPs, pointwise work and states are equal by path, in each step (keys, new tokens)."""
    assert own.parameters(unfolded=True) == family.parameters(unfolded=True)
    for keys, tokens in steps:
        at = Workload(keys, tokens, 9, source=17, new_source=17 if tokens == keys else 0).axes()
        for count in (Ledger.flops, Ledger.states, Ledger.pointwise):
            assert count(own, at, unfolded=True) == count(family, at, unfolded=True)
        assert own.flops(at, masked=True, unfolded=True) == family.flops(at, masked=True, unfolded=True)


DELTA = {"heads": 6, "key_heads": 3, "key_dim": 10, "value_dim": 11, "kernel": 5}
MAMBA2 = {"heads": 6, "groups": 2, "head_dim": 16, "state": 5, "kernel": 8, "chunk": 12, "mlp": True, "bias": True}


def hybrid(**mixers: dict) -> dict:
    """A layer for each mixer, and one with attention."""
    kinds = {f"kind{number}": {name.partition("__")[0]: own} for number, (name, own) in enumerate(mixers.items())}
    return over(DECODER, decoder={"layers": len(kinds) + 1, "pattern": [*kinds, "full"], **kinds})


PLAIN = {
    "mamba": {"inner": 58},
    "mamba2": {"heads": 6, "head_dim": 10, "mlp": True},
    "delta_net": {"heads": 6, "key_dim": 10},
    "short_convolution": {},
}
COMBINABLE = {name: own for name, own in PLAIN.items() if name != "mamba"}
"""Mixers that one model may combine."""
EQUIVALENTS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(tests.families.__file__).with_name("equivalents.toml").read_text()
)
"""Custom models that equal the small models of families."""
EQUIVALENTS["deepseek_v3, absorbed"] = over(EQUIVALENTS["deepseek_v3"], model__latent_attention="absorbed")
EQUIVALENTS["deepseek_v3, unpacked"] = over(EQUIVALENTS["deepseek_v3"], model__latent_attention="unpacked")


def check_formula(own: LoadedModel, of: str, work: Workload) -> None:
    """Check that the printed total at the sizes of the legend is the count."""
    pytest.importorskip("sympy")
    facts: dict[str, Any] = formula(own, Request(), of=of).models[0]  # type: ignore[arg-type]
    values = {axis: about["value"] for axis, about in facts["legend"].items() if "value" in about}
    at = work.axes()
    counted = {
        "flops": own.ledger.total_flops(at),
        "train": 3 * own.ledger.total_flops(at),
        "params": sum(own.ledger.parameters().values()),
        "kv": sum(own.ledger.states(at).values()),
    }
    assert eval(facts["total_formula"], {"__builtins__": {}}, values) == counted[of]
