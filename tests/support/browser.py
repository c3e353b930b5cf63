"""A real browser for tests: headless Chromium, driven by its DevTools protocol over a pipe.

    with Browser() as browser:
        tab = browser.open(page)
        assert tab.run("document.title") == "…"
        assert not tab.errors and not tab.requests

Every host is unreachable. Console errors, exceptions, violations of the content security policy and
network requests of a page are recorded, so that a test can assert that there are none.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

_LONGEST_S = 60.0
_COMMAND, _ANSWER = 3, 4
"""The file descriptors that Chromium reads and writes with ``--remote-debugging-pipe``."""


def chromium() -> str:
    """Return the browser of this machine; without one the test is skipped, or fails in CI."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        reason = "no chromium on this machine: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


class Browser:
    """A Chromium process that ends with the block."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="vflops-chromium-")
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        words = [
            chromium(),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={self._profile.name}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        # The shell moves the two ends to the numbers that Chromium expects.
        moved = f'exec "$@" {_COMMAND}<&{theirs_in} {_ANSWER}>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", moved, "chromium", *words],
            pass_fds=[theirs_in, theirs_out],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._number = 0
        self._unread = b""
        self._tabs: dict[str, Tab] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        with suppress(OSError):  # a child of the browser may still write there
            self._profile.cleanup()

    def open(
        self, page: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False
    ) -> Tab:
        """Open ``page`` (a file, or a URL with ``#…``) in a new tab and wait until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.call("Emulation.setEmulatedMedia", features=[scheme])
        tab.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        tab.go(page)
        return tab

    def call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """Return the answer to a command of the protocol."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def read(self) -> dict[str, Any]:
        """Return the next message; events are passed to their tabs."""
        until = time.monotonic() + _LONGEST_S
        while b"\0" not in self._unread:
            left = until - time.monotonic()
            assert left > 0 and select.select([self._in], [], [], left)[0], "Chromium is silent"
            part = os.read(self._in, 1 << 20)
            assert part, "Chromium ended"
            self._unread += part
        line, self._unread = self._unread.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        tab = self._tabs.get(message.get("sessionId", ""))
        if tab and "method" in message:
            tab.note(message["method"], message["params"])
        return message


class Tab:
    """A page in the browser, with its errors and requests."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self._loaded = 0
        self.errors: list[str] = []
        """Console errors and warnings, exceptions, and violations of the policy."""
        self.requests: list[str] = []
        """Requested URLs other than the pages that the test opened."""
        self._opened: set[str] = set()

    def call(self, method: str, **parameters: Any) -> Any:
        """Return the answer to a command of the protocol for this page."""
        return self._browser.call(method, self._session, **parameters)

    def go(self, page: Path | str) -> None:
        """Open another page, or the same with another ``#…``, and wait until it is loaded."""
        address = page.as_uri() if isinstance(page, Path) else page
        self._opened.add(address.partition("#")[0])
        before = self._loaded
        same = "loaderId" not in self.call("Page.navigate", url=address)
        while not same and self._loaded == before:
            self._browser.read()
        if same:  # the page learns of its new # a moment later
            self.run("new Promise(done => setTimeout(done))")

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression; one that throws fails the test."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements of ``selector``."""
        shown = self.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(e=>e.innerText)"
        )
        assert isinstance(shown, list)
        return shown

    def click(self, selector: str) -> None:
        """Click the first element of ``selector``."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def enter(self, selector: str, text: str) -> None:
        """Put ``text`` into a field or choose it, as a person would."""
        self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus();"
            f"e.value = {json.dumps(text)}; for (const kind of ['input', 'change'])"
            "e.dispatchEvent(new Event(kind, {bubbles: true})) })()"
        )

    def pdf(self) -> bytes:
        """Return the printed page as PDF, on the paper that it asks for."""
        printed = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(printed["data"])

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write the visible part of the page, or all of it, as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def note(self, method: str, data: dict[str, Any]) -> None:
        """Record events that a test may want to know about."""
        if method == "Page.loadEventFired":
            self._loaded += 1
        elif method == "Runtime.exceptionThrown":
            details = data["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and data["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.errors.append(" ".join(str(argument.get("value")) for argument in data["args"]))
        elif method == "Log.entryAdded" and data["entry"]["level"] in ("error", "warning"):
            self.errors.append(data["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            address = data["request"]["url"]
            if address.partition("#")[0] not in self._opened:
                self.requests.append(address)
