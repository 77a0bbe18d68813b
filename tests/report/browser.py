"""A browser that opens pages, and notes what goes wrong in them and what they ask a network for."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# Drawn by the processor: no GPU is needed, and the same pixels come each time.
SOFTWARE = (
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
)
WITHOUT = ("--disable-gpu", "--disable-webgl", "--disable-webgl2", "--disable-3d-apis")


def path_of_chromium() -> str | None:
    """Return the path of a Chromium: that of the variable CHROMIUM, or one that is installed."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def chromium() -> str:
    """Return the path of a Chromium; skip the test where there is none, or nothing to drive it."""
    pytest.importorskip("playwright", reason="no playwright to drive a browser: pip install playwright")
    return path_of_chromium() or pytest.skip(
        "no Chromium to open pages in: install it, or name one by CHROMIUM"
    )


@contextmanager
def started() -> Iterator[Any]:
    """Yield what starts browsers: a function of flags. They end with it."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Its sandbox does not work for root, as whom tests run in a container.
        yield lambda *flags: playwright.chromium.launch(executable_path=path, args=["--no-sandbox", *flags])


class Opened:
    """A page that is open.

    Parameters
    ----------
    browser
        From `started`.
    path : Path
    looks
        Of the window, as ``color_scheme="dark"``.

    Attributes
    ----------
    page
        Playwright's.
    said : list of str
        What the page wrote to the console, and errors in it.
    asked : list of str
        Addresses that it asked for, but for those of data inside it.
    """

    def __init__(self, browser: Any, path: Path, **looks: Any) -> None:
        looks = {"viewport": {"width": 1300, "height": 900}, "reduced_motion": "reduce", **looks}
        self._context = browser.new_context(**looks)
        self.page = self._context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", self._note)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html.drawn", timeout=60_000)

    def _note(self, request: Any) -> None:
        if not request.url.startswith(("data:", "blob:")):
            self.asked.append(request.url)

    def wait_until(self, expression: str, seconds: float = 20.0) -> None:
        """Wait until an expression is true in the page, whose policy keeps playwright's own way to wait from working."""
        deadline = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            self.page.wait_for_timeout(30)

    def close(self) -> None:
        """Close its window."""
        self._context.close()

    def pixels(self) -> bytes:
        """Return the picture of the 3-D view."""
        return self.page.evaluate("report.scene.viewer.pngURI()").encode()

    def view(self) -> list[float]:
        """Return where the 3-D view looks, from how far, and how it is turned."""
        return self.page.evaluate("report.scene.viewer.getView()")
