"""A checkpoint on the hub: the first bytes of its files, by ranges. No file is fetched whole, but for the index.

The files themselves lie on other hosts than the hub: a redirect is followed, without the token, as far as the hub says
so and never from https to http.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from tfacct.base.errors import CheckpointError, HubError, NotFoundError
from tfacct.loading import checkpoint, hub
from tfacct.loading.checkpoint import INDEX, LONGEST_INDEX, WHOLE, Checkpoint

FIRST = 1 << 17
"""Bytes asked for first: most headers are shorter."""
AT_ONCE = 8
READS = 60
REDIRECTS = 3
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


class RemoteFile:
    """A file behind an address, read by ranges. Raises HubError."""

    def __init__(self, url: str, name: str) -> None:
        self.name, self._url = name, url
        start, self.size = ranged(url, name, 0, FIRST)
        self._start = start[: 8 + int.from_bytes(start[:8], "little")]  # what is needed of it: there may be 1,000 files

    def read(self, at: int, count: int) -> bytes:
        """As many bytes from there, fewer where the file ends."""
        stop = min(at + count, self.size)
        if stop <= len(self._start):
            return self._start[at:stop]
        data, size = ranged(self._url, self.name, at, stop - at)
        if size != self.size:
            raise HubError(f"{self.name} changed while it was read")
        return data


def read(hub_id: str, revision: str | None, waiting: hub.Waiting = hub.unwatched) -> Checkpoint:
    """Checkpoint of a model on the hub. Raises a TfacctError."""
    name = hub.name_of(hub_id, revision)
    return hub.patiently(hub_id, revision, lambda wanted: _ask(hub_id, wanted, name), waiting, READS)


def _ask(hub_id: str, revision: str, name: str) -> Checkpoint:
    from huggingface_hub import constants, hf_hub_url, try_to_load_from_cache

    if constants.HF_HUB_OFFLINE:
        for file in (INDEX, WHOLE):
            if isinstance(kept := try_to_load_from_cache(hub_id, file, revision=revision), str):
                return checkpoint.local(Path(kept).parent)._replace(name=name)
        raise HubError(
            f"the weights of {hub_id} are not in the hub's cache, and HF_HUB_OFFLINE forbids asking for them"
        )
    file, commit = _held(hub_id, revision)

    def remote(wanted: str) -> RemoteFile:
        return RemoteFile(hf_hub_url(hub_id, wanted, revision=commit), wanted)

    if file == WHOLE:
        return checkpoint.together(name, [remote(WHOLE)])
    data, size = ranged(hf_hub_url(hub_id, INDEX, revision=commit), INDEX, 0, LONGEST_INDEX)
    if size > LONGEST_INDEX:
        raise CheckpointError(f"{INDEX} of {name} has {size:,} bytes: at most {LONGEST_INDEX:,} are read")
    fields = checkpoint.index(f"{INDEX} of {name}", data)
    files = checkpoint.files_of(name, fields)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        opened = dict(zip(files, pool.map(remote, files), strict=True))
    return checkpoint.indexed(name, fields, opened.__getitem__)


def _held(hub_id: str, revision: str) -> tuple[str, str]:
    """The file that the hub holds, an index or all weights, and the commit that it is of."""
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_url

    for file in (INDEX, WHOLE):
        try:
            held = get_hf_file_metadata(hf_hub_url(hub_id, file, revision=revision))
        except errors.EntryNotFoundError:
            continue
        if held.commit_hash is None or not hub.COMMIT.fullmatch(held.commit_hash):
            raise HubError("the hub does not answer as a hub does: its commit is invalid", "check HF_ENDPOINT")
        if hub.COMMIT.fullmatch(revision) and held.commit_hash != revision:
            raise HubError(f"the hub answers with commit {held.commit_hash}, not {revision}")
        return file, held.commit_hash
    raise NotFoundError(f"{hub_id} has no {WHOLE} and no {INDEX}", "GGUF files are read from a folder here")


def ranged(url: str, name: str, at: int, count: int) -> tuple[bytes, int]:
    """Bytes of a file from there, and its size. Raises HubError."""
    from huggingface_hub import constants

    utils = import_module("huggingface_hub.utils")
    headers = {**utils.build_hf_headers(), "Range": f"bytes={at}-{at + count - 1}", "Accept-Encoding": "identity"}
    deadline = time.monotonic() + 3 * constants.HF_HUB_DOWNLOAD_TIMEOUT
    first = urlsplit(url)
    for _ in range(REDIRECTS + 1):
        asking = {"headers": headers, "timeout": constants.HF_HUB_DOWNLOAD_TIMEOUT, "follow_redirects": False}
        with utils.get_session().stream("GET", url, **asking) as response:
            if response.status_code in (301, 302, 303, 307, 308):
                url = urljoin(url, response.headers.get("Location", ""))
                there = urlsplit(url)
                if there.scheme not in ("https", first.scheme) or not there.netloc:
                    raise HubError(f"{first.netloc} redirects to nowhere for {name}")
                if there.netloc != first.netloc:
                    headers = {key: text for key, text in headers.items() if key.lower() != "authorization"}
                continue
            return _received(response, name, at, count, deadline)
    raise HubError(f"{first.netloc} redirects again and again for {name}")


def _received(response: object, name: str, at: int, count: int, deadline: float) -> tuple[bytes, int]:
    """The body of an answer, of which no more is read than was asked for."""
    status, headers = response.status_code, response.headers  # type: ignore[attr-defined]
    said = _RANGE.fullmatch(headers.get("Content-Range", ""))
    if status == HTTPStatus.PARTIAL_CONTENT and said is not None and int(said[1]) == at:
        size = int(said[3])
    elif status == HTTPStatus.OK and at == 0 and headers.get("Content-Length", "").isdecimal():
        size = int(headers["Content-Length"][:19])
    else:
        raise HubError(f"cannot fetch {name} from the hub: its answer is {hub.answer_of(status)}")
    wanted, data = min(count, size - at), bytearray()
    for chunk in response.iter_raw():  # type: ignore[attr-defined]
        data += chunk
        if len(data) >= wanted:
            break
        if time.monotonic() > deadline:
            raise HubError(f"cannot fetch {name} from the hub: its bytes come too slowly")
    if len(data) < wanted:
        raise HubError(f"cannot fetch {name} from the hub: {len(data):,} of {wanted:,} bytes arrived")
    return bytes(data[:wanted]), size
