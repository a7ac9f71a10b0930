"""GPT-J: attention and network side by side behind one norm; a part of each head rotated; a head with a bias."""

from typing import ClassVar

from tfacct.families._endings import CLASSIFYING
from tfacct.families._gptj_like import GPTJLike


class Config(GPTJLike):
    """`GPTJConfig`, with its class's defaults, sizes too."""

    stems: ClassVar = ("GPTJ",)
    heads: ClassVar = CLASSIFYING
