"""Single families, published configs and remote code, compared with the class that runs them. Kind: oracle, refusal."""

from typing import Any

import pytest

from tests.families import TINY, VARIANTS
from tests.helpers.classes import agree
from tests.helpers.lazy import lazy
from tests.helpers.models import tiny
from tests.helpers.single_families import BODY, by_name
from tfacct.architecture.parts import DeltaNet, Positions
from tfacct.architecture.parts import LightningAttention as LightningPart
from tfacct.families.rare.nvembed_reference import LatentPooler
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model
from tfacct.training.unsupported import bidirectional_decoder
from tfacct.verify import checks as cross_checks
from tfacct.verify.checks import class_flops, renamed

delta, hf = lazy("tfacct.reference.delta"), lazy("tfacct.reference.hf")
positions, torch, transformers = lazy("tfacct.reference.positions"), lazy("torch"), lazy("transformers")
lightning, model = lazy("tfacct.reference.lightning"), lazy("tfacct.reference.model")
step = lazy("tfacct.reference.step")


def test_verify_asks_the_class_itself(run) -> None:
    ran = run("verify", "gpt2", "--ctx", "9", "--against", "transformers", "--set", BODY.format("GPT2Model"))
    assert ran.code == 0 and "transformers, cached elements" in ran.out


@pytest.mark.parametrize("work", [Workload(17, 17, 3), Workload(17, 1, 3), Workload(97, 20, 2)])
def test_every_cross_check_agrees_on_the_form_of_its_step(work: Workload) -> None:
    checks = cross_checks.checks(by_name()["auto"], work, all_layers=False, against=False)
    assert {check.name for check in checks if not check.agrees} == set()
    assert checks[0].formula == by_name()["auto"].ledger.flops(work.axes(), unfolded=True)


def test_the_class_is_compared_in_the_form_that_it_runs() -> None:
    auto, work = by_name()["auto"], Workload(17, 1, 3)
    checks = {check.name: check for check in cross_checks.class_checks(auto, work)}
    assert all(check.agrees for check in checks.values()) and len(checks) == 3
    expanded = by_name()["expanded"].ledger.total_flops(work.axes())
    assert checks["transformers, forward"].totals[1] == expanded != auto.ledger.total_flops(work.axes())


TWO = {"mtp": True, "num_nextn_predict_layers": 2}


@pytest.mark.parametrize("family", ["deepseek_v3", "deepseek_v32"])
def test_their_parameters_are_those_of_the_class(family: str) -> None:
    ours = load_model("mine", TINY[family], TWO)
    raw = {name: value for name, value in ours.raw.items() if name != "mtp"}
    built = hf.build(raw)
    built.config.num_mtp_layers = 2  # V3.2's config has it by the older name alone
    if family == "deepseek_v32":
        built.config.mtp_layer_types = built.config.layer_types[-1:] * 2
        built.config.mtp_mlp_layer_types = built.config.mlp_layer_types[-1:] * 2
    with torch.device("meta"):
        theirs = transformers.modeling_layers.MtpModel(built, 2)
    by_layer = {name: one.numel() for name, one in theirs.named_parameters() if name.startswith("layers.")}
    paths = {
        **{
            path: name.replace("model.layers.*.", "layers.*.mtp_block.")
            for path, name in ours.config.hf_modules.items()
        },
        "blocks.*.join.row_norm": "layers.*.enorm",
        "blocks.*.join.stream_norm": "layers.*.hnorm",
        "blocks.*.join.proj": "layers.*.eh_proj",
        "blocks.*.head_norm": "layers.*.post_norm",
    }
    tensors = {
        path: name.replace("model.layers.*.", "layers.*.mtp_block.") for path, name in ours.config.hf_tensors.items()
    }
    mine = {
        path.replace("mtp.", "blocks."): count
        for path, count in ours.ledger.parameters(unfolded=True).items()
        if path.startswith("mtp.")
    }
    assert renamed(mine, paths, tensors) == by_layer != {}


@pytest.mark.parametrize(
    ("family", "form"),
    [*(("deepseek_v3", form) for form in ("expanded", "absorbed", "unpacked")), ("deepseek_v32", None)],
)
@pytest.mark.parametrize("work", [Workload(13, 13, 3), Workload(17, 4, 3, logits="last"), Workload(17, 1, 2)])
def test_the_reference_runs_them(family: str, form: str | None, work: Workload) -> None:
    ours = load_model("mine", TINY[family], {**TWO, **({"latent_attention": form} if form else {})})
    checks = cross_checks.checks(ours, work, all_layers=False, against=False)
    assert {check.name for check in checks if not check.agrees} == set()
    inside = "mtp.1." if form else "mtp.1.attn.indexer."
    assert any(path.startswith(inside) for path in checks[0].measured)


FAMILIES = ("qwen3_next", "qwen3_5_text", "kimi_linear", "olmo_hybrid")


@pytest.mark.parametrize("family", ["qwen3_next", "kimi_linear"])
@pytest.mark.parametrize(("tokens", "context"), [(64, 64), (65, 65), (128, 200), (129, 200)])
def test_the_class_pads_to_whole_chunks(family: str, tokens: int, context: int) -> None:
    """Around one and two chunks of 64, alone and after earlier tokens."""
    ours, work = tiny(family), Workload(context, tokens, 2)
    theirs, _ = hf.run(hf.build(ours.of_class, ours.config.task_head.auto), **work.sizes)
    assert renamed(class_flops(ours, work)[0], ours.config.hf_module_paths()) == theirs


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_equal_token_by_token(family: str) -> None:
    """More tokens than a chunk has, at once, and one by one from the states of the first run."""
    torch.manual_seed(0)
    (_, part), *_ = tiny(family).architecture.having(DeltaNet)
    module = delta.DeltaNet(part).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    x = torch.randn(2, 70, part.hidden).double()
    with torch.no_grad():
        whole, *states = module(x, None)
        first, *past = module(x[:, :1], None)
        steps = [first]
        for token in range(1, 70):
            out, *past = module(x[:, token : token + 1], tuple(past))
            steps.append(out)
    assert torch.allclose(torch.cat(steps, dim=1), whole, rtol=0, atol=1e-10)
    assert all(torch.allclose(one, other, rtol=0, atol=1e-10) for one, other in zip(past, states, strict=True))


def test_a_class_that_mixes_up_its_sequences_is_compared_as_it_runs(run) -> None:
    command = "verify rwkv-4-169m-pile --decode --ctx 9 --batch 3 --against transformers"
    asked = run(*command.split())
    assert asked.code == 0 and "once per pair of sequences" in asked.out_line


@pytest.mark.parametrize(
    ("up_to", "sliding"), [(0, []), (1, [0]), (2, [0]), (3, [0, 2]), (4, [0, 2]), (5, [0, 2, 4]), (6, [0, 2, 4])]
)
def test_the_last_layer_with_a_window_in_qwen2_moe(up_to: int, sliding: list[int]) -> None:
    """Every other of the first max_window_layers: an even one is the first that has none. So does the class."""
    config = {**TINY["qwen2_moe"], "num_hidden_layers": 6, "max_window_layers": up_to}
    windows = [block.window for block in load_model("mine", config).architecture.blocks()]
    assert [number for number, window in enumerate(windows) if window] == sliding
    fields = {name: value for name, value in config.items() if name != "model_type"}
    kinds = transformers.Qwen2MoeConfig(**fields).layer_types
    assert [number for number, kind in enumerate(kinds) if kind == "sliding_attention"] == sliding


def test_sines_of_a_width_of_one_are_zeros() -> None:
    """`verify --prove m2m_100` ended in a traceback at its smallest sizes."""
    rows = torch.ones(2, 3, 1)
    sines = positions.Sines(Positions(rows=7, hidden=1, layout="sines_then_cosines"))
    assert torch.equal(sines(rows, torch.arange(3)), rows)


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


def test_dynamic_rope_scaling_changes_no_count() -> None:
    """InternLM's files: rope_scaling dynamic. The class reads the length of a text, which meta tensors do not have."""
    scaled = {"rope_type": "dynamic", "factor": 2.0}
    ours = load_model("mine", {**TINY["internlm3"], "rope_scaling": scaled})
    agree(ours, *(Workload(tokens, tokens, 2) for tokens in (5, 2 * ours.context)))


@pytest.mark.parametrize("tied", [True, False])
def test_modernvberts_encoder_is_modernberts(tied: bool) -> None:
    """In its class with a masked LM head, and in ColModernVBERT's, which has the base model in vlm_config."""
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
        one, after = module(x[:, 69:], (state,), step.Step(x, torch.arange(69, 70)))
        seen = torch.cat((first, one), dim=1)
        assert torch.allclose(whole, seen) and torch.allclose(last, after)
        decay = (-(2 ** (-8 * torch.tensor([1, 2, 3, 4]) / 4)) * (1 - 1 / 4 + 1e-5)).exp()
        assert torch.allclose(module.rates(x).exp().flatten()[:4].float(), decay)


def test_a_text_read_backwards_gives_jinas_logits_backwards() -> None:
    """Distances to both sides are equal, and nothing else encodes a token's position."""
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
    """x + O · softmax(QKᵀ / √d) V over normed rows, then x + W₃(gelu(W₁x) · W₂x), and the mean, by hand."""
    torch.manual_seed(5)
    part = load_model("mine", TINY["nvembed"]).architecture.pooler
    module = LatentPooler(part).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
        weights = dict(module.named_parameters())
        x, rows = torch.randn(2, 7, 50, dtype=torch.float64), weights["rows.weight"].expand(2, -1, -1)

        def normed(of: Any, name: str) -> Any:
            return torch.nn.functional.layer_norm(of, (50,), weights[f"{name}.weight"], weights[f"{name}.bias"])

        def heads(of: Any, name: str) -> Any:
            return (of @ weights[f"{name}_proj.weight"].T).view(2, -1, 3, 11).transpose(1, 2)

        q, (k, v) = heads(normed(x, "norm"), "q"), (heads(normed(rows, "rows_norm"), name) for name in "kv")
        read = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        one = x + read @ weights["o_proj.weight"].T
        gate, up = (
            torch.nn.functional.linear(
                normed(one, "mlp_norm"), weights[f"mlp.{n}_proj.weight"], weights[f"mlp.{n}_proj.bias"]
            )
            for n in ("gate", "up")
        )
        down = torch.nn.functional.gelu(gate) * up @ weights["mlp.down_proj.weight"].T + weights["mlp.down_proj.bias"]
        assert torch.allclose(module(x), (one + down).mean(dim=1))


@pytest.mark.parametrize(("whole", "stem"), [("colpali", "ColPali"), ("colqwen2", "ColQwen2")])
def test_a_whole_that_makes_a_vector_of_each_token_is_its_body(whole: str, stem: str) -> None:
    """With the class's small defaults: all of its language model but logits, and a linear layer per token."""
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
