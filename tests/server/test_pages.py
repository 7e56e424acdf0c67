"""Pages: what they send, and what a browser makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from msgspec.structs import replace

from deuteron.server.configs import put_record, stored_config
from deuteron.server.pages.html import join, tag
from deuteron.server.pages.jobs import result_table
from deuteron.tuner.measure.statistics import Interval

# -- without a browser


def test_text_and_attributes_are_escaped() -> None:
    shown = tag("a", "<script>", None, ["&", 1], href='"><x', hidden=True, lang=None, data_x=False)
    assert str(shown) == '<a href="&quot;&gt;&lt;x" hidden>&lt;script&gt;&amp;1</a>'
    assert join([tag("br"), "<"]) == "<br>&lt;"


@pytest.mark.parametrize("path", ["/", "/configs", "/docs", "/login"])
def test_pages_have_a_policy_and_no_inline_script(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 200
    policy = response.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "<script>" not in response.text
    assert " onclick=" not in response.text
    assert " style=" not in response.text


def test_what_the_best_challenger_reached_is_shown(make_record: Callable[..., Any]) -> None:
    better = make_record({"M": 1})
    kept = replace(
        better, verdict="SAME", speedup=Interval(1.0, 1.0, 1.0, 32), challenger=Interval(1.0021, 0.998, 1.0062, 99)
    )
    shown = str(
        result_table([stored_config(record, None) for record in (better, kept, replace(kept, challenger=None))])
    )
    assert "1.96–2.04" in shown
    assert "challenger 1.002×, 0.998–1.006" in shown
    assert "1.00–1.00" not in shown


def test_hostile_names_stay_text(client: TestClient, make_record: Callable[..., Any]) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    with client.app.state.context.store.write() as tx:  # type: ignore[attr-defined]
        put_record(tx, make_record({"M": 1, "N": 1}, kernel_name=hostile), None)
    text = client.get("/configs").text
    assert hostile not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_static_files_are_cached_for_ever_under_their_hash(client: TestClient) -> None:
    page = client.get("/").text
    address = page.split('rel="stylesheet" href="')[1].split('"')[0]
    response = client.get(address)
    assert response.headers["content-type"].startswith("text/css")
    assert "immutable" in response.headers["cache-control"]
    assert client.get("/static/x/../../settings.py").status_code == 404
    assert client.get("/static/x/nothing.css").status_code == 404
    plotly = client.get("/static/plotly.min.js")
    assert plotly.headers["content-type"].startswith("text/javascript")
    assert "max-age" in plotly.headers["cache-control"]
    assert b"plotly.js v" in plotly.content[:200]


def test_an_unknown_job_is_a_404(client: TestClient) -> None:
    assert client.get("/jobs/nobody").status_code == 404


# -- with a browser


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
    assert "No job yet" in browser.page_source
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
    no_errors(browser)

    follow(browser, css(browser, "nav a")[1])
    assert "M=16, N=8" in text(browser, "main")
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
        "return [...document.querySelectorAll('a, button, progress, input, table')].filter(e =>"
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
