"""Parameters, FLOPs and bytes of cache of published models, by hand: by_hand.toml. Kind: golden."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.published import PUBLISHED
from tfacct import load
from tfacct.loading.model import load_model

CASES = tomllib.loads(Path(__file__).with_name("by_hand.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_a_published_model_by_hand(name: str) -> None:
    """Terms in their order; what is asked: `params`, `published`, or a method and its arguments."""
    terms: dict[str, Any] = {}
    fields, asked = CASES[name].get("fields", {}), 0
    model = load(PUBLISHED[name] | fields) if name in PUBLISHED else load(CASES[name].get("config", name), **fields)
    for term, value in CASES[name].items():
        method, _, arguments = term.partition(" ")
        if term in ("config", "fields"):
            continue
        if term == "published":
            assert model.params().total == value
        elif method in ("params", "flops", "kv"):
            sizes = eval(f"dict({arguments})")
            assert getattr(model, method)(**sizes).total == eval(str(value), {}, terms), term
            asked += 1
        elif term == "active_params":
            assert model.params().models[0]["active_params"] == eval(str(value), {}, terms)
        else:
            terms[term] = eval(str(value), {}, terms)
    assert asked and load_model("mine", model.loaded.raw).unknown == ()
