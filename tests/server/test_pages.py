"""Pages: what they send, without a browser."""

from __future__ import annotations

import dataclasses
import math
import re
import uuid
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from fastapi.testclient import TestClient
from msgspec.structs import replace

from deuteron.server.configs import put_record, stored_config
from deuteron.server.pages.analysis import parameter_effects
from deuteron.server.pages.html import join, tag
from deuteron.server.pages.jobs import result_table
from deuteron.server.store import NewJob
from deuteron.tuner.measure.statistics import Interval


def test_text_and_attributes_are_escaped() -> None:
    shown = tag("a", "<script>", None, ["&", 1], href='"><x', hidden=True, lang=None, data_x=False)
    assert str(shown) == '<a href="&quot;&gt;&lt;x" hidden>&lt;script&gt;&amp;1</a>'
    assert join([tag("br"), "<"]) == "<br>&lt;"


@pytest.mark.parametrize(
    "path", ["/", "/?kernel=a&state=failed", "/configs", "/coverage", "/workers", "/compare", "/docs", "/login"]
)
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
    assert "1.00–1.00" not in shown and shown.count("no challenger") == 1


def test_hostile_names_stay_text(client: TestClient, make_record: Callable[..., Any]) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    with client.app.state.context.store.write() as tx:  # type: ignore[attr-defined]
        put_record(tx, make_record({"M": 1, "N": 1}, kernel_name=hostile), None)
    text = client.get("/configs").text
    assert hostile not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


@pytest.mark.parametrize("path", ["/configs", "/coverage"])
def test_shapes_that_were_stored_under_odd_names_are_shown(
    client: TestClient, make_record: Callable[..., Any], path: str
) -> None:
    with client.app.state.context.store.write() as tx:  # type: ignore[attr-defined]
        for odd in ("", "a,b=5", "K", "K=", "<i>=7", "K=" + "9" * 40):
            record = make_record({"M": 1, "N": 1})
            tx.configs.put(dataclasses.replace(stored_config(record, None), shape_key=odd))
    answer = client.get(path)
    assert answer.status_code == 200 and "<i>" not in answer.text


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


def test_what_is_not_there_is_a_404(client: TestClient) -> None:
    for path in ("/jobs/nobody", "/jobs/nobody/parameters", "/configs/nothing", "/compare?a=nobody&b=nobody"):
        assert client.get(path).status_code == 404, path


def test_filters_that_are_none_are_refused(client: TestClient) -> None:
    for path in ("/?before=0", "/?before=99999999999999999999", "/configs?offset=-1", "/?kernel=%00"):
        assert client.get(path).status_code in (400, 422), path


def stored(client: TestClient) -> Any:
    return client.app.state.context.store  # type: ignore[attr-defined]


def job_of(kernel: str, device: str = "cpu") -> NewJob:
    return NewJob(str(uuid.uuid4()), kernel, "a" * 64, device, "{}", 10)


def links_of(text: str, label: str) -> str | None:
    """Where the link of this text leads; None without one."""
    found = re.search(rf'<a href="([^"]*)" class="button">{label}</a>', text)
    return None if found is None else unescape(found[1])


def test_jobs_are_narrowed_and_paged(client: TestClient) -> None:
    names = [f"kernel{number % 3}" for number in range(120)]
    with stored(client).write() as tx:
        jobs = [tx.jobs.add(job_of(name, "cuda:0" if name == "kernel2" else "cpu")) for name in names]
        tx.jobs.request_cancel(jobs[0].id)

    def shown(address: str) -> tuple[list[str], str]:
        text = client.get(address).text
        return re.findall(r'data-job="([^"]*)"', text), text

    newest_first = [job.id for job in reversed(jobs)]
    seen: list[str] = []
    address: str | None = "/"
    while address is not None:
        ids, text = shown(address)
        seen += ids
        address = links_of(text, "Older")
    assert seen == newest_first
    for part, wanted in (("KERNEL1", "kernel1"), ("1", "kernel1")):
        ids, text = shown(f"/?kernel={part}")
        assert ids == [job.id for job in reversed(jobs) if job.kernel_name == wanted]
        assert "jobs.js" not in text  # a list that is narrowed does not load itself again for other jobs
    ids, text = shown("/?device=cuda&kernel=kernel")
    assert len(ids) == 40 and links_of(text, "Older") is None
    assert shown("/?state=cancelled")[0] == [jobs[0].id]
    ids, text = shown("/?kernel=%25")  # no pattern
    assert ids == [] and "No job is like that" in text
    assert 'value="%"' in text


def test_configurations_are_narrowed_and_paged(client: TestClient, make_record: Callable[..., Any]) -> None:
    from deuteron.server.pages import configs

    records = [make_record({"M": m}, kernel_name=f"kernel{m % 2}", median_ns=1e3 + m) for m in range(1, 8)]
    with stored(client).write() as tx:
        for record in records:
            put_record(tx, record, None)
    pages, address = [], "/configs?kernel=kernel&sort=name"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(configs, "_SHOWN", 3)
        while address:
            text = client.get(address).text
            pages.append(re.findall(r'href="/configs/([0-9a-f-]{36})"', text))
            address = links_of(text, "After") or ""
    assert [len(page) for page in pages] == [3, 3, 1]
    ordered = sorted(records, key=lambda record: (record.kernel_name, record.shape_key))
    assert [found for page in pages for found in page] == [record.id for record in ordered]
    assert "No configuration is like that" in client.get("/configs?dtype=f64").text
    assert len(re.findall(r"M=\d", client.get("/configs?kernel=kernel1").text)) == 4


def test_the_page_of_a_record_has_its_history(client: TestClient, make_record: Callable[..., Any]) -> None:
    slow, fast = make_record({"M": 1}, median_ns=5e3, block=32), make_record({"M": 1}, median_ns=1e3, block=64)
    with stored(client).write() as tx:
        put_record(tx, slow, None)
        put_record(tx, fast, None)
        tx.configs.withdraw(fast.id, who="ada", reason="measured <beside> another job")
    text = client.get(f"/configs/{fast.id}").text
    rows = text[text.index("History, newest first") :].split("<tr>")[2:]
    assert [re.search(r'class="pill (\w+)"', row)[1] for row in rows] == ["stored", "withdrawn", "stored", "stored"]  # type: ignore[index]
    assert "ada" in rows[1] and "measured &lt;beside&gt; another job" in rows[1]
    assert f'href="/configs/{slow.id}"' in rows[0] and "BLOCK=32" in rows[0]
    assert "<dt>llvm</dt>" in text


def test_coverage_shows_what_is_missing(client: TestClient, make_record: Callable[..., Any]) -> None:
    devices = [replace(make_record({"M": 1}).device, name=name) for name in ("CPU A", "CPU B")]
    old, new = make_record({"M": 1024}, device=devices[0]), make_record({"M": 1024}, device=devices[0])
    new = replace(new, toolchain={"deuteron": "9"}, speedup=Interval(3.0, 2.9, 3.1, 9))
    with stored(client).write() as tx:
        for record in (old, new, make_record({"M": 512}, device=devices[1])):
            put_record(tx, record, None)
    text = client.get("/coverage?kernel=softmax").text
    assert "2 of 4 missing" in text
    rows = text[text.index("Shapes and devices of") :].split("<tr>")[2:]
    assert ["M=512" in rows[0], "M=1024" in rows[1]] == [True, True]
    assert rows[0].index("not tuned") < rows[0].index("2.00×")  # of CPU B alone
    assert "3.00×" in rows[1] and "2.00×" not in rows[1] and rows[1].index("3.00×") < rows[1].index("not tuned")
    assert "softmax" not in client.get("/coverage?kernel=other").text


def test_workers_with_their_jobs(client: TestClient) -> None:
    with stored(client).write() as tx:
        for key, name, host in (("cpu/x", "CPU <X>", "a"), ("cpu/y", "CPU Y", "b")):
            tx.devices.announce(key=key, kind="cpu", name=name, fingerprint="{}", worker=f"cpu@{host}/1")
            tx.workers.announce(f"cpu@{host}/1", device_key=key, toolchain='{"llvm": "<20>"}')
        tx.workers.see(["cpu@a"])
        tx.workers.drain("cpu@b", who="<ada>")
        job = tx.jobs.add(job_of("softmax"))
        tx.jobs.claim(job.id, claim_id="t.1", worker="cpu@a/1", lease=timedelta(seconds=30))
    text = client.get("/workers").text
    rows = text.split("<tr>")[2:]
    assert "CPU &lt;X&gt;" in rows[0] and f"/jobs/{job.id}" in rows[0] and "running" in rows[0]
    assert "CPU Y" in rows[1] and "away" in rows[1] and "by &lt;ada&gt;" in rows[1] and "llvm=&lt;20&gt;" in rows[1]
    assert "1 connected" in text


def test_two_jobs_side_by_side(client: TestClient, make_record: Callable[..., Any]) -> None:
    shapes = [{"M": 1}, {"M": 2}, {"M": 3}]
    with stored(client).write() as tx:
        a, b = tx.jobs.add(job_of("softmax")), tx.jobs.add(job_of("softmax"))
        for job, times in ((a, (1000.0, 1000.0, 1000.0)), (b, (2000.0, 1005.0))):
            for shape, time in zip(shapes, times, strict=False):
                put_record(tx, make_record(shape, median_ns=time), job.id)
    text = client.get(f"/compare?a={a.id}&b={b.id}").text
    rows = text[text.index("What both found") :].split("<tr>")[2:]
    assert "0.500" in rows[0] and "A is faster" in rows[0]
    assert "0.995" in rows[1] and "alike" in rows[1]
    assert "1 us" in rows[2] and "–" in rows[2]


def test_parameter_effects_are_the_analysis_of_variance() -> None:
    """Over a whole grid the main effects of a sum add up to all of it; beside that NumPy's own variances."""
    import numpy as np

    grid = [({"a": a, "b": b, "c": 1}, math.exp(2.0 * a + 0.5 * b)) for a in range(3) for b in range(4)]
    first, second = parameter_effects(grid)
    assert (first.name, first.best, second.name, second.best) == ("a", "0", "b", "0")
    assert first.share + second.share == pytest.approx(1)
    assert first.share == pytest.approx(4 * np.var(range(3)) / (4 * np.var(range(3)) + 0.25 * np.var(range(4))))
    assert (first.gain, second.gain) == (pytest.approx(math.exp(4)), pytest.approx(math.exp(1.5)))
    uneven = [({"a": 0}, 1.0), ({"a": 0}, 4.0), ({"a": 0}, 2.0), ({"a": 1}, 8.0)]
    logs = np.log([1.0, 4.0, 2.0, 8.0])
    between = np.var(np.array([logs[:3].mean()] * 3 + [logs[3]]))
    assert parameter_effects(uneven)[0].share == pytest.approx(between / np.var(logs))
    assert parameter_effects(uneven[:2]) == []
    assert parameter_effects([({"a": a}, 1.0) for a in range(4)])[0].share == 0
    assert math.isfinite(parameter_effects([({"a": a}, 10.0 ** (200 * a)) for a in (-1, 0, 1)])[0].gain)
