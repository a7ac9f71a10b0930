"""Models without a language modeling head: base models, poolers, classifiers, by hand. Kind: golden, refusal."""

import json
from pathlib import Path

import pytest

from tests.families import TINY
from tests.helpers.single_families import BODY
from tfacct import load
from tfacct.base.errors import TfacctError
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model

SENTENCES = ("logits", "lm_head")


def of_class(model_type: str, name: str, **fields: object) -> dict:
    return {**TINY[model_type], "architectures": [name], **fields}


def test_bert_bases_body_by_hand() -> None:
    """BertModel, with its pooler: 109,482,240 parameters, as its class and its page say.

    Tables (30,522 + 512 + 2) · 768 and a norm 2 · 768; a layer 4 · (768² + 768) + (2 · 768 · 3,072 + 3,072 + 768)
    and two norms; the pooler 768² + 768.
    """
    body = load("bert-base", architectures=["BertModel"])
    layer = 4 * (768**2 + 768) + (2 * 768 * 3072 + 3072 + 768) + 2 * 2 * 768
    tables = (30522 + 512 + 2) * 768 + 2 * 768
    facts = body.params().models[0]
    assert facts["total_params"] == tables + 12 * layer + 768**2 + 768 == 109_482_240
    products = 12 * (2 * 512 * (4 * 768**2 + 2 * 768 * 3072) + 4 * 512**2 * 768)
    flops = body.flops(ctx=512).models[0]
    assert flops["total_flops"] == products + 2 * 768**2  # the pooler reads one position
    assert flops["components"]["pooler"] == 2 * 768**2 and "lm_head" not in flops["components"]
    assert (facts["tied_head"], flops["workload"]["logits"]) == (None, None)


def test_alberts_weights_are_stored_once_and_run_twelve_times(run) -> None:
    """albert-base: 11,221,680 parameters, one block's 7,087,872 among them; the FLOPs of twelve blocks."""
    sizes = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    ours = load_model("mine", {"model_type": "albert", **sizes})
    layer = 4 * (768**2 + 768) + (2 * 768 * 3072 + 3072 + 768) + 2 * 2 * 768
    tables = (30000 + 512 + 2) * 128 + 2 * 128 + 128 * 768 + 768
    head = 768 * 128 + 128 + 2 * 128 + 30000
    assert layer == 7_087_872 and sum(ours.ledger.parameters().values()) == tables + layer + head == 11_221_680
    blocks = 12 * (2 * 512 * (4 * 768**2 + 2 * 768 * 3072) + 4 * 512**2 * 768)
    ends = 2 * 512 * (2 * 768 * 128 + 128 * 30000)
    assert sum(ours.ledger.flops({"B": 1, "T": 512, "S": 512, "O": 512}).values()) == blocks + ends
    config = json.dumps({"model_type": "albert", **sizes}).encode()
    ran = run("params", "-", "--explain", stdin=config)
    assert "The layers share 7,087,872 parameters; everything outside these layers has 4,133,808." in " ".join(
        ran.out.split()
    )
    assert "All 12 layers share one set of weights, stored once." in " ".join(ran.out.split())
    assert "2 FLOPs per use of a weight" in run("flops", "-", "--explain", stdin=config).out


def test_a_reward_head_by_hand() -> None:
    """One score of every position, without a bias: 2,048 numbers more than Llama 3.2 1B has with its tied head."""
    reward = load("llama-3.2-1b", architectures=["LlamaForSequenceClassification"], num_labels=1)
    whole = load("llama-3.2-1b")
    assert reward.params().models[0]["total_params"] == 1_235_814_400 + 2048
    blocks = whole.flops(ctx=7, batch=3).models[0]["total_flops"] - 2 * 3 * 7 * 2048 * 128256
    assert reward.flops(ctx=7, batch=3).models[0]["total_flops"] == blocks + 2 * 3 * 7 * 2048
    assert reward.flops(ctx=7, batch=3, logits="last").models[0]["total_flops"] == blocks + 2 * 3 * 2048
    assert reward.kv(ctx=7).models[0]["lines"] == whole.kv(ctx=7).models[0]["lines"]


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
    file = tmp_path / "config.json"
    file.write_text(json.dumps(of_class(family, name)))
    for shape in ([], ["--json"]):
        ran = run(*command.split()[:1], str(file), *command.split()[1:], *shape)
        if command == "memory --kv" and family != "llama":
            assert ran.code == 2 and "encoders have no KV cache" in ran.err
            continue
        assert ran.code == 0, ran.err
        said = " ".join(ran.out.split()).replace('"logits": null', "").replace('"tied_head": null', "")
        said = said.replace("no logits are computed", "")
        assert [word for word in SENTENCES if word in said] == []


@pytest.mark.parametrize(("name", "scores"), [("Qwen2ForRewardModel", 1), ("Qwen2ForProcessRewardModel", 2)])
def test_reward_models_of_two_products_by_hand(name: str, scores: int) -> None:
    """Qwen2.5-Math's: 3,584² + 3,584 of the first product, and 3,584 + 1 for each score, of every position."""
    sizes = {"hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944}
    raw = {**sizes, "model_type": "qwen2", "vocab_size": 152064, "num_hidden_layers": 2}
    body = load_model("mine", {**raw, "architectures": ["Qwen2Model"]})
    ours = load_model("mine", {**raw, "architectures": [name], "num_labels": 5})  # which the class does not read
    assert ours.parameters - body.parameters == 3584**2 + 3584 + scores * (3584 + 1)
    at = Workload(7, 7, 3).axes()
    more = sum(ours.ledger.flops(at).values()) - sum(body.ledger.flops(at).values())
    assert more == 2 * 3 * 7 * 3584 * (3584 + scores)
    assert "no such class" in str(ours.config.hf_unsupported())


def test_what_has_no_language_modeling_head_generates_nothing(run) -> None:
    ran = run("flops", "gpt2", "--set", BODY.format("GPT2Model"), "--ctx", "9", "--generate", "3")
    assert ran.code == 2 and "generation needs a language modeling head" in ran.err
    for name in ("Qwen2ForRewardModel", "Qwen2ForSequenceClassification", "Qwen2Model"):
        with pytest.raises(TfacctError, match="generation needs a language modeling head"):
            load(of_class("qwen2", name)).serve(on="h100-sxm", prompt=16, new=8)
