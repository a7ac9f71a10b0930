"""The class that a config names in `architectures`: which model's it is, and with which head.

`LlamaForCausalLM` is a stem and an ending. The stem says which model it is, and each family declares its own; the
ending says which head it has. A class of another stem is another model, whatever its config calls it: Eagle3Llama,
LlavaLlama and LlamaMoE say `model_type = "llama"`.
"""

from collections.abc import Iterable
from typing import Any

from tfacct.base.errors import ConfigError

ENDINGS = (
    "ForCausalLM",
    "LMHeadModel",
    "ForMaskedLM",
    "ForPreTraining",
    "ForConditionalGeneration",
    "WithLMHeadModel",
    "MTModel",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForRewardModel",
    "ForProcessRewardModel",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "ForNextSentencePrediction",
    "Encoder",
    "Decoder",
    "DoubleHeadsModel",
    "ForAudioClassification",
    "ForImageClassification",
    "ForImageClassificationWithTeacher",
    "ModelWithProjection",
    "EncoderModel",
    "QuestionEncoder",
    "ContextEncoder",
    "Transformer",
    "Model",
)
"""How the classes of transformers end, by their heads."""

SHARDED = "FSDP"
"""What torch writes before the name of a class whose weights it has spread over devices: it is the same class."""


def named(classes: Any) -> list[str]:
    """The classes that `architectures` names. Raises ConfigError.

    >>> named(["LlamaForCausalLM"]), named(None)
    (['LlamaForCausalLM'], [])
    """
    listed = [classes] if isinstance(classes, str) else classes or []
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise ConfigError("architectures must be a list of class names")
    return listed


def ending(name: str, stems: Iterable[str]) -> str | None:
    """The ending of a class of these stems; None where it is another model's.

    >>> ending("LlamaForSequenceClassification", ("Llama",))
    'ForSequenceClassification'
    >>> ending("LlamaMoEForCausalLM", ("Llama",)) is None
    True
    """
    bare = name.removeprefix(SHARDED)
    rests = (bare.removeprefix(stem) for stem in stems if bare.startswith(stem))
    return next((rest for rest in rests if rest in ENDINGS), None)
