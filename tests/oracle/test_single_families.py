"""Single families compared with their transformers class. Kind: oracle, refusal."""

import json

import pytest

from tests.families import TINY
from tests.helpers.lazy import lazy
from tests.helpers.models import tiny
from tests.helpers.single_families import BODY, T5, by_name
from tfacct import load
from tfacct.architecture.parts import DeltaNet, Positions
from tfacct.base.errors import UsageError
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model
from tfacct.verify import checks as witness
from tfacct.verify.checks import class_flops, renamed

delta, hf, mamba = lazy("tfacct.reference.delta"), lazy("tfacct.reference.hf"), lazy("tfacct.reference.mamba")
positions, torch, transformers = lazy("tfacct.reference.positions"), lazy("torch"), lazy("transformers")


def test_verify_asks_the_class_itself(run) -> None:
    ran = run("verify", "gpt2", "--ctx", "9", "--against", "transformers", "--set", BODY.format("GPT2Model"))
    assert ran.code == 0 and "transformers, cached elements" in ran.out


def test_published_version_1_1_has_a_head_of_its_own() -> None:
    """Flan-T5 base, published with 247,577,856 parameters: untied, gated, 32,128 tokens of 768."""
    fields = {"d_ff": 2048, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    model = load(T5, **fields)
    assert model.params().total == 247_577_856
    with pytest.raises(UsageError, match="it ties the head even with tie_word_embeddings = false"):
        model.verify(ctx=5, against="transformers")


def test_lightning_attention_verifies(run, tmp_path) -> None:
    """fvcore knows every operator of the reference, in chunks and by one token."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY["minimax"]))
    for tokens in ("29", "7", "1"):
        ran = run("verify", str(path), "--ctx", "29", "--tokens", tokens)
        assert ran.code == 0 and "checks agree exactly" in ran.out


@pytest.mark.parametrize("work", [Workload(17, 17, 3), Workload(17, 1, 3), Workload(97, 20, 2)])
def test_every_witness_agrees_on_the_form_of_its_step(work: Workload) -> None:
    checks = witness.checks(by_name()["auto"], work, all_layers=False, against=False)
    assert {check.name for check in checks if not check.agrees} == set()
    assert checks[0].formula == by_name()["auto"].ledger.flops(work.axes(), unfolded=True)


def test_the_class_is_asked_for_what_it_runs() -> None:
    auto, work = by_name()["auto"], Workload(17, 1, 3)
    checks = {check.name: check for check in witness.class_checks(auto, work)}
    assert all(check.agrees for check in checks.values()) and len(checks) == 3
    expanded = by_name()["expanded"].ledger.total_flops(work.axes())
    assert checks["transformers, forward"].totals[1] == expanded != auto.ledger.total_flops(work.axes())


def test_the_recurrence_is_the_loop_it_stands_for() -> None:
    """hₜ = exp(stepₜ · A) · hₜ₋₁ + stepₜ · xₜ · Bₜ, token by token, with and without a state before the first."""
    torch.manual_seed(0)
    recurrence = mamba.Recurrence(4, 3).double()
    torch.nn.init.normal_(recurrence.weight)
    for tokens in (1, 2, 3, 8, 13):
        x, step = torch.randn(2, tokens, 4).double(), torch.rand(2, tokens, 4).double()
        entry, before = torch.randn(2, tokens, 3).double(), torch.randn(2, 4, 3).double()
        for state in (None, before):
            h, wanted = torch.zeros_like(before) if state is None else state, []
            for t in range(tokens):
                decay = torch.exp(step[:, t, :, None] * -torch.exp(recurrence.weight))
                h = decay * h + (step[:, t] * x[:, t])[..., None] * entry[:, t, None]
                wanted.append(h)
            assert torch.allclose(recurrence(x, step, entry, state), torch.stack(wanted, 1), rtol=0, atol=1e-12)


TWO = {"mtp": True, "num_nextn_predict_layers": 2}


@pytest.mark.parametrize("family", ["deepseek_v3", "deepseek_v32"])
def test_their_parameters_are_the_classs(family: str) -> None:
    ours = load_model("mine", TINY[family], TWO)
    raw = {name: value for name, value in ours.raw.items() if name != "mtp"}
    built = hf.build(raw)
    built.config.num_mtp_layers = 2  # V3.2's config has it by the older name alone
    if family == "deepseek_v32":
        built.config.mtp_layer_types = built.config.layer_types[-1:] * 2
        built.config.mtp_mlp_layer_types = built.config.mlp_layer_types[-1:] * 2
    with torch.device("meta"):
        theirs = transformers.modeling_layers.MtpModel(built, 2)
    by_layer: dict[str, int] = {}
    for name, parameter in theirs.named_parameters():
        if name.startswith("layers."):
            by_layer[name] = parameter.numel()
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
    checks = witness.checks(ours, work, all_layers=False, against=False)
    assert {check.name for check in checks if not check.agrees} == set()
    inside = "mtp.1." if form else "mtp.1.attn.indexer."
    assert any(path.startswith(inside) for path in checks[0].measured)


FAMILIES = ("qwen3_next", "qwen3_5_text", "kimi_linear", "olmo_hybrid")


@pytest.mark.parametrize("family", ["qwen3_next", "kimi_linear"])
@pytest.mark.parametrize(("tokens", "context"), [(64, 64), (65, 65), (128, 200), (129, 200)])
def test_the_class_pads_to_whole_chunks(family: str, tokens: int, context: int) -> None:
    """Around one and two chunks of 64, alone and behind a past."""
    ours, work = tiny(family), Workload(context, tokens, 2)
    theirs, _ = hf.run(hf.build(ours.of_class, ours.config.task_head.auto), **work.sizes)
    assert renamed(class_flops(ours, work)[0], ours.config.hf_module_paths()) == theirs


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_give_what_token_by_token_gives(family: str) -> None:
    """More tokens than a chunk has, at once, and one after the other from the states that the first left."""
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
    assert asked.code == 0 and "once per pair of sequences" in " ".join(asked.out.split())


def test_what_no_reference_runs_is_refused(run) -> None:
    config = {"model_type": "rwkv", "hidden_size": 64, "num_attention_heads": 4}
    refused = run("params", "-", stdin=json.dumps(config).encode())
    assert refused.code == 2 and "num_attention_heads" in refused.err
    ran = run("mfu", "--run", "mamba-130m", "--ctx", "8", "--sdpa")
    assert ran.code == 2 and "mamba-130m has none" in ran.err


def test_voxtrals_encoder_by_hand() -> None:
    """Whisper's, of 30 seconds: convolutions of three frames, 1,500 positions, 32 layers whose keys have no biases."""
    ours = load("voxtral-mini-3b-audio")
    layer = 4 * 1280**2 + 3 * 1280 + 2 * 1280 * 5120 + 5120 + 1280 + 4 * 1280
    front = 3 * 128 * 1280 + 1280 + 3 * 1280**2 + 1280 + 1500 * 1280
    assert ours.params().total == front + 32 * layer + 2 * 1280 == 636_968_960
    stem = 3000 * 3 * 128 * 1280 + 1500 * 3 * 1280**2  # the first convolution runs over all frames
    blocks = 32 * (1500 * (4 * 1280**2 + 2 * 1280 * 5120) + 2 * 1500**2 * 1280)
    assert ours.flops().total == 2 * (stem + blocks)


@pytest.mark.parametrize("name", ["glm-4.1v-9b-vision", "kimi-k2.5-vision", "qwen3-vl-4b-vision", "dinov3-vits16"])
def test_a_tower_of_published_size_is_verified(name: str) -> None:
    """Its places in the table of positions are numbers on meta too, where torch's own kernels mix no devices."""
    assert load(name).verify().agrees


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
