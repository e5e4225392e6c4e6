"""A real browser without a screen."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def start_browser(profile: Path) -> Any:
    """Chromium, driven by Selenium; skips the test where it cannot be had."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    driver = shutil.which("chromedriver")
    if not (program and driver):
        pytest.skip("no Chromium with its chromedriver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("headless=new", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{argument}")
    # Without a screen there is no mouse by default.
    mouse = "primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"
    options.add_argument(f"--blink-settings={mouse}")
    options.add_argument(f"--user-data-dir={profile}")
    if os.name == "posix" and os.getuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium refuses root with it.
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


class Page:
    """A page in a browser, asked by selectors of CSS.

    Args:
        browser: The browser.
        url: Of the page.
    """

    def __init__(self, browser: Any, url: str) -> None:
        self._browser, self._url = browser, url

    def open(self, path: str = "/", width: int = 1280) -> None:
        """Opens a page in a window of some width."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self._browser.get(f"{self._url}{path}")
        self.wait()

    def wait(self) -> None:
        """Waits until the page has its answer."""
        self.until("return document.body && !document.body.classList.contains('busy')")

    def until(self, script: str) -> None:
        """Waits until a script returns what is true."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self._browser, 20, 0.02).until(lambda browser: browser.execute_script(script))

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self._browser.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        """The elements of a selector that are seen."""
        found = self._browser.find_elements("css selector", selector)
        return [element for element in found if element.is_displayed()]

    def texts(self, selector: str) -> list[str]:
        """What the elements of a selector show."""
        return [element.text for element in self.all(selector)]

    def text(self, selector: str) -> str:
        """What the elements of a selector show, together."""
        return "\n".join(self.texts(selector))

    def click(self, selector: str, caption: str = "") -> None:
        """Clicks the first element of a selector with a caption."""
        next(e for e in self.all(selector) if caption in e.text).click()
        self.wait()

    def type(self, selector: str, *keys: str) -> None:
        """Types into an element."""
        self._browser.find_element("css selector", selector).send_keys(*keys)
        self.wait()

    def press(self, *keys: str) -> None:
        """Presses keys wherever the focus is."""
        self._browser.switch_to.active_element.send_keys(*keys)
        self.wait()

    def complaints(self) -> list[str]:
        """Errors that the browser has reported since it was last asked."""
        log = self._browser.get_log("browser")
        return [entry["message"] for entry in log if entry["level"] == "SEVERE"]
