"""Every family compared with its transformers class: parameters, FLOPs and caches, module by module. Kind: oracle."""

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from tests.families import FACTS, TINY, configs, is_asked, presets_asked
from tests.helpers.classes import agree, suppressed_refusals
from tests.helpers.lazy import lazy
from tests.helpers.models import asked, by_kind, kind_of_preset
from tfacct import families, load
from tfacct.base.errors import ConfigError
from tfacct.ledger.workload import Workload
from tfacct.loading import presets
from tfacct.loading.model import LoadedModel, load_model
from tfacct.verify.checks import renamed

hf, flop_counter, torch = lazy("tfacct.reference.hf"), lazy("torch.utils.flop_counter"), lazy("torch")
transformers = lazy("transformers")
WITH_CLASS = [
    name
    for name in presets_asked()
    if (config := presets.load(name).config).hf_modules and config.hf_unsupported() is None
]
"""Two lectures' models have no class; the classes of mT5 and umT5 tie a head that the published files have."""


def number_of_layers(name: str) -> int:
    return sum(stack.count for stack in presets.load(name).architecture.every_stack)


@pytest.mark.parametrize("name", by_kind(sorted(WITH_CLASS, key=number_of_layers), kind_of_preset))
def test_every_preset_agrees_module_by_module(name: str) -> None:
    """Random configs have any sizes; of a kind of model the preset with the fewest layers is quick."""
    whole = presets.load(name)
    agree(whole, asked(whole, Workload(11, 7, 3)))


def test_a_wrong_path_table_would_be_seen() -> None:
    """The comparison is by module: moving one product's FLOPs to another module is a difference."""
    ours = presets.load("gpt2")
    theirs = renamed(ours.ledger.flops(Workload(7, 7).axes(), unfolded=True), ours.config.hf_modules)
    flops, _ = hf.run(hf.build(ours.raw), batch=1, tokens=7, context=7)
    assert theirs == flops
    theirs["transformer.h.0.attn"] += 2
    theirs["transformer.h.1.attn"] -= 2
    assert theirs != flops and sum(theirs.values()) == sum(flops.values())


SMALL = st.integers(1, 6)
STEPS = ("prefill", "chunk", "decode")


@pytest.mark.parametrize("family", ["gpt2", "mixtral", "bart", "albert", "zamba2"])
def test_modules_hold_what_torchs_own_counter_says(family: str) -> None:
    """FlopCounterMode counts a module with those in it, once for each name that a shared one has."""
    ours = load_model("tiny", TINY[family])
    model = hf.build(ours.of_class, ours.config.task_head.auto, "cpu")
    work = asked(ours, Workload(11, 11, 3))
    own, _ = hf.run(model, **work.sizes)
    with flop_counter.FlopCounterMode(display=False) as counter:
        hf.run(model, **work.sizes)
    root = type(model).__name__
    theirs = {path.removeprefix(root).removeprefix("."): sum(ops.values()) for path, ops in counter.flop_counts.items()}
    counted = {
        path: sum(n for name, n in own.items() if f"{name}.".startswith(f"{path}." if path else "")) for path in theirs
    }
    assert theirs[""] == theirs.pop("Global") > 0
    assert {path: n for path, n in counted.items() if n} == {path: n for path, n in theirs.items() if n}


FAMILIES = [name for name in families.names() if is_asked(name) and families.config_class(name).hf_modules]


def few_and_many(few: int, many: int) -> Any:
    """Numbers of random configs of each family: a few, and many for slow tests."""
    return pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.slow)])


@few_and_many(4, 200)
@pytest.mark.parametrize("family", FAMILIES)
def test_random_configs_agree(family: str, examples: int) -> None:
    """One step of each of the few, all steps of the many."""
    steps = 1 if examples == 4 else len(STEPS)

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(
        config=configs(family),
        batch=SMALL,
        tokens=SMALL,
        old=st.integers(0, 13),
        source=st.integers(1, 14),
        some=st.permutations(STEPS),
    )
    def check(config: dict, batch: int, tokens: int, old: int, source: int, some: list[str]) -> None:
        """A prefill, a chunk after `old` tokens, a decode step: windows are 2 to 9 tokens."""
        of = {"prefill": (tokens, tokens), "chunk": (old + tokens, tokens), "decode": (old + 1, 1)}
        ours = load_model("random", config)
        with suppressed_refusals():
            agree(ours, *dict.fromkeys(asked(ours, Workload(*of[step], batch), source) for step in some[:steps]))

    check()


def ending_of(family: str, name: str) -> str:
    """The kind of head in a class's name."""
    return name.removeprefix(families.config_class(family).class_prefixes[0])


def classes_of(family: str) -> list[str]:
    """The family's classes in transformers: that of a reward model may be in files only."""
    config = families.config_class(family)
    return [name for name in families.class_names(config) if config.task_heads[ending_of(family, name)].auto]


CLASSES = [(family, name) for family in FAMILIES for name in classes_of(family)]
"""Every class that is counted: with a language model's head, without a head, with classes."""


def looks_for_an_end(ours: LoadedModel) -> bool:
    """True for BART's classes of a text, which look for its end among ids: families/test_type_aliases.py has one."""
    return ours.architecture.classes is not None and ours.architecture.encoder is not None


@pytest.mark.parametrize(("family", "name"), CLASSES)
def test_every_class_is_the_one_that_architectures_names_and_agrees(family: str, name: str) -> None:
    """By its own name where the class has it: of Gemma 3 and Llama 4 plain names are those of the model with images."""
    labels = families.config_class(family).task_heads[ending_of(family, name)].scores or 5
    ours = load_model("tiny", {**TINY[family], "architectures": [name], "num_labels": labels, "pad_token_id": 0})
    compared = () if looks_for_an_end(ours) else (asked(ours, Workload(11, 7, 3)),)
    built, stem = type(agree(ours, *compared)).__name__, ours.config.class_prefixes[0]
    assert built in (
        name,
        *(name.replace(stem, other) for other in ours.config.class_prefixes[1:]),
        name.replace(stem, FACTS[family].RUN_BY or stem),
    )
    assert built.startswith(ours.config.class_prefixes) and ours.unknown == ()


def test_a_config_without_architectures_is_the_familys_first_class() -> None:
    for family in FAMILIES:
        config, (first, *_) = families.config_class(family), families.class_names(families.config_class(family))
        tiny = load_model("tiny", TINY[family])
        built = type(hf.build(tiny.of_class, tiny.config.task_head.auto)).__name__
        assert first == config.class_prefixes[0] + next(iter(config.task_heads))
        assert built == first.replace(config.class_prefixes[0], FACTS[family].RUN_BY or config.class_prefixes[0])


@few_and_many(1, 100)
@pytest.mark.parametrize("family", [family for family in FAMILIES if len(classes_of(family)) > 1])
def test_random_bodies_and_classes_agree(family: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(
        config=configs(family),
        name=st.sampled_from(classes_of(family)[1:]),
        labels=st.none() | SMALL,
        batch=SMALL,
        tokens=SMALL,
        old=st.integers(0, 13),
    )
    def check(config: dict, name: str, labels: int | None, batch: int, tokens: int, old: int) -> None:
        """A body, or classes, of a random config; their number is given by name, by count, or left out."""
        config.pop("word_embed_proj_dim", None)  # an OPT body of narrow tokens is refused by name
        labels = families.config_class(family).task_heads[ending_of(family, name)].scores or labels
        classes = {"id2label": {str(i): f"class {i}" for i in range(labels or 2)}} if batch % 2 else {}
        classes |= {"num_labels": labels} if labels else {}
        fields = {field: value for field, value in config.items() if field not in ("num_labels", "id2label")}
        try:
            ours = load_model("random", {**fields, "architectures": [name], "pad_token_id": 0, **classes})
        except ConfigError:  # a field that another class of the family has no choice about
            reject()
        if not looks_for_an_end(ours):
            with suppressed_refusals():
                agree(ours, *(asked(ours, Workload(old + tokens, step, batch)) for step in dict.fromkeys((tokens, 1))))

    check()


SILENT = {
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "activation_dropout", "embd_pdrop"), 0.5),
    **dict.fromkeys(("classifier_dropout", "ffn_dropout_rate"), 0.25),
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
    "sentence_transformers": {"model_args": {}},
    **dict.fromkeys(("ff_factor", "seq_length", "max_seq_len"), 91),
}
"""Fields that published files carry, of any family, and that no class reads for a size."""


NOT_CHANGED = {
    "axk2": ("n_group", "topk_group"), "dots3_note_text": ("n_group", "topk_group"),
    "beit": ("add_fpn", "segmentation_indices"), "falcon_mamba": ("use_falcon_mambapy",),
    "laguna": ("moe_apply_router_weight_on_input",),
    "nemotron_h": ("mamba_dt_max", "mamba_dt_limit", "mamba_dt_init_floor"),
}  # fmt: skip
"""Ignored fields that the class takes with its default alone, next to those without a number or a switch."""


def another(value: Any) -> Any:
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else value / 2


POSITIONS = re.compile("position(al)?_embedding")
"""Position embeddings, of which encoders of images have bare parameters."""
NO_EMBEDDING = re.compile("relative_attention_bias|audio_bos_eos_token|roformer.encoder.embed_positions")
"""`nn.Embedding` for biases of attention scores, two rows around a sound, and angles that are not learned."""


@pytest.mark.parametrize("family", FAMILIES)
def test_ignored_fields_change_no_parameter_of_the_class(family: str) -> None:
    """With other numbers and switches than its defaults, and those that the class has not. No field of the class's own
    is unknown. Embeddings are its `nn.Embedding` modules and its position embeddings."""
    tiny, own = load_model("mine", TINY[family]), families.config_class(family)
    plain, auto = tiny.of_class, tiny.config.task_head.auto
    made = hf.config_of(plain)
    numbers = {name: another(value) for name in own.ignored_fields - {*NOT_CHANGED.get(family, ())}
               if isinstance(value := getattr(made, name, 6), int | float)}  # fmt: skip
    silent = {**SILENT, **FACTS[family].SILENT, **numbers}
    model = hf.build({**plain, **silent}, auto)
    of_class = hf.parameters(model)
    assert sum(of_class.values()) == sum(tiny.ledger.parameters().values())
    tables = {id(module.weight): module.weight.numel() for name, module in model.named_modules()
              if isinstance(module, torch.nn.Embedding) and not NO_EMBEDDING.search(name)}  # fmt: skip
    tables |= {id(one): one.numel() for name, one in model.named_parameters() if POSITIONS.search(name)}
    assert load(TINY[family]).params().models[0]["embedding_params"] == sum(tables.values())
    read = {*own.model_fields, *own.attribute_map} if not FACTS[family].RUN_BY else {*made.to_dict()}
    others = {
        name: value for name, value in made.to_dict().items() if name not in read and isinstance(value, int | float)
    }
    assert load_model("mine", {**others, **TINY[family], **silent}).unknown == ()


@pytest.mark.parametrize("family", [family for family in FAMILIES if not FACTS[family].RUN_BY])
def test_a_config_that_the_class_writes_counts_the_same(family: str) -> None:
    tiny = load_model("mine", TINY[family])
    written = load_model("mine", json.loads(hf.config_of(tiny.of_class).to_json_string(use_diff=False)))
    assert written.unknown == () and written.ledger.parameters() == tiny.ledger.parameters()


@pytest.mark.parametrize("family", FAMILIES)
def test_absent_fields_have_the_defaults_of_the_class(family: str) -> None:
    """An absent field has the class's default, and every such field is named."""
    ours = load_model("bare", {"model_type": family, **FACTS[family].REQUIRED})
    agree(ours, asked(ours, Workload(9, 9, 2)))
    theirs = hf.config_of(ours.of_class)
    assert ours.context == (FACTS[family].CONTEXT or theirs.max_position_embeddings)
    read = set(ours.config.__class__.model_fields) - ours.config.reference_only
    # Those inside another, as T5Gemma's, are named too, and how many classes are scored, where the first class does so.
    named = {name for name in ours.defaulted if "." not in name and name != "num_labels"}
    assert named == {n for n in read if n not in FACTS[family].REQUIRED and getattr(ours.config, n) is not None}


@pytest.mark.parametrize(("window", "windows", "heads", "tokens", "old"), [
    (4, 1, 2, 5, 0), (4, 3, 3, 1, 0), (6, 2, 2, 7, 0), (8, 4, 1, 3, 0), (6, 3, 2, 1, 4),
])  # fmt: skip
def test_a_led_is_a_bart_but_for_its_encoders_scores_and_values(
    window: int, windows: int, heads: int, tokens: int, old: int
) -> None:
    """A bart's FLOPs, but for its encoder's scores and values: 2 · I / W − 1 chunks of W × W scores, and W / 2 queries
    for 3 / 2 · W values, 2 · I / W times; over all heads 2 · D · (2 · I · W − W²) + 3 · D · I · W. In a source whose
    last window is not full they are those of a longer one. Each block of the encoder stores three more projections."""
    hidden, source, batch = 24, window * windows, 2
    sizes = {"d_model": hidden, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 40, "decoder_ffn_dim": 56}
    sizes |= {"encoder_attention_heads": heads, "decoder_attention_heads": 4, "vocab_size": 61}
    rows = {"max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 32}
    led = {"model_type": "led", **sizes, **rows, "attention_window": window}
    bart = load_model("mine", {**{name: led[name] for name in sizes}, "model_type": "bart"})
    step = {"context": tokens + old, "tokens": tokens, "batch": batch, "source": source}
    work = Workload(**step, new_source=0 if old else source)
    flops = bart.ledger.flops(work.axes())
    known = sum(count for path, count in flops.items() if not re.fullmatch(r"encoder\..*\.(scores|values)", path))
    of_encoder = 0 if old else 2 * batch * hidden * window * (7 * source - 2 * window)
    model = hf.build(led, "AutoModelForSeq2SeqLM", device="cpu")
    theirs, _ = hf.run(model, **work.sizes)
    assert sum(theirs.values()) == known + of_encoder == load_model("mine", led).ledger.total_flops(work.axes())
    if not old:
        shorter, _ = hf.run(model, **{**work.sizes, "source": source - 1, "new_source": source - 1})
        assert all(shorter[path] == count for path, count in theirs.items() if ".encoder." in path)
    projections, more_rows = 2 * 3 * (hidden + 1) * hidden, (64 + 32 - 2 * (1024 + 2)) * hidden
    assert sum(hf.parameters(model).values()) == sum(bart.ledger.parameters().values()) + projections + more_rows


@pytest.mark.parametrize("name", ["GPT2", "Llama", "Qwen2", "Mistral", "OPT", "Gemma2"])
def test_a_transformers_model_is_counted_as_it_is(name: str) -> None:
    """Its parameters, head and all, and those of its body, which has none; the config alone is taken to have one."""
    config = getattr(transformers, f"{name}Config")(vocab_size=97)
    with torch.device("meta"):
        whole = transformers.AutoModelForCausalLM.from_config(config)
        body = transformers.AutoModel.from_config(config)
    for network in (whole, body):
        stored = sum(tensor.numel() for tensor in {id(p): p for p in network.parameters()}.values())
        assert load(network).params().total_params == stored, type(network).__name__
    assert load(config).flops(ctx=8).document()["models"][0]["lines"] == load(whole).flops(ctx=8).lines
    assert load(config).name == config.model_type and load(config, vocab_size=98).config["vocab_size"] == 98
