"""A model hub on this machine."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.cli import Run

COMMIT, OTHER_COMMIT = "453ed1575b739b5b03ce3758b23befdb0967f40e", "0123456789abcdef0123456789abcdef01234567"
Ask = Run


@contextlib.contextmanager
def inside(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """This process in another folder, with this environment alone and without huggingface_hub."""
    with pytest.MonkeyPatch.context() as patch:
        for name in {*os.environ} - {*environment}:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        patch.setitem(sys.modules, "huggingface_hub", None)
        yield


class Handler(BaseHTTPRequestHandler):
    """Answers HEAD as GET without the body, and logs nothing."""

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        raise NotImplementedError

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: the test's own output is enough."""


class Server(ThreadingHTTPServer):
    """A host, the requests to it, and an event that closes it."""

    daemon_threads = True
    handler: type[Handler]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), self.handler)
        self.asked: list[tuple[str, ...]] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that closed the connection."""


@contextlib.contextmanager
def serving(server: Any) -> Iterator[Any]:
    """A server that answers until the block ends."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.closing.set()
        server.shutdown()
        thread.join()


def environment_of(server: Server, folder: Path) -> dict[str, str]:
    """No proxy, no token, its own cache, and a short timeout for a hub that does not answer."""
    (folder / "work").mkdir()
    others = {k: v for k, v in os.environ.items() if not k.upper().startswith("HF_") and "proxy" not in k.lower()}
    return others | {
        "HF_ENDPOINT": server.url,
        "HF_HOME": str(folder / "home"),
        "HF_HUB_ETAG_TIMEOUT": "2",
        "HF_HUB_DOWNLOAD_TIMEOUT": "2",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONWARNINGS": "default",
        "COLUMNS": "80",
    }
