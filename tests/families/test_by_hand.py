"""Parameters, FLOPs and bytes of cache of published models, by hand: by_hand.toml. Kind: golden."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.published import PUBLISHED
from tfacct import load
from tfacct.loading.model import load_model

CASES = tomllib.loads(Path(__file__).with_name("by_hand.toml").read_text(encoding="utf-8"))


def model_of(case: dict[str, Any], name: str, fields: dict[str, Any]) -> tfacct.Model:
    """The config, or what a published file or a preset of this name has, with fields set over it."""
    of = case.get("model", name)
    return load(PUBLISHED[of] | fields) if of in PUBLISHED else load(case.get("config", of), **fields)


@pytest.mark.parametrize("name", CASES)
def test_a_published_model_by_hand(name: str) -> None:
    """Terms in their order; what is asked: `params`, `published`, or a method and its arguments; with `more`, less that
    of the model with the fields `less`."""
    terms: dict[str, Any] = {}
    case, asked = CASES[name], 0
    fields = case.get("fields", {})
    model, other = (model_of(case, name, fields | less) for less in ({}, case.get("less", {})))
    for term, value in case.items():
        method, _, arguments = term.removeprefix("more ").partition(" ")
        if term in ("config", "model", "fields", "less"):
            continue
        asked += method in ("params", "active_params", "published", "flops", "kv")
        if term == "published":
            assert model.params().total == value
        elif method in ("params", "flops", "kv"):
            total, rest = (getattr(one, method)(**eval(f"dict({arguments})")).total for one in (model, other))
            assert total - rest * term.startswith("more ") == eval(str(value), {}, terms), term
        elif term == "active_params":
            assert model.params().models[0]["active_params"] == eval(str(value), {}, terms)
        else:
            terms[term] = eval(str(value), {}, terms)
    assert asked and load_model("mine", model.loaded.raw).unknown == ()
