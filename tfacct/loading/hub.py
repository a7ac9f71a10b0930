"""A model on the hub: its config.json by its id, and by `another` a file about its weights' format.

What the hub answers is checked before anything is fetched, and fetched from no other host: its answer names no path on
this disk.
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
A_MOMENT = 0.7
"""Seconds after which a waiting user is told what for."""

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,198}")
ETAG = re.compile(r"[A-Za-z0-9_:+=-][A-Za-z0-9_.:+=-]{0,199}")
_ANOTHER_TIME = (408, 429, 500, 502, 503, 504)
"""Answers of a hub in trouble: they say nothing about the model."""

AnswerT = TypeVar("AnswerT")
Waiting: TypeAlias = Callable[[str], None]
"""Called with what is waited for, once it takes longer than a moment."""


class Copy(NamedTuple):
    """Copy of a config.json in the hub's cache on this disk."""

    path: Path
    page: str
    """Where a reader finds the model."""
    commit: str
    newest: bool
    """True if the hub was asked and holds this copy now."""


def unwatched(_what: str) -> None:
    """Nobody sits before a terminal."""


def read_id(model: str) -> tuple[str, str | None]:
    """Id and revision, None for the newest. Raises UsageError, before anyone is asked, for a text that can be no id.

    >>> read_id("Qwen/Qwen2-7B@main")
    ('Qwen/Qwen2-7B', 'main')
    """
    hub_id, at, revision = model.partition("@")
    for name in hub_id.split("/"):
        if not _NAME.fullmatch(name) or ".." in name or "--" in name or name.endswith(".git"):
            raise UsageError(
                f"{model!r} is not a file here and cannot be a hub id",
                "a hub id is OWNER/NAME or OWNER/NAME@REVISION, in letters, digits, _ and single - or .",
            )
    if at and (not _REVISION.fullmatch(revision) or ".." in revision or "//" in revision):
        raise UsageError(f"{revision!r} cannot be a revision of {hub_id}", "a revision is a branch, a tag or a commit")
    return hub_id, revision or None


def name_of(hub_id: str, revision: str | None) -> str:
    """Name of the model in tables: its id as given, with a full commit cut to the seven digits that git shows."""
    if revision is None:
        return hub_id
    return f"{hub_id}@{revision[:7] if COMMIT.fullmatch(revision) else revision}"


def fetch(hub_id: str, revision: str | None = None, *, largest: int, waiting: Waiting = unwatched) -> Copy:
    """Config.json that the hub holds of a model, of at most `largest` bytes. Raises a TfacctError.

    The copy is in huggingface_hub's cache. The hub is asked each time whether it is the newest, unless a full commit is
    asked for; where the hub does not answer, the copy has to do.
    """
    return patiently(hub_id, revision, lambda wanted: _ask(hub_id, wanted, largest), waiting)


def another(hub_id: str, copy: Copy, name: str, *, largest: int, waiting: Waiting = unwatched) -> Path | None:
    """Another file of the same commit, of at most `largest` bytes; None where the hub has none. Raises a TfacctError
    where it does not say."""
    return patiently(hub_id, copy.commit, lambda commit: _another(hub_id, commit, name, largest), waiting)


def _another(hub_id: str, commit: str, name: str, largest: int) -> Path | None:
    """One question for each commit: the cache knows files that are not there, too."""
    if (copy := hub_client.cached(hub_id, name, commit)) is not None:
        return copy
    if hub_client.known_missing(hub_id, name, commit):
        return None
    if hub_client.settings().offline:
        raise HubError(f"{name} of {hub_id} is not in the hub's cache, and HF_HUB_OFFLINE forbids asking for it")
    url = hub_client.url_of(hub_id, name, commit)
    try:
        found = hub_client.metadata(url)
    except RefusedError as refused:
        if refused.status != HTTPStatus.NOT_FOUND:
            raise
        hub_client.save(hub_id, ".no_exist", commit, name, data=b"")
        return None
    _checked(found, url, commit)
    try:
        data = hub_client.download(found, name, largest)
    except OverflowError:
        raise ConfigError(f"{name} of {hub_id} is larger than 4 MB") from None
    return hub_client.save(hub_id, "snapshots", commit, name, data=data)


def patiently(
    hub_id: str, revision: str | None, ask: Callable[[str], AnswerT], waiting: Waiting, reads: int = 3
) -> AnswerT:
    """What `ask` says of a revision, within the time that so many `reads` may take. Raises a TfacctError."""
    settings = hub_client.settings()
    patience = reads * max(settings.metadata_seconds, settings.download_seconds)
    answers: list[AnswerT] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answers.append(ask(revision or MAIN))
        except Exception as error:
            errors.append(error)

    # A thread, because each read has its time limit but a trickle of bytes has none; and to say what is waited for.
    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(A_MOMENT)
    if thread.is_alive():
        waiting(f"asking {settings.host} for {hub_id}")
        thread.join(patience)
    if answers:
        return answers[0]
    wrong = errors[0] if errors else TimeoutError(f"not done within {patience:g} seconds")
    raise _as_ours(wrong, hub_id, revision) from None


def _ask(hub_id: str, revision: str, largest: int) -> Copy:
    """One question for the newest commit, without retries; the file itself only if the cache lacks it."""
    settings = hub_client.settings()

    def copy(path: Path, newest: bool) -> Copy:
        return Copy(path, f"{settings.endpoint}/{hub_id}", path.parent.name, newest)

    found = hub_client.cached(hub_id, CONFIG, revision)
    cached = copy(found, newest=False) if found is not None and _is_whole(found) else None
    if cached and (settings.offline or COMMIT.fullmatch(revision)):
        return cached
    if settings.offline:
        wrong = f"{hub_id} is not in the hub's cache" if found is None else f"the hub's cache has a broken {CONFIG}"
        of = "" if found is None else f" of {hub_id}"
        raise HubError(f"{wrong}{of}, and HF_HUB_OFFLINE forbids asking for it")
    try:
        url = hub_client.url_of(hub_id, CONFIG, revision)
        metadata = hub_client.metadata(url)
        commit = _checked(metadata, url, revision)
    except Exception as error:
        if cached and (not isinstance(error, RefusedError) or error.status in _ANOTHER_TIME):
            return cached
        raise
    if cached and cached.commit == commit:
        return cached._replace(newest=True)
    path = hub_client.cached(hub_id, CONFIG, commit)
    if path is None or not _is_whole(path):
        try:
            data = hub_client.download(metadata, CONFIG, largest)
        except OverflowError:
            raise ConfigError(f"{CONFIG} of {hub_id} is larger than 4 MB: a config.json is a few kilobytes") from None
        path = hub_client.save(hub_id, "snapshots", commit, CONFIG, data=data)
    if revision != commit:
        hub_client.save(hub_id, "refs", revision, data=commit.encode())
    return copy(path, newest=True)


def _is_whole(path: Path) -> bool:
    """True of a copy that holds an object of fields: one that was cut short is fetched anew."""
    try:
        return bool(files.parse_json(CONFIG, files.read(path)))
    except TfacctError:
        return False


def _checked(metadata: Metadata, url: str, revision: str) -> str:
    """The commit of what the hub says of the file at `url`. Raises HubError where no hub answers so."""
    asked, answered = urlsplit(url), urlsplit(metadata.location)
    host, commit = asked.netloc, metadata.commit
    if commit is None or metadata.etag is None:
        raise HubError(f"{host} does not answer as a hub does", "check HF_ENDPOINT, or a proxy in between")
    if not COMMIT.fullmatch(commit) or not ETAG.fullmatch(metadata.etag):
        raise HubError(f"{host} does not answer as a hub does: its commit or its ETag is invalid", "check HF_ENDPOINT")
    if COMMIT.fullmatch(revision) and commit != revision:
        raise HubError(f"{host} answers with commit {commit}, not {revision}")
    if answered.netloc != host or answered.scheme not in (asked.scheme, "https"):
        there = cut(answered.netloc) or "nowhere"
        raise HubError(
            f"{host} redirects to {there} for the {CONFIG}: no other host is asked", "download the file yourself"
        )
    return commit


def _as_ours(error: Exception, hub_id: str, revision: str | None) -> TfacctError:
    """Error that says in a sentence what went wrong, and what would help."""
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
            quantized = f", with the {option('dtype')} of its own weights" if names_format(hub_id) else ""
            return NotFoundError(f"{hub_id} has no {CONFIG}", f"name the model that it was derived from{quantized}")
        if error.code == "RepoNotFound" or status == HTTPStatus.NOT_FOUND:
            return NotFoundError(
                f"no file here and no model on {host} named {hub_id!r}", "a private one needs HF_TOKEN"
            )
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return HubError(f"{host} does not allow reading {hub_id}: {answer_of(status)}", "check HF_TOKEN")
        return HubError(f"cannot fetch {hub_id} from {host}: its answer is {answer_of(status)}")
    if isinstance(error, OSError) and error.filename:
        return HubError(f"the hub's cache cannot be used: {error.strerror}: {error.filename}", "HF_HOME moves it")
    reason = _reason(error)
    hint = "SSL_CERT_FILE names the certificates to trust" if "CERTIFICATE_VERIFY" in reason else None
    return HubError(f"cannot fetch {hub_id} from {host}: {reason}", hint)


def _reason(error: Exception) -> str:
    """First line of an error; of one of urllib, of what it is about."""
    lines = str(getattr(error, "reason", "") or error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__
