"""Heads of transformers classes: language modeling, none, or classification. The class name determines the head.

`LlamaForCausalLM` is a prefix and an ending. Each family declares its prefixes. A class with another prefix is another
model, even if its config looks the same: Eagle3Llama, LlavaLlama and LlamaMoE have `model_type = "llama"`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Literal

from tfacct.architecture.parts import Classes, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.base.record import record
from tfacct.ledger.workload import LARGEST

TASK_HEAD_FIELDS = frozenset(("architectures", "num_labels", "id2label"))
"""Fields that determine the head."""
CLASS_ENDINGS = tuple(
    """
    ForCausalLM LMHeadModel ForMaskedLM ForPreTraining ForConditionalGeneration WithLMHeadModel MTModel
    ForSequenceClassification ForTokenClassification ForRewardModel ForProcessRewardModel ForQuestionAnswering
    ForMultipleChoice ForNextSentencePrediction Encoder Decoder DoubleHeadsModel ForAudioClassification
    ForImageClassification ForImageClassificationWithTeacher ModelWithProjection EncoderModel QuestionEncoder
    ContextEncoder Transformer Model
    """.split()
)
"""Endings of transformers class names, by head."""
DEFAULT_LABELS = 2
"""Default number of scored classes in every transformers class."""


def listed_classes(architectures: Any) -> list[str]:
    """The classes in `architectures`. Raises ConfigError.

    >>> listed_classes(["LlamaForCausalLM"]), listed_classes(None)
    (['LlamaForCausalLM'], [])
    """
    listed = [architectures] if isinstance(architectures, str) else architectures or []
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise ConfigError("architectures must be a list of class names")
    return listed


def class_ending(name: str, prefixes: Iterable[str]) -> str | None:
    """The ending of a class with one of these prefixes; None for another model's.

    >>> class_ending("LlamaForSequenceClassification", ("Llama",))
    'ForSequenceClassification'
    >>> class_ending("LlamaMoEForCausalLM", ("Llama",)) is None
    True
    """
    bare = name.removeprefix("FSDP")  # torch writes it before the name of a class whose weights are sharded
    rests = (bare.removeprefix(prefix) for prefix in prefixes if bare.startswith(prefix))
    return next((rest for rest in rests if rest in CLASS_ENDINGS), None)


@record
class TaskHead:
    """The modules after the layers in transformers classes with the same name ending."""

    auto: str
    """The class that builds them; empty if transformers has no class of that name."""
    head: Literal["lm", "none", "classes"] = "lm"
    pooler: bool = False
    """True if the class has the family's `pooler`."""
    first: bool = False
    """True if the first position is scored without a pooler."""
    bias: bool = False
    paths: Mapping[str, str] = field(default_factory=dict)
    """Ledger module after the layers → module of the class, if the family's table does not have it."""
    body: str | None = None
    """Path of the base model, if it differs from the family's table; empty for a base model without a head."""
    side: Literal["encoder"] | None = None
    """The only side of an encoder–decoder that the class has."""
    gives: bool = True
    """True if the class returns its cache."""
    picks: bool = False
    """True if the class returns the scores of one position per sequence."""
    scores: int | None = None
    """The number of scores, if the class runs with no other."""
    obeys: bool = True
    """Whether it takes another number from the config, and then does not run, instead of building its own anyway."""
    also: bool = False
    """Whether it scores classes of each sequence after the pooler, next to a language model's head
    (BertForPreTraining)."""
    taught: bool = False
    """True if it also scores the second position, with its own matmul."""

    @property
    def scores_classes(self) -> bool:
        """True for classification, alone or together with language modeling."""
        return self.head == "classes" or self.also

    def on(self, shape: Transformer, classes: int, pooler: Part | None) -> Transformer:
        """The model with this head instead of a language modeling head. Raises ConfigError."""
        if self.head == "lm" and not self.also:
            return shape
        if shape.mtp is not None:
            raise ConfigError("MTP layers need a language modeling head")
        hidden = shape.embed.hidden
        pooled = self.first or (pooler is not None and getattr(pooler, "reads", "") != "each")
        scores = None
        if self.scores_classes:
            scores = Classes(hidden=hidden, classes=classes, bias=self.bias, pooled=pooled, taught=self.taught)
        return replace(shape, head=shape.head if self.also else None, pooler=pooler, classes=scores)

    def renamed(self, table: Mapping[str, str], body: str) -> dict[str, str]:
        """A module table of the class with a language modeling head, converted to this class. `body`: prefix of base
        model paths in that table."""
        prefix = body if self.body is None else self.body
        if self.head == "lm":
            return dict(table)
        return {
            path: prefix + hf_path.removeprefix(body)
            for path, hf_path in table.items()
            if path.split(".")[0] != "lm_head"
        }


CAUSAL_MODEL = TaskHead("AutoModelForCausalLM")
SEQ2SEQ = TaskHead("AutoModelForSeq2SeqLM")
BODY = TaskHead("AutoModel", "none", body="")
SCORED = TaskHead("AutoModelForSequenceClassification", "classes", paths={"classifier": "score"}, picks=True)
TOKENS = TaskHead("AutoModelForTokenClassification", "classes", bias=True, paths={"classifier": "score"}, gives=False)
TOKENS_CLASSIFIED = replace(TOKENS, paths={"classifier": "classifier"})
ANSWERS = replace(TOKENS, auto="AutoModelForQuestionAnswering", paths={"classifier": "qa_outputs"}, scores=2)
"""Two scores per position: start and end of an answer."""

REWARD = TaskHead("", "classes", pooler=True, bias=True, paths={"pooler": "score.0", "classifier": "score.2"}, scores=1)
REWARD = replace(REWARD, obeys=False, picks=True)
"""Two projections with a ReLU between, and one score per sequence, as in the files of Qwen2.5-Math-RM …"""
STEPS = replace(REWARD, scores=2, picks=False)
"""… and two scores per position, as in those of Qwen2.5-Math-PRM."""


def inside_composite(composite: str, body: str = BODY.auto) -> dict[str, TaskHead]:
    """The heads of a language model that transformers only has inside a composite class, and as a `body`."""
    return {"ForConditionalGeneration": TaskHead(composite), "Model": replace(BODY, auto=body)}


DECODER: Mapping[str, TaskHead] = {"ForCausalLM": CAUSAL_MODEL, "LMHeadModel": CAUSAL_MODEL, "Model": BODY}
CLASSIFYING: Mapping[str, TaskHead] = {**DECODER, "ForSequenceClassification": SCORED}
LABELLING: Mapping[str, TaskHead] = {**CLASSIFYING, "ForTokenClassification": TOKENS}
WITH_IMAGES = {"ForCausalLM": CAUSAL_MODEL, "Model": BODY, "ForConditionalGeneration": CAUSAL_MODEL}
"""A language model, and a class with the same head that also takes images."""


def label_count(task_head: TaskHead, raw: Mapping[str, Any]) -> tuple[int, dict[str, int]]:
    """Number of scores of a class, and fields with default values. Raises ConfigError."""
    if task_head.scores is None:
        return labels(raw)
    given, defaulted = labels(raw) if task_head.obeys else (task_head.scores, {})
    if given != task_head.scores and not defaulted:
        raise ConfigError(f"num_labels = {given:,}: this class gives {task_head.scores} scores per position")
    return task_head.scores, {}


def labels(raw: Mapping[str, Any]) -> tuple[int, dict[str, int]]:
    """Number of scored classes, by id2label or num_labels, and fields with default values. Raises ConfigError."""
    names, given = raw.get("id2label"), raw.get("num_labels")
    if names is not None and not isinstance(names, Mapping):
        raise ConfigError("id2label must be an object with fields")
    if given is not None and (not isinstance(given, int) or isinstance(given, bool)):
        raise ConfigError(f"num_labels must be a whole number, not {format_value(given)}")
    if names is not None and given not in (None, len(names)):
        raise ConfigError(f"num_labels = {given:,} contradicts id2label, which names {len(names):,}")
    count = given if names is None else len(names)
    if count is None:
        return DEFAULT_LABELS, {"num_labels": DEFAULT_LABELS}
    if not 1 <= count <= LARGEST:
        bound = "at least 1" if count < 1 else f"at most {LARGEST:,}"
        raise ConfigError(f"num_labels must be {bound}, not {count:,}")
    return count, {}
