"""What a browser makes of the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    yield chromium
    # Leave before the test's server stops: the streams of an open page would break and be logged.
    chromium.get("about:blank")
    chromium.get_log("browser")


def no_errors(browser: Any) -> None:
    """Nothing was blocked by the policy, missing, or thrown."""
    messages = [entry["message"] for entry in browser.get_log("browser")]
    assert [message for message in messages if "favicon" not in message] == []


def css(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements("css selector", selector))


def text(browser: Any, selector: str) -> str:
    """What the first of these elements shows; "" without one. In one step: open pages replace elements."""
    return str(browser.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)).strip()


def follow(browser: Any, element: Any) -> None:
    """Click, and wait for the page behind it: until then finding elements may still find those of the old page."""
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.support.ui import WebDriverWait

    arrived = "return !window.left && document.readyState === 'complete'"
    browser.execute_script("window.left = true")
    element.click()
    # Between two pages there is none to ask, which is an error.
    WebDriverWait(browser, 20, ignored_exceptions=[WebDriverException]).until(lambda b: b.execute_script(arrived))


def test_jobs_and_a_job_live(make_service: Callable[..., Any], browser: Any, wait_until: Callable[..., None]) -> None:
    service = make_service()
    browser.get(service.url)
    # The first page of a browser may be asked for its text before it has any.
    wait_until(lambda: "No job yet" in browser.page_source, 15)
    job_id = service.submit(budget={"trials": 10, "seconds": 6.0}, shapes=[{"M": 8, "N": 8}, {"M": 16, "N": 8}])
    row = f'tr[data-job="{job_id}"]'

    # The open page finds the new job by itself, and its progress moves without loading the page again.
    wait_until(lambda: bool(css(browser, row)), 15)
    browser.execute_script("window.stayed = true")
    wait_until(lambda: "running" in text(browser, f"{row} .pill"), 20)
    value = f"return document.querySelector('{row} progress')?.value ?? 0"
    wait_until(lambda: int(browser.execute_script(value)) >= 2, 20)
    assert browser.execute_script("return window.stayed")
    no_errors(browser)

    follow(browser, css(browser, f"{row} a")[0])
    wait_until(lambda: len(css(browser, "#trials tr")) >= 3, 20)
    wait_until(lambda: bool(css(browser, "#chart .scatterlayer .point")), 20)
    count = len(css(browser, "#trials tr"))
    wait_until(lambda: len(css(browser, "#trials tr")) > count, 20)
    assert css(browser, "#cancel")[0].is_displayed()
    wait_until(lambda: text(browser, "#state") == "succeeded", 30)
    wait_until(lambda: len(css(browser, "#results tbody tr")) == 2, 10)
    wait_until(lambda: len(css(browser, "#chart .scatterlayer .point")) == len(service.trials(job_id)), 10)
    assert len(css(browser, "#trials tr")) == len(service.trials(job_id)) == 20
    assert not css(browser, "#cancel")[0].is_displayed()
    # The chart shows what was measured: its best line ends at the fastest trial.
    fastest = min(item["trial"]["time_ns"]["median"] for item in service.trials(job_id)) / 1e3
    drawn = browser.execute_script(
        "return document.getElementById('chart').data.filter(t => t.mode == 'lines').map(t => t.y[t.y.length - 1])"
    )
    assert min(drawn) == pytest.approx(fastest)
    low, high = browser.execute_script("return document.getElementById('chart').layout.xaxis.range")
    assert low <= 1
    assert 10 <= high <= 14
    # A final measurement stands where its configuration was screened, and does not move the line.
    browser.execute_script(
        "addTrial({M: 8, N: 8}, 'f32', {id: 'final', phase: 'final', status: 'ok', config: {BLOCK: 2},"
        " time_ns: {median: 500}})"
    )
    finals = (
        "return document.getElementById('chart').data.filter(t => t.name.endsWith('final')).map(t => [t.x[0], t.y[0]])"
    )
    wait_until(lambda: browser.execute_script(finals) == [[3, 0.5]], 10)
    assert fastest == pytest.approx(
        min(
            browser.execute_script(
                "return document.getElementById('chart').data.filter(t => t.mode == 'lines').map(t => Math.min(...t.y))"
            )
        )
    )
    no_errors(browser)

    follow(browser, browser.find_element("link text", "What the parameters do"))
    assert "100 %" in text(browser, "main table") and not css(browser, ".lines")  # one parameter: no lines between two
    browser.execute_script(
        "const box = document.querySelector('section').appendChild(document.createElement('div'));"
        "box.className = 'lines'; box.dataset.names = '[\"B\", \"A\"]';"
        "box.dataset.trials = JSON.stringify([[{A: 16, B: 'x'}, 3], [{A: 4, B: 'x'}, 1], [{A: 8, B: 'y'}, 2]]);"
        "draw(box)"
    )
    wait_until(lambda: bool(css(browser, ".lines .scatterlayer .js-line")), 20)
    drawn = browser.execute_script("return document.querySelector('.lines').data.map(t => [t.name, t.x, t.y])")
    assert drawn == [
        ["others", [0, 1, None, 0, 1, None], [1, 0.5, None, 0, 1, None]],
        ["fastest 1", [0, 1, None], [0, 0, None]],
    ]
    labels = browser.execute_script(
        "const box = document.querySelector('.lines'); box.dataset.trials = JSON.stringify("
        "Array.from({length: 600}, (_, at) => [{A: at, B: at % 12}, at + 1])); draw(box);"
        "return box.layout.annotations.map(label => [label.x, label.y, label.text])"
    )
    shown = [text for axis, _, text in labels if axis == 1]
    assert len(shown) == 12 and (shown[0], shown[-1]) == ("0", "599"), "Plotly takes seconds for hundreds of labels"
    assert [text for axis, _, text in labels if axis == 0] == [str(value) for value in range(12)]
    assert all(y == (int(text) / 599 if axis else int(text) / 11) for axis, y, text in labels)
    no_errors(browser)

    follow(browser, css(browser, "nav a")[1])
    assert "M=16, N=8" in text(browser, "main")
    css(browser, "input[name=kernel]")[0].send_keys("nothing like it")
    follow(browser, css(browser, "button[type=submit]")[0])
    assert "No configuration is like that" in text(browser, "main")
    follow(browser, css(browser, "nav a")[3])
    assert "idle" in text(browser, "main table") and "1 connected" in text(browser, "main")
    # On a telephone every page is as wide as the screen; only tables and charts scroll inside.
    browser.set_window_size(390, 800)
    try:
        for address in ("/", "/configs", "/coverage", "/workers", f"/compare?a={job_id}&b={job_id}", f"/jobs/{job_id}"):
            browser.get(service.url + address)
            assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth"), address
    finally:
        browser.set_window_size(1280, 1200)
    no_errors(browser)


def test_cancel_button(make_service: Callable[..., Any], browser: Any, wait_until: Callable[..., None]) -> None:
    service = make_service()
    job_id = service.submit(budget={"trials": 100, "seconds": 60})
    wait_until(lambda: len(service.trials(job_id)) >= 1, 30)
    browser.get(f"{service.url}/jobs/{job_id}")
    css(browser, "#cancel")[0].click()
    wait_until(lambda: text(browser, "#state") == "cancelled", 20)
    assert service.job(job_id)["state"] == "cancelled"
    no_errors(browser)


def test_pages_can_be_used_without_a_mouse_and_are_labelled(make_service: Callable[..., Any], browser: Any) -> None:
    service = make_service(DEUTERON_SCHEDULER="none")
    service.submit()
    browser.get(service.url)
    unlabelled = browser.execute_script(
        "return [...document.querySelectorAll('a, button, progress, input, select, table')].filter(e =>"
        " !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).length"
    )
    assert unlabelled == 0
    assert browser.execute_script("return document.documentElement.lang") == "en"
    assert len(css(browser, "h1")) == 1
    assert css(browser, "nav a[aria-current=page]")[0].text == "Jobs"
    browser.execute_script("document.querySelector('.skip').focus()")
    assert css(browser, ".skip")[0].rect["x"] >= 0


def test_sign_in(make_service: Callable[..., Any], browser: Any, tmp_path: Path) -> None:
    from deuteron import migrations
    from deuteron.server import ServiceStore

    url = f"sqlite:///{tmp_path / 'tokens.db'}"
    migrations.upgrade(url)
    store = ServiceStore.open(url)
    with store.write() as tx:
        _, secret = tx.tokens.create("root", ["admin"])
    store.close()
    service = make_service(DEUTERON_AUTH="tokens", DEUTERON_DATABASE_URL=url, DEUTERON_SCHEDULER="none")
    assert httpx.get(f"{service.url}/v1/jobs").status_code == 401
    browser.get(service.url)
    assert browser.current_url.endswith("/login")
    css(browser, "#token")[0].send_keys(secret)
    follow(browser, css(browser, "button[type=submit]")[0])
    assert text(browser, "h1") == "Jobs"
    no_errors(browser)
