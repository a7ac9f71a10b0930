"""A config.json by its hub id, from a local hub, without huggingface_hub. Kind: golden, refusal."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tfacct
from tests.families import TINY
from tests.helpers.cli import Ran, Run
from tests.helpers.hub import COMMIT, OTHER_COMMIT, Ask, Handler, Server, environment_of, inside, serving
from tfacct.base.errors import HubError, UsageError
from tfacct.loading import files, hub, hub_client

ROOT = Path(__file__).parents[2]
CONFIG = json.dumps(TINY["qwen2"]).encode()
CONFIG_OF_OTHER = json.dumps({**TINY["qwen2"], "vocab_size": 74}).encode()
ID = "Qwen/Qwen2-7B-Chat"
"""No preset answers for it."""
PRESET_ID = "Qwen/Qwen2-7B"
GATED_ID = "meta-llama/Llama-3.1-8B-Chat"


@dataclass
class Answer:
    """The hub's answer for one model."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    wait: float = 0
    """Seconds before it answers."""
    length: int | None = None
    """The length that it claims, where that is not the body's."""
    trickle: float = 0
    """Seconds between two bytes of the body."""
    private_to: str | None = None
    redirect: str = ""
    """The address that it redirects to."""
    endless: bool = False
    """Whether the body is sent without end and without a length."""


def refusal(status: int, code: str | None = None, **headers: str) -> Answer:
    return Answer(b"", status, {**({"X-Error-Code": code} if code else {}), **headers})


GATED = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model is restricted."}


def odd(**headers: str) -> tuple[Answer, list[str]]:
    """The config, with headers that no hub sends: nothing is fetched, and no file is named after them."""
    return Answer(CONFIG, headers={name.replace("_", "-"): text for name, text in headers.items()}), [NO_HUB]


NO_HUB = "does not answer like a hub"
REFUSED: dict[str, tuple[Answer, list[str]]] = {
    "no/such": (refusal(404, "RepoNotFound"), ["no file and no model on http://127.0.0.1", "'no/such'", "HF_TOKEN"]),
    "no/such-code": (refusal(404), ["no file and no model on"]),
    "no/config": (refusal(404, "EntryNotFound", **{"X-Repo-Commit": COMMIT}), ["no/config has no config.json"]),
    "no/main": (refusal(404, "RevisionNotFound"), ["no/main has no revision 'main'"]),
    f"{ID}@none": (refusal(404, "RevisionNotFound"), [f"{ID} has no revision 'none'", "did you mean qwen2-7b"]),
    GATED_ID: (
        Answer(CONFIG, private_to="Bearer hf_right"),
        ["is gated", "accept its licence at http://127", "HF_TOKEN", "mean llama-3.1-8b"],
    ),
    "no/token": (refusal(401), ["denies access to no/token: 401 Unauthorized", "HF_TOKEN"]),
    "no/right": (refusal(403), ["denies access to no/right: 403 Forbidden", "HF_TOKEN"]),
    "in/trouble": (
        refusal(503),
        ["cannot fetch in/trouble from http://127.0.0.1", "answer was 503 Service Unavailable"],
    ),
    "in/ruins": (refusal(500), ["the answer was 500 Internal Server Error"]),
    "too/often": (refusal(429, **{"Retry-After": "30"}), ["the answer was 429 Too Many Requests"]),
    "too/large": (Answer(CONFIG + b" " * 4_000_000), ["config.json of too/large is larger than 4 MB"]),
    "not/asked": (refusal(418), ["the answer was 418"]),
    "no/hub": (Answer(b"<html>log in</html>", headers={"X-Repo-Commit": "", "ETag": ""}), [NO_HUB, "HF_ENDPOINT"]),
    "etag/path": odd(ETag='"../../../../outside"'),
    "etag/absolute": odd(ETag='"/tmp/outside"'),
    "etag/dots": odd(ETag='".."'),
    "etag/endless": odd(ETag=f'"{"a" * 5000}"'),
    "etag/linked": odd(X_Linked_ETag='"../../../../outside"'),
    "commit/steering": odd(X_Repo_Commit="\x1b[31mred\x1b[0m" + COMMIT),
    "commit/path": odd(X_Repo_Commit="../../../outside"),
    "commit/branch": odd(X_Repo_Commit="main"),
    "commit/short": odd(X_Repo_Commit=COMMIT[:39]),
    f"commit/other@{COMMIT}": (
        Answer(CONFIG, headers={"X-Repo-Commit": OTHER_COMMIT}),
        [f"commit {OTHER_COMMIT}, not {COMMIT}"],
    ),
}
"""What a hub may answer before anything is fetched, and words of the error."""
FETCHED_AND_REFUSED: dict[str, tuple[Answer, list[str]]] = {
    "cut/json": (
        Answer(CONFIG[:30]),
        ["config.json of cut/json is not JSON", "the hub cache has it as", "config.json"],
    ),
    "not/text": (Answer(b"\x80\x00\xff\xfe" * 10), ["config.json of not/text is not UTF-8 text"]),
    "not/object": (Answer(b"[1, 2]"), ["is a JSON list"]),
    "un/known": (Answer(b'{"model_type": "elephant"}'), ["un/known: unknown model_type 'elephant'"]),
    # A kilobyte may be a gigabyte once it is open.
    "packed/up": (
        Answer(gzip.compress(b" " * 10**7), headers={"Content-Encoding": "gzip"}),
        ["sent the config.json compressed"],
    ),
    "too/few": (
        Answer(CONFIG, headers={"X-Linked-Size": str(len(CONFIG) + 1)}),
        [f"{len(CONFIG):,} of {len(CONFIG) + 1:,} bytes arrived"],
    ),
}
ANSWERS = {
    f"{ID}@main": Answer(CONFIG),
    f"{ID}@v1.0": Answer(CONFIG_OF_OTHER, headers={"X-Repo-Commit": OTHER_COMMIT}),
    f"{ID}@refs/pr/3": Answer(CONFIG_OF_OTHER, headers={"X-Repo-Commit": OTHER_COMMIT}),
    f"{ID}@{COMMIT}": Answer(CONFIG),
    f"{PRESET_ID}@main": Answer(CONFIG),
    f"{PRESET_ID}@v1.0": refusal(404, "RevisionNotFound"),
    "meta-llama/Llama-3.1-8B@main": Answer(CONFIG, private_to="Bearer hf_right"),
    "too/slow@main": Answer(CONFIG, wait=20),
    "a-bit/slow@main": Answer(CONFIG, wait=0.6),
    "too/trickling@main": Answer(CONFIG, trickle=0.5),
    "cut/short@main": Answer(CONFIG[:30], length=len(CONFIG)),
    **{
        name if "@" in name else f"{name}@main": answer
        for name, (answer, _) in {**REFUSED, **FETCHED_AND_REFUSED}.items()
    },
}


class OfModels(Handler):
    server: Hub

    def answer(self, *, with_body: bool) -> None:
        who = self.headers.get("Authorization")
        self.server.asked.append((self.command, self.path, who))
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(hf_quant_)?config\.json", self.path)
        known = self.server.answers.get(f"{match[1]}@{match[2].replace('%2F', '/')}") if match else None
        if match and match[3]:
            known = self.server.formats.get(match[1], refusal(404, "EntryNotFound"))
        reply = known or refusal(418)
        if reply.private_to is not None and who != reply.private_to:
            reply = Answer(b"", 403 if who else 401, GATED)
        self.server.closing.wait(reply.wait)
        length = len(reply.body) if reply.length is None else reply.length
        headers = {"Content-Length": str(length), "ETag": f'"{hash(reply.body) & 0xFFFFFF:x}"', "X-Repo-Commit": COMMIT}
        if with_body and reply.redirect:
            reply = Answer(b"", 302, {"Location": reply.redirect})
        if reply.endless:
            del headers["Content-Length"]
        self.send_response(reply.status)
        for name, value in {**(headers if reply.status == 200 else {"Content-Length": "0"}), **reply.headers}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        while with_body and reply.endless and not self.server.closing.is_set() and self.server.sent < 10**9:
            self.wfile.write(reply.body)
            self.server.sent += len(reply.body)
        if with_body and reply.trickle:
            for byte in reply.body:
                if self.server.closing.wait(reply.trickle):
                    return
                self.wfile.write(bytes([byte]))
        elif with_body:
            self.wfile.write(reply.body)


class Hub(Server):
    """The hub's one route that is used."""

    handler = OfModels

    def __init__(self) -> None:
        super().__init__()
        self.answers = dict(ANSWERS)
        self.formats: dict[str, Answer] = {}
        """Answers for hf_quant_config.json by model; others have none."""
        self.sent = 0
        """Bytes of bodies without end."""


@pytest.fixture
def server() -> Iterator[Hub]:
    with serving(Hub()) as hub:
        yield hub


@pytest.fixture
def environment(server: Hub, tmp_path: Path) -> dict[str, str]:
    return environment_of(server, tmp_path)


@pytest.fixture
def ask_process(environment: dict[str, str], tmp_path: Path) -> Ask:
    """The same in a child process, which must end within a minute."""

    def call(*arguments: str, **env: str) -> Ran:
        ran = subprocess.run(
            [sys.executable, "-m", "tfacct", *arguments],
            capture_output=True, text=True, cwd=tmp_path / "work", env=environment | env, timeout=60,
        )  # fmt: skip
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    return call


def test_a_fetched_config_is_counted_like_a_file(ask: Ask, ask_process: Ask, server: Hub, tmp_path: Path) -> None:
    (tmp_path / "file.json").write_bytes(CONFIG)
    for command, fetch in ((["params"], ask_process), (["flops", "--ctx", "29"], ask), (["memory"], ask)):
        fetched = fetch(*command, ID, "--json")
        assert (fetched.code, fetched.err) == (0, "")
        assert fetched.out.replace(ID, "file.json") == ask(*command, str(tmp_path / "file.json"), "--json").out
    # The first run fetches, and asks once whether a file of its own says the format; the other two only ask whether
    # theirs is the newest. No request has a token.
    config, of_format = f"/{ID}/resolve/main/config.json", f"/{ID}/resolve/{COMMIT}/hf_quant_config.json"
    assert [(how, path) for how, path, _ in server.asked] == [
        ("HEAD", config), ("GET", config), ("HEAD", of_format), ("HEAD", config), ("HEAD", config),
    ]  # fmt: skip
    assert {who for *_, who in server.asked} == {None}


def test_a_format_in_a_file_of_its_own_is_fetched_too(ask: Ask, server: Hub, tmp_path: Path) -> None:
    content = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    server.formats[ID] = Answer(json.dumps(content).encode())
    inside = {**TINY["qwen2"], "quantization_config": {**content, "quant_method": "modelopt"}}
    (tmp_path / "file.json").write_text(json.dumps(inside))
    fetched = ask("memory", ID, "--json")
    assert fetched.out.replace(ID, "file.json") == ask("memory", str(tmp_path / "file.json"), "--json").out
    assert ask("memory", ID, "--json", HF_HUB_OFFLINE="1").out == fetched.out
    assert fetched.models[0]["dtype_from"] == "published"
    assert "hf_quant" not in " ".join(path for _, path, _ in server.asked[4:])


def test_a_hub_that_does_not_say_whether_there_is_such_a_file(ask: Ask, server: Hub) -> None:
    server.formats[ID] = refusal(503)
    assert "memory in bf16 (assumed)" in ask("memory", ID).out
    server.formats[ID] = Answer(b"{")
    ran = ask("memory", ID)
    assert (ran.code, ran.out) == (2, "") and "hf_quant_config.json is not JSON" in ran.err


def test_a_preset_that_answers_for_a_hub_id_says_which_format_is_assumed(ask: Ask) -> None:
    offline = {"HF_HUB_OFFLINE": "1"}
    sizes = ask("memory", "deepseek-ai/DeepSeek-R1", **offline)
    assert "memory in fp8-block (assumed)" in sizes.out and "; weights are assumed to be in fp8-block" in sizes.err
    nothing = ask("memory", "openai-community/gpt2", **offline)
    assert "memory in bf16 (assumed)" in nothing.out and "; weights are assumed to be in bf16" in nothing.err
    known = ask("memory", PRESET_ID, **offline)
    assert "memory in bf16, context" in known.out and "assumed" not in known.err


QUANTIZED = (
    "Qwen/Qwen2-7B-AWQ",
    "Qwen/Qwen2-7B-GPTQ-Int4",
    "an/qwen2-7b-bnb-4bit",
    "an/Qwen2-7B-FP8",
    "an/Qwen2-7B-GGUF",
)


@pytest.mark.parametrize("model", QUANTIZED)
def test_no_preset_is_suggested_for_quantized_weights(ask: Ask, model: str) -> None:
    """It would count those of the model in bf16."""
    for asked in (model, model.partition("/")[2], f"{model.partition('/')[2]}.json"):
        ran = ask("memory", asked, HF_HUB_OFFLINE="1")
        assert (ran.code, ran.out) == (2, "") and "did you mean" not in ran.err
        assert "a preset supports another format with --dtype: qwen2-7b" in ran.err or "`qwen2-7b --dtype" in ran.err
    for end, dtype in {"AWQ": "awq", "GPTQ-Int4": "gptq", "Instruct-FP8": "fp8"}.items():
        refused = ask("memory", f"Qwen/Qwen2.5-72B-{end}", HF_HUB_OFFLINE="1").err
        assert f"offline, the preset: `qwen2.5-72b --dtype {dtype}`" in refused
    offline = ask("memory", "Qwen/Qwen2-7B-x", HF_HUB_OFFLINE="1").err
    assert "did you mean qwen2-7b? Fields of a preset can differ" in offline


def test_every_command_takes_a_hub_id(ask: Ask) -> None:
    commands = [
        ["flops", ID], ["flops", ID, "qwen2-7b"], ["flops", ID, "--bytes"], ["params", ID], ["memory", ID],
        ["memory", "--kv", ID], ["formula", ID], ["models", ID], ["compare", ID, f"{ID}@v1.0", "--by", "line"],
        ["compare", ID, "--set", "head_dim=8"],
        ["sweep", ID, "--ctx", "1,2,4"], ["solve", ID, "--for", "ctx", "--until", "kv_cache_bytes=weights_bytes"],
        ["flops", ID, "--set", "num_hidden_layers=1"], ["flops", ID, "--markdown"],
    ]  # fmt: skip
    answers = [ask(*command) for command in commands]
    for command, ran in zip(commands, answers, strict=True):
        assert ran.code == 0 and ID in ran.out, (command, ran.err)
        assert max(map(len, ran.out.splitlines())) <= 80 or "--markdown" in command, command
    assert f"\n{ID} → {ID}@v1.0" in answers[8].out


def test_load_by_hub_id(environment: dict[str, str], server: Hub, tmp_path: Path) -> None:
    with inside(tmp_path / "work", environment):
        model = tfacct.load(ID, num_hidden_layers=5)
        assert (model.name, model.architecture.stacks[0].count) == (ID, 5)
        assert model.loaded.provenance.revision == COMMIT
        difference = model.diff(tfacct.load(f"{ID}@v1.0"))
        assert difference.title == f"{ID} (num_hidden_layers=5) → {ID}@v1.0, context 47, batch 1"
        with pytest.raises(tfacct.TfacctError, match="no preset or file named 'no/such'"):
            tfacct.load(Path("no/such"))
    assert not [path for _, path, _ in server.asked if "no/such" in path]


def test_revisions_and_where_they_came_from(ask: Ask, server: Hub) -> None:
    """Branches, tags, pull requests and commits; the name has the revision, a commit abbreviated as by git."""
    for revision, shown, vocabulary in [
        ("main", "main", 73), ("v1.0", "v1.0", 74), ("refs/pr/3", "refs/pr/3", 74), (COMMIT, COMMIT[:7], 73),
    ]:  # fmt: skip
        (model,) = ask("models", f"{ID}@{revision}", "--json").models
        assert model["model"] == f"{ID}@{shown}"
        assert model["config"]["vocab_size"] == vocabulary
        assert model["origin"]["revision"] == (COMMIT if vocabulary == 73 else OTHER_COMMIT)
    before = len(server.asked)
    assert ask("flops", f"{ID}@{COMMIT}").code == 0
    assert len(server.asked) == before, "a commit never changes: what is in the cache needs no question"
    printed = ask("models", ID).out_line
    assert f"source: {server.url}/{ID}, fetched at {COMMIT}" in printed and "expected parameters" not in printed
    (model,) = ask("models", ID, "--json", HF_HUB_OFFLINE="1").models
    assert model["origin"] == {
        "url": f"{server.url}/{ID}", "kind": "cached", "via": None, "revision": COMMIT,
        "expected_params": None, "expected_from": None,
    }  # fmt: skip


def test_answers_of_a_hub(ask: Ask, server: Hub, tmp_path: Path) -> None:
    before = below(tmp_path)
    for model, (_, says) in {**REFUSED, **FETCHED_AND_REFUSED}.items():
        ran = ask("flops", model)
        assert (ran.code, ran.out) == (2, ""), model
        assert ran.err.startswith("error: ") and len(ran.err.splitlines()) <= 2 and "\x1b" not in ran.err
        for words in says:
            assert words in ran.err, model
        methods = [how for how, path, _ in server.asked if path.startswith(f"/{model.partition('@')[0]}/")]
        assert methods == (["HEAD"] if model in REFUSED else ["HEAD", "GET"]), "no refusal is asked for twice"
        if model in REFUSED:
            assert below(tmp_path) - before <= {"home", "home/hub"}


@pytest.mark.parametrize("model", ["too/slow", "too/trickling", "cut/short"])
def test_a_hub_that_does_not_come_to_an_end_is_left(ask_process: Ask, model: str) -> None:
    """The answers of the first two would come in whole, after 20 seconds and after minutes."""
    ran = ask_process("flops", model, HF_HUB_ETAG_TIMEOUT="0.5", HF_HUB_DOWNLOAD_TIMEOUT="0.5")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: cannot fetch {model} from http://127.0.0.1") and len(ran.err.splitlines()) == 1


@pytest.fixture
def elsewhere() -> Iterator[Hub]:
    """Another host, which would give the file to whoever asks."""
    with serving(Hub()) as hub:
        yield hub


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("size", [None, len(CONFIG)])
def test_a_body_without_end_is_left_at_once(ask: Ask, server: Hub, size: int | None) -> None:
    headers = {} if size is None else {"X-Linked-Size": str(size)}
    body = CONFIG + b" " * 100_000
    server.answers[f"{ID}@main"] = Answer(body, headers=headers, endless=True)
    ran = ask("flops", ID)
    assert (ran.code, ran.out) == (2, "") and "is larger than 4 MB" in ran.err
    # The last body may be read before the server counts it; others may be in the buffers of sockets.
    assert 4_000_000 < server.sent + len(body) < 20_000_000


@pytest.mark.parametrize("how", ["Xet", "Xet by a link", "redirected", "redirected in the end"])
def test_the_token_goes_to_no_host_that_the_server_names(ask: Ask, server: Hub, elsewhere: Hub, how: str) -> None:
    there = f"{elsewhere.url}/{ID}/resolve/main/config.json"
    xet = {"X-Xet-Hash": "a" * 64, "X-Xet-Refresh-Route": there}
    server.answers[f"{ID}@main"] = {
        "Xet": Answer(CONFIG, headers=xet),
        "Xet by a link": Answer(CONFIG, headers={"X-Xet-Hash": "a" * 64, "Link": f'<{there}>; rel="xet-auth"'}),
        "redirected": Answer(b"", 302, {"Location": there, "X-Repo-Commit": COMMIT, "ETag": '"abc"'}),
        "redirected in the end": Answer(CONFIG, redirect=there),
    }[how]
    ran = ask("params", ID, HF_TOKEN="hf_mine")
    assert elsewhere.asked == []
    assert "hf_mine" not in ran.err + ran.out
    if how.startswith("Xet"):
        assert ran.code == 0, "the hub has it too"
    else:
        assert (ran.code, ran.out) == (2, "")
        why = "redirects to other hosts are not followed" if how == "redirected" else "the answer was 302 Found"
        assert why in ran.err


def test_the_token_is_sent_and_opens_the_gate(ask: Ask, server: Hub, tmp_path: Path) -> None:
    """The hub redirects to a path, not to an address."""
    server.answers["old/name@main"] = Answer(b"", 307, {"Location": f"/{ID}/resolve/main/config.json"})
    assert ask("params", "old/name", HF_TOKEN="hf_mine").code == 0
    assert [who for _, _, who in server.asked] == ["Bearer hf_mine"] * 4
    gated = GATED_ID
    ran = ask("params", gated, HF_TOKEN="hf_wrong")
    assert ran.code == 2 and "is gated" in ran.err and "hf_wrong" not in ran.err
    assert ask("params", gated, HF_TOKEN="hf_right").code == 0
    assert {who for _, path, who in server.asked if gated in path} == {"Bearer hf_wrong", "Bearer hf_right"}
    (tmp_path / "home" / "token").write_text("hf_saved\n")
    assert ask("params", ID).code == 0 and server.asked[-1][2] == "Bearer hf_saved"


def test_the_cache_is_one_that_huggingface_hub_reads(ask: Ask, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    assert ask("params", f"{ID}@refs/pr/3").code == 0 and ask("params", ID).code == 0
    script = f"""
from huggingface_hub import hf_hub_download, scan_cache_dir
print(open(hf_hub_download("{ID}", "config.json")).read())
print(open(hf_hub_download("{ID}", "config.json", revision="refs/pr/3")).read())
cache = scan_cache_dir()
print(cache.warnings, sorted(ref for repo in cache.repos for ref in repo.refs))
"""
    env = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
    assert ran.stdout.splitlines() == [CONFIG.decode(), CONFIG_OF_OTHER.decode(), "[] ['main', 'refs/pr/3']"], (
        ran.stderr
    )


def test_an_environment_without_a_hub(ask: Ask, tmp_path: Path) -> None:
    for endpoint in ("http://127.0.0.1:9", "nonsense", "", "file:///etc", "ftp://127.0.0.1", "http://", "http://["):
        ran = ask("flops", ID, HF_ENDPOINT=endpoint)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"error: cannot fetch {ID} from ") and len(ran.err.splitlines()) == 2
        assert "did you mean qwen2-7b" in ran.err
    ran = ask("flops", ID, HF_HUB_ETAG_TIMEOUT="soon")
    assert (ran.code, ran.out) == (2, "") and "HF_HUB_ETAG_TIMEOUT must be a number" in ran.err and "soon" in ran.err
    (tmp_path / "taken").write_text("a file")
    ran = ask("flops", ID, HF_HOME=str(tmp_path / "taken"))
    assert (ran.code, ran.out) == (2, "") and "the hub cache cannot be used" in ran.err and "HF_HOME" in ran.err
    for token in ("café", "hf_a\nHost: b", "hf_\x01"):
        ran = ask("flops", ID, HF_TOKEN=token)
        assert (ran.code, ran.out) == (2, "") and "HF_TOKEN has invalid characters" in ran.err


def test_the_hub_is_asked_first_and_the_preset_answers_where_it_does_not(ask: Ask, server: Hub) -> None:
    """The hub's own config has a vocabulary of 73; the preset of 152,064."""

    def vocabulary(model: str, **environment: str) -> tuple[str, int, str]:
        ran = ask("models", model, "--json", **environment)
        (facts,) = ran.models
        return facts["model"], facts["config"]["vocab_size"], ran.err

    page = f"https://huggingface.co/{PRESET_ID}/blob/main/config.json"
    asked = f"hint: using preset qwen2-7b for {PRESET_ID} "
    offline = f"{asked}(it is not in the hub cache, and HF_HUB_OFFLINE forbids downloads)\n"
    assert vocabulary(PRESET_ID, HF_HUB_OFFLINE="1") == ("qwen2-7b", 152064, offline)
    *preset, hint = vocabulary(page, HF_ENDPOINT="http://127.0.0.1:9")
    assert preset == ["qwen2-7b", 152064] and hint.startswith(f"{asked}(cannot fetch it from http://127.0.0.1:9: ")
    *preset, hint = vocabulary("meta-llama/Llama-3.1-8B")
    assert preset == ["llama-3.1-8b", 128256] and hint.endswith(" for meta-llama/Llama-3.1-8B (it is gated)\n")
    assert vocabulary(page) == (PRESET_ID, 73, "")
    assert vocabulary(PRESET_ID, HF_HUB_OFFLINE="1") == (PRESET_ID, 73, ""), "the copy that the hub gave"
    for model in (f"{PRESET_ID}@v1.0", f"https://huggingface.co/{PRESET_ID}/tree/v1.0"):
        ran = ask("models", model)
        assert (ran.code, ran.out) == (2, "") and f"{PRESET_ID} has no revision 'v1.0'" in ran.err
    server.answers[f"{PRESET_ID}@main"] = Answer(
        CONFIG_OF_OTHER + b" " * 4_000_000, headers={"X-Repo-Commit": OTHER_COMMIT}
    )
    ran = ask("models", PRESET_ID)
    assert (ran.code, ran.out) == (2, "") and "larger than 4 MB" in ran.err


def test_the_cache_serves_when_the_hub_does_not(ask: Ask, server: Hub) -> None:
    ran = ask("flops", ID, HF_HUB_OFFLINE="1")
    assert (ran.code, ran.out) == (2, "") and server.asked == []
    assert f"{ID} is not in the hub cache, and HF_HUB_OFFLINE forbids downloads" in ran.err
    online = ask("flops", ID)
    assert online.code == 0
    asked = len(server.asked)
    assert ask("flops", ID, HF_HUB_OFFLINE="1") == online and len(server.asked) == asked
    assert ask("flops", ID, HF_ENDPOINT="http://127.0.0.1:9") == online
    for status in (408, 429, 500, 502, 503, 504):
        server.answers[f"{ID}@main"] = refusal(status)
        assert ask("flops", ID) == online
    # A hub that does answer is believed.
    server.answers[f"{ID}@main"] = refusal(404, "RepoNotFound")
    assert ask("flops", ID).code == 2
    server.answers[f"{ID}@main"] = Answer(CONFIG_OF_OTHER, headers={"X-Repo-Commit": OTHER_COMMIT})
    (model,) = ask("models", ID, "--json").models
    assert (model["config"]["vocab_size"], model["origin"]["kind"]) == (74, "fetched")


@pytest.mark.parametrize("broken", [b"", CONFIG[:20], b"[]", b"\x00" * 9])
def test_a_broken_copy_is_fetched_anew(ask: Ask, tmp_path: Path, broken: bytes) -> None:
    whole = ask("params", ID)
    (copy,) = (tmp_path / "home").rglob("config.json")
    copy.write_bytes(broken)
    offline = ask("params", ID, HF_HUB_OFFLINE="1")
    assert (offline.code, offline.out) == (2, "")
    assert f"the hub cache has a broken config.json of {ID}, and HF_HUB_OFFLINE forbids downloads" in offline.err
    assert ask("params", ID) == whole and copy.read_bytes() == CONFIG
    copy.write_bytes(broken)
    assert ask("params", f"{ID}@{COMMIT}").code == 0 and copy.read_bytes() == CONFIG


def test_a_file_of_that_name_wins(ask: Ask, server: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "work" / ID
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(CONFIG)
    (model,) = ask("params", ID, "--json").models
    assert (model["model"], server.asked) == ("Qwen2-7B-Chat", [])


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_a_spinner_for_whoever_waits_before_a_terminal(environment: dict[str, str], tmp_path: Path, term: str) -> None:
    pty = pytest.importorskip("pty")

    def seen(model: str) -> tuple[str, str]:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "tfacct", "params", model, "--json"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path / "work", env=environment | {"TERM": term}
        ) as process:
            os.close(theirs)
            out = process.stdout.read().decode()
            shown = b""
            try:
                while chunk := os.read(ours, 1024):
                    shown += chunk
            except OSError:  # the end of a pty, on Linux
                pass
        os.close(ours)
        return out, shown.decode()

    out, shown = seen("a-bit/slow")
    assert json.loads(out)["models"][0]["model"] == "a-bit/slow"
    if term != "dumb":
        assert "asking http://127.0.0.1" in shown and "for a-bit/slow" in shown
        assert shown.rstrip("\r\n").endswith(("\x1b[2K", "\x1b[?25h")), "erased when the work is done"
    assert "\x1b" not in out


def test_no_flicker_where_the_answer_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "MESSAGE_AFTER_SECONDS", 60)  # however busy the machine is
    shown: list[str] = []
    assert hub.patiently(ID, "v1", lambda wanted: f"answer for {wanted}", shown.append) == "answer for v1" and not shown


@pytest.mark.parametrize(
    "model",
    [
        "Qwen/..", "../Qwen", "Qwen/Qwen2..7B", "Qwen/../Qwen2-7B", "/Qwen/Qwen2-7B", "/etc", "a/b/c", "Qwen/", "~/x",
        "Qwen/Qwen2 7B", "Qwen/Qwen2-7B?x=1", "Qwen/Qwen2#7B", "Qwen/Qwen2%2e7B", "Qwen/Qwen2\\7B", "Qwen/-x",
        "Qwen/x-", "Qwen/x--y", "Qwen/x.git", "Qwen/x\n", "Qwen/é", "Qwen/" + "x" * 97, "x" * 97 + "/y", "x:y/z",
        f"{ID}@", f"{ID}@..", f"{ID}@../../x", f"{ID}@/etc", f"{ID}@a//b", f"{ID}@a b", f"{ID}@a@b", f"{ID}@-x",
        f"{ID}@a\0b", f"{ID}@" + "x" * 200, f"{ID}@a?b", "a/b@c/../d",
    ],
)  # fmt: skip
def test_an_invalid_hub_id_is_refused_without_a_request(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str
) -> None:
    def asked(*_: object, **__: object) -> None:
        raise AssertionError(model)

    monkeypatch.setattr(hub, "fetch", asked)
    monkeypatch.chdir(tmp_path)
    ran = run("flops", model)
    assert (ran.code, ran.out) == (2, "") and ran.err.startswith("error: ") and len(ran.err.splitlines()) <= 2


def test_ids_that_are_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*given: object, **__: object) -> None:
        raise HubError(f"asked for {given}")

    monkeypatch.setattr(hub, "fetch", asked)
    for model, given in [
        (ID, (ID, None)),
        (f"{ID}@refs/pr/3", (ID, "refs/pr/3")),
        ("meta-llama/Llama-3.1-8B-Instruct", ("meta-llama/Llama-3.1-8B-Instruct", None)),
        ("01-ai/Yi-1.5_9B@v1.0+x", ("01-ai/Yi-1.5_9B", "v1.0+x")),
    ]:
        assert f"asked for {given}" in run("flops", model).err
    assert hub.read_id("a/b@c/d") == ("a/b", "c/d")
    assert hub.name_of("a/b", None) == "a/b" and hub.name_of("a/b", COMMIT) == "a/b@453ed15"
    with pytest.raises(UsageError, match="is not a valid revision of a/b"):
        hub.read_id("a/b@..")
    with pytest.raises(UsageError, match="is neither a file nor a hub id"):
        hub.read_id("a/b..c")


@pytest.mark.parametrize(
    ("given", "home"),
    [
        ({"HF_HOME": "{0}/a"}, "a/hub"),
        ({"HF_HUB_CACHE": "{0}/b", "HF_HOME": "{0}/a"}, "b"),
        ({"HUGGINGFACE_HUB_CACHE": "{0}/c"}, "c"),
        ({"XDG_CACHE_HOME": "{0}/d"}, "d/huggingface/hub"),
        ({"HOME": "{0}/e"}, "e/.cache/huggingface/hub"),
        ({"OURS": "{0}/f", "HF_HOME": "$OURS"}, "f/hub"),
    ],
)
def test_the_environment_is_read_as_huggingface_hub_reads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, str], home: str
) -> None:
    for name in [name for name in os.environ if name.startswith(("HF_", "XDG_CACHE", "HUGGING"))]:
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    found = hub_client.settings()
    assert found.cache == tmp_path / home and found.endpoint == "https://huggingface.co" and not found.offline
    assert (found.metadata_seconds, found.download_seconds) == (10, 10)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "yes")
            assert hub_client.settings().offline
    read = pytest.importorskip("huggingface_hub.constants")
    spec = importlib.util.spec_from_file_location("huggingface_hub.constants_of_test", read.__file__)
    again = importlib.util.module_from_spec(spec)  # which reads the environment of now
    spec.loader.exec_module(again)
    assert (str(found.cache), found.endpoint) == (again.HF_HUB_CACHE, again.ENDPOINT)
    assert found.metadata_seconds == again.HF_HUB_ETAG_TIMEOUT


def test_no_file_of_the_package_imports_huggingface_hub() -> None:
    for file in (ROOT / "tfacct").rglob("*.py"):
        assert not re.search(r"import huggingface|from huggingface", file.read_text()), file
    assert files.LARGEST == 4_000_000
