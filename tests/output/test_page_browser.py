"""The page in a real browser: the commands' numbers, no request, no error, keyboard, phone and screen reader. Kind:
law, output.
"""

import json
import os
import random
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import browser as driver
from tests.helpers.cli import Run
from tfacct import load
from tfacct.base import units
from tfacct.ledger.workload import Request
from tfacct.loading import presets
from tfacct.reports import explore
from tfacct.reports.flops import flops
from tfacct.reports.metrics import Counting

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(driver.found() is None, reason="no Chromium here: apt-get install chromium-headless-shell"),
]

ASKED = "llama-3.1-8b", "t5-small", "deepseek-v3", "mamba-130m", "esm2-8m", "clip-vit-base-patch32-vision"
FURTHER = (
    *("gpt2", "gemma-3-27b-text", "mixtral-8x7b", "qwen3-next-80b-a3b", "lecture-transformer", "gpt-oss-20b"),
    *("glm-4.5-air", "qwen2.5-vl-7b-vision", "bert-base"),
)
NAMES = [*ASKED, *(pytest.param(name, marks=pytest.mark.slow) for name in FURTHER)]
"""One model of every kind of page; kinds that tests/output/test_page_counts.py covers are slow tests."""


class Tab(driver.Browser):
    """The tab, and the pages of presets."""

    def __init__(self, folder: Path) -> None:
        super().__init__(driver.found() or "")
        self.folder = folder

    def page_of(self, *names: str) -> Path:
        file = self.folder / f"{'+'.join(names)}.html"
        if not file.exists():
            models = [presets.load(name) for name in names]
            file.write_text(explore.page(models, Request(), Counting()), encoding="utf-8")
        return file

    def show(self, name: str, link: str = "") -> None:
        self.open(self.page_of(name), link)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with Tab(tmp_path_factory.mktemp("pages")) as found:
        yield found


@pytest.fixture(autouse=True)
def plain(tab: Tab) -> Iterator[None]:
    """A window of the usual width, and at the end nothing in the console."""
    tab.look(1280)
    yield
    assert tab.complaints == []


@cache
def explored(name: str) -> dict[str, Any]:
    """The data of a preset's page without laws of training steps, which take seconds. Do not change it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explore, "LAWS", 0)
        return explore.explore([presets.load(name)])


def knobs(rng: random.Random, name: str) -> str:
    """A link to random settings that a command line has too."""
    ours = presets.load(name)
    step = rng.choice(("prefill", "decode", "chunk")) if ours.has_cache else "prefill"
    link = {"v": 1, "ctx": int(2 ** rng.uniform(8, 21)), "batch": rng.choice((1, 1, 3, 64)), "step": step}
    link |= {"tokens": rng.randint(2, 200)} if step == "chunk" else {}
    link |= {"masked": 1} if rng.random() < 0.3 else {}
    link |= {"last": 1} if ours.logits and rng.random() < 0.3 else {"train": 1} if step == "prefill" else {}
    link |= {"source": rng.randint(3, 900)} if ours.source and not ours.config.hf_fixed_source else {}
    (model,) = explored(name)["models"]
    if "shared" in model and rng.random() < 0.6:
        heads = ours.architecture.query_heads[0]
        link["shared"] = rng.choice([n for n in range(1, heads + 1) if heads % n == 0])
    if "form" in model:
        link |= rng.choice(({}, {"form": "absorbed"}, {"form": "expanded"}, {"form": "unpacked"}))
    return "#" + "&".join(f"{key}={value}" for key, value in link.items())


def page_json(tab: Tab) -> dict[str, Any]:
    """The JSON of the page."""
    found: dict[str, Any] = json.loads(tab.js("tfacct.json()"))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_the_numbers_of_its_command(tab: Tab, run: Run, name: str) -> None:
    """The printed command gives the page's JSON, with all notes."""
    rng = random.Random(name)
    for link in ("", *(knobs(rng, name) for _ in range(3))):
        tab.show(name, link)
        words = shlex.split(tab.js("document.getElementById('command').dataset.command"))
        ran = run(*words[1:], "--json")
        assert ran.code == 0, (link, ran.err)
        document = ran.document
        assert page_json(tab) == document, (link, words)
        assert list(page_json(tab)["models"][0]) == list(document["models"][0])
        assert tab.complaints == [] and len(tab.requests) <= 2, (link, tab.requests)
        shown = tab.js("document.querySelector('.page').innerText")
        assert not re.findall(r"\b(?:null|undefined|NaN|Infinity)\b", shown), link
        assert all(one.startswith(("file:", "about:")) for one in tab.requests)


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("llama-3.1-8b", "#v=1&ctx=300&L.F=1000&L.D=96"),
        ("gpt2", "#v=1&ctx=64&shared=3&batch=2"),
        ("llama-3.1-8b", "#v=1&ctx=64&shared=4&L.G=5"),
    ],
)
def test_a_line_of_python_counts_sizes_without_a_field(tab: Tab, name: str, link: str) -> None:
    """There is no slider if K or G is given, and the printed line has each number once."""
    pytest.importorskip("numpy")
    tab.show(name, link)
    text = tab.js("document.getElementById('command').dataset.command")
    assert text.startswith("load(")
    assert int(eval(text, {"load": load})) == page_json(tab)["models"][0]["total_flops"]
    if "L.G" in link:
        assert page_json(tab)["models"][0]["axes"] == {"K": 4, "G": 5}
        assert tab.js("document.getElementById('shared') === null")


@pytest.mark.parametrize("name", NAMES)
def test_the_formulas_are_the_sum_of_the_lines(tab: Tab, name: str) -> None:
    """At random knobs and sizes; with another number of key/value heads, a formula with fixed heads says so."""
    rng = random.Random(f"formula {name}")
    (model,), (shape,) = explored(name)["models"], explored(name)["shapes"]
    sizes = dict(zip(shape["axes"], model["sizes"], strict=True))
    for _ in range(2):
        changed = {axis: rng.randint(size // 2 + 1, 2 * size) for axis, size in sizes.items() if rng.random() < 0.3}
        if "A" in changed or "E" in changed:
            changed |= {"A": 2, "E": 7}
        for axis, rule in shape["rules"]:
            changed |= {axis: 4 * (sizes[axis] // 2)} if rule == 2 and axis in changed else {}
        assert all(changed.get(one, sizes[one]) <= changed.get(of, sizes[of]) for one, of in shape["rules"] if of != 2)
        link = knobs(rng, name).partition("&shared")[0]
        tab.show(name, link + "".join(f"&L.{axis}={size}" for axis, size in changed.items()))
        agrees = tab.js("[...document.querySelectorAll('[data-formula]')].map((one) => one.dataset.agrees)")
        assert agrees and set(agrees) == {"true"}, (
            link,
            changed,
            tab.js("document.getElementById('formulas').innerText"),
        )


def test_a_knob_changes_every_number_and_the_link(tab: Tab) -> None:
    tab.show("llama-3.1-8b", "#v=1&ctx=8192")
    before = page_json(tab)["models"][0]["total_flops"]
    tab.js("document.getElementById('shared').focus()")
    tab.key("ArrowLeft")
    assert page_json(tab)["models"][0]["set"] == {"num_key_value_heads": 4}
    assert page_json(tab)["models"][0]["total_flops"] < before
    assert tab.js("location.hash") == "#v=1&ctx=8192&shared=4"
    assert tab.js("document.activeElement.id") == "shared", "the focus stays on the slider"
    assert "--set num_key_value_heads=4" in tab.js("document.getElementById('command').innerText")


def test_a_context_is_typed_as_on_the_command_line(tab: Tab) -> None:
    tab.show("llama-3.1-8b")
    for text, keys in (("16k", 16384), ("1,000", 1000)):
        tab.js(f"ctx.value = {text!r}; ctx.dispatchEvent(new Event('change'))")
        assert page_json(tab)["models"][0]["workload"]["keys"] == keys
    tab.js("ctx.value = 'much'; ctx.dispatchEvent(new Event('change'))")
    assert page_json(tab)["models"][0]["workload"]["keys"] == 1000
    assert tab.js("ctx.getAttribute('aria-invalid')") == "true"


def test_the_keyboard_reaches_everything(tab: Tab) -> None:
    tab.show("llama-3.1-8b", "#v=1&ctx=512")
    seen = []
    for _ in range(60):
        tab.key("Tab")
        seen.append(tab.js("document.activeElement.id || document.activeElement.dataset.line || ''"))
    assert {"ctx", "ctx-slider", "batch", "shared", "dtype", "card", "masked", "theme"} <= set(seen)
    assert "1 blocks.*.attn.q_proj" in seen
    tab.js("document.querySelector('[data-line=\"1 blocks.*.mlp.up_proj\"]').focus()")
    tab.key("Enter")
    assert tab.js("document.querySelector('.detail h3').textContent") == "mlp.up_proj"
    assert tab.js("document.activeElement.dataset.line") == "1 blocks.*.mlp.up_proj"


def test_sizes_go_together_or_are_refused(tab: Tab) -> None:
    """As in `evaluate`: rotary dimensions are even, and a token has no more active experts than there are experts."""
    for name, link, why in (
        ("llama-3.1-8b", "L.H=7&L.D=64", "H must be even"),
        ("mixtral-8x7b", "L.E=1", "A is more than E"),
        ("deepseek-v3", "L.Hr=65", "Hr must be even"),
    ):
        tab.show(name, f"#v=1&ctx=64&{link}")
        assert "axes" not in page_json(tab)["models"][0]
        assert f"the link's sizes are ignored: {why}" in tab.js("document.querySelector('.warning').textContent")
    tab.show("llama-3.1-8b", "#v=1&ctx=64")
    tab.js("{ const one = document.getElementById('size-H'); one.value = 7; one.dispatchEvent(new Event('change')) }")
    assert tab.js("document.getElementById('size-H').getAttribute('aria-invalid')") == "true"
    assert "axes" not in page_json(tab)["models"][0]


SAYS: list[tuple[str, str, str, str, str]] = [
    ("gemma-3-27b-text", "", "#notes", "all pairs of new tokens are counted", "are not counted"),
    ("gemma-3-27b-text", "&masked=1", "#notes", "pairs outside the window are not counted", "--masked"),
    ("t5-small", "", "#notes", "The encoder runs once", "ran before this step"),
    (
        "t5-small",
        "&step=decode",
        "#notes",
        "The encoder and the keys and values of cross-attention ran before this step",
        "runs once",
    ),
    ("mixtral-8x7b", "", "#notes", "2 of 8 experts", "describe the model as configured"),
    ("mixtral-8x7b", "&L.E=16", "#notes", "describe the model as configured; the page uses E = 16 instead", "\t"),
    ("mamba-130m", "", "main", "Weights and state on one device", "KV cache"),
    ("mamba-130m", "", "main", "State in bf16 and fp32", "KV cache"),
    ("mamba-130m", "", "#training", "the formula for mamba is off by up to", "GPUs"),
    ("gpt2", "", "#training", "fits H100", "≈"),
    ("falcon-7b", "", "#training", "≈ ", "Not supported"),
    ("vit-base-patch16-224", "", "#training", "One sequence of 197 tokens per GPU", "Not supported"),
]
"""A model, settings, a part of its page, words that it has and words that it has not."""


@pytest.mark.parametrize(("name", "link", "part", "says", "absent"), SAYS)
def test_parts_of_the_page_follow_the_settings(
    tab: Tab, name: str, link: str, part: str, says: str, absent: str
) -> None:
    """A mask leaves out what is outside a window; the encoder has run before a decode step; notes are about the model
    as configured when sizes are replaced; a model without attention has a state and no cache."""
    tab.show(name, f"#v=1&ctx=300{link}")
    text = tab.js(f"document.querySelector({part!r}).innerText")
    assert says in text and absent not in text and (part != "#notes" or "\t" not in text)
    if name.startswith("mixtral"):
        assert ("as configured" in page_json(tab)["models"][0]["notes"][0]) == bool(link)


def test_three_notes_are_shown_and_the_others_on_request(tab: Tab) -> None:
    tab.show("gemma-3-27b-text", "#v=1&ctx=300")
    shown = tab.js("[...document.querySelectorAll('#notes > ul > li')].map((one) => one.innerText)")
    assert len(shown) == 3 and "at most 1,024 keys" in shown[1]
    assert tab.js("document.querySelectorAll('#notes details li').length") >= 3
    assert not tab.js("document.querySelector('#notes details').open")


def test_attention_is_fused_unless_asked(tab: Tab) -> None:
    """gpt2 at 1,024 tokens: 12 · 12 · 1,024² scores in bf16 are written by unfused kernels, and read again."""
    scores = 2 * 12 * 12 * 1024**2 * 2
    moved = "[...document.querySelectorAll('#bars .bar p')].find(one => /Bytes moved/.test(one.innerText)).innerText"
    found = []
    for link in ("", "&unfused=1"):
        tab.show("gpt2", f"#v=1&ctx=1024{link}")
        found.append(tab.js(moved).split("\n")[-1])
        assert tab.js("document.getElementById('unfused').checked") == bool(link)
    cost = load("gpt2").traffic(ctx=1024).models[0]["total_moved_bytes"]
    assert found == [units.binary(cost - scores), units.binary(cost)]
    tab.js("unfused.click()")
    assert tab.js(moved).split("\n")[-1] == found[0]


def test_the_formula_is_copied_as_latex(tab: Tab) -> None:
    tab.show("bert-base")
    tab.js("navigator.clipboard.writeText = async (text) => { globalThis.copied = text }")
    tab.js("[...document.querySelectorAll('#tools button')].find((one) => one.textContent === 'LaTeX').click()")
    text = tab.js("globalThis.copied")
    assert text.startswith("2\\,B\\,") and "2\\,T\\,N\\,H" in text and text.count("\\left(") == text.count("\\right)")


def test_areas_too_small_to_see_are_not_drawn(tab: Tab) -> None:
    """At a million tokens a ViT's classifier has no share of the area; no rectangle is of size nothing."""
    tab.show("vit-base-patch16-224", "#v=1&ctx=1044470&batch=64")
    assert tab.js("document.querySelectorAll('.treemap rect').length") > 1


def test_weights_that_all_layers_share_are_those_of_one(tab: Tab) -> None:
    """ALBERT's 12 layers share one MLP: 768 x 3,072 weights and 3,072 biases."""
    tab.show("albert-base-v2")
    tab.js("[...document.querySelectorAll('[data-line]')].find((one) => /up_proj|fc1/.test(one.dataset.line)).click()")
    assert "2.36 M, bias included" in tab.js("document.querySelector('.detail').innerText")


BAD = (
    "#v=1&ctx=-1",
    "#v=1&ctx=99999999999999999999",
    "#v=1&__proto__=1",
    "#v=1&constructor=2",
    "#v=1&L.__proto__=3",
    "#v=1&L.Q=3",
    "#v=1&step=sideways",
    "#v=1&dtype=%E0%A4%A",
    "#v=1&model=<script>alert(1)</script>",
    "#v=7",
    "#toString",
)


@pytest.mark.parametrize("link", BAD)
def test_a_bad_link_changes_nothing_and_warns(tab: Tab, link: str) -> None:
    tab.show("gpt2")
    usual = page_json(tab)
    tab.show("gpt2", link)
    assert page_json(tab) == usual
    assert tab.js("document.querySelectorAll('.warning').length") == 1


def test_nothing_runs_but_the_page_itself(tab: Tab) -> None:
    tab.show("gpt2")
    tried = {
        "eval('1')": "EvalError",
        "document.body.innerHTML = '<b>1</b>'": "TypeError",
        "fetch('https://example.org')": "TypeError",
    }
    for text, error in tried.items():
        caught = f"(async () => {{ try {{ await ({text}); return ''; }} catch (error) {{ return error.name; }} }})()"
        assert tab.js(caught) == error, text
    tab.js(
        "{ const s = document.createElement('style'); s.textContent = 'body { color: red }'; document.head.append(s) }"
    )
    assert tab.js("getComputedStyle(document.body).color") != "rgb(255, 0, 0)"
    tab.complaints.clear()  # of what was refused


def test_quantized_weights_are_asked_for(tab: Tab) -> None:
    tab.show("gpt-oss-20b")
    assert "choose a dtype" in tab.js("document.querySelector('.tiles').innerText")
    assert "Published in mxfp4, 12.8 GiB" in tab.js("document.getElementById('knobs').innerText")
    tab.js("dtype.value = 'mxfp4'; dtype.dispatchEvent(new Event('change'))")
    assert "12.8 GiB" in tab.js("document.querySelector('.tiles').innerText")


def test_groups_outside_the_layers_are_embedding_or_output(tab: Tab) -> None:
    for name, headings in (
        ("llama-3.1-8b", ["embedding", "layers 0–31", "output"]),
        ("qwen3-vl-8b-vision", ["embedding", "layers 0–26", "output"]),
        ("t5-small", ["encoder embedding", "layers 0–5", "encoder output", "embedding", "layers 0–5", "output"]),
    ):
        tab.show(name)
        assert tab.js("[...document.querySelectorAll('.block h3')].map((one) => one.firstChild.data)") == headings, name


def test_devices_of_an_encoder_have_no_largest_batch(tab: Tab) -> None:
    """It has no cache, so there is no longest context and no largest batch."""
    for name, columns in (("bert-base", 4), ("gpt2", 6)):
        tab.show(name)
        assert tab.js("document.querySelectorAll('#cards thead th').length") == columns
        assert tab.js("document.querySelectorAll('#cards tbody tr:first-child > *').length") == columns
        assert ("KV cache" in tab.js("document.getElementById('cards').innerText")) == (columns == 6)


def test_a_format_may_quantize_head_and_embedding_too(tab: Tab, run: Run) -> None:
    tab.show("llama-3.1-8b", "#v=1&ctx=64&dtype=awq%2Bhead")
    assert tab.js("[dtype.value, also.value].join()") == "awq,+head"
    for more in ("+head", "+head+embed"):
        tab.js(f"also.value = {more!r}; also.dispatchEvent(new Event('change'))")
        model = run("memory", "llama-3.1-8b", "--ctx", "64", "--dtype", f"awq{more}", "--json").document
        (known,) = model["models"]
        assert units.binary(known["weights_bytes"]) in tab.js("document.querySelector('.tiles').innerText")
        assert f"dtype=awq{more.replace('+', '%2B')}" in tab.js("location.hash")
    text = tab.js("document.getElementById('knobs').innerText")
    (q8,) = run("memory", "llama-3.1-8b", "--dtype", "q8_0", "--json").models
    assert f"q8_0 {units.binary(q8['weights_bytes'])}" in text


def test_a_browser_that_unpacks_nothing_keeps_the_first_view(tab: Tab) -> None:
    forgets = tab.ask("Page.addScriptToEvaluateOnNewDocument", source="delete globalThis.DecompressionStream")
    tab.open(tab.page_of("gpt2"), until="document.querySelector('.warning') !== null")
    tab.ask("Page.removeScriptToEvaluateOnNewDocument", **forgets)
    text = tab.js("document.querySelector('main').innerText")
    assert "FLOPs (285 M per token)" in text and "This browser is too old for this page" in text
    assert tab.js("document.getElementById('knobs').childElementCount") == 0


def test_the_theme_is_the_systems_until_it_is_chosen(tab: Tab) -> None:
    """Without scripts too."""
    ground = "getComputedStyle(document.body).backgroundColor"
    light, night = "rgb(251, 250, 247)", "rgb(19, 21, 25)"
    tab.look(1280, dark=True, scripts=False)
    tab.ask("Page.navigate", url=tab.page_of("gpt2").resolve().as_uri())
    tab.look(1280, dark=True)
    assert tab.js(ground) == night
    for dark, first, then in ((True, night, light), (False, light, night)):
        tab.look(1280, dark=dark)
        tab.show("gpt2")
        assert tab.js(ground) == first
        tab.js("theme.click()")
        assert tab.js(ground) == then


@pytest.mark.parametrize("name", NAMES)
def test_nothing_overflows_on_a_phone(tab: Tab, name: str) -> None:
    tab.look(390, 800)
    tab.show(name)
    tab.js("document.getElementById('controls').open = true")
    assert tab.js("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize(
    ("name", "link", "text"),
    [
        ("llama-3.1-8b", "ctx=3000&batch=3&dtype=fp16", "3 sequences of 3,000 tokens per GPU, fp16 with AdamW."),
        ("llama-3.1-8b", "ctx=512&dtype=fp32", "One sequence of 512 tokens per GPU, bf16 with AdamW."),
        ("gpt2", "ctx=64&dtype=fp32&batch=2", "2 sequences of 64 tokens per GPU, fp32 with AdamW."),
        ("gemma-3-27b-text", "ctx=2048&step=decode", "One sequence of 2,048 tokens per GPU, bf16 with AdamW."),
        (
            "mixtral-8x7b",
            "ctx=640&L.E=16",
            "For the model as configured. One sequence of 640 tokens per GPU, bf16 with AdamW.",
        ),
    ],
)
def test_a_training_step_follows_the_knobs(tab: Tab, run: Run, name: str, link: str, text: str) -> None:
    tab.show(name, f"#v=1&{link}")
    assert tab.js("document.querySelector('#training .aside').textContent") == text
    words = shlex.split(tab.js("document.querySelector('#training code').textContent"))
    for at, ranks in enumerate(("1", "2", "4", "8")):
        (model,) = run(*words[1:-1], ranks, "--json").models
        row, near = f"document.querySelectorAll('#training .bar')[{at}]", "" if model["exact"] else "≈ "
        assert tab.js(f"{row}.querySelector('p b').title") == f"{near}{model['peak_bytes']:,}", ranks
        text = tab.js(f"{row}.querySelector('p').innerText")
        assert text.split(" ·")[0].strip() == ("1 GPU" if ranks == "1" else f"each of {ranks} GPUs")
        assert units.binary(model["peak_bytes"]) in text and model["peak_phase"] in text
        assert ranks == "1" or f"sends {units.binary(model['sent_bytes'])}" in text
    assert words[1] == "train"


def test_models_are_compared(tab: Tab) -> None:
    file = tab.page_of("llama-3.1-8b", "gpt2", "bert-base", "gpt-oss-20b")
    tab.open(file, "#v=1&against=gpt2&ctx=1024&step=decode")
    assert tab.js("document.querySelectorAll('#bars .bar').length") == 8
    assert tab.js("against.value") == "gpt2"
    assert tab.js("document.querySelectorAll('#gallery tbody tr').length") == 4
    tab.js("search.value = 'gpt oss'; search.dispatchEvent(new Event('input'))")
    assert tab.js("[...document.querySelectorAll('#gallery tbody th')].map((one) => one.innerText)") == ["gpt-oss-20b"]


def test_a_notebook_shows_it_in_a_frame_of_its_own(tab: Tab, tmp_path: Path) -> None:
    """The frame has no origin: no history, no clipboard, but all inputs work."""
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><title>cell</title>{load('gpt2').explore(ctx=64)._repr_html_()}", encoding="utf-8")
    tab.open(file, until="true")
    frame = tab.ask("Page.getFrameTree")["frameTree"]["childFrames"][0]["frame"]["id"]
    world = tab.ask("Page.createIsolatedWorld", frameId=frame)["executionContextId"]

    def inside(text: str) -> Any:
        return tab.ask("Runtime.evaluate", expression=text, contextId=world, returnByValue=True)["result"].get("value")

    tab.wait(lambda: inside("document.body.dataset.drawn") == "yes")
    before = inside("document.querySelector('.tiles').innerText")
    inside("{ const one = document.getElementById('ctx'); one.value = '128'; one.dispatchEvent(new Event('change')) }")
    assert inside("document.querySelector('.tiles').innerText") != before
    assert "--ctx 128" in inside("document.getElementById('command').innerText")


@pytest.mark.slow
def test_all_presets_are_in_one_page(tab: Tab, tmp_path: Path) -> None:
    """Each is chosen and drawn without a warning, and its total is that of Python."""
    file, every = tmp_path / "all.html", presets.load_all()
    file.write_text(explore.page(every, Request(), Counting()), encoding="utf-8")
    tab.open(file)
    for ours in every:
        tab.js(f"tfacct.update({{ model: {json.dumps(ours.name)}, dtype: null }})")
        assert page_json(tab) == json.loads(flops([ours], Request()).to_json()), ours.name


AXE = os.environ.get("AXE", "")


@pytest.mark.skipif(not AXE, reason="no axe-core here: npm pack axe-core@4, and AXE=its axe.min.js")
@pytest.mark.parametrize(
    ("name", "dark", "width"),
    [("llama-3.1-8b", False, 1280), ("deepseek-v3", True, 1280), ("t5-small", True, 390), ("gpt-oss-20b", False, 390)],
)
def test_no_rule_of_accessibility_is_broken(tab: Tab, name: str, dark: bool, width: int) -> None:
    tab.look(width, dark=dark)
    tab.show(name, "#v=1&ctx=8192&against=config")
    tab.js(Path(AXE).read_text(encoding="utf-8"))
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    asked = f"axe.run({{ runOnly: {json.dumps(tags)} }})"
    found = tab.js(
        f"{asked}.then((all) => all.violations.map((one) => [one.id, one.nodes.slice(0, 3).map((n) => n.html)]))"
    )
    assert found == []
