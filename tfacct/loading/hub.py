"""Models on the hub: the config.json of an id, and with `fetch_file` a file about the format of its weights.

The hub's answer is checked before a download, never gives a local path, and files are only downloaded from the hub's
host.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from typing import NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlsplit

from tfacct.base.errors import ConfigError, HubError, NotFoundError, TfacctError, UsageError, cut
from tfacct.base.spelling import option
from tfacct.loading import files, hub_client
from tfacct.loading.hub_client import COMMIT, MAIN, Metadata, RefusedError, answer_of
from tfacct.loading.spellings import names_format

CONFIG = "config.json"
MESSAGE_AFTER_SECONDS = 0.7
"""Seconds until a waiting message is shown."""

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,198}")
ETAG = re.compile(r"[A-Za-z0-9_:+=-][A-Za-z0-9_.:+=-]{0,199}")
_TEMPORARY_ERRORS = (408, 429, 500, 502, 503, 504)
"""Status codes of temporary problems of the hub."""

AnswerT = TypeVar("AnswerT")
Waiting: TypeAlias = Callable[[str], None]
"""Called with a message after a short wait."""


class Copy(NamedTuple):
    """Copy of a config.json in the local hub cache."""

    path: Path
    page: str
    """Address of the model's page."""
    commit: str
    newest: bool
    """True if the hub confirmed that this is the current version."""


def unwatched(_what: str) -> None:
    """Ignore the waiting message."""


def read_id(model: str) -> tuple[str, str | None]:
    """Id and revision, None for the newest. Raises UsageError for an invalid id.

    >>> read_id("Qwen/Qwen2-7B@main")
    ('Qwen/Qwen2-7B', 'main')
    """
    hub_id, at, revision = model.partition("@")
    for name in hub_id.split("/"):
        if not _NAME.fullmatch(name) or ".." in name or "--" in name or name.endswith(".git"):
            raise UsageError(
                f"{model!r} is neither a file nor a hub id",
                "a hub id has the form OWNER/NAME or OWNER/NAME@REVISION, with letters, digits, _ and single - or .",
            )
    if at and (not _REVISION.fullmatch(revision) or ".." in revision or "//" in revision):
        raise UsageError(
            f"{revision!r} is not a valid revision of {hub_id}", "a revision is a branch, a tag or a commit"
        )
    return hub_id, revision or None


def name_of(hub_id: str, revision: str | None) -> str:
    """Name of the model in tables: its id, with a full commit shortened to seven digits."""
    if revision is None:
        return hub_id
    return f"{hub_id}@{revision[:7] if COMMIT.fullmatch(revision) else revision}"


def fetch(hub_id: str, revision: str | None = None, *, largest: int, waiting: Waiting = unwatched) -> Copy:
    """Copy of a model's config.json, of at most `largest` bytes, in huggingface_hub's cache. Raises TfacctError.

    The hub is asked each time for the current version, unless the revision is a full commit. If the hub does not
    answer, the cached copy is used.
    """
    return patiently(hub_id, revision, lambda wanted: _ask(hub_id, wanted, largest), waiting)


def fetch_file(hub_id: str, copy: Copy, name: str, *, largest: int) -> Path | None:
    """Another file of the same commit, of at most `largest` bytes; None if it does not exist. Raises TfacctError if
    that is unknown."""
    return patiently(hub_id, copy.commit, lambda commit: _another(hub_id, commit, name, largest), unwatched)


def _another(hub_id: str, commit: str, name: str, largest: int) -> Path | None:
    """At most one request per commit: the cache also records missing files."""
    if (copy := hub_client.cached(hub_id, name, commit)) is not None:
        return copy
    if hub_client.known_missing(hub_id, name, commit):
        return None
    if hub_client.settings().offline:
        raise HubError(f"{name} of {hub_id} is not in the hub cache, and HF_HUB_OFFLINE forbids downloads")
    url = hub_client.url_of(hub_id, name, commit)
    try:
        found = hub_client.metadata(url)
    except RefusedError as refused:
        if refused.status != HTTPStatus.NOT_FOUND:
            raise
        hub_client.save(hub_id, ".no_exist", commit, name, data=b"")
        return None
    _checked(found, url, commit)
    return _downloaded(hub_id, found, commit, name, largest)


def _downloaded(hub_id: str, metadata: Metadata, commit: str, name: str, largest: int) -> Path:
    """Copy of a file of a commit in the hub cache. Raises ConfigError for a file larger than `largest`."""
    try:
        data = hub_client.download(metadata, name, largest)
    except OverflowError:
        usual = f": a {CONFIG} is a few kilobytes" if name == CONFIG else ""
        raise ConfigError(f"{name} of {hub_id} is larger than 4 MB{usual}") from None
    return hub_client.save(hub_id, "snapshots", commit, name, data=data)


def patiently(
    hub_id: str, revision: str | None, ask: Callable[[str], AnswerT], waiting: Waiting, reads: int = 3
) -> AnswerT:
    """Result of `ask(revision)`, with a time limit for this number of `reads`. Raises TfacctError."""
    settings = hub_client.settings()
    patience = reads * max(settings.metadata_seconds, settings.download_seconds)
    answers: list[AnswerT] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answers.append(ask(revision or MAIN))
        except Exception as error:
            errors.append(error)

    # A thread, because timeouts of single reads do not limit slow transfers, and to show the waiting message.
    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(MESSAGE_AFTER_SECONDS)
    if thread.is_alive():
        waiting(f"asking {settings.host} for {hub_id}")
        thread.join(patience)
    if answers:
        return answers[0]
    wrong = errors[0] if errors else TimeoutError(f"timed out after {patience:g} seconds")
    raise _user_error(wrong, hub_id, revision) from None


def _ask(hub_id: str, revision: str, largest: int) -> Copy:
    """Ask for the current commit once, and download the file if it is not cached."""
    settings = hub_client.settings()

    def copy(path: Path, newest: bool) -> Copy:
        return Copy(path, f"{settings.endpoint}/{hub_id}", path.parent.name, newest)

    found = hub_client.cached(hub_id, CONFIG, revision)
    cached = copy(found, newest=False) if found is not None and _is_complete(found) else None
    if cached and (settings.offline or COMMIT.fullmatch(revision)):
        return cached
    if settings.offline:
        wrong = f"{hub_id} is not in the hub cache" if found is None else f"the hub cache has a broken {CONFIG}"
        of = "" if found is None else f" of {hub_id}"
        raise HubError(f"{wrong}{of}, and HF_HUB_OFFLINE forbids downloads")
    try:
        url = hub_client.url_of(hub_id, CONFIG, revision)
        metadata = hub_client.metadata(url)
        commit = _checked(metadata, url, revision)
    except Exception as error:
        if cached and (not isinstance(error, RefusedError) or error.status in _TEMPORARY_ERRORS):
            return cached
        raise
    if cached and cached.commit == commit:
        return cached._replace(newest=True)
    path = hub_client.cached(hub_id, CONFIG, commit)
    if path is None or not _is_complete(path):
        path = _downloaded(hub_id, metadata, commit, CONFIG, largest)
    if revision != commit:
        hub_client.save(hub_id, "refs", revision, data=commit.encode())
    return copy(path, newest=True)


def _is_complete(path: Path) -> bool:
    """True for a valid copy; a truncated one is downloaded again."""
    try:
        return bool(files.parse_json(CONFIG, files.read(path)))
    except TfacctError:
        return False


def _checked(metadata: Metadata, url: str, revision: str) -> str:
    """Commit from the hub's metadata of the file at `url`. Raises HubError for an invalid answer."""
    requested, answered = urlsplit(url), urlsplit(metadata.location)
    host, commit = requested.netloc, metadata.commit
    if commit is None or metadata.etag is None:
        raise HubError(f"{host} does not answer like a hub", "check HF_ENDPOINT, or a proxy in between")
    if not COMMIT.fullmatch(commit) or not ETAG.fullmatch(metadata.etag):
        raise HubError(f"{host} does not answer like a hub: invalid commit or ETag", "check HF_ENDPOINT")
    if COMMIT.fullmatch(revision) and commit != revision:
        raise HubError(f"{host} answers with commit {commit}, not {revision}")
    if answered.netloc != host or answered.scheme not in (requested.scheme, "https"):
        there = cut(answered.netloc) or "nowhere"
        raise HubError(
            f"{host} redirects to {there} for the {CONFIG}, but redirects to other hosts are not followed",
            "download the file yourself",
        )
    return commit


def _user_error(error: Exception, hub_id: str, revision: str | None) -> TfacctError:
    """Error with a one-sentence message and a hint."""
    if isinstance(error, TfacctError):
        return error
    settings = hub_client.settings()
    host = settings.host
    if isinstance(error, RefusedError):
        status = error.status
        if error.code == "GatedRepo":
            page = f"{settings.endpoint}/{hub_id}"
            return HubError(f"{hub_id} is gated", f"accept its licence at {page}, then set HF_TOKEN")
        if error.code == "RevisionNotFound":
            return NotFoundError(f"{hub_id} has no revision {revision or MAIN!r}")
        if error.code == "EntryNotFound":
            quantized = f", with {option('dtype')} set to its own format" if names_format(hub_id) else ""
            return NotFoundError(f"{hub_id} has no {CONFIG}", f"use the base model{quantized}")
        if error.code == "RepoNotFound" or status == HTTPStatus.NOT_FOUND:
            return NotFoundError(f"no file and no model on {host} named {hub_id!r}", "private models need HF_TOKEN")
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return HubError(f"{host} denies access to {hub_id}: {answer_of(status)}", "check HF_TOKEN")
        return HubError(f"cannot fetch {hub_id} from {host}: the answer was {answer_of(status)}")
    if isinstance(error, OSError) and error.filename:
        return HubError(
            f"the hub cache cannot be used: {error.strerror}: {error.filename}", "HF_HOME sets its location"
        )
    reason = _reason(error)
    hint = "set SSL_CERT_FILE to the trusted certificates" if "CERTIFICATE_VERIFY" in reason else None
    return HubError(f"cannot fetch {hub_id} from {host}: {reason}", hint)


def _reason(error: Exception) -> str:
    """First line of an error, or of the reason of an error of urllib."""
    lines = str(getattr(error, "reason", "") or error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__
