"""Checkpoints on the hub: headers of their files, by range requests. Only the index is downloaded whole.

The files are on other hosts: redirects of the hub are followed, without the token, and never from https to http.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from tfacct.base.errors import CheckpointError, HubError, NotFoundError
from tfacct.loading import checkpoint, hub
from tfacct.loading.checkpoint import INDEX, LONGEST_INDEX, SINGLE_FILE, Checkpoint
from tfacct.loading.hub_client import (
    CHUNK,
    COMMIT,
    REDIRECTED,
    REDIRECTS,
    RefusedError,
    answer_of,
    cached,
    metadata,
    requested,
    settings,
    url_of,
)

if TYPE_CHECKING:
    from http.client import HTTPResponse

FIRST = 1 << 17
"""Bytes of the first request; most headers are shorter."""
AT_ONCE = 8
READS = 60
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


class RemoteFile:
    """A file at an address, read by range requests. Raises HubError."""

    def __init__(self, url: str, name: str) -> None:
        self.name, self._url = name, url
        start, self.size = read_range(url, name, 0, FIRST)
        header = 8 + int.from_bytes(start[:8], "little")
        self._start = start[:header]  # there may be 1,000 files

    def read(self, at: int, count: int) -> bytes:
        """Read `count` bytes from `at`, fewer at the end of the file."""
        stop = min(at + count, self.size)
        if stop <= len(self._start):
            return self._start[at:stop]
        data, size = read_range(self._url, self.name, at, stop - at)
        if size != self.size:
            raise HubError(f"{self.name} changed during reading")
        return data


def read(hub_id: str, revision: str | None, waiting: hub.Waiting = hub.unwatched) -> Checkpoint:
    """Checkpoint of a model on the hub. Raises TfacctError."""
    name = hub.name_of(hub_id, revision)
    return hub.patiently(hub_id, revision, lambda wanted: _ask(hub_id, wanted, name), waiting, READS)


def _ask(hub_id: str, revision: str, name: str) -> Checkpoint:
    if settings().offline:
        for file in (INDEX, SINGLE_FILE):
            if (copy := cached(hub_id, file, revision)) is not None:
                return checkpoint.local(copy.parent)._replace(name=name)
        raise HubError(f"the weights of {hub_id} are not in the hub cache, and HF_HUB_OFFLINE forbids downloads")
    file, commit = _found(hub_id, revision)

    def remote(wanted: str) -> RemoteFile:
        return RemoteFile(url_of(hub_id, wanted, commit), wanted)

    if file == SINGLE_FILE:
        return checkpoint.together(name, [remote(SINGLE_FILE)])
    data, size = read_range(url_of(hub_id, INDEX, commit), INDEX, 0, LONGEST_INDEX)
    if size > LONGEST_INDEX:
        raise CheckpointError(f"{INDEX} of {name} has {size:,} bytes; the maximum is {LONGEST_INDEX:,}")
    by_tensor = checkpoint.index(f"{INDEX} of {name}", data)
    files = checkpoint.files_of(name, by_tensor)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        opened = dict(zip(files, pool.map(remote, files), strict=True))
    return checkpoint.indexed(name, by_tensor, opened.__getitem__)


def _found(hub_id: str, revision: str) -> tuple[str, str]:
    """Name of the file on the hub (index or single weights file) and its commit."""
    for file in (INDEX, SINGLE_FILE):
        try:
            commit = metadata(url_of(hub_id, file, revision)).commit
        except RefusedError as refused:
            if refused.code == "EntryNotFound":
                continue
            raise
        if commit is None or not COMMIT.fullmatch(commit):
            raise HubError("the hub's answer has an invalid commit", "check HF_ENDPOINT")
        if COMMIT.fullmatch(revision) and commit != revision:
            raise HubError(f"the hub returned commit {commit}, not {revision}")
        return file, commit
    hint = "GGUF files can only be read from a local folder"
    raise NotFoundError(f"{hub_id} has no {SINGLE_FILE} and no {INDEX}", hint)


def read_range(url: str, name: str, at: int, count: int) -> tuple[bytes, int]:
    """Bytes of a file from `at`, and its size. Raises HubError."""
    seconds = settings().download_seconds
    deadline, first = time.monotonic() + 3 * seconds, urlsplit(url)
    for _ in range(REDIRECTS + 1):
        with requested("GET", url, seconds, {"Range": f"bytes={at}-{at + count - 1}"}) as response:
            if response.status not in REDIRECTED:
                return _received(response, name, at, count, deadline)
            url = urljoin(url, response.headers.get("Location", ""))
        there = urlsplit(url)
        if there.scheme not in ("https", first.scheme) or not there.netloc:
            raise HubError(f"{first.netloc} sent an empty redirect for {name}")
    raise HubError(f"{first.netloc} redirected too many times for {name}")


def _received(response: HTTPResponse, name: str, at: int, count: int, deadline: float) -> tuple[bytes, int]:
    """Body of a response, at most `count` bytes, and the size of the file."""
    status, headers = response.status, response.headers
    content_range = _RANGE.fullmatch(headers.get("Content-Range", ""))
    if status == HTTPStatus.PARTIAL_CONTENT and content_range is not None and int(content_range[1]) == at:
        size = int(content_range[3])
    elif status == HTTPStatus.OK and at == 0 and headers.get("Content-Length", "").isdecimal():
        size = int(headers["Content-Length"][:19])
    else:
        raise HubError(f"cannot fetch {name} from the hub: the answer was {answer_of(status)}")
    wanted, data = min(count, size - at), bytearray()
    while len(data) < wanted and (chunk := response.read1(CHUNK)):
        data += chunk
        if time.monotonic() > deadline:
            raise HubError(f"cannot fetch {name} from the hub: the transfer is too slow")
    if len(data) < wanted:
        raise HubError(f"cannot fetch {name} from the hub: {len(data):,} of {wanted:,} bytes arrived")
    return bytes(data[:wanted]), size
