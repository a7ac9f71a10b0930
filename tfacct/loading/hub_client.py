"""Requests to the hub with urllib, and the local hub cache. No code is downloaded or run.

Endpoint, token, timeouts and cache come from the same environment variables as in huggingface_hub: HF_ENDPOINT,
HF_TOKEN or the file of `hf auth login`, HF_HUB_ETAG_TIMEOUT, HF_HUB_DOWNLOAD_TIMEOUT, HF_HOME, HF_HUB_CACHE,
HF_HUB_OFFLINE. Proxies come from the environment too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from tfacct.base.atomic_files import atomic_write
from tfacct.base.errors import HubError, cut
from tfacct.base.version import __version__

if TYPE_CHECKING:
    from http.client import HTTPResponse

MAIN = "main"
COMMIT = re.compile(r"[0-9a-f]{40}")
REDIRECTS = 3
REDIRECTED = (301, 302, 303, 307, 308)
CHUNK = 1 << 16


class Settings(NamedTuple):
    """Settings of the hub from the environment."""

    endpoint: str
    token: str | None
    cache: Path
    offline: bool
    metadata_seconds: float
    download_seconds: float

    @property
    def host(self) -> str:
        """Name of the hub in messages."""
        return self.endpoint.removeprefix("https://")


class RefusedError(Exception):
    """The hub's answer is an error, with a status and the code in its header."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(answer_of(status))
        self.status, self.code = status, code


class Metadata(NamedTuple):
    """The hub's metadata of a file."""

    location: str
    commit: str | None
    etag: str | None
    size: int | None


def settings() -> Settings:
    """Current settings from the environment. Raises HubError for an invalid variable."""
    environ = os.environ.get
    home = _path(environ("HF_HOME") or f"{environ('XDG_CACHE_HOME') or '~/.cache'}/huggingface")
    cache = environ("HF_HUB_CACHE") or environ("HUGGINGFACE_HUB_CACHE")
    return Settings(
        endpoint=environ("HF_ENDPOINT", "https://huggingface.co").rstrip("/"),
        token=_token(home),
        cache=_path(cache) if cache else home / "hub",
        offline=_is_true(environ("HF_HUB_OFFLINE") or environ("TRANSFORMERS_OFFLINE")),
        metadata_seconds=_seconds("HF_HUB_ETAG_TIMEOUT"),
        download_seconds=_seconds("HF_HUB_DOWNLOAD_TIMEOUT"),
    )


def _path(text: str) -> Path:
    return Path(os.path.expandvars(text)).expanduser()


def _is_true(text: str | None) -> bool:
    return (text or "").upper() in ("1", "ON", "YES", "TRUE")


def _seconds(variable: str) -> float:
    text = os.environ.get(variable) or "10"
    if not re.fullmatch(r"\d{1,6}(\.\d{1,3})?", text.strip(), re.ASCII):
        raise HubError(f"{variable} must be a number of seconds, not {cut(text)!r}")
    return float(text) or 10


def _token(home: Path) -> str | None:
    """Token from the environment or a login. Raises HubError for invalid characters."""
    found = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
    if found is None and not _is_true(os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN")):
        file = os.environ.get("HF_TOKEN_PATH")
        try:
            found = (_path(file) if file else home / "token").read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None
    found = (found or "").strip()
    if not (found.isascii() and found.isprintable()):
        raise HubError("HF_TOKEN has invalid characters")
    return found or None


def url_of(hub_id: str, name: str, revision: str) -> str:
    """Address of a model's file at a branch, tag or commit."""
    return f"{settings().endpoint}/{hub_id}/resolve/{quote(revision, safe='')}/{quote(name)}"


@contextmanager
def requested(method: str, url: str, seconds: float, headers: dict[str, str] | None = None) -> Iterator[HTTPResponse]:
    """Response to a request, with any status. Redirects are not followed, and the token is only sent to the hub.

    Raises OSError, HTTPException or ValueError.
    """
    from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

    given = settings()
    hub, target = urlsplit(given.endpoint), urlsplit(url)
    if target.scheme not in ("http", "https") or not target.hostname:
        raise ValueError("HF_ENDPOINT must be an http or https address")
    fields = {"User-Agent": f"tfacct/{__version__}", "Accept-Encoding": "identity", **(headers or {})}
    if given.token is not None and (target.scheme, target.netloc) == (hub.scheme, hub.netloc):
        fields["Authorization"] = f"Bearer {given.token}"
    opener = OpenerDirector()
    for handler in (ProxyHandler(), HTTPHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    with opener.open(Request(url, headers=fields, method=method), timeout=seconds) as response:
        yield response


def metadata(url: str) -> Metadata:
    """Metadata of a file, following redirects on the same host. Raises RefusedError and the errors of `requested`."""
    for _ in range(REDIRECTS + 1):
        with requested("HEAD", url, settings().metadata_seconds) as response:
            status, headers = response.status, response.headers
        to = urljoin(url, headers.get("Location", "")) if status in REDIRECTED else url
        here = urlsplit(to)[:2] == urlsplit(url)[:2]
        if here and to != url:
            url = to
            continue
        if status >= 300 and here:
            raise RefusedError(status, headers.get("X-Error-Code", ""))
        etag = headers.get("X-Linked-ETag") or headers.get("ETag")
        size = headers.get("X-Linked-Size") or (headers.get("Content-Length") if here else None) or ""
        return Metadata(
            to,
            headers.get("X-Repo-Commit"),
            None if etag is None else etag.removeprefix("W/").strip('"'),
            int(size[:19]) if size.isdecimal() else None,
        )
    raise RefusedError(status, "")


def download(metadata: Metadata, name: str, largest: int) -> bytes:
    """Download a file, without retries or redirects.

    Raises OverflowError once it exceeds `largest`, HubError and the errors of `requested`.
    """
    if metadata.size is not None and metadata.size > largest:
        raise OverflowError
    host, data = urlsplit(metadata.location).netloc, bytearray()
    with requested("GET", metadata.location, settings().download_seconds) as response:
        if response.status != HTTPStatus.OK:
            raise HubError(f"cannot fetch the {name} from {host}: the answer was {answer_of(response.status)}")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise HubError(f"{host} sent the {name} compressed, which was not requested")
        while chunk := response.read1(CHUNK):
            data += chunk
            if len(data) > largest:
                raise OverflowError
    if metadata.size is not None and len(data) != metadata.size:
        raise EOFError(f"{len(data):,} of {metadata.size:,} bytes arrived")
    return bytes(data)


def answer_of(status: int) -> str:
    """Status code with its phrase."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _folder(hub_id: str) -> Path:
    return settings().cache / "--".join(("models", *hub_id.split("/")))


def cached(hub_id: str, name: str, revision: str) -> Path | None:
    """Cached copy of a file at a revision; None if there is none."""
    commit = _commit(hub_id, revision)
    file = None if commit is None else _folder(hub_id) / "snapshots" / commit / name
    return file if file is not None and file.is_file() else None


def known_missing(hub_id: str, name: str, commit: str) -> bool:
    """True if the cache records that the file does not exist."""
    return (_folder(hub_id) / ".no_exist" / commit / name).is_file()


def _commit(hub_id: str, revision: str) -> str | None:
    """Commit of a revision in the cache; None if unknown."""
    try:
        text = (_folder(hub_id) / "refs" / revision).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        text = revision
    return text if COMMIT.fullmatch(text) else None


def save(hub_id: str, *place: str, data: bytes) -> Path:
    """Write a file to the hub cache, in huggingface_hub's layout without links. Raises OSError."""
    file = _folder(hub_id).joinpath(*place)
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as temporary:  # readers never see a partial file
        temporary.write_bytes(data)
    return file
