"""A headless Chromium that tests can drive, over its debugging pipe: no driver, no port, no package."""

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def chromium() -> str | None:
    """The browser on this machine, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. ``errors`` collects everything the page complains about or tries to fetch."""

    def __init__(self, profile: Path) -> None:
        read, self._write = os.pipe()
        self._read, write = os.pipe()

        def descriptors() -> None:  # the browser reads commands from 3 and writes answers to 4
            os.dup2(read, 103)
            os.dup2(write, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        self._process = subprocess.Popen(
            [str(chromium()), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=descriptors,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._buffer = b""
        self._number = 0
        self._session = None
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params):
        """One command of the debugging protocol, and its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _next(self):
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 16)
            if not part:
                raise RuntimeError("the browser ended")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _note(self, event) -> None:
        kind, params = event.get("method"), event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif kind == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str([arg.get("value") for arg in params["args"]]))
        elif kind == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif kind == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:")):
            self.errors.append(f"request to {params['request']['url']}")

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file at a size of window and in a colour scheme, and wait until it is drawn."""
        self.errors.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")
        self.settle()

    def run(self, expression: str):
        """The value of a JavaScript expression."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"].get("description"))
        return done["result"].get("value")

    def settle(self) -> None:
        """Let the page draw twice."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def wait(self, expression: str, seconds: float = 10) -> None:
        """Until the expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({expression})"):
            if time.monotonic() > end:
                raise TimeoutError(expression)
            time.sleep(0.02)

    def press(self, key: str, shift: bool = False) -> None:
        """A key on whatever has the focus."""
        code = {"Enter": 13, " ": 32, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "Escape": 27}.get(key, ord(key[0]))
        text = {"Enter": "\r", " ": " "}.get(key, key if len(key) == 1 else None)
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            extra["modifiers"] = 8 if shift else 0
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **extra)
        self.settle()

    def box(self, element: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element, a JavaScript expression, after scrolling it into view."""
        self.run(f"{element}.scrollIntoView({{block: 'center'}})")
        self.settle()
        return tuple(self.run(f"(b => [b.x, b.y, b.width, b.height])({element}.getBoundingClientRect())"))

    def mouse(self, *places: tuple[float, float], held: bool = True) -> None:
        """Move the mouse from place to place, with its button held from the first to the last of them."""
        events = [("mouseMoved", places[0]), *([("mousePressed", places[0])] if held else [])]
        events += [("mouseMoved", place) for place in places[1:]] + ([("mouseReleased", places[-1])] if held else [])
        for kind, (x, y) in events:
            button = {"button": "left", "buttons": 1, "clickCount": 1} if held else {}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)
        self.settle()

    def wheel(self, x: float, y: float, up: float, ctrl: bool = True) -> None:
        """Turn the wheel at a place."""
        held = {"modifiers": 2 if ctrl else 0}
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-up, **held)
        self.settle()

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End the browser."""
        try:
            self._session = None
            self.call("Browser.close")
        except RuntimeError:
            pass
        self._process.wait(timeout=20)
        os.close(self._read)
        os.close(self._write)
