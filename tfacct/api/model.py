"""The model that `load` makes."""

from __future__ import annotations

from typing import Any, Literal

from tfacct.api.account import Costs
from tfacct.api.asked import Source, loaded
from tfacct.api.estimates import Estimated
from tfacct.api.explore import Explored
from tfacct.api.lettered import Lettered
from tfacct.api.page import Paged
from tfacct.api.plans import Planned
from tfacct.api.training import Trainable
from tfacct.api.trust import Trusted
from tfacct.api.utilization import Rated


class Model(Costs, Rated, Trainable, Planned, Estimated, Explored, Lettered, Paged, Trusted):
    """A model to ask about. Made by `load`. Each method returns the Report that the command of the same name prints."""

    def part(self, part: Literal["text", "vision", "audio"], **sets: Any) -> Model:
        """Return one of the models that a config of several holds: its language model, or the encoder of its images
        or audio.

        `sets`: fields over that one's config. Raises TfacctError.
        """
        return Model(self.loaded.of_part(part, sets))


def load(source: Source, **sets: Any) -> Model:
    """Return the model of a preset's name, a path to a config.json, a hub id (`"Qwen/Qwen2-7B"`), or a dict of fields.

    A config object with `to_dict()`, or a model that has one as `.config`, is taken too: those of transformers are.

    >>> load("gpt2-xl").flops(ctx=16384).total
    133416668364800

    Keywords are set over the config, and a dict holds the fields of one:

    >>> load("llama-3.1-8b", num_key_value_heads=32).kv().total
    68719476736
    >>> fields = {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12}
    >>> load(fields).params().total
    124439808

    A name that does not exist is refused, with the nearest that does:

    >>> load("gpt2-extra")
    Traceback (most recent call last):
    tfacct.base.errors.NotFoundError: no preset or file named 'gpt2-extra'
    did you mean gpt2?

    A Path is always a path: the hub is not asked. Raises TfacctError, which says what would work.
    """
    return Model(loaded(source, sets))
