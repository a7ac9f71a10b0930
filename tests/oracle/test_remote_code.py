"""Models with remote code, run as published. Kind: oracle."""

from typing import Any

import pytest

from tests.families import TINY, VARIANTS
from tests.helpers.lazy import lazy
from tfacct.architecture.parts import LightningAttention as LightningPart
from tfacct.families.rare.nvembed_reference import LatentPooler
from tfacct.loading.model import load_model

lightning, model = lazy("tfacct.reference.lightning"), lazy("tfacct.reference.model")
step, torch, transformers = lazy("tfacct.reference.step"), lazy("torch"), lazy("transformers")


def test_lings_chunks_are_the_recurrence_token_by_token() -> None:
    """A matrix decayed by ALiBi's slope, the deeper the layer the slower: hₜ = e^g · hₜ₋₁ + kₜvₜᵀ, read at q."""
    torch.manual_seed(3)
    part = load_model("mine", VARIANTS["bailing_moe_linear, with lightning attention"]).architecture.stacks[0].block
    module = lightning.LightningAttention(part.find(LightningPart)).double()
    module.number, module.layers = 2, 5
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
        x = torch.randn(2, 70, 50, dtype=torch.float64)
        whole, last = module(x, None, step.Step(x, torch.arange(70)))
        first, state = module(x[:, :69], None, step.Step(x, torch.arange(69)))
        one, behind = module(x[:, 69:], (state,), step.Step(x, torch.arange(69, 70)))
        seen = torch.cat((first, one), dim=1)
        assert torch.allclose(whole, seen) and torch.allclose(last, behind)
        decay = (-(2 ** (-8 * torch.tensor([1, 2, 3, 4]) / 4)) * (1 - 1 / 4 + 1e-5)).exp()
        assert torch.allclose(module.rates(x).exp().flatten()[:4].float(), decay)


def test_a_text_read_backwards_gives_jinas_logits_backwards() -> None:
    """A token's distance counts alike to both sides, and nothing else says where it stands."""
    torch.manual_seed(3)
    built = model.build(load_model("mine", TINY["jina_bert"]).architecture, device="cpu", dtype=torch.float64)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.normal_()
        tokens = torch.randint(0, 181, (2, 9))
        there, back = built(tokens)[0], built(tokens.flip(1))[0]
    assert torch.allclose(there, back.flip(1))
    assert not torch.allclose(there, there.flip(1))


def test_nv_embeds_pooler_is_latent_attention_as_published() -> None:
    """x + O · softmax(QKᵀ / √d) V over normed rows, then x + W₃(gelu(W₁x) · W₂x), and the mean: written here anew."""
    torch.manual_seed(5)
    part = load_model("mine", TINY["nvembed"]).architecture.pooler
    module = LatentPooler(part).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
        held = dict(module.named_parameters())
        x, rows = torch.randn(2, 7, 50, dtype=torch.float64), held["rows.weight"].expand(2, -1, -1)

        def normed(of: Any, name: str) -> Any:
            return torch.nn.functional.layer_norm(of, (50,), held[f"{name}.weight"], held[f"{name}.bias"])

        def heads(of: Any, name: str) -> Any:
            return (of @ held[f"{name}_proj.weight"].T).view(2, -1, 3, 11).transpose(1, 2)

        q, (k, v) = heads(normed(x, "norm"), "q"), (heads(normed(rows, "rows_norm"), name) for name in "kv")
        read = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        one = x + read @ held["o_proj.weight"].T
        gate, up = (
            torch.nn.functional.linear(
                normed(one, "mlp_norm"), held[f"mlp.{n}_proj.weight"], held[f"mlp.{n}_proj.bias"]
            )
            for n in ("gate", "up")
        )
        down = torch.nn.functional.gelu(gate) * up @ held["mlp.down_proj.weight"].T + held["mlp.down_proj.bias"]
        assert torch.allclose(module(x), (one + down).mean(dim=1))


@pytest.mark.parametrize(("whole", "stem"), [("colpali", "ColPali"), ("colqwen2", "ColQwen2")])
def test_a_whole_that_makes_a_vector_of_each_token_is_its_body(whole: str, stem: str) -> None:
    """With the class's defaults, which are small: all of its language model but logits, and a product of each token."""
    family, vlm = {"colpali": ("gemma", "paligemma"), "colqwen2": ("qwen2", "qwen2_vl")}[whole]
    text = {name: value for name, value in TINY[family].items() if name not in ("model_type", "head_dim")}
    text |= {"hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}
    typed = {"model_type": family} if whole == "colpali" else {}
    inside = {"model_type": vlm, "text_config": {**text, **typed, **({"head_dim": 12} if typed else {})}}
    with torch.device("meta"):
        config = getattr(transformers, f"{stem}Config")(vlm_config=inside, embedding_dim=13)
        built = getattr(transformers, f"{stem}ForRetrieval")._from_config(config)
    ours = load_model("mine", {"model_type": whole, "vlm_config": inside, "embedding_dim": 13})
    assert (ours.family, ours.unknown, ours.architecture.head) == (family, (), None)
    assert "multi_vector_projector" in ours.left_out
    theirs = {
        name: one.numel() for name, one in built.named_parameters() if "vision" not in name and "visual" not in name
    }
    product = sum(count for name, count in theirs.items() if "embedding_proj_layer" in name)
    between = sum(count for name, count in theirs.items() if "multi_modal_projector" in name)
    assert product == (48 + 1) * 13 and sum(theirs.values()) == ours.parameters + product + between
