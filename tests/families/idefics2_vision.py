"""Idefics2's encoder of images: that of Idefics3."""

from tests.families import idefics3_vision as first
from tests.families._towers import REQUIRED as REQUIRED
from tests.families.idefics3_vision import CONTEXT as CONTEXT
from tests.families.idefics3_vision import drawn as drawn
from tests.families.idefics3_vision import sized as sized

TINY = {**first.TINY, "model_type": "idefics2_vision"}
