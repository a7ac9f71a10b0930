"""Every mistake of a user: exit code 2, one clear message on stderr, nothing on stdout. Kind: refusal."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families import TINY
from tests.helpers.checkpoints import written
from tests.helpers.weight_files import folder
from tfacct import families, load
from tfacct.base.errors import TfacctError
from tfacct.loading import presets
from tfacct.loading.model import load_model

LLAMA = {"model_type": "llama", "vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize(
    "arguments", ["flops gpt2 --by row", "train gpt2 --as reference", "plan gpt2 --fit t4 --gpus 0"]
)
def test_a_refusal_has_one_shape(run, arguments: str) -> None:
    """As text, a line for the error and at most one for its hint; with `--json`, one object on stderr."""
    text, ran = run(*arguments.split()), run(*arguments.split(), "--json")
    assert (ran.code, ran.out) == (text.code, text.out) == (2, "")
    printed = json.loads(ran.err)
    assert printed.keys() == {"error", "hint", "kind"}
    hint = [f"hint: {printed['hint']}"] if printed["hint"] else []
    assert text.err.splitlines() == [f"error: {printed['error']}", *hint]


def test_a_config_with_the_fields_of_the_course_names_its_family(run, tmp_path: Path) -> None:
    fields = {"vocab_size": 97, "context_length": 31, "d_model": 24, "num_layers": 3, "num_heads": 4, "d_ff": 40}
    (tmp_path / "tiny.json").write_text(json.dumps(fields))
    err = run("params", str(tmp_path / "tiny.json")).err
    assert "hint: its fields are those of the course CS336: --set model_type=cs336" in err
    # 2 · 97 · 24 embedding and head; per layer 4 · 24 · 24 attention, 3 · 24 · 40 MLP, 2 · 24 norms; 24 last norm
    ran = run("params", str(tmp_path / "tiny.json"), "--set", "model_type=cs336", "--json")
    assert ran.models[0]["total_params"] == 4656 + 3 * (2304 + 2880 + 48) + 24


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("flops gpt2xl", "not_found"),
        ("memory gpt2 --dtype bf17", "not_found"),
        ("flops gpt2 --ctx 0", "usage"),
        ("flops gpt2 --nothing", "usage"),
        ("flops {}", "config"),
        ("flops {} --set model_type=zzz", "model_type"),
    ],
)
def test_an_error_has_a_kind_for_programs(run, tmp_path: Path, line: str, kind: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"num_attention_heads": 3}))
    ran = run(*line.format(tmp_path / "config.json").split(), "--json")
    assert ran.code == 2 and json.loads(ran.err)["kind"] == kind


@pytest.mark.parametrize("line", ["--dtype int4 --on 4090", "--ctx 8k --until total_bytes=24GiB"])
def test_the_hint_of_solve_is_the_typed_command_with_an_unknown(run, line: str) -> None:
    hint = run("solve", "llama-3.1-8b", *line.split()).err.partition("hint: for example `tfacct ")[2]
    assert hint.startswith(f"solve llama-3.1-8b {line} --for ")
    assert run(*hint.strip().rstrip("`").split()).code == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b'{"model_type": "llama", "vocab', "is not JSON"),
        (b"hello", "is not JSON: expecting value at line 1, column 1"),
        (b'{"model_type": "ll\tama"}', "is not JSON: invalid control character at line 1, column 19"),
        (b'{"model_type": "lla', "is not JSON: unterminated string starting at line 1, column 16"),
        (b'{"model_type": "\\x"}', "is not JSON: invalid \\escape at line 1, column 17"),
        (b"\x80\x00\xff\xfe" * 10, "is not UTF-8 text"),
        (b"[1, 2]", "is a JSON list"),
        (b"null", "is a JSON NoneType"),
        (b'{"model_type": "llama"}' + b" " * 4_000_000, "larger than 4 MB"),
        (b'{"vocab_size": 5, "vocab_size": 6}', "field 'vocab_size' appears twice"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "a number is too large, or the nesting too deep"),
        (b"[" * 100_000, "a number is too large, or the nesting too deep"),
        (b"{}", 'add "model_type": "…" to the config'),
        (b'{"peft_type": "LORA", "base_model_name_or_path": "gpt2"}', "an adapter; give its base model: gpt2\n"),
        (b'{"peft_type": "LORA", "base_model_name_or_path": null}', "an adapter; give its base model\n"),
        (b'{"_class_name": "FluxPipeline"}', "FluxPipeline is a class of diffusers, which is not counted"),
        (b'{"model_type": "xlstm"}', "model_type 'xlstm' is not supported"),
        (b'{"model_type": ["llama"]}', "unknown model_type"),
        (b'{"model_type": "lama"}', "unknown model_type"),
        (b'{"model_type": "llama", "architectures": 3}', "architectures must be a list"),
    ],
)
def test_files(run, tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "broken.json"
    file.write_bytes(content)
    for ran in (run("flops", str(file)), run("flops", "-", stdin=content)):
        assert (ran.code, ran.out) == (2, "")
        assert says in ran.err and "Traceback" not in ran.err


@pytest.mark.parametrize("name", ["model.gguf", "model.safetensors", "model.safetensors.index.json"])
def test_a_file_of_weights_is_no_model(run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    ran = run("memory", str(tmp_path / name))
    hint = f"give the config.json; `tfacct check {tmp_path / name}` lists the tensors"
    assert (ran.code, ran.out) == (2, "") and f"{name} has weights, not a config" in ran.err
    assert hint in ran.err_line


def test_an_adapter_is_no_model(run, tmp_path: Path) -> None:
    """A folder as PEFT writes it: the hint names the base model, and `check` counts the files alone."""
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "gpt2"}')
    written(tmp_path / "adapter_model.safetensors", {"base_model.model.lm_head.lora_A.weight": ("F32", (8, 768))})
    ran = run("params", str(tmp_path))
    assert (ran.code, ran.out) == (2, "") and "has an adapter, not a model" in ran.err_line
    assert ran.err_line.endswith("give its base model: gpt2")
    ran = run("check", str(tmp_path), "--json")
    assert "has an adapter, not a model" in ran.out and ran.models[0]["tensor_bytes"] == 4 * 8 * 768
    ran = run("check", str(tmp_path), "--config", "gpt2")
    assert "an adapter, not a model; `tfacct train MODEL --lora 8:lm_head` counts its parameters" in " ".join(
        ran.out.split()
    )
    (tmp_path / "config.json").write_text(json.dumps(TINY["gpt2"]))
    assert run("params", str(tmp_path)).code == 0


SOURCE = 'source = {{ url = "u", kind = "{}" }}\n'
EXPECT = 'expect = { parameters = 1, from = "published" }\n'
CONFIG = 'config = { model_type = "gpt2" }\n'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[source", "is not TOML"),
        (EXPECT, "[source] has no url"),
        (SOURCE.format("transcribed") + EXPECT, "[config] has no model_type"),
        (SOURCE.format("typed") + EXPECT + CONFIG, "not 'typed'"),
        (SOURCE.format("copied") + EXPECT + CONFIG, "copied with a via"),
        (SOURCE.format("transcribed") + EXPECT.replace("published", "me") + CONFIG, "from must be published"),
    ],
)
def test_a_broken_preset_is_named(run, tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "mine.toml").write_text(content)
    ran = run("flops", str(tmp_path / "mine.toml"))
    assert (ran.code, ran.out) == (2, "") and "mine.toml" in ran.err and says in ran.err and "Traceback" not in ran.err


def test_a_preset_whose_total_differs_says_so(run, tmp_path: Path) -> None:
    text = (presets.folder() / "gpt2.toml").read_text().replace("n_layer = 12", "n_layer = 11")
    (tmp_path / "mine.toml").write_text(text)
    ran = run("params", str(tmp_path / "mine.toml"))
    # a layer of gpt2 is 12·768² + 13·768 parameters
    assert ran.code == 0 and f"{124_439_808 - 12 * 768**2 - 13 * 768:,} parameters, expected 124,439,808" in ran.err


def test_closed_stdin(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(TfacctError, match="standard input: it is closed"):
        load("-")


def test_unreadable_places(run, tmp_path: Path) -> None:
    ran = run("flops", str(tmp_path))  # a folder without a config.json
    assert (ran.code, ran.out) == (2, "") and "cannot read" in ran.err


OF_OTHERS = {
    "DeepSeek-V3.2's indexer": {"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128},
    "Qwen3-Next's linear attention": {
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "attn_output_gate": True,
    },
    "MiniMax": {"shared_intermediate_size": 512, "qk_norm_type": "per_layer"},
    "Gemma 3n and 4": {
        "hidden_size_per_layer_input": 256, "global_head_dim": 512, "num_global_key_value_heads": 4, "laurel_rank": 64,
    },
    "DeepSeek-V4": {"hc_mult": 4, "compress_ratios": [0, 4, 128], "o_lora_rank": 1024},
    "hybrids": {
        "hybrid_override_pattern": "M-M*", "mamba_num_heads": 8, "mamba_head_dim": 64, "mamba_d_conv": 4,
        "layers_block_type": ["mamba", "attention"], "ssm_cfg": {"layer": "Mamba2"},
    },
    "Llama 4": {"no_rope_layers": [1, 1, 1, 0], "interleave_moe_layer_step": 2, "intermediate_size_mlp": 16384},
    "GLM": {"mlp_layer_types": ["dense", "sparse"]},
}  # fmt: skip


@pytest.mark.parametrize("name", [name for fields in OF_OTHERS.values() for name in fields])
@pytest.mark.parametrize("model_type", ["llama", "qwen3", "deepseek_v3", "mamba"])
def test_a_field_that_changes_counts_elsewhere_is_no_mere_warning(model_type: str, name: str) -> None:
    value = next(fields[name] for fields in OF_OTHERS.values() if name in fields)
    with pytest.raises(TfacctError, match=f"^mine: {name} = .* changes the counts"):
        load_model("mine", {**TINY[model_type], name: value})
    assert load_model("mine", {**TINY[model_type], name: None}).unknown == ()


@pytest.mark.parametrize(
    ("model_type", "name", "field", "equal"),
    [
        ("falcon", "n_head", "num_attention_heads", 6),
        ("falcon", "n_layer", "num_hidden_layers", 2),
        ("falcon", "n_head_kv", "num_kv_heads", 2),
        ("falcon", "n_embed", "hidden_size", 60),
        ("llama", "n_layers", "num_hidden_layers", 3),
        ("gpt_neox", "ffn_dim", "intermediate_size", 71),
        ("opt", "intermediate_size", "ffn_dim", 71),
        ("bert", "n_positions", "max_position_embeddings", 37),
        ("gpt2", "num_attention_heads", "n_head", 6),
    ],
)
def test_a_size_given_twice_is_fine_if_it_is_the_same(model_type: str, name: str, field: str, equal: int) -> None:
    plain = load_model("mine", TINY[model_type])
    twice = load_model("mine", {**TINY[model_type], name: equal})
    assert twice.unknown == () and twice.ledger.parameters() == plain.ledger.parameters()
    with pytest.raises(TfacctError, match=f"{name} = {equal + 1} contradicts {field} = {equal}"):
        load_model("mine", {**TINY[model_type], name: equal + 1})


OTHER_MODELS = [
    ("llama", "LlavaLlamaForCausalLM", "LlamaForCausalLM"),
    ("llama", "LlamaMoEForCausalLM", "LlamaForCausalLM"),
    ("llama", "BitnetForCausalLM", "LlamaForCausalLM"),
    ("llama", "MistralForCausalLM", "LlamaForCausalLM"),
    ("phi3", "Phi3VForCausalLM", "Phi3ForCausalLM"),
    ("phi", "Phi3ForCausalLM", "PhiForCausalLM"),
    ("qwen2", "LlavaQwenForCausalLM", "Qwen2ForCausalLM"),
    ("qwen2", "Qwen2MoeForCausalLM", "Qwen2ForCausalLM"),
    ("mistral", "LlavaMistralForCausalLM", "MistralForCausalLM"),
    ("gpt2", "GPTJLMHeadModel", "GPT2LMHeadModel"),
    ("bart", "MBartForConditionalGeneration", "BartForConditionalGeneration"),
    ("t5", "MT5ForConditionalGeneration", "T5ForConditionalGeneration"),
    ("bert", "RobertaForMaskedLM", "BertForMaskedLM"),
    ("roberta", "XLMRobertaForMaskedLM", "RobertaForMaskedLM"),
]


@pytest.mark.parametrize(("model_type", "name", "own"), OTHER_MODELS)
def test_a_class_of_another_model_is_refused_and_counted_on_request(run, tmp_path: Path, model_type, name, own) -> None:
    """The class has layers that the plain family lacks, or lacks some of its layers."""
    file = folder(tmp_path, {**TINY[model_type], "architectures": [name]}) / "config.json"
    ran = run("params", str(file))
    assert (ran.code, ran.out) == (2, "") and "--set architectures=null" in ran.err
    assert f'architectures = ["{name}"] is not a class of {model_type}: its class is {own}' in ran.err
    assert run("params", str(file), "--set", "architectures=null").code == 0


DRAFTS = [
    ("qwen3", "DFlashDraftModel", {"dflash_config": {"mask_token_id": 3}, "num_target_layers": 36}),
    ("llama", "LlamaForCausalLMEagle3", {"draft_vocab_size": 32000}),
    ("llama", "EAGLE3Speculator", {"eagle_aux_hidden_state_layer_ids": [2, 18, 33]}),
    ("llama", "MedusaModel", {"medusa_num_heads": 4, "medusa_num_layers": 1}),
    ("deepseek_v3", "DeepseekV3ForCausalLMDraft", {"target_hidden_size": 7168}),
]


@pytest.mark.parametrize(("model_type", "name", "fields"), DRAFTS)
def test_a_draft_model_is_refused_and_no_hint_counts_it_as_a_plain_one(model_type, name, fields) -> None:
    """A draft model has a small stack of a known family's layers, and weights that join it to the model it serves."""
    for marks in (
        {"architectures": [name], **fields},
        {"architectures": [name]},
        {"architectures": ["Other"], **fields},
    ):
        with pytest.raises(TfacctError, match=r"architectures = .* is not a class") as caught:
            load_model("mine", {**TINY[model_type], **marks})
        assert caught.value.hint == "draft models have additional weights, which are not supported"
    for field, value in fields.items():
        with pytest.raises(TfacctError, match=f"{field} = .*: draft models have additional weights"):
            load_model("mine", {**TINY[model_type], field: value})
        assert load_model("mine", {**TINY[model_type], field: None}).ledger


@pytest.mark.parametrize("family", [name for name in families.names() if name != families.CUSTOM])
def test_a_switch_that_may_add_weights_is_refused_and_not_warned_about(family: str) -> None:
    """Ming-omni's multi_gate adds routers of images and of audio to each layer; the other name is invented."""
    for name, words in (
        ("multi_gate", "changes the counts"),
        ("new_gate_bias", "is an unknown field that may add weights"),
    ):
        with pytest.raises(TfacctError, match=f"{name} = true .*{words}") as caught:
            load_model("mine", {**TINY[family], name: True})
        assert caught.value.hint is not None and f"{name}=None" in caught.value.hint
        assert load_model("mine", {**TINY[family], name: False}).ledger


def test_a_misspelt_size_is_refused() -> None:
    """Without num_key_value_heads, a Llama would have the cache of as many heads as it has queries."""
    with pytest.raises(TfacctError, match="num_key_value_head = 2 is an unknown field") as caught:
        load_model("mine", {**TINY["llama"], "num_key_value_head": 2})
    words = "did you mean num_key_value_heads? if num_key_value_head adds no weights: num_key_value_head=None"
    assert caught.value.hint == words


@pytest.mark.parametrize("name", ["lora_rank", "lora_r", "adapter_size", "num_adapters", "new_conv_width"])
def test_a_size_that_may_add_weights_is_refused_and_not_warned_about(name: str) -> None:
    """A rank of 8 may add low-rank matrices to each of the model's, as adapters do; rank 0 adds none."""
    with pytest.raises(
        TfacctError, match=f"{name} = 8 is an unknown field that may add weights, judging by its name"
    ) as caught:
        load_model("mine", {**TINY["llama"], name: 8})
    assert caught.value.hint is not None and f"{name}=None" in caught.value.hint
    for off in (0, None, False):
        assert load_model("mine", {**TINY["llama"], name: off}).ledger


@pytest.mark.parametrize(
    ("names", "value"),
    [
        ("lora_alpha expert_capacity kv_block_size memory mlp_chunk_size", 8),
        ("use_flash_norm fused_mlp norms_are_cheap_kernels frobnicate", True),
    ],
)
def test_a_field_of_how_weights_are_run_is_only_named(names: str, value: object) -> None:
    for name in names.split():
        assert load_model("mine", {**TINY["llama"], name: value}).unknown == (name,)


@pytest.mark.parametrize(
    ("model_type", "classes"),
    [
        ("llama", ["LLaMAForCausalLM"]),  # as the first conversions spell it
        ("llama", "LlamaForCausalLM"),
        ("llama", ["FSDPLlamaForCausalLM"]),  # saved from a class that torch had spread over devices
        ("llama", []),
        ("gemma3_text", ["Gemma3ForConditionalGeneration"]),
        ("t5", ["T5WithLMHeadModel"]),
        ("marian", ["MarianMTModel"]),
    ],
)
def test_other_names_of_the_same_class(model_type: str, classes: object) -> None:
    assert load_model("mine", {**TINY[model_type], "architectures": classes}).unknown == ()


@pytest.mark.parametrize(
    ("model_type", "name", "says"),
    [
        ("transfo-xl", "TransfoXLLMHeadModel", None),
        ("deepseek_v5", "DeepseekV5ForCausalLM", None),
        ("deepseek_vl_v2", "DeepseekV3ForCausalLM", "deepseek_v3"),
        ("lama", "LlamaForCausalLM", "llama"),
        (None, "MistralForCausalLM", "mistral"),
    ],
)
def test_an_unknown_model_type_is_guessed_by_its_class_and_never_by_its_spelling(model_type, name, says) -> None:
    """transfo-xl has two bands of the vocabulary, deepseek_v32 an indexer."""
    with pytest.raises(TfacctError) as caught:
        load_model("mine", {"model_type": model_type, "architectures": [name]})
    hint = caught.value.hint or ""
    assert "did you mean" not in hint
    of_class = f"its class {name} belongs to {says}: model_type={says!r}"
    assert hint == of_class if says else hint.endswith("see `tfacct help your-model`")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        # MiMo-V2.5: windows and key heads in other layers than mimo_v2_flash
        (
            {**TINY["mimo_v2_flash"], "model_type": "mimo_v2", "hybrid_layer_pattern": [0, 0, 0]},
            "the nearest, mimo_v2_flash, does not match: hybrid_layer_pattern = [0, 0, 0] changes the counts",
        ),
        ({**TINY["llama"], "model_type": "llama_x", "kv_lora_rank": 3}, "the nearest, llama, does not match: kv_lora"),
        ({**TINY["llama"], "model_type": "llama_x"}, None),  # it may be llama or another model
        ({**TINY["llama"], "model_type": "llama_x", "architectures": ["XForCausalLM"]}, None),
    ],
)
def test_an_unknown_model_type_says_why_the_nearest_family_is_not_its(fields: dict, says: str | None) -> None:
    with pytest.raises(TfacctError, match="unknown model_type") as caught:
        load_model("mine", fields)
    hint = caught.value.hint or ""
    if says:
        assert hint.startswith(says) and "as a Llama" not in hint
    else:
        settings = "model_type='llama'" + (" architectures=None" if "architectures" in fields else "")
        assert hint.startswith(f"{settings} counts it as a Llama")


# Files of Google's BERT, and of GPT-2 from transformers 2
BERT_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
BERT_LARGE |= {"type_vocab_size": 2, "vocab_size": 30522, "hidden_dropout_prob": 0.1, "max_position_embeddings": 512}
GPT2 = {"n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 21128}
GPT2 |= {"output_past": True, "summary_type": "cls_index", "summary_use_proj": True}


@pytest.mark.parametrize(
    ("fields", "family"),
    [
        (BERT_LARGE, "bert"),
        (GPT2, "gpt2"),
        ({name: value for name, value in TINY["llama"].items() if name != "model_type"}, "llama"),
        ({**BERT_LARGE, "model_type": "mine", "n_routed_experts": 4}, None),  # no field of these
        ({"dim": 256, "n_layers": 8, "n_heads": 16}, None),  # no size that Llama reads
    ],
)
def test_a_file_without_a_known_type_may_be_counted_as_a_family_that_reads_it(fields: dict, family: str | None) -> None:
    with pytest.raises(TfacctError) as caught:
        load_model("mine", fields)
    hint = caught.value.hint or ""
    assert hint.endswith("see `tfacct help your-model`")
    assert ("counts it as" in hint) == bool(family) and (family is None or f"model_type={family!r} counts" in hint)


def test_the_hint_of_a_refusal_works(run, tmp_path: Path) -> None:
    """A field of the file can be set away, and another model_type tried, as the hint and the docs say."""
    file = folder(tmp_path, {**LLAMA, "model_type": "llama", "sliding_window": 4096}) / "config.json"
    ran = run("params", str(file))
    assert ran.code == 2 and "--set sliding_window=null" in ran.err
    assert run("params", str(file), "--set", "sliding_window=null").code == 0
    file.write_text(json.dumps({**LLAMA, "model_type": "mistral", "sliding_window": 4096}))
    ran = run("params", str(file), "--set", "model_type=llama", "--set", "sliding_window=null")
    assert ran.code == 0 and "model_type=llama" in ran.out
    file.write_text(json.dumps({**LLAMA, "model_type": "llama_x", "architectures": ["XForCausalLM"]}))
    assert "hint: --set model_type=llama --set architectures=null counts it" in run("params", str(file)).err
    assert run("params", str(file), "--set", "model_type=llama", "--set", "architectures=null").code == 0
    file.write_text(json.dumps({**LLAMA, "architectures": ["LlamaForQuestionAnswering"]}))
    assert run("params", str(file)).code == 2
    assert run("params", str(file), "--set", "architectures=null").code == 0


def test_gpt2_reads_the_names_its_class_reads() -> None:
    bare = {"model_type": "gpt2", "vocab_size": 59, "n_layer": 2, "n_head": 3}
    other = {"model_type": "gpt2", "vocab_size": 59, "num_hidden_layers": 2, "num_attention_heads": 3}
    named = load({**bare, "n_embd": 42, "n_positions": 37})
    assert load({**other, "hidden_size": 42, "max_position_embeddings": 37}).params().total == named.params().total
    assert load({**bare, "n_embd": 42, "hidden_size": 42}).params().total > 0


def test_a_window_that_no_layer_has_is_none() -> None:
    """As the class reads it: layers from max_window_layers on slide, if a window is given."""
    fine = [{"max_window_layers": 2}, {"sliding_window": None}, {"use_sliding_window": False, "max_window_layers": 0}]
    for fields in fine:
        assert load_model("mine", {**TINY["qwen2"], "use_sliding_window": True, **fields})
    slides = load_model("mine", {**TINY["qwen2"], "use_sliding_window": True, "max_window_layers": 1})
    assert [block.window for block in slides.architecture.blocks()] == [None, 4096]


def test_the_number_of_layers_may_be_set_with_a_list_of_equal_layers() -> None:
    saved = {**TINY["qwen2"], "layer_types": ["full_attention"] * 2}
    assert load_model("mine", saved, {"num_hidden_layers": 5}).architecture.stacks[0].count == 5
    with pytest.raises(TfacctError, match="layer_types names 1 layers, and num_hidden_layers is 2"):
        load_model("mine", {**saved, "layer_types": ["full_attention"]})


def test_fields_of_some_refusals_are_fine_with_another_value() -> None:
    """The refusals: families/refusals.json."""
    assert load({**LLAMA, "head_dim": None}).loaded.defaulted["head_dim"] == 4
    assert load({**LLAMA, "num_attention_heads": 3, "head_dim": 6}).params().total > 0
    qwen = {**LLAMA, "model_type": "qwen2", "num_key_value_heads": None}
    assert load(qwen).loaded.config.num_key_value_heads == 4
    for field, value in [("sliding_window", None), ("num_experts", 0), ("layer_types", ["full_attention"] * 2)]:
        assert load_model("mine", {**TINY["qwen2"], field: value}).unknown == ()


def test_harmless_fields_are_silent_and_unknown_ones_are_named(run, tmp_path: Path) -> None:
    file = folder(tmp_path, {**LLAMA, "attention_dropout": 0.1, "bos_token_id": 1, "frobnicate": 3}) / "config.json"
    ran = run("flops", str(file))
    assert ran.code == 0
    assert "frobnicate" in ran.err and "warning" in ran.err
    assert "attention_dropout" not in ran.err and "bos_token_id" not in ran.err


@pytest.mark.parametrize("command", ["memory", "flops --bytes"])
def test_a_quantized_config_needs_a_dtype(run, tmp_path: Path, command: str) -> None:
    file = tmp_path / "config.json"
    asked = (*command.split(), str(file))
    file.write_text(json.dumps({**LLAMA, "quantization": {"bits": 4}}))  # as MLX spells it
    assert run(*asked).code == 2
    file.write_text(json.dumps({**LLAMA, "quantization_config": {"bits": 4}}))
    assert run(*asked, "--dtype=").code == 2 and run("flops", str(file)).code == 0
    ran = run(*asked)
    assert (ran.code, ran.out) == (2, "") and "quantization_config" in ran.err and "--dtype" in ran.err
    assert run(*asked, "--dtype", "int4").code == 0


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None, database=None)
@given(data=st.data(), family=st.sampled_from(families.names()))
def test_junk_never_raises_anything_but_our_own_error(data: st.DataObject, family: str) -> None:
    """Any field replaced by anything, fields dropped, fields invented."""
    config = dict(TINY[family])
    names = st.sampled_from(
        [*config, *families.config_class(family).model_fields, "num_experts", "layer_types"]
    ) | st.text(max_size=12)
    for name in data.draw(st.lists(names, max_size=4)):
        config[name] = data.draw(JUNK)
    for name in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=2)):
        config.pop(name, None)
    try:
        model = load(config)
        model.flops(ctx=9)
        model.params()
        model.memory(ctx=9, dtype="bf16")
        model.kv(ctx=9)
        model.show()
    except TfacctError as error:
        assert error.message


@settings(max_examples=200, deadline=None, database=None)
@given(st.binary(max_size=200))
def test_junk_bytes_never_raise_anything_but_our_own_error(tmp_path_factory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("junk") / "config.json"
    file.write_bytes(content)
    with pytest.raises(TfacctError):
        load(file)


@settings(max_examples=200, deadline=None, database=None)
@given(st.text(max_size=30).filter(lambda name: name != "-"))
def test_junk_names_never_raise_anything_but_our_own_error(name: str) -> None:
    try:
        load(name)
    except TfacctError as error:
        assert error.message


SIZES = {
    "llama": "hidden_size num_hidden_layers num_key_value_heads intermediate_size head_dim",
    "mistral": "sliding_window", "qwen3": "sliding_window", "gemma3_text": "sliding_window_pattern",
    "olmo2": "num_key_value_heads", "mixtral": "num_local_experts", "qwen3_moe": "moe_intermediate_size",
    "qwen2_moe": "shared_expert_intermediate_size", "deepseek_v2": "q_lora_rank", "falcon": "num_kv_heads",
    "deepseek_v3": "v_head_dim n_shared_experts first_k_dense_replace", "opt": "word_embed_proj_dim",
    "bloom": "n_layer",
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("32", 'must be a whole number, not "32"'),
        (True, "must be a whole number, not true"),
        (1.5, "must be a whole number, not 1.5"),
        (4.0, "must be a whole number, not 4.0"),
        (float("nan"), "must be a whole number, not NaN"),
        ([4], r"must be a whole number, not \[4\]"),
        (0, "must be at least 1, not 0"),
        (-4, r"must be at least [012], not -4"),
        (10**30, "must be at most (1,000,000,000,000|4,096), not 1000000000000000000000000000000"),
    ],
)
@pytest.mark.parametrize(("family", "field"), [(name, field) for name, of in SIZES.items() for field in of.split()])
def test_sizes_of_the_wrong_kind(family: str, field: str, value: object, says: str) -> None:
    if value != 0 or family == "llama":  # some sizes of others may be 0
        with pytest.raises(TfacctError, match=f"{field} {says}"):
            load({**TINY[family], field: value})
