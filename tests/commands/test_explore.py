"""The page as a file: its content, what it may contain, and the command that writes it. Kind: output, refusal."""

import base64
import hashlib
import re
from pathlib import Path

import pytest

from tests.helpers.cli import Run
from tfacct import load
from tfacct.base.errors import UsageError
from tfacct.loading import presets
from tfacct.loading.model import load_model
from tfacct.output import page
from tfacct.reports import explore

SOURCES = sorted(Path(page.__file__).parent.glob("*.js"))
LARGEST = ("kimi-linear-48b-a3b", "glm-5", "gemma-3-27b-text", "exaone-4.0-32b", "olmo-3-7b", "llama-3.1-8b")
"""Presets with the most kinds of lines or of phases, whose pages are the largest, and one that many people open."""


def test_a_page_is_the_same_every_time() -> None:
    one = load("llama-3.1-8b").explore(ctx="16k").html
    assert one == load("llama-3.1-8b").explore(ctx="16k").html


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in LARGEST)) for name in presets.names()]
)
def test_a_page_of_one_model_is_small(name: str) -> None:
    assert len(explore.page([presets.load(name)], explore.Request(), explore.Counting()).encode()) <= 160_000


@pytest.mark.slow
def test_a_page_of_all_presets_is_small() -> None:
    every = explore.page(presets.load_all(), explore.Request(), explore.Counting())
    assert len(every.encode()) <= 300_000


@pytest.mark.parametrize(("count", "title"), [(20, "gpt2 and 19 more"), (21, "21 models")])
def test_a_page_of_up_to_20_models_is_named_after_the_first(count: int, title: str) -> None:
    models = [presets.load(name) for name in ("gpt2", *(one for one in presets.names() if one != "gpt2"))[:count]]
    assert f"<title>{title} · tfacct" in explore.page(models, explore.Request(ctx=64), explore.Counting())


def test_the_data_of_a_page_is_packed_and_read_back() -> None:
    data = {"</script>": ["<!--", "é", 10**40]}
    text = page.embedded(data)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text) and page.extracted(f'<script id="data">{text}</script>') == data


def code(text: str) -> str:
    """Lines of a module without indentation, imports, comments and empty lines."""
    lines = [line for line in text.splitlines() if line and not re.match(r"import|\t*// ", line)]
    return "\n".join(re.sub(r"^\t+| // [^\"`]*$", "", line).removeprefix("export ") for line in lines)


def test_the_script_is_its_modules_as_they_are_written() -> None:
    """Comments and indentation stay in the package."""
    for file in SOURCES:
        text = file.read_text(encoding="utf-8")
        assert code(text) in code(page.script()), file.name


def test_every_module_is_short() -> None:
    """At most 250 lines of at most 120 characters; all modules are in the page."""
    assert {file.stem for file in SOURCES} == {*page.COUNTING, *page.SHOWING}
    for file in SOURCES:
        lines = file.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 250 and max(map(len, lines)) <= 120, file.name
        assert lines[0].startswith("// "), file.name


def test_no_module_parses_text_as_markup_or_asks_a_network() -> None:
    parsing = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    forbidden = rf"{parsing}|fetch\(|XMLHttp|WebSocket|import\("
    for file in SOURCES:
        text = file.read_text(encoding="utf-8")
        assert not re.search(forbidden, text), file.name
        assert not re.search(r"style=|\"style\"|\.cssText", text), file.name


def digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def test_the_policy_names_the_one_script_and_the_one_style() -> None:
    html = load("gpt2").explore(ctx=64).html
    rules = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    assert rules is not None
    policy = rules[1].replace("&#x27;", "'")
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert "default-src 'none'" in policy and "trusted-types 'none'" in policy
    assert f"script-src '{digest(script)}'" in policy and f"style-src '{digest(style)}'" in policy
    assert ' style="' not in html.replace(script, "")
    assert load("t5-small").explore().html.count(digest(script)) == 1, "the same script for every model"


def test_a_hostile_config_stays_text() -> None:
    name = "x'\"<b>&</script><script>alert(1)</script><!--"
    raw = {**load("gpt2").config, "</script><script>alert(2)//": 1}
    html = explore.page([load_model(name, raw)], explore.Request(ctx=8), explore.Counting())
    assert html.count("<script") == html.count("</script>") == 2
    assert "<b>&" not in html and "<!--" not in html
    assert name == page.extracted(html)["models"][0]["name"]


def test_a_page_starts_at_the_typed_step() -> None:
    models = [presets.load(name) for name in ("gpt2", "mamba-130m")]
    for request, start in {
        explore.Request(ctx=64, tokens=8, batch=3, logits="last"): {"tokens": "8", "batch": "3", "step": "chunk"},
        explore.Request(ctx=64, tokens=1): {"step": "decode"},
    }.items():
        html = explore.page(models[:1], request, explore.Counting())
        last = {"last": True} if request.logits == "last" else {}
        assert page.extracted(html)["start"] == {"ctx": "64", **start, **last} and "<title>gpt2 ·" in html
    assert "<title>gpt2 and 1 more ·" in explore.page(models, explore.Request(), explore.Counting())
    assert (explore.file_name(models[:1]), explore.file_name(models)) == ("gpt2.html", "tfacct.html")


def test_a_page_has_the_source_and_the_layers_of_a_model() -> None:
    names = ("gpt2", "mamba-130m", "lecture-transformer", "llama-3.1-8b", "gemma-3-4b-text")
    gpt2, mamba, lecture, llama, gemma = explore.explore([*map(presets.load, names)])["models"]
    assert (gpt2["url"], gpt2["kind"], gpt2["met"]) == ("openai-community/gpt2", "transcribed", True)
    assert not {"about", "expected_from", "cache_name", "mixes", "blocks"} & {*gpt2}
    assert (mamba["cache_name"], mamba["mixes"]) == ("state", True) and "expected_from" in mamba
    assert lecture["about"].startswith("the encoder-decoder") and "url" not in lecture
    assert "kind" not in llama and llama["shared"] == "num_key_value_heads"  # copied
    assert gemma["blocks"][1] == "5,11,17,23,29"
    assert gpt2["longer"] == [768, -1024 * 768]  # a row for each position past the longest


def test_the_first_view_needs_no_script() -> None:
    html = load("gpt2-xl").explore(ctx="16k").html
    still = html.partition('<div id="still">')[2].partition("</main>")[0]
    assert "133 T FLOPs" in still and "lm_head" in still and "<script" not in still


def test_the_command_writes_a_page(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run("explore", "gpt2", "--ctx", "64", "--decode")
    assert ran.code == 0 and ran.out == "" and ran.err.startswith("wrote gpt2.html: ")
    data = page.extracted(Path("gpt2.html").read_text(encoding="utf-8"))
    assert data["start"] == {"ctx": "64", "step": "decode"}
    again = run("explore", "gpt2")
    assert again.code == 2 and "exists" in again.err and "--force" in again.err
    assert run("explore", "gpt2", "--force").code == 0
    assert "unsupported file ending" in run("explore", "gpt2", "-o", "page.pdf").err
    assert run("explore", "gpt2", "-o", "-").out.startswith("<!doctype html>")
    assert run("explore", "bert-base", "--decode").code == 2
    assert "choose a dtype" in run("explore", "gpt-oss-20b").err


def test_python_gets_a_page(tmp_path: Path) -> None:
    made = load("gpt2").explore(ctx=64, vs="gpt2-xl")
    assert made.save(tmp_path / "page.html").read_text(encoding="utf-8") == made.html
    with pytest.raises(UsageError, match="exists"):
        made.save(tmp_path / "page.html")
    framed = made._repr_html_()
    assert framed.startswith("<iframe") and 'sandbox="allow-scripts' in framed and "allow-same-origin" not in framed


def test_models_of_one_shape_share_it() -> None:
    data = explore.explore([presets.load(name) for name in ("llama-3.1-8b", "llama-3-8b", "mistral-7b-v0.3")])
    assert len(data["shapes"]) == 1 and len(data["models"]) == 3
    assert data["models"][0]["shared"] == "num_key_value_heads"
    assert "shared" not in explore.explore([presets.load("gpt2")])["models"][0]


def test_a_page_says_which_layers_are_alike_and_whether_the_published_total_is_met() -> None:
    """DeepSeek-V3 has an MLP in the first 3 of its 61 layers, and experts in the others."""
    deepseek, gpt2 = (explore.explore([presets.load(name)])["models"][0] for name in ("deepseek-v3", "gpt2"))
    assert deepseek["blocks"] == ["0-2", "3-60"] and "blocks" not in gpt2  # its layers are all alike
    (changed,) = explore.explore([load("gpt2", n_layer=3).loaded])["models"]
    assert deepseek["met"] and gpt2["met"] and not changed.get("met")


def test_a_field_that_takes_only_one_number_is_not_varied() -> None:
    """StarCoder's and Falcon 7B's multi_query decides: `--set num_key_value_heads=16` is refused."""
    for name in ("starcoderbase-1b", "falcon-7b"):
        assert "shared" not in explore.explore([presets.load(name)])["models"][0], name
    assert explore.explore([presets.load("falcon-40b")])["models"][0]["shared"] == "num_kv_heads"


def test_quantized_weights_are_named_and_not_guessed() -> None:
    (model,) = explore.explore([presets.load("gpt-oss-20b")])["models"]
    assert model["quantized"] == {"name": "mxfp4", "bytes": 13_761_264_768}  # as `memory gpt-oss-20b` says
