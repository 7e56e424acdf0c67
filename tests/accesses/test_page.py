"""The page of accesses in a browser: steps, keys, pictures, what is out of bounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import press, text

import deuteron
import deuteron.language as tl
from deuteron.profiler.accesses import Wanted, accesses_page, recorded
from deuteron.profiler.accesses.page import page_data

EVIL = "<img src=x onerror=alert(1)>"


@deuteron.jit
def rows(x, y, M, N, B: tl.constexpr):
    m = tl.program_id(0)
    n = tl.arange(0, B)
    tile = tl.load(x + m * N + n, mask=n < N)
    tl.store(y + m * N + n, tile * 2, mask=n < N)


def record_of(height: int, programs: int) -> Any:
    x, y = np.ones((6, 12), np.float32), np.zeros((height, 12), np.float32)
    with recorded() as record:
        rows[(programs,)](x, y, 6, 12, B=16)
    return record


@pytest.fixture
def open_page(open_file: Callable[[Path], Any], tmp_path: Path) -> Callable[..., Any]:
    """Opens the page of a record."""

    def show(record: Any, *notes: str) -> Any:
        path = tmp_path / "page.html"
        path.write_text(accesses_page(record, f"Accesses {EVIL}", notes), encoding="utf-8")
        browser = open_file(path)
        assert browser.execute_script("return document.documentElement.dataset.ready") == "1"
        return browser

    return show


def picture(browser: Any) -> np.ndarray:
    """The array's picture as rows, columns and red, green, blue."""
    height, width, values = browser.execute_script(
        "const c = document.getElementById('array-canvas'), copy = new OffscreenCanvas(c.width, c.height);"
        "const pen = copy.getContext('2d'); pen.drawImage(c, 0, 0);"
        "return [c.height, c.width, [...pen.getImageData(0, 0, c.width, c.height).data]]"
    )
    return np.array(values).reshape(height, width, 4)[..., :3]


def row_colour(browser: Any, row: int) -> tuple[int, ...]:
    """The colour of the picture's row of six, away from its edges and the cursor."""
    found = picture(browser)
    return tuple(found[int(len(found) * (row + 0.5) / 6), int(found.shape[1] * 0.37)])


def test_stepping_through_programs_and_operations(open_page: Callable[..., Any]) -> None:
    browser = open_page(record_of(6, 6))
    assert text(browser, "h1") == f"Accesses {EVIL}"
    assert text(browser, "#step-text") == "1 of 2: load, 16 f32, 4 masked off"
    assert text(browser, "#program-text") == "0 (0, 0, 0), 1 of 6 shown"
    assert text(browser, "#array-title") == "Array x: f32, 6 × 12"
    assert "tile = tl.load(x + m * N + n, mask=n < N)" in text(browser, "#line")
    touched, others = row_colour(browser, 0), row_colour(browser, 3)
    assert touched != others, "what the step touches stands out"
    press(browser, "ARROW_DOWN", "ARROW_DOWN", "ARROW_DOWN", "ARROW_RIGHT")
    assert text(browser, "#program-text") == "3 (3, 0, 0), 4 of 6 shown"
    assert text(browser, "#step-text") == "2 of 2: store, 16 f32, 4 masked off"
    assert text(browser, "#array-title") == "Array y: f32, 6 × 12"
    assert (row_colour(browser, 0), row_colour(browser, 3)) == (others, touched)
    browser.find_element("css selector", "#operations button").click()
    assert text(browser, "#step-text").startswith("1 of 2: load")
    assert browser.find_element("css selector", "#operations tbody tr").get_attribute("aria-current") == "true"


def test_a_cursor_tells_of_elements(open_page: Callable[..., Any]) -> None:
    browser = open_page(record_of(6, 6))
    browser.execute_script("document.getElementById('array-canvas').focus()")
    press(browser, "ARROW_DOWN", "ARROW_RIGHT", "ARROW_RIGHT")
    assert text(browser, "#array-details").startswith("x[1, 2] · read once by program 1 · line ")
    browser.execute_script("document.getElementById('tile-canvas').focus()")
    press(browser, *["ARROW_RIGHT"] * 13)
    assert text(browser, "#tile-details").startswith("Element [13] · masked off · ")


def test_what_is_out_of_bounds_is_red_and_found(open_page: Callable[..., Any]) -> None:
    browser = open_page(record_of(4, 6), "a note of the command")
    assert text(browser, "#notes") == "a note of the command"
    browser.execute_script("document.activeElement.blur()")
    browser.find_element("css selector", "body").send_keys("o")
    assert text(browser, "#program-text").startswith("4 (4, 0, 0)")
    assert "12 out of bounds" in text(browser, "#step-text")
    assert browser.find_element("id", "line").get_attribute("class") == "bad"
    red, green, blue = np.moveaxis(picture(browser), -1, 0)
    assert ((red > 180) & (green < 80) & (blue < 80)).sum() > 100
    cells = [cell.text for cell in browser.find_elements("css selector", "#outside-table tbody td")]
    assert cells[1:4] == ["24", "4 (4, 0, 0)", "[0]"] and cells[4].startswith("element 48 of y, address 0x")
    assert browser.find_element("id", "outside-next").is_enabled()


def test_everything_has_a_label_and_narrow_screens_do(open_page: Callable[..., Any]) -> None:
    browser = open_page(record_of(4, 6))
    unlabelled = browser.execute_script(
        "return [...document.querySelectorAll('button, input, select, canvas')].filter(e =>"
        " !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).map(e => e.outerHTML)"
    )
    assert unlabelled == []
    levels = [int(h.tag_name[1]) for h in browser.find_elements("css selector", "h1, h2, h3") if h.is_displayed()]
    assert levels[0] == 1 and set(levels[1:]) == {2}
    before = browser.get_window_size()
    browser.set_window_size(500, 900)  # the narrowest that Chromium has windows for
    try:
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.set_window_size(before["width"], before["height"])
    background = "return getComputedStyle(document.body).backgroundColor"
    light = browser.execute_script(background)
    browser.find_element("id", "theme").click()
    assert browser.execute_script(background) != light


def test_a_page_that_is_full_says_so() -> None:
    record = record_of(6, 6)
    data = page_data(record, most_characters=300)
    (launch,) = data["launches"]
    (note,) = data["notes"]
    shown = len(launch["accesses"])
    assert 0 < shown < 12 and f"the first {shown} of 12 recorded accesses" in note
    assert len(json.dumps(launch["accesses"], separators=(",", ":"))) <= 302
    assert launch["operations"][0]["numbers"]["executions"] == 6, "the tables count all"


def test_many_launches_fit_into_a_page_too() -> None:
    """The tables of a launch take more room than the accesses of a small one."""
    x, y = np.ones((6, 12), np.float32), np.zeros((6, 12), np.float32)
    with recorded(Wanted(programs=frozenset([0]))) as record:
        for _ in range(40):
            rows[(2,)](x, y, 6, 12, B=16)
    data = page_data(record, most_of_tables=20_000)
    assert len(json.dumps(data, separators=(",", ":"))) < 26_000
    shown = len(data["launches"])
    assert 0 < shown < 40
    assert all(len(launch["accesses"]) == 2 for launch in data["launches"])
    assert any(f"the first {shown} of 40 recorded launches" in note for note in data["notes"])
    assert "and 20 more notes of this kind" in data["notes"]
