"""Models without a language modeling head: base models, poolers, classifiers, by hand. Kind: golden, refusal."""

from pathlib import Path

import pytest

from tests.families import TINY
from tests.helpers.single_families import BODY
from tests.helpers.weight_files import folder
from tfacct import load
from tfacct.base.errors import TfacctError
from tfacct.loading.model import load_model

SENTENCES = ("logits", "lm_head")


def of_class(model_type: str, name: str, **fields: object) -> dict:
    return {**TINY[model_type], "architectures": [name], **fields}


@pytest.mark.parametrize(
    ("fields", "classes", "defaulted"),
    [
        ({}, 2, 2),
        ({"num_labels": None}, 2, 2),
        ({"num_labels": 7}, 7, None),
        ({"id2label": {"0": "no", "1": "yes", "2": "maybe"}}, 3, None),
        ({"id2label": {"0": "score"}, "num_labels": 1}, 1, None),
    ],
)
def test_how_many_classes_there_are(fields: dict, classes: int, defaulted: int | None) -> None:
    ours = load_model("mine", of_class("llama", "LlamaForSequenceClassification", **fields))
    assert ours.ledger.parameters()["classifier.weight"] == classes * TINY["llama"]["hidden_size"]
    assert ours.defaulted.get("num_labels") == defaulted


def test_where_classes_mean_nothing() -> None:
    """Scores of an answer's ends are two. Numbers of classes that are refused with a head for them: refusals.json."""
    ends = load_model("mine", of_class("bert", "BertForQuestionAnswering", num_labels=2))
    assert ends.defaulted.keys() & {"num_labels"} == set()
    for fields in ({"num_labels": 3, "id2label": {"0": "no"}}, {"num_labels": "3"}, {"id2label": ["no", "yes"]}):
        assert load_model("mine", {**TINY["llama"], **fields}).ledger.parameters()


COMMANDS = (
    *("flops", "flops --train", "params", "memory", "formula", "formula --of params", "sweep --ctx 8,16"),
    "memory --kv",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("family", "name"), [("llama", "LlamaModel"), ("bert", "BertModel"), ("t5", "T5EncoderModel")])
def test_every_word_holds_for_a_body(run, tmp_path: Path, command: str, family, name) -> None:
    file = folder(tmp_path, of_class(family, name)) / "config.json"
    for shape in ([], ["--json"]):
        ran = run(*command.split()[:1], str(file), *command.split()[1:], *shape)
        if command == "memory --kv" and family != "llama":
            assert ran.code == 2 and "encoders have no KV cache" in ran.err
            continue
        assert ran.code == 0, ran.err
        printed = ran.out_line.replace('"logits": null', "").replace('"tied_head": null', "")
        printed = printed.replace("no logits are computed", "")
        assert [word for word in SENTENCES if word in printed] == []


def test_models_without_a_language_modeling_head_generate_nothing(run) -> None:
    ran = run("flops", "gpt2", "--set", BODY.format("GPT2Model"), "--ctx", "9", "--generate", "3")
    assert ran.code == 2 and "generation needs a language modeling head" in ran.err
    for name in ("Qwen2ForRewardModel", "Qwen2ForSequenceClassification", "Qwen2Model"):
        with pytest.raises(TfacctError, match="generation needs a language modeling head"):
            load(of_class("qwen2", name)).serve(on="h100-sxm", prompt=16, new=8)
