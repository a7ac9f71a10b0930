"""The hub: a model's config.json by its id, through huggingface_hub, and by `another` a file about its weights' format.
No code is fetched or run.

Where the hub is, who asks, how long, and where the copy is kept are left to huggingface_hub: HF_ENDPOINT, HF_TOKEN,
HF_HUB_ETAG_TIMEOUT, HF_HOME, HF_HUB_OFFLINE. It is imported here only, and only once an id is asked for. What the hub
answers is checked before anything is fetched, and fetched from no other host: its word names no path on this disk.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlsplit

from tfacct.base.errors import ConfigError, HubError, MissingExtraError, NotFoundError, TfacctError, UsageError, cut
from tfacct.base.replacing import replacing
from tfacct.base.spelling import option
from tfacct.loading import files
from tfacct.loading.spellings import names_format

CONFIG = "config.json"
A_MOMENT = 0.7
"""Seconds after which a waiting user is told what for."""

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,198}")
COMMIT = re.compile(r"[0-9a-f]{40}")
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

    Kept in huggingface_hub's cache. The hub is asked each time whether that copy is the newest, unless a full commit
    says which one is meant; where the hub does not answer, the copy has to do.
    """
    return patiently(hub_id, revision, lambda wanted: _ask(hub_id, wanted, largest), waiting)


def another(hub_id: str, copy: Copy, name: str, *, largest: int, waiting: Waiting = unwatched) -> Path | None:
    """Another file of the same commit, of at most `largest` bytes; None where the hub has none. Raises a TfacctError
    where it does not say."""
    return patiently(hub_id, copy.commit, lambda commit: _another(hub_id, commit, name, largest), waiting)


def _another(hub_id: str, commit: str, name: str, largest: int) -> Path | None:
    """One question for each commit: the cache knows files that are not there, too."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    kept = try_to_load_from_cache(hub_id, name, revision=commit)
    if isinstance(kept, str):
        return Path(kept)
    if kept is not None:
        return None
    if constants.HF_HUB_OFFLINE:
        raise HubError(f"{name} of {hub_id} is not in the hub's cache, and HF_HUB_OFFLINE forbids asking for it")
    url = hf_hub_url(hub_id, name, revision=commit)
    try:
        held = get_hf_file_metadata(url)
    except Exception as error:
        if _status(error) != HTTPStatus.NOT_FOUND:
            raise
        _keep(hub_id, ".no_exist", commit, name, data=b"")
        return None
    _checked(held, url, commit)
    try:
        data = _download(held.location, held.size, largest)
    except OverflowError:
        raise ConfigError(f"{name} of {hub_id} is larger than 4 MB") from None
    return Path(_keep(hub_id, "snapshots", commit, name, data=data))


def patiently(
    hub_id: str, revision: str | None, ask: Callable[[str], AnswerT], waiting: Waiting, reads: int = 3
) -> AnswerT:
    """What `ask` says of a revision, within the time that so many `reads` may take. Raises a TfacctError."""
    try:
        from huggingface_hub import constants
    except ModuleNotFoundError as error:
        if error.name != "huggingface_hub":
            raise HubError(f"huggingface_hub cannot be imported: {_reason(error)}") from None
        raise MissingExtraError(
            f"{hub_id} is not a file here, and asking the hub for it needs huggingface_hub", "hub"
        ) from None
    except Exception as error:  # it reads its variables while it is imported
        raise HubError(f"huggingface_hub cannot be imported: {_reason(error)}") from None

    host = constants.ENDPOINT.removeprefix("https://")
    patience = reads * max(constants.HF_HUB_ETAG_TIMEOUT, constants.HF_HUB_DOWNLOAD_TIMEOUT)
    answers: list[AnswerT] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            with _quiet():
                answers.append(ask(revision or constants.DEFAULT_REVISION))
        except Exception as error:
            errors.append(error)

    # A thread, because each read has its time limit but a trickle of bytes has none; and to say what is waited for.
    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(A_MOMENT)
    if thread.is_alive():
        waiting(f"asking {host} for {hub_id}")
        thread.join(patience)
    if answers:
        return answers[0]
    wrong = errors[0] if errors else TimeoutError(f"not done within {patience} seconds")
    raise _as_ours(wrong, hub_id, revision, host) from None


def _ask(hub_id: str, revision: str, largest: int) -> Copy:
    """One question for the newest commit, without retries; the file itself only if the cache lacks it."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    def copy(path: str, newest: bool) -> Copy:
        return Copy(Path(path), f"{constants.ENDPOINT}/{hub_id}", Path(path).parent.name, newest)

    found = try_to_load_from_cache(hub_id, CONFIG, revision=revision)
    cached = copy(found, newest=False) if isinstance(found, str) and _is_whole(found) else None
    if cached and (constants.HF_HUB_OFFLINE or COMMIT.fullmatch(revision)):
        return cached
    if constants.HF_HUB_OFFLINE:
        broken = f"the hub's cache has a broken {CONFIG} of {hub_id}"
        missing = f"{hub_id} is not in the hub's cache"
        wrong = broken if isinstance(found, str) else missing
        raise HubError(f"{wrong}, and HF_HUB_OFFLINE forbids asking for it")
    try:
        url = hf_hub_url(hub_id, CONFIG, revision=revision)
        held = get_hf_file_metadata(url)
        commit = _checked(held, url, revision)
    except Exception as error:
        if cached and _status(error) in (None, *_ANOTHER_TIME):
            return cached
        raise
    if cached and cached.commit == commit:
        return cached._replace(newest=True)
    kept = try_to_load_from_cache(hub_id, CONFIG, revision=commit)
    if not isinstance(kept, str) or not _is_whole(kept):
        try:
            data = _download(held.location, held.size, largest)
        except OverflowError:
            raise ConfigError(f"{CONFIG} of {hub_id} is larger than 4 MB: a config.json is a few kilobytes") from None
        kept = _keep(hub_id, "snapshots", commit, CONFIG, data=data)
    if revision != commit:
        _keep(hub_id, "refs", revision, data=commit.encode())
    return copy(kept, newest=True)


def _is_whole(path: str) -> bool:
    """True of a copy that holds an object of fields: one that was cut short is fetched anew."""
    try:
        return bool(files.parse_json(CONFIG, files.read(Path(path))))
    except TfacctError:
        return False


def _checked(held: Any, url: str, revision: str) -> str:
    """The commit of what the hub holds at `url`. Raises HubError where its answer is none that a hub gives."""
    asked, answered = urlsplit(url), urlsplit(held.location)
    host, commit = asked.netloc, held.commit_hash
    if commit is None or held.etag is None:
        raise HubError(f"{host} does not answer as a hub does", "check HF_ENDPOINT, or a proxy in between")
    if not COMMIT.fullmatch(commit) or not ETAG.fullmatch(held.etag):
        raise HubError(f"{host} does not answer as a hub does: its commit or its ETag is invalid", "check HF_ENDPOINT")
    if COMMIT.fullmatch(revision) and commit != revision:
        raise HubError(f"{host} answers with commit {commit}, not {revision}")
    if answered.netloc != host or answered.scheme not in (asked.scheme, "https"):
        there = cut(answered.netloc) or "nowhere"
        raise HubError(
            f"{host} redirects to {there} for the {CONFIG}: no other host is asked", "download the file yourself"
        )
    return commit  # type: ignore[no-any-return]


def _download(url: str, size: int | None, largest: int) -> bytes:
    """The file itself, without retries and redirects. Raises OverflowError as soon as it is larger than `largest`."""
    from huggingface_hub import constants

    utils = import_module("huggingface_hub.utils")
    if size is not None and size > largest:
        raise OverflowError
    headers = {**utils.build_hf_headers(), "Accept-Encoding": "identity"}  # what is packed has no size yet
    asking = {"headers": headers, "timeout": constants.HF_HUB_DOWNLOAD_TIMEOUT, "follow_redirects": False}
    host, data = urlsplit(url).netloc, bytearray()
    with utils.get_session().stream("GET", url, **asking) as response:
        if response.status_code != HTTPStatus.OK:
            raise HubError(f"cannot fetch the {CONFIG} from {host}: its answer is {answer_of(response.status_code)}")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise HubError(f"{host} sends the {CONFIG} compressed, which was not asked for")
        for chunk in response.iter_raw():
            data += chunk
            if len(data) > largest:
                raise OverflowError
    if size is not None and len(data) != size:
        raise HubError(f"cannot fetch the {CONFIG} from {host}: {len(data):,} of {size:,} bytes arrived")
    return bytes(data)


def _keep(hub_id: str, *place: str, data: bytes) -> str:
    """Write a file into the hub's cache as huggingface_hub lays it out where there are no links."""
    from huggingface_hub import constants

    file = Path(constants.HF_HUB_CACHE, "--".join(("models", *hub_id.split("/"))), *place)
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as temporary:  # nobody ever reads half of it
        temporary.write_bytes(data)
    return str(file)


def _as_ours(error: Exception, hub_id: str, revision: str | None, host: str) -> TfacctError:
    """Error that says in a sentence what went wrong, and what would help."""
    from huggingface_hub import constants, errors

    status = _status(error)
    if isinstance(error, TfacctError):
        return error
    if isinstance(error, errors.GatedRepoError):
        return HubError(f"{hub_id} is gated", f"accept its licence at {constants.ENDPOINT}/{hub_id}, then set HF_TOKEN")
    if isinstance(error, errors.RevisionNotFoundError):
        return NotFoundError(f"{hub_id} has no revision {revision or constants.DEFAULT_REVISION!r}")
    if isinstance(error, errors.EntryNotFoundError) and status is not None:
        quantized = f", with the {option('dtype')} of its own weights" if names_format(hub_id) else ""
        return NotFoundError(f"{hub_id} has no {CONFIG}", f"name the model that it was derived from{quantized}")
    if isinstance(error, errors.RepositoryNotFoundError) or status == HTTPStatus.NOT_FOUND:
        return NotFoundError(f"no file here and no model on {host} named {hub_id!r}", "a private one needs HF_TOKEN")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return HubError(f"{host} does not allow reading {hub_id}: {answer_of(status)}", "check HF_TOKEN")
    if status is not None:
        return HubError(f"cannot fetch {hub_id} from {host}: its answer is {answer_of(status)}")
    if isinstance(error, OSError) and error.filename:
        return HubError(f"the hub's cache cannot be used: {error.strerror}: {error.filename}", "HF_HOME moves it")
    return HubError(f"cannot fetch {hub_id} from {host}: {_reason(error)}")


def _status(error: Exception) -> int | None:
    """HTTP status of the answer, if there was one, whichever library spoke HTTP for huggingface_hub."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def answer_of(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _reason(error: Exception) -> str:
    """First line of an error."""
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """huggingface_hub without its log and its bar on stderr, and without its own questions about who is asking."""
    from huggingface_hub import constants

    utils = import_module("huggingface_hub.utils")  # it exports lazily, hidden from type checkers
    import_module("huggingface_hub.utils.logging")  # sets the log up, which is read and lowered below
    log = logging.getLogger("huggingface_hub")
    level, telemetry = log.level, constants.HF_HUB_DISABLE_TELEMETRY
    bars = constants.HF_HUB_DISABLE_PROGRESS_BARS is None and not utils.are_progress_bars_disabled()
    try:
        if level == logging.WARNING:  # as it is unless the user wants to see more or less
            log.setLevel(logging.CRITICAL)
        constants.HF_HUB_DISABLE_TELEMETRY = True
        if bars:
            utils.disable_progress_bars()
        yield
    finally:
        log.setLevel(level)
        constants.HF_HUB_DISABLE_TELEMETRY = telemetry
        if bars:
            utils.enable_progress_bars()
