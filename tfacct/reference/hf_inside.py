"""The language model inside a multimodal transformers class, if it has no separate class with a head.

The multimodal class is built around it and run on tokens only, so nothing else runs; modules and tensors have the names
of a language model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

TEXT = "text_config"
INSIDE = ("language_model", "text_model")
"""Names of the language model in the base model of such classes."""

AS_WIDE = {"muse_spark_text": {"audio_config": "out_hidden_size"}}
"""Language models whose composite class needs another model with outputs of the same width: its config, the field."""


def composite_config(hf_class: Any, text: Any) -> Any:
    """The config of a composite class around that of its language model; None if the class is not a composite. The
    other models in it have as few layers as possible."""
    takes = hf_class.config_class
    if isinstance(text, takes) or TEXT not in getattr(takes, "sub_configs", {}):
        return None
    others = {name: {field: text.hidden_size} for name, field in AS_WIDE.get(text.model_type, {}).items()}
    made = takes(**{TEXT: text, **others, "tie_word_embeddings": getattr(text, "tie_word_embeddings", False)})
    for name in made.sub_configs:
        other: Any = getattr(made, name, None)
        if name != TEXT and getattr(other, "num_hidden_layers", None):
            other.num_hidden_layers = 1
    return made


def language_model_of(composite: Any, device: str | None = None) -> Any:
    """The language model and its head, run by the composite class, with its name. The composite is built on meta,
    because its other models may be large; what runs is moved to `device` as zeros."""
    named = {"__module__": type(composite).__module__}
    found: Any = type(type(composite).__name__, (_Inside,), named)(composite)
    if device not in (None, "meta"):
        found.to_empty(device=device)
        composite.tie_weights()  # one tensor may now be two
        for numbers in found.buffers():
            numbers.zero_()
    return found


class _Inside(nn.Module):
    main_input_name = "input_ids"

    def __init__(self, composite: Any) -> None:
        super().__init__()
        self.model = next(getattr(composite.model, name) for name in INSIDE if hasattr(composite.model, name))
        self.lm_head = composite.lm_head
        self.config = self.model.config
        object.__setattr__(self, "_composite", composite)  # its other modules do not belong to the language model

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def forward(self, input_ids: Any = None, past_key_values: Any = None, **more: Any) -> Any:
        run: Any = self._composite
        return run(input_ids=input_ids, past_key_values=past_key_values, **more)
