"""Published configs compared with the class that reads them. Kind: oracle."""

import pytest

from tests.families import TINY
from tests.helpers.classes import agree
from tests.helpers.lazy import lazy
from tests.helpers.published import text_of
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model
from tfacct.training.unsupported import bidirectional_decoder
from tfacct.verify.checks import renamed

torch, transformers = lazy("torch"), lazy("transformers")


@pytest.mark.parametrize("tied", [True, False])
def test_the_language_model_in_phi_4_multimodal_is_its_classs(tied: bool) -> None:
    text = {**text_of("phi3", "partial_rotary_factor", "sliding_window", "vocab_size"), "tie_word_embeddings": tied}
    made = transformers.Phi4MultimodalConfig(
        **text,
        vision_config={"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 9},
        audio_config={"hidden_size": 8, "num_blocks": 1, "num_attention_heads": 2, "intermediate_size": 9},
    )
    with torch.device("meta"):
        built = transformers.Phi4MultimodalForCausalLM._from_config(made)
    theirs = {name: one.numel() for name, one in built.named_parameters() if "embed_tokens_extend" not in name}
    ours = load_model("mine", {"model_type": "phi4_multimodal", **text})
    assert (
        renamed(ours.ledger.parameters(unfolded=True), ours.config.hf_module_paths(), ours.config.hf_tensor_names())
        == theirs
    )


@pytest.mark.parametrize("family", ["qwen2", "qwen2_moe", "qwen3", "qwen3_moe"])
@pytest.mark.parametrize("ending", ["ForCausalLM", "Model"])
def test_qwens_decoders_that_are_not_causal_are_encoders(family: str, ending: str) -> None:
    """gte-Qwen2-1.5B-instruct and gte-Qwen2-7B-instruct say is_causal = false."""
    stem = {"qwen2": "Qwen2", "qwen2_moe": "Qwen2Moe", "qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe"}[family]
    plain = {**TINY[family], "architectures": [f"{stem}{ending}"], "use_sliding_window": False}
    ours = load_model("mine", {**plain, "is_causal": False})
    causal = load_model("mine", {**plain, "is_causal": True})
    assert not ours.has_cache and ours.unknown == () and causal.has_cache and "is_causal" not in causal.defaulted
    agree(ours, Workload(7, 7, 3))
    work = Workload(7, 7, 3).axes()
    assert ours.ledger.flops(work, masked=True) == ours.ledger.flops(work) == causal.ledger.flops(work)
    assert causal.ledger.flops(work, masked=True) != causal.ledger.flops(work)
    assert bidirectional_decoder(ours) and not bidirectional_decoder(causal)


@pytest.mark.parametrize(("family", "stem"), [("bart", "Bart"), ("plbart", "PLBart"), ("mvp", "Mvp")])
def test_bart_that_scores_classes_is_its_classs(family: str, stem: str) -> None:
    """bart-large-mnli: a product of the width of the model and three classes behind the decoder."""
    said = {**TINY[family], "architectures": [f"{stem}ForSequenceClassification"], "num_labels": 3}
    ours, body = load_model("mine", said), load_model("mine", {**said, "architectures": [f"{stem}Model"]})
    fields = {name: value for name, value in said.items() if name not in ("model_type", "architectures")}
    with torch.device("meta"):
        config = getattr(transformers, f"{stem}Config")(**fields)
        built = getattr(transformers, f"{stem}ForSequenceClassification")(config)
    theirs = {name: one.numel() for name, one in built.named_parameters()}
    assert (
        renamed(ours.ledger.parameters(unfolded=True), ours.config.hf_module_paths(), ours.config.hf_tensor_names())
        == theirs
    )
    work, wide = Workload(7, 7, 3, source=5).axes(), int(TINY[family]["d_model"])
    more = sum(ours.ledger.flops(work).values()) - sum(body.ledger.flops(work).values())
    assert more == 2 * 3 * wide * (wide + 3)  # of one position of each of 3 texts


def test_angles_that_are_made_anew_for_longer_texts_change_no_count() -> None:
    """InternLM's files: rope_scaling dynamic. The class asks how long a text is, and on meta nothing can be asked."""
    scaled = {"rope_type": "dynamic", "factor": 2.0}
    ours = load_model("mine", {**TINY["internlm3"], "rope_scaling": scaled})
    agree(ours, *(Workload(tokens, tokens, 2) for tokens in (5, 2 * ours.context)))


@pytest.mark.parametrize("tied", [True, False])
def test_modernvberts_encoder_is_modernberts(tied: bool) -> None:
    """In its class with a masked language model's head, and in ColModernVBERT's, which has the body in vlm_config."""
    inside = {
        "text_config": TINY["modernbert"],
        "vision_config": {"model_type": "siglip_vision_model", "num_hidden_layers": 1, "hidden_size": 12},
        "tie_word_embeddings": tied,
    }
    whole = {"model_type": "modernvbert", **inside}
    with torch.device("meta"):
        config = transformers.ModernVBertConfig(**inside)
        built = transformers.ModernVBertForMaskedLM._from_config(config)
        vectors = transformers.ColModernVBertConfig(vlm_config=whole, embedding_dim=13)
        collecting = transformers.ColModernVBertForRetrieval._from_config(vectors)
    ours = load_model("mine", {**whole, "architectures": ["ModernVBertForMaskedLM"]})
    of_text = ("text_model.", "projection_head.", "lm_head.")
    theirs = [one.numel() for name, one in built.named_parameters() if any(part in name for part in of_text)]
    assert (ours.family, ours.left_out, ours.parameters) == ("modernbert", ("vision_config",), sum(theirs))
    body = load_model("mine", {"model_type": "colmodernvbert", "vlm_config": whole, "embedding_dim": 13})
    theirs = [one.numel() for name, one in collecting.named_parameters() if "text_model." in name]
    assert body.parameters == sum(theirs)
    assert set(body.left_out) == {"vision_config", "multi_vector_projector"}
