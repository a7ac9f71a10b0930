"""A headless browser, driven over a pipe by the DevTools protocol. Standard library only: no port, no websocket, no
version to match. Without Chromium, the tests are skipped with a reason."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WAIT = 30.0


def found() -> str | None:
    """Path of a Chromium; that of `CHROMIUM` where it is set."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one tab. `requests` are the addresses that pages asked for, `complaints` what they logged,
    `errors` what they threw."""

    def __init__(self, path: str) -> None:
        self.profile = tempfile.mkdtemp(prefix="tfacct-browser-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars"]
        # The protocol uses descriptors 3 and 4.
        wired = ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "browser", path, *arguments]
        self.process = subprocess.Popen(
            [*wired, f"--user-data-dir={self.profile}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest, self._number = b"", 0
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.errors: list[str] = []
        target = next(one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page")
        attached = {"targetId": target["targetId"], "flatten": True}
        self._session: str | None = self.ask("Target.attachToTarget", **attached)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    _session: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._write)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._read)
        shutil.rmtree(self.profile, ignore_errors=True)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The browser's answer to a command."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result
            self._record(message)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], WAIT)[0]:
                raise TimeoutError(f"the browser was silent for {WAIT:.0f} s")
            more = os.read(self._read, 1 << 16)
            if not more:
                raise RuntimeError("the browser has exited")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _record(self, message: Mapping[str, Any]) -> None:
        about, facts = message.get("method"), message.get("params", {})
        if about == "Network.requestWillBeSent":
            self.requests.append(facts["request"]["url"])
        elif about == "Runtime.exceptionThrown":
            details = facts["exceptionDetails"]
            self.errors.append(str(details.get("exception", details).get("description", details)))
            self.complaints.append(self.errors[-1])
        elif about == "Runtime.consoleAPICalled":
            self.complaints.append(" ".join(str(one.get("value", "")) for one in facts["args"]))
        elif about == "Log.entryAdded":
            self.complaints.append(facts["entry"]["text"])

    def open(
        self, page: Path | str, fragment: str = "", *, until: str = "document.body.dataset.drawn === 'yes'"
    ) -> None:
        """Open a file or an address in a new page, and wait until it is drawn."""
        self.requests, self.complaints, self.errors = [], [], []
        self.ask("Page.navigate", url="about:blank")
        address = page if isinstance(page, str) else page.resolve().as_uri()
        self.ask("Page.navigate", url=address + fragment)
        self.wait(lambda: self.js(f"document.readyState === 'complete' && ({until})"))

    def js(self, expression: str) -> Any:
        """Value of an expression on the page."""
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        asked["allowUnsafeEvalBlockedByCSP"] = False
        found = self.ask("Runtime.evaluate", **asked)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", found))
        return found["result"].get("value")

    def wait(self, done: Callable[[], Any]) -> None:
        """Until something is true. Raises RuntimeError as soon as the page threw an error, or TimeoutError."""
        last = time.monotonic() + WAIT
        while not done():
            if self.errors:
                raise RuntimeError(f"the page threw {self.errors}")
            if time.monotonic() > last:
                raise TimeoutError(f"not within {WAIT:.0f} s; the page logged {self.complaints}")
            time.sleep(0.02)

    def look(self, width: int, height: int = 900, *, dark: bool = False, scripts: bool = True) -> None:
        """Size of the window, its theme, and whether scripts run."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[theme])
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)

    def key(self, name: str) -> None:
        """Press a key: `Tab`, `Enter`, `ArrowRight`, ` `."""
        codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40}
        asked = {"key": name, "windowsVirtualKeyCode": codes[name], "code": "Space" if name == " " else name}
        text = {"Enter": "\r", " ": " "}.get(name)
        self.ask("Input.dispatchKeyEvent", type="keyDown", **asked, **({"text": text} if text else {}))
        self.ask("Input.dispatchKeyEvent", type="keyUp", **asked)
