"""What tests of pages do in a browser: read, and press keys."""

from __future__ import annotations

from typing import Any


def text(browser: Any, selector: str) -> str:
    """What the first element that a CSS selector finds shows."""
    return browser.find_element("css selector", selector).text


def press(browser: Any, *keys: str) -> None:
    """Send keys, by their names in Selenium or as text, to what has the focus."""
    from selenium.webdriver.common.keys import Keys

    for key in keys:
        browser.switch_to.active_element.send_keys(getattr(Keys, key, key))
