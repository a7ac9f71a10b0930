"""`check` of other authors' modules: equal ones agree, and a planted mistake is found and named. Kind: oracle,
refusal.
"""

import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.classes import causal
from tests.helpers.cli import Run
from tests.helpers.lazy import lazy
from tests.helpers.models import tiny
from tests.helpers.schemas import refused
from tests.helpers.user_module_configs import GPT2, LLAMA
from tests.helpers.weight_files import folder
from tfacct.base.errors import TfacctError
from tfacct.verify.matching import CodeTensor, Match, match, places
from tfacct.verify.user_module import _sizes

torch, own, user_module = lazy("torch"), lazy("tests.helpers.user_modules"), lazy("tfacct.reference.user_module")
user_module_fvcore, watching = lazy("tfacct.reference.user_module_fvcore"), lazy("tfacct.reference.watching")
hf = lazy("tfacct.reference.hf")
HERE = Path(__file__).parents[1] / "helpers" / "user_modules.py"
# two tables; 3 blocks of q, k, v, o with shifts, up and down with shifts, two norms with shifts; a norm
GPT_PARAMETERS = (101 + 64) * 48 + 3 * (4 * (48**2 + 48) + 2 * 48 * 190 + 190 + 48 + 4 * 48) + 2 * 48
# 2 · 9 tokens: the same matrices, scores and values of 4 heads of 12; 1 position of the head
GPT_FLOPS = 2 * 9 * 3 * (4 * 48**2 + 2 * 48 * 190 + 2 * 9 * 48) + 2 * 48 * 101
# table and head; 3 blocks of q, o 48·60, k, v 48·20, three 48·112, two norms; a norm
LLAMA_PARAMETERS = 2 * 101 * 48 + 3 * (2 * 48 * 60 + 2 * 48 * 20 + 3 * 48 * 112 + 2 * 48) + 48
LLAMA_FLOPS = 2 * 9 * (3 * (2 * 48 * 60 + 2 * 48 * 20 + 3 * 48 * 112 + 2 * 9 * 60) + 48 * 101)


def test_hand_written_models_are_what_their_configs_say() -> None:
    report = tfacct.check(own.GPT, GPT2, tokens=9)
    assert report.agrees, report.answer
    assert (report.code_params, report.total_params) == (GPT_PARAMETERS,) * 2
    assert (report.code_flops, report.total_flops) == (GPT_FLOPS,) * 2
    assert "computes only the last position's logits" in str(report.notes) and report.code_cache_bytes is None
    report = tfacct.check(own.Llama, LLAMA, tokens=9)
    assert report.agrees, report.answer
    assert (report.code_params, report.total_params) == (LLAMA_PARAMETERS,) * 2
    assert (report.code_flops, report.total_flops) == (LLAMA_FLOPS,) * 2
    # keys and values of 3 blocks, 9 tokens, 2 heads of 10, in fp32
    assert (report.code_cache_bytes, report.total_cache_bytes) == (2 * 3 * 9 * 2 * 10 * 4,) * 2
    assert report.first_difference is None and "3 × (m" not in report.answer


def test_lists_of_weights_are_paired_and_fvcore_counts_their_einsums_exactly() -> None:
    """fvcore's own rule prints the FLOPs of an einsum with four digits: 1,431,230 in place of 1,431,216 here. With 6
    key/value heads instead of 2, which run in no module of a layer, no layer is called empty."""
    report = tfacct.check(own.Listed, LLAMA, tokens=9)
    assert report.agrees, report.answer
    assert (report.code_flops, report.code_fvcore_flops) == (LLAMA_FLOPS,) * 2
    report = tfacct.check(partial(own.Listed, kv=6), LLAMA, tokens=9)
    found = [(one["path"], one["in_code"], one["in_config"]) for one in report.differences]
    assert found == [(f"blocks.0.attn.{part}_proj", 3 * 48 * 60, 3 * 48 * 20) for part in "kv"]
    assert report.code_flops == LLAMA_FLOPS + 2 * 9 * 3 * 2 * 48 * 40


def test_a_module_without_a_result_is_counted_once() -> None:
    report = tfacct.check(own.Silent, LLAMA, tokens=9)
    assert report.agrees and report.code_flops == LLAMA_FLOPS and report.code_fvcore_flops is None
    assert report.fvcore_reason == "the module returns no tensors, so its trace is empty"


@pytest.mark.parametrize("made", [lambda: own.Llama, lambda: own.Llama()])
def test_fvcore_is_asked_too(made: Callable[[], Any]) -> None:
    """On meta, and with numbers: fvcore's total is compared with torch's."""
    report = tfacct.check(made(), LLAMA, tokens=9)
    assert (report.code_fvcore_flops, report.fvcore_reason) == (LLAMA_FLOPS, None)
    assert "FLOPs, 2 × fvcore's count" in str(report)


def test_a_difference_between_the_counters_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_module_fvcore, "multiply_adds", lambda *_, **__: LLAMA_FLOPS // 2 + 1)
    report = tfacct.check(own.Llama, LLAMA, tokens=9)
    assert not report.agrees
    assert report.first_difference == (
        f"the whole model: {LLAMA_FLOPS + 2:,} FLOPs in the code by fvcore, {LLAMA_FLOPS:,} by torch's formulas"
    )


def test_what_fvcore_skips_is_named() -> None:
    class Vectors(own.GPT):  # type: ignore[misc, valid-type]
        """A product of a matrix and a vector, which fvcore does not count."""

        def forward(self, ids: Any) -> Any:
            logits, *more = super().forward(ids)
            return logits + torch.mv(logits[0], logits[0, 0])[:1, None], *more

    report = tfacct.check(Vectors, GPT2, tokens=9)
    assert not report.agrees and report.code_fvcore_flops is None
    assert report.fvcore_reason == "it has no rule for aten::mv"
    assert "Not counted by fvcore: it has no rule for aten::mv." in report.notes


def test_pointwise_operators_of_torch_are_no_matmul() -> None:
    """fvcore has no rule for a reciprocal."""

    class Scaled(own.GPT):  # type: ignore[misc, valid-type]
        def forward(self, ids: Any) -> Any:
            logits, *more = super().forward(ids)
            return logits.reciprocal(), *more

    report = tfacct.check(Scaled, GPT2, tokens=9)
    assert report.agrees and report.code_fvcore_flops == report.total_flops and report.fvcore_reason is None


def test_torchs_own_encoder_layers_are_a_gpt2() -> None:
    report = tfacct.check(own.Encoded, GPT2, tokens=9)
    assert report.agrees, report.answer
    assert report.code_params == GPT_PARAMETERS and report.code_flops == GPT_FLOPS + 2 * 8 * 48 * 101


@pytest.mark.parametrize("batch", [1, 3])
def test_a_module_with_numbers_is_not_changed_and_counts_alike(batch: int) -> None:
    module = own.Llama()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module.train()
    report = tfacct.check(module, LLAMA, tokens=9, batch=batch)
    assert report.agrees and report.code_flops == batch * LLAMA_FLOPS and module.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(not hook for inner in module.modules() for hook in (inner._forward_hooks, inner._forward_pre_hooks))
    assert tfacct.check(module, LLAMA, tokens=9, batch=batch, device="cpu").code_flops == report.code_flops


def one_block_wider() -> Any:
    module = own.Llama()
    module.layers[1].feed_forward = own.Gated(48, 120)
    return module


def a_bias_too_many() -> Any:
    module = own.Llama()
    for layer in module.layers:
        layer.attention.wo = torch.nn.Linear(60, 48)
    return module


@pytest.mark.parametrize(
    ("module", "config", "first", "blocks"),
    [
        (lambda: own.untied(), GPT2, "lm_head: a separate weight in the code, tied to the embedding in the config", 1),
        (lambda: own.Llama(size=12), LLAMA, "blocks.0.attn.q_proj: 72 wide in the code, 60 in the config", 3),
        (lambda: own.Llama(kv=6), LLAMA, "blocks.0.attn.k_proj: 60 wide in the code, 20 in the config", 3),
        (a_bias_too_many, LLAMA, "blocks.0.attn.o_proj.bias: 48 parameters in the code, not in the config", 3),
        (one_block_wider, LLAMA, "blocks.1.mlp.gate_proj: 120 wide in the code, 112 in the config", 1),
        (lambda: own.GPT(vocab=128), GPT2, "embed: 128 rows in the code, 101 in the config", 1),
        (lambda: own.GPT(f=192), GPT2, "blocks.0.mlp.up_proj: 192 wide in the code, 190 in the config", 3),
        (lambda: own.GPT(layers=4), GPT2, "blocks: 4 in the code, 3 in the config", 1),
        (lambda: own.Llama(layers=2), LLAMA, "blocks: 2 in the code, 3 in the config", 1),
        (lambda: own.Llama(layers=1), LLAMA, "blocks: 1 in the code, 3 in the config", 1),
        (lambda: own.GPT(layers=1), GPT2, "blocks: 1 in the code, 3 in the config", 1),
        (
            lambda: own.Encoded(bias=False),
            GPT2,
            "blocks.0.attn_norm.bias: 48 parameters in the config, not in the code",
            3,
        ),
        (lambda: own.GPT(), {**GPT2, "tie_word_embeddings": False},
         "lm_head: tied to body.tok.weight in the code, a separate weight in the config", 1),
    ],
    ids="untied head kv bias one vocab width more fewer single alone biases tied".split(),
)  # fmt: skip
def test_a_planted_mistake_is_named(module: Any, config: dict[str, Any], first: str, blocks: int) -> None:
    report = tfacct.check(module, config, tokens=9)
    assert not report.agrees and report.first_difference == first
    assert report.differences[0]["block_count"] == blocks
    assert report.answer.startswith(f"First difference: {first}")
    by_unit = [one for one in report.differences if one["unit"] == "parameters"]
    apart = sum(one["in_code"] - one["in_config"] for one in by_unit)
    assert apart == report.code_params - report.total_params  # each difference is reported once


@pytest.mark.parametrize(
    ("embedding", "shape", "says"),
    [
        *((False, shape, "192 wide in the code, 190 in the config") for shape in ((192, 48), (48, 192))),
        *((False, shape, "50 inputs in the code, 48 in the config") for shape in ((190, 50), (50, 190))),
        (False, (192, 50), "192 × 50 in the code, 190 × 48 in the config"),
        (True, (128, 48), "128 rows in the code, 101 in the config"),
        (True, (101, 50), "50 wide in the code, 48 in the config"),
    ],
)
def test_the_side_that_differs_is_named(embedding: bool, shape: tuple[int, int], says: str) -> None:
    """Of an up projection of 190 × 48 and an embedding of 101 × 48, whichever side the code has first."""
    path = "embed.weight" if embedding else "blocks.*.mlp.up_proj.weight"
    tensor = next(one for one in tfacct.load(GPT2).loaded.ledger.tensors() if one.path == path)
    assert _sizes(Match((tensor,), CodeTensor((user_module.Weight("w", shape),)))) == says


def test_norms_by_any_name_are_paired_by_shape_and_position() -> None:
    report = tfacct.check(own.ShortNames, LLAMA, tokens=9)
    assert report.agrees and report.answer.endswith("; 7 tensors paired by shape."), report.answer  # 2 in 3 layers, 1
    assert report.code_params == report.total_params == LLAMA_PARAMETERS and report.paired_by["position"] == 3
    names = {line["path"]: line["name"] for line in report.lines}
    assert names["blocks.*.attn_norm.weight"] == "b.*.n1.w" and names["blocks.*.mlp_norm.weight"] == "b.*.n2.w"
    assert "b.*.n1.w" in str(report.notes)
    wider = tfacct.check(lambda: own.ShortNames(f=120), LLAMA, tokens=9)
    assert wider.first_difference == "blocks.0.mlp.gate_proj: 120 wide in the code, 112 in the config"
    assert [one["path"].rpartition(".")[2] for one in wider.differences] == ["gate_proj", "up_proj", "down_proj"]


def test_names_that_mislead_give_way_to_shapes_that_all_agree() -> None:
    report = tfacct.check(own.Misnamed, LLAMA, tokens=9)
    assert report.agrees and report.answer.endswith("; 21 tensors paired by shape."), report.answer  # 6 in 3 layers, 3
    assert report.code_params == report.total_params == LLAMA_PARAMETERS and report.code_flops == LLAMA_FLOPS
    names = {line["path"]: line["name"] for line in report.lines}
    assert names["blocks.*.attn_norm.weight"] == "layers.*.p.w" and names["blocks.*.mlp_norm.weight"] == "layers.*.q.w"
    wider = tfacct.check(lambda: own.Misnamed(f=120), LLAMA, tokens=9)
    assert not wider.agrees and wider.code_params - wider.total_params == 3 * 3 * 48 * 8


def opaque(kv: int) -> Any:
    module = own.Llama(size=8)
    for layer in module.layers:
        layer.attention = own.Opaque(kv)
    return module


@pytest.mark.parametrize(("kv", "wanted"), [(2, 2), (2, 1), (6, 3)])
def test_keys_are_not_taken_for_keys_and_values_in_one(kv: int, wanted: int) -> None:
    """With twice the heads of the config, a matmul has as many rows as its keys and values together."""
    config = {**LLAMA, "head_dim": 8, "num_key_value_heads": wanted}
    report = tfacct.check(lambda: opaque(kv), config, tokens=9)
    wide = f"{8 * kv} wide in the code, {8 * wanted} in the config"
    found = [(one["path"], one["difference"]) for one in report.differences if one["unit"] == "parameters"]
    assert found == [(f"blocks.0.attn.{name}", wide) for name in ("k_proj", "v_proj") if kv != wanted]
    assert report.agrees is (kv == wanted)


def test_a_bias_is_no_norm_of_the_same_size() -> None:
    report = tfacct.check(lambda: own.ShortNames(last=own.Shift), LLAMA, tokens=9)
    assert report.code_params == report.total_params and not report.agrees
    assert report.first_difference == "final_norm: 48 parameters in the config, not in the code"
    wider = tfacct.check(lambda: own.ShortNames(f=120, last=own.Shift), LLAMA, tokens=9)
    assert wider.first_difference == "blocks.0.mlp.gate_proj: 120 wide in the code, 112 in the config"


@pytest.mark.parametrize(("without", "first"), [("proj", "attn.o_proj"), ("out", "mlp.down_proj")])
def test_a_bias_is_paired_with_the_module_of_its_weight(without: str, first: str) -> None:
    """Both biases have 48 elements, and no name says which module belongs to attention."""

    def made() -> Any:
        module = own.GPT()
        for layer in module.body["layers"]:
            layer.proj, layer.out = layer.attn.c_proj, layer.mlp[2]
            layer.forward = partial(flat, layer, layer.attn.c_attn, layer.mlp[0])
            getattr(layer, without).bias = None
            layer.qkv, layer.fc = layer.attn.c_attn, layer.mlp[0]
            del layer.attn, layer.mlp
        return module

    def flat(layer: Any, qkv: Any, fc: Any, x: Any) -> Any:
        q, k, v = (y.unflatten(-1, (4, 12)).transpose(1, 2) for y in qkv(layer.ln_1(x)).split(48, dim=2))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + layer.proj(y.transpose(1, 2).flatten(2))
        return x + layer.out(torch.nn.functional.gelu(fc(layer.ln_2(x))))

    report = tfacct.check(made, GPT2, tokens=9)
    assert report.first_difference == f"blocks.0.{first}.bias: 48 parameters in the config, not in the code"
    names = {line["path"]: line["name"] for line in report.lines}
    assert names["blocks.*.attn.o_proj.weight"] == "body.layers.*.proj.weight"
    assert names["blocks.*.mlp.down_proj.weight"] == "body.layers.*.out.weight"


HYBRIDS = "bamba gemma4_text jamba kimi_linear lfm2 mllama_text_model nemotron_h qwen3_next recurrent_gemma".split()


@pytest.mark.parametrize("family", HYBRIDS)
def test_layers_of_several_kinds_are_paired_by_the_names_of_the_class(family: str) -> None:
    """The class has one name for the norms, or the queries, of all kinds; the map of the pairs names them apart."""
    ours = tiny(family)
    weights = user_module.weights(hf.build(ours.of_class, ours.config.task_head.auto))
    found = match(ours, weights)
    assert found.complete and len(found.matches) == len([one for one in weights if not one.same_as and not one.buffer])
    assert any("…" in name for name in found.pairs) is (family != "gemma4_text")
    assert match(ours, weights, found.pairs).by["map"] == len(found.pairs)


def in_one_list() -> Any:
    """Embeddings, blocks, norm and an untied head as a single `nn.Sequential`."""
    gpt = own.GPT(tied=False)

    class Embedded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok, self.pos = gpt.body["tok"], gpt.body["pos"]

        def forward(self, ids: Any) -> Any:
            return self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))

    return torch.nn.Sequential(Embedded(), *gpt.body["layers"], gpt.body["ln_f"], gpt.head)


def test_blocks_are_found_in_a_list_with_other_modules() -> None:
    report = tfacct.check(in_one_list, GPT2, tokens=9)
    assert [(one["name"], one["in_code"]) for one in report.differences] == [("5.weight", 101 * 48)]
    assert tfacct.check(in_one_list, {**GPT2, "tie_word_embeddings": False}, tokens=9).agrees


@pytest.mark.parametrize("inner", ["base", "linear", "base_layer"])
def test_adapters_are_the_only_difference(inner: str) -> None:
    """LoRA of rank 4 on q, k and v in one matmul. The base matmul is the config's; its FLOPs are no difference."""

    class Adapted(torch.nn.Module):
        def __init__(self, base: Any) -> None:
            super().__init__()
            setattr(self, inner, base)
            self.lora_A, self.lora_B = torch.nn.Linear(48, 4, bias=False), torch.nn.Linear(4, 144, bias=False)

        def forward(self, x: Any) -> Any:
            return getattr(self, inner)(x) + self.lora_B(self.lora_A(x))

    def made() -> Any:
        module = own.GPT()
        for layer in module.body["layers"]:
            layer.attn.c_attn = Adapted(layer.attn.c_attn)
        return module

    report = tfacct.check(made, GPT2, tokens=9)
    found = [(one["name"].split(".")[-2], one["in_code"], one["unit"]) for one in report.differences]
    assert found == [("lora_A", 3 * 4 * 48, "parameters"), ("lora_B", 3 * 4 * 144, "parameters")]
    assert report.code_flops == GPT_FLOPS + 2 * 9 * 3 * 4 * (48 + 144)


def test_work_without_weights_that_is_done_twice_is_found_in_its_block() -> None:
    def module() -> Any:
        built = own.GPT()
        built.body["layers"][2].attn.__class__ = own.Twice
        return built

    report = tfacct.check(module, GPT2, tokens=9)
    both = 2 * 2 * 9 * 9 * 48
    assert report.code_params == report.total_params and report.code_flops == GPT_FLOPS + both // 2
    assert report.first_difference is not None
    assert report.first_difference.startswith(
        f"blocks.2: {both + both // 2:,} FLOPs in the code, {both:,} in the config, in matmuls without weights"
    )


def test_a_cache_of_another_size_is_found() -> None:
    class Repeated(own.Llama):
        def forward(self, tokens: Any) -> Any:
            logits, cache = super().forward(tokens)
            return logits, [(k.repeat(1, 1, 3, 1), v) for k, v in cache]

    report = tfacct.check(Repeated, LLAMA, tokens=9)
    keys = 3 * 9 * 2 * 10 * 4
    assert report.first_difference == f"KV cache: {4 * keys:,} bytes in the code, {2 * keys:,} in the config"


def test_a_kernel_of_somebody_is_refused_by_name() -> None:
    with pytest.raises(TfacctError, match=r"it runs tfacct_tests\.mystery\.default, a kernel that cannot be counted"):
        tfacct.check(own.fused, GPT2, tokens=4)


def test_kernels_that_torch_does_not_count_are_counted() -> None:
    """Matrices times vectors, and attention of 5 queries and 7 keys, for 2 sequences and 3 heads of 8."""

    class Plain(torch.nn.Module):
        def forward(self, w: Any, x: Any, q: Any, k: Any) -> Any:
            read = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, k)[0]
            return torch.dot(w @ x, torch.mv(w, x)) + read

    given = tuple(torch.zeros(*sizes) for sizes in ((5, 7), (7,), (2, 3, 5, 8), (2, 3, 7, 8)))
    vectors, attention = 2 * (5 * 7 + 5 * 7 + 5), 2 * (2 * 3 * 5 * 7 * (8 + 8))
    assert sum(watching.watch(Plain(), 1, 1, given=given).flops.values()) == vectors + attention


def test_a_file_that_cannot_be_imported_says_why(run: Run, tmp_path: Path) -> None:
    for text, message in {
        "import no_such_package_here": "it imports no_such_package_here, which is not installed",
        "def broken(:": "cannot be imported: it raised SyntaxError",
        "x = 1 / 0": "cannot be imported: it raised ZeroDivisionError: division by zero (mine.py, line 1)",
    }.items():
        (tmp_path / "mine.py").write_text(text)
        ran = run("check", f"{tmp_path / 'mine.py'}:build", "--config", "gpt2")
        assert ran.code == 2 and message in ran.err_line, ran.err


def test_a_factory_may_bring_its_inputs_and_python_may_give_them() -> None:
    """They say how many tokens are counted."""
    built = user_module.called(own.vectors, "vectors")
    assert sum(watching.watch(built.module, 1, 1, given=built.inputs).flops.values()) == 2 * 2 * 3 * 5
    tokens = torch.zeros(2, 9, dtype=torch.long)
    for given in (tokens, (tokens,), {"tokens": tokens}):
        report = tfacct.check(own.Llama, LLAMA, inputs=given)
        assert report.agrees and (report.workload["batch"], report.workload["tokens"]) == (2, 9)
    report = tfacct.check(lambda: (own.Llama(), (tokens,)), LLAMA)
    assert report.agrees and (report.workload["batch"], report.workload["tokens"]) == (2, 9)
    made = tfacct.check(own.Llama, LLAMA, tokens=9, inputs=lambda batch, count: torch.zeros(batch, count).long())
    assert made.agrees and made.workload["tokens"] == 9


def test_the_command_says_agree_and_differ_in_its_exit_code(run: Run, tmp_path: Path) -> None:
    file = folder(tmp_path, GPT2) / "config.json"
    right = run("check", f"{HERE}:gpt", "--config", str(file), "--input-shape", "2,9")
    assert right.code == 0 and f"all {GPT_PARAMETERS:,} parameters" in right.out_line
    assert "built" in right.err and "built" not in right.out  # what the code prints is no part of the report
    wrong = run("check", f"{HERE}:untied", "--config", str(file), "--json")
    (model,) = wrong.models
    assert wrong.code == 1 and not model["agrees"] and model["differences"][0]["name"] == "head.weight"
    assert refused(wrong.document, "check") == []
    for columns in (60, 80, 120):
        shown = run("check", f"{HERE}:untied", "--config", str(file), columns=columns).out
        assert max(map(len, shown.splitlines())) <= columns
        assert "in the code" in " ".join(shown.split()) and "Columns not shown" not in shown and "head.weight" in shown
        assert f"against {tmp_path.name}, " in " ".join(shown.split())
    for shape in ("9", "2,9,1", "0,9", "2,x"):
        assert run("check", f"{HERE}:gpt", "--config", str(file), "--input-shape", shape).code == 2


def test_a_map_says_which_tensor_is_which(run: Run, tmp_path: Path) -> None:
    config, pairs = tmp_path / "config.json", tmp_path / "paths.toml"
    config.write_text(json.dumps(GPT2))
    asked = ("check", f"{HERE}:gpt", "--config", str(config))
    assert run(*asked, "--propose-map", str(pairs)).code == 0
    text = pairs.read_text()
    assert '"body.layers.*.mlp.0.weight" = "blocks.*.mlp.up_proj.weight"' in text
    assert (
        '"body.layers.*.attn.c_attn.weight" = ["blocks.*.attn.q_proj.weight", "blocks.*.attn.k_proj.weight", ' in text
    )
    assert "already exists" in run(*asked, "--propose-map", str(pairs)).err
    ran = run(*asked, "--map", str(pairs), "--json")
    (model,) = ran.models
    assert ran.code == 0 and model["paired_by"] == {"map": 16, "names": 0, "shape": 0, "position": 0}
    # two of them exchanged: a map is believed
    up, down = '"blocks.*.mlp.up_proj.bias"', '"blocks.*.mlp.down_proj.bias"'
    pairs.write_text(text.replace(up, "?").replace(down, up).replace("?", down))
    out = run(*asked, "--map", str(pairs)).out_line
    assert "blocks.0.mlp.up_proj.bias: 48 wide in the code, 190 in the config" in out
    for line, message in {
        '"body.tik.weight" = "embed.weight"': "did you mean body.tok.weight",
        '"body.tok.weight" = "embd.weight"': "did you mean embed.weight",
        '"body.tok.weight" = 3': "must be a tensor path",
        '"body.tok.weight" = "embed.weight"\n"body.pos.weight" = "embed.weight"': "'embed.weight' twice",
        "nonsense": "is not TOML",
    }.items():
        pairs.write_text(line)
        ran = run(*asked, "--map", str(pairs))
        assert ran.code == 2 and message in ran.err_line, ran.err
    assert tfacct.check(own.GPT, GPT2, paths={"body.ln_f.weight": "final_norm.weight"}).agrees


def test_heads_that_are_modules_and_layers_in_two_lists_are_paired() -> None:
    """Weights split into several tensors of a layer, and layers that are two entries of a list."""
    heads = {f"blocks.{n}.sa.heads.{h}.key.weight": (8, 48) for n in range(2) for h in range(6)}
    assert {place.template for place in places(heads, 2).values()} == {"blocks.*.sa.heads.*.key.weight"}
    flat = {f"layers.{n}.{('norm.g', 'to_q.weight')[n % 2]}": (8,) for n in range(6)}
    assert {place.template for place in places(flat, 3).values()} == {"layers.2*+0.norm.g", "layers.2*+1.to_q.weight"}


def as_in_litgpt(kv: int = 2, size: int = 10, *, bias: bool = False) -> Any:
    """A Llama with litgpt's names, and queries, keys and values in one matmul."""
    nn = torch.nn

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm_1, self.norm_2 = own.Norm(48), own.Norm(48)
            fused, out = nn.Linear(48, size * (6 + 2 * kv), bias=bias), nn.Linear(size * 6, 48, bias=False)
            self.attn = nn.ModuleDict({"qkv": fused, "proj": out})
            self.mlp = nn.ModuleDict({name: nn.Linear(48, 112, bias=False) for name in ("fc_1", "fc_2")})
            self.mlp["proj"] = nn.Linear(112, 48, bias=False)

        def forward(self, x: Any) -> Any:
            q, k, v = self.attn["qkv"](self.norm_1(x)).unflatten(-1, (-1, size)).transpose(1, 2).split([6, kv, kv], 1)
            read = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.attn["proj"](read.transpose(1, 2).flatten(2))
            y = self.norm_2(x)
            return x + self.mlp["proj"](nn.functional.silu(self.mlp["fc_1"](y)) * self.mlp["fc_2"](y))

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            blocks = nn.Sequential(*(Layer() for _ in range(3)))
            self.transformer = nn.ModuleDict({"wte": nn.Embedding(101, 48), "h": blocks, "ln_f": own.Norm(48)})
            self.lm_head = nn.Linear(48, 101, bias=False)

        def forward(self, ids: Any) -> Any:
            return self.lm_head(self.transformer["ln_f"](self.transformer["h"](self.transformer["wte"](ids))))

    return GPT()


FUSED = "blocks.0.attn.q_proj + k_proj + v_proj"


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({}, None),
        ({"kv": 6}, f"{FUSED}: 180 wide in the code, 100 in the config"),
        ({"size": 12}, f"{FUSED}: 120 wide in the code, 100 in the config"),
        ({"bias": True}, f"{FUSED}.bias: 100 parameters in the code, not in the config"),
    ],
)
def test_a_fused_matmul_is_named_by_all_that_it_holds(settings: dict[str, Any], first: str | None) -> None:
    report = tfacct.check(lambda: as_in_litgpt(**settings), LLAMA, tokens=9)
    assert report.first_difference == first and report.agrees == (first is None), report.answer
    names = {line["path"]: line["name"] for line in report.lines}
    for role, name in {"gate": "fc_1", "up": "fc_2", "down": "proj"}.items():
        assert names[f"blocks.*.mlp.{role}_proj.weight"] == f"transformer.h.*.mlp.{name}.weight"


@pytest.mark.parametrize(
    ("kv", "first"), [(2, None), (6, "blocks.0.attn.k_proj: 60 wide in the code, 20 in the config")]
)
def test_a_block_may_be_two_entries_of_a_list(kv: int, first: str | None) -> None:
    """As in x-transformers: attention and MLPs alternate."""

    class Halved(own.Llama):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(kv=kv)
            halves = [
                half
                for layer in self.layers
                for half in (
                    {"norm": layer.attention_norm, "attn": layer.attention},
                    {"norm": layer.ffn_norm, "ff": layer.feed_forward},
                )
            ]
            self.layers = torch.nn.ModuleList(map(torch.nn.ModuleDict, halves))

        def forward(self, tokens: Any) -> Any:
            x = self.tok_embeddings(tokens)
            for half in self.layers:
                y = half["norm"](x)
                x = x + (half["ff"](y) if "ff" in half else half["attn"](y)[0])
            return self.output(self.norm(x))

    report = tfacct.check(Halved, LLAMA, tokens=9)
    assert report.first_difference == first and report.agrees == (first is None), report.answer


def class_of(name: str, **sets: Any) -> Any:
    """The transformers class of a preset, with some fields set."""
    return causal({**tfacct.load(name).config, **sets})


@pytest.mark.parametrize("name", ["gpt2", pytest.param("llama-3.1-8b", marks=pytest.mark.slow), "qwen2-0.5b"])
def test_transformers_classes_agree_in_full_size_and_a_planted_mistake_is_found(name: str) -> None:
    model = tfacct.load(name)
    report = tfacct.check(partial(class_of, name), model, tokens=16)
    assert report.agrees, report.answer
    assert report.code_params == model.params().total and report.code_flops == model.flops(ctx=16).total
    assert report.code_cache_bytes == model.kv(ctx=16, dtype="fp32" if name == "gpt2" else "bf16").total
    assert report.paired_by["shape"] == 0
    wrong, first = {
        "gpt2": ({"tie_word_embeddings": False}, "lm_head: a separate weight in the code, tied to"),
        "llama-3.1-8b": ({"num_key_value_heads": 32}, "blocks.0.attn.k_proj: 4,096 wide in the code, 1,024 in"),
        "qwen2-0.5b": ({"intermediate_size": 4_800}, "blocks.0.mlp.gate_proj: 4,800 wide in the code, 4,864 in"),
    }[name]
    assert (tfacct.check(partial(class_of, name, **wrong), model, tokens=16).first_difference or "").startswith(first)


@pytest.mark.parametrize("name", ["gpt2", pytest.param("qwen2-0.5b", marks=pytest.mark.slow)])
def test_saved_activations_are_compared_to_the_byte(name: str) -> None:
    model, build = tfacct.load(name), partial(class_of, name)

    def greedy() -> Any:
        """The MLP of its second layer multiplies its result by its sigmoid, and saves both."""
        built = build()
        block = (built.transformer.h if name == "gpt2" else built.model.layers)[1].mlp
        block.register_forward_hook(lambda _module, _args, out: out * out.sigmoid())
        return built

    right = tfacct.check(build, model, tokens=32, train=True)
    assert right.agrees, right.answer
    assert right.code_saved_bytes == right.total_saved_bytes == model.train(ctx=32, dtype="bf16").saved_bytes
    assert tfacct.check(build, model, tokens=32).code_saved_bytes is None
    assert "the FLOPs of 32 tokens and the bytes saved for backward match the config" in right.answer
    wrong = tfacct.check(greedy, model, tokens=32, train=True)
    # two tensors of 32 positions, in bf16: the result and its sigmoid
    more = 2 * 2 * 32 * {"gpt2": 768, "qwen2-0.5b": 896}[name]
    assert [one["path"] for one in wrong.differences] == ["saved activations"]
    assert wrong.code_saved_bytes == wrong.total_saved_bytes + more
    with pytest.raises(TfacctError, match="does not accept an instance"):
        tfacct.check(own.GPT(), GPT2, tokens=9, train=True)


def test_a_loss_is_made_for_modules_that_bring_none() -> None:
    """A handwritten module saves other tensors than the class, and both sums are printed."""
    report = tfacct.check(lambda: own.GPT(heads=3), {**GPT2, "n_head": 3}, tokens=9, train=True)
    code, config = report.code_saved_bytes, report.total_saved_bytes
    assert code and config and code != config
    assert [one["path"] for one in report.differences] == ["saved activations"]
    assert f"{code:,} bytes in the code, {config:,} in the config" in report.answer
    with pytest.raises(TfacctError, match="head size of 12"):  # which the account does not count
        tfacct.check(own.GPT, GPT2, tokens=9, train=True)
    with pytest.raises(TfacctError, match="leave device out"):
        tfacct.check(lambda: own.GPT(heads=3), {**GPT2, "n_head": 3}, tokens=9, train=True, device="cpu")


def test_a_failure_in_torch_is_one_message_without_its_log() -> None:
    """Grouped products want bf16 on meta, and torch logs a traceback where fakes fail."""

    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.banks = torch.nn.Embedding(11, 16), torch.nn.Parameter(torch.zeros(2, 16, 16))

        def forward(self, ids: Any) -> Any:
            ends = torch.arange(2, dtype=torch.int32, device=ids.device)
            return torch._grouped_mm(self.table(ids)[0], self.banks, offs=ends)

    logged: list[Any] = []
    log, keeper = logging.getLogger("torch._subclasses.fake_tensor"), logging.Handler()
    keeper.emit = logged.append  # type: ignore[method-assign]
    log.addHandler(keeper)
    try:
        with pytest.raises(TfacctError, match="raised RuntimeError: Expected inputs of BF16 type"):
            tfacct.check(Experts, GPT2, tokens=9)
    finally:
        log.removeHandler(keeper)
    assert logged == []
    # each of 9 rows meets one matrix
    assert watching.watch(Experts().to(torch.bfloat16), 1, 9).flops == {"": 2 * 9 * 16 * 16}
