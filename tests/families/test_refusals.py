"""Configs that no class runs, or that change the counts in a way that is not understood. Kind: refusal.

Each row of refusals.json: a small or published config by name, several with + between them, or none; fields over it,
the `--part` that is asked for, or fields that it is `--without`; what the error says; and in some rows the model whose
file has such fields.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.families import TINY
from tests.families._configs import without
from tests.helpers.published import PUBLISHED
from tfacct.base.errors import TfacctError
from tfacct.loading.model import load_model

REFUSED = json.loads(Path(__file__).with_name("refusals.json").read_text(encoding="utf-8"))
CONFIGS = {"": {}, **PUBLISHED, **TINY.data}


@pytest.mark.parametrize(("of", "fields", "words"), [(of, fields, words) for of, fields, words, *_ in REFUSED])
def test_a_config_is_refused_by_name(of: str, fields: dict[str, Any], words: str) -> None:
    config = {name: value for one in of.split(" + ") for name, value in CONFIGS[one].items()} | fields
    config = without(config, *config.pop("--without", ()))
    with pytest.raises(TfacctError) as caught:
        _ = load_model("mine", config, part=config.pop("--part", "text")).context
    assert words in str(caught.value)
