"""Headers of checkpoints on a hub, by byte ranges, from a local hub and file store. Kind: oracle, refusal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.checkpoints import of_class, written
from tests.helpers.hub import COMMIT, Ask, Handler, Server, environment_of, serving
from tests.helpers.models import tiny

ID = "Qwen/Qwen2-7B-Chat"
TOKEN = "Bearer hf_mine"


class OfFiles(Handler):
    server: Host

    def answer(self, *, with_body: bool) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append((self.command, self.path, asked, self.headers.get("Authorization")))
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path)
        key = f"{match[1]}/{match[3]}" if match else self.path
        headers = {"X-Repo-Commit": COMMIT, "ETag": '"abc"', "Connection": "close"}
        body = self.server.files.get(key)
        if body is None:
            return self.say(404, {**headers, "X-Error-Code": "EntryNotFound"})
        if to := self.server.redirects.get(key):
            return self.say(302, {**headers, "Location": to, "X-Linked-Size": str(len(body)), "X-Linked-Etag": '"abc"'})
        status, part = 200, body
        if asked and key not in self.server.whole and with_body:
            start, stop = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", asked).groups())  # type: ignore[union-attr]
            part, status = body[start : stop + 1], 206
            headers["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{self.server.sizes.get(key, len(body))}"
        headers["Content-Length"] = str(len(part))
        return self.say(
            status, headers, (part[: len(part) // 2] if key in self.server.cut else part) if with_body else b""
        )

    def say(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Host(Server):
    """A host with files by path: a hub, or the store of its large files."""

    handler = OfFiles

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.whole: set[str] = set()
        """Files that it sends whole for any range."""
        self.sizes: dict[str, int] = {}
        """False sizes that it claims."""
        self.cut: set[str] = set()


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    """The hub, and the store of its large files."""
    with serving(Host()) as hub, serving(Host()) as store:
        yield hub, store


@pytest.fixture
def environment(hosts: tuple[Host, Host], tmp_path: Path) -> dict[str, str]:
    return {**environment_of(hosts[0], tmp_path), "HF_TOKEN": "hf_mine"}


def published(hosts: tuple[Host, Host], path: Path, shards: int) -> int:
    """A model on the hub, whose files lie in the store; returns the bytes of its tensors."""
    hub, store = hosts
    ours = tiny("qwen2")
    tensors = of_class(ours)
    hub.files[f"{ID}/config.json"] = json.dumps(dict(ours.raw)).encode()
    names = [f"model-{n + 1:05}-of-{shards:05}.safetensors" for n in range(shards)] if shards else ["model.safetensors"]
    where = {name: names[number % len(names)] for number, name in enumerate(tensors)}
    for name in names:
        file = written(path / name, {tensor: stored for tensor, stored in tensors.items() if where[tensor] == name})
        hub.files[f"{ID}/{name}"] = store.files[f"/store/{name}"] = file.read_bytes()
        hub.redirects[f"{ID}/{name}"] = f"{store.url}/store/{name}"
    if shards:
        hub.files[f"{ID}/model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": where}).encode()
    return 2 * sum(ours.ledger.parameters().values())


@pytest.mark.parametrize("shards", [0, 3])
def test_headers_on_the_hub_are_read_by_ranges(hosts: tuple[Host, Host], ask: Ask, tmp_path: Path, shards: int) -> None:
    whole = published(hosts, tmp_path / "files", shards)
    ran = ask("check", ID, "--json")
    assert (ran.code, ran.err) == (0, "")
    (model,) = ran.models
    assert (model["tensor_bytes"], model["agrees"], model["model"]) == (whole, True, ID)
    assert len(model["files"]) == (shards or 1)
    hub, store = hosts
    assert len(store.asked) == (shards or 1)
    assert {(how, asked, who) for how, _, asked, who in store.asked} == {("GET", "bytes=0-131071", None)}, "no token"
    files = {path for how, path, *_ in hub.asked if how == "GET" and "safetensors" in path and "index" not in path}
    assert all(f"/resolve/{COMMIT}/" in path for path in files), "all of one commit"
    assert {who for *_, who in hub.asked} == {TOKEN}


def test_behaviour_of_a_hub(hosts: tuple[Host, Host], ask: Ask, tmp_path: Path) -> None:
    hub, store = hosts
    long = written(
        tmp_path / "long.safetensors", {f"model.layers.{n}.some.weight": ("F32", (2, 3)) for n in range(3000)}
    )
    store.files = {name: long.read_bytes() for name in ("/long", "/whole", "/liar", "/cut", "/loop")}
    store.files |= {"/page": b"<html>log in</html>" * 9}
    store.redirects["/loop"] = f"{store.url}/loop"
    store.whole.add("/whole")
    store.sizes["/liar"] = 10**15
    store.cut.add("/cut")
    weights = {
        "a/long": ("/long", "70.3 KiB in one file, all fp32; not compared"),
        "a/whole": ("/whole", "the answer was 200 OK"),
        "a/liar": ("/liar", "bytes at its end do not belong to a tensor"),
        "a/cut": ("/cut", "cannot fetch"),
        "a/loop": ("/loop", "redirected too many times"),
        "a/page": ("/page", "a web page"),
        "a/lost": ("/nothing", "the answer was 404 Not Found"),
        "a/ftp": ("ftp://127.0.0.1/x", "sent an empty redirect"),
        "a/file": ("file:///etc/passwd", "sent an empty redirect"),
    }
    for name, (to, _) in weights.items():
        hub.files[f"{name}/model.safetensors"] = b"elsewhere"
        hub.redirects[f"{name}/model.safetensors"] = to if "://" in to else f"{store.url}{to}"
    hub.files["a/index/model.safetensors.index.json"] = json.dumps({"weight_map": {"w": "../../config.json"}}).encode()
    expected = {name: words for name, (_, words) in weights.items()}
    expected |= {
        "a/index": "which is not a safetensors file in its folder",
        "a/none": "has no model.safetensors and no model.saf",
    }
    for name in expected:
        ran = ask("check", name)
        right = name == "a/long"
        assert ran.code == (0 if right else 2), (name, ran.err)
        assert expected[name] in " ".join((ran.out if right else ran.err).split()), name
        assert right or (ran.out == "" and len(ran.err.splitlines()) <= 2 and "Traceback" not in ran.err)
    ranges = [asked for _, path, asked, _ in store.asked if path == "/long"]
    assert len(ranges) == 2 and ranges[0] == "bytes=0-131071", "a long header takes a second one"


def test_offline_the_cache_answers(ask: Ask, tmp_path: Path) -> None:
    """In the cache of huggingface_hub."""
    ours = tiny("qwen2")
    cached = tmp_path / "home" / "hub" / "models--Qwen--Qwen2-7B-Chat"
    snapshot = cached / "snapshots" / COMMIT
    written(snapshot / "model.safetensors", of_class(ours))
    (snapshot / "config.json").write_text(json.dumps(dict(ours.raw)))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(COMMIT)
    ran = ask("check", ID, HF_HUB_OFFLINE="1")
    assert ran.code == 0 and "tensors and config agree" in ran.out_line, ran.err
