"""Every page of a service with something on it: no error, nothing wider than a telephone.

On demand what axe-core says of each, and a picture:

    pytest tests/server/test_every_page.py --axe axe.min.js --screenshots docs/images

``axe.min.js`` is a file of npm's package axe-core.
"""

from __future__ import annotations

import io
import json
import math
import random
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from deuteron import migrations
from deuteron.server import ServiceStore
from deuteron.server.configs import put_record
from deuteron.server.dispatch.ingest import new_trial
from deuteron.server.store import JobState, NewJob
from deuteron.tuner import DeviceFingerprint, Interval, JobSpec, Trial
from deuteron.tuner.events import JobStarted, TrialFinished
from deuteron.tuner.measure.bounds import bound_of
from deuteron.tuner.measure.measurement import CodeFacts, Measurement, TimingProtocol

H200 = DeviceFingerprint(
    kind="cuda",
    name="NVIDIA H200",
    pci_device_id=None,
    sm_count=132,
    memory_bytes=150_754_820_096,
    compute_capability=(9, 0),
    mig=None,
    power_cap_watts=700,
)
PEAK_FLOP_S, PEAK_BYTE_S = 6.7e13, 4.8e12
SHAPES = ({"M": 4096, "N": 1024}, {"M": 4096, "N": 8192})


def make_trial(number: int, shape: dict[str, int], draw: random.Random, phase: Any = "screen") -> Trial:
    """A made-up variant of softmax, faster with wider tiles up to a point."""
    config: dict[str, Any] = {
        "ROWS": draw.choice((1, 2, 4, 8)),
        "TILES": draw.choice((1, 2, 4)),
        "num_warps": draw.choice((1, 2, 4, 8, 16)),
    }
    if config["ROWS"] == 8 and config["num_warps"] == 1:
        return Trial(number, config, "invalid", phase, error="the tile needs 640 registers a thread; 255 are there")
    traffic = 8.0 * shape["M"] * shape["N"]
    waste = 1.3 + 0.3 * abs(math.log2(config["ROWS"] * 4 / config["num_warps"])) + draw.uniform(0, 0.2)
    median = 1e9 * traffic * waste / PEAK_BYTE_S
    registers = 24 * config["ROWS"] * 8 // config["num_warps"] + 32
    code = CodeFacts(
        shape["M"] // config["ROWS"],
        threads=32 * config["num_warps"],
        registers=min(registers, 255),
        spill_bytes=max(0, 4 * (registers - 255)),
        shared_bytes=1024,
        resident_warps=32,
        most_warps=64,
        limiter="registers",
    )
    measured = Measurement(
        time := Interval(median, 0.995 * median, 1.005 * median, 40),
        TimingProtocol("device", True, "first look"),
        flop_s=(flop_s := 5e9 * shape["M"] * shape["N"] / median),
        byte_s=(byte_s := 1e9 * traffic / median),
        compute_share=flop_s / PEAK_FLOP_S,
        memory_share=byte_s / PEAK_BYTE_S,
        code=code,
        waves=3.5,
        tail=0.05,
        sm_mhz=1980.0,
    )
    measured = replace(measured, bound=bound_of(measured))
    metrics = {"registers": float(code.registers or 0), "shared_bytes": 1024.0, "worst_error": 0.02, "compile_s": 0.4}
    return Trial(number, config, "ok", phase, time, reference="softmax", measurement=measured, metrics=metrics)


def fill(url: str, make_record: Callable[..., Any]) -> dict[str, str]:
    """A finished job, a running one and a waiting one, records, devices and workers; the ids of jobs and a trial."""
    draw = random.Random(5)
    spec = JobSpec.from_json({"workload": {"builtin": "softmax"}, "shapes": list(SHAPES), "device": "cuda"})
    text = json.dumps(spec.to_json())
    store = ServiceStore.open(url)
    ids = [str(uuid.UUID(int=draw.getrandbits(128), version=4)) for _ in range(3)]
    with store.write() as tx:
        for device, host in ((H200, "gpu-a"), (H200, "gpu-b"), (make_record({"M": 1}).device, "laptop")):
            said = json.dumps(device.to_json())
            name = "cpu" if device.kind == "cpu" else "cuda:0"
            process = f"{name}@{host}/4711"
            tx.devices.announce(key=device.key, kind=device.kind, name=device.name, fingerprint=said, worker=process)
            toolchain = json.dumps({"deuteron": "0.1.0", "target": "cpu" if name == "cpu" else "cuda:90a"})
            tx.workers.announce(process, device_key=device.key, toolchain=toolchain)
        tx.workers.drain("cuda:0@gpu-b", who="operator")
        for job_id in ids:
            tx.jobs.add(NewJob(job_id, "softmax_kernel", "a" * 64, "cuda", text, 120))
        started = json.dumps(JobStarted("softmax_kernel", H200.key, "surrogate", 2, 60, None).to_json())
        for job_id, host, trials in zip(ids[:2], "ab", (60, 25), strict=True):
            tx.jobs.claim(job_id, claim_id="t.1", worker=f"cuda:0@gpu-{host}/4711", lease=timedelta(days=1))
            tx.jobs.name_device(job_id, H200.key)
            tx.events.append(job_id, "job_started", started)
            for shape in SHAPES:
                found = [make_trial(number, shape, draw) for number in range(trials)]
                best = min((t for t in found if t.time_ns), key=lambda t: t.time_ns.median if t.time_ns else 0.0)
                finals = [replace(best, id=str(uuid.uuid4()), number=trials, phase="final")]
                for trial in (*found, *finals):
                    event = TrialFinished(shape, "f32", trial, None)
                    tx.trials.append(job_id, new_trial(event, 1))
                    tx.events.append(job_id, "trial_finished", json.dumps(event.to_json()))
                    tx.jobs.count_screened(job_id)
                assert best.time_ns is not None
                record = make_record(dict(shape), device=H200, median_ns=best.time_ns.median)
                put_record(tx, replace(record, config=dict(best.config)), job_id, who=f"cuda:0@gpu-{host}/4711")
            count, last = tx.trials.count(job_id), tx.events.last_id(job_id)
            tx.jobs.advance(job_id, trials=count, last_event=last)
        tx.jobs.finish(ids[0], JobState.SUCCEEDED)
        put_record(tx, make_record({"M": 4096, "N": 1024}), None, who="laptop")
        trial = tx.trials.newest(ids[0], limit=1, phase="final")[0].trial_id
        config = tx.config_history.of_job(ids[0])[0].config_id
    store.close()
    return {"job": ids[0], "other": ids[1], "trial": trial, "config": config}


#: Pages by the name of their picture.
PAGES = {
    "jobs": "/",
    "job": "/jobs/{job}",
    "trials": "/jobs/{job}/trials",
    "trial": "/jobs/{job}/trials/{trial}",
    "code": "/jobs/{job}/trials/{trial}/code",
    "parameters": "/jobs/{job}/parameters",
    "compare": "/compare?a={job}&b={other}",
    "configs": "/configs",
    "config": "/configs/{config}",
    "coverage": "/coverage",
    "workers": "/workers",
    "docs": "/docs",
    "login": "/login",
}
#: What a script of the page draws, and until when one has to wait for it.
DRAWN = {"job": "#roofline .scatterlayer .point", "parameters": ".lines .scatterlayer .js-line"}


#: Of the pictures, in pixels, where 760 show too little.
HEIGHTS = {"job": 1500, "parameters": 900, "code": 860}


def save_picture(browser: Any, path: Path, height: int) -> None:
    """A PNG of 64 colours: a third of the size, and nobody sees the difference."""
    image = pytest.importorskip("PIL.Image", reason="pictures are made smaller by pillow")
    path.parent.mkdir(parents=True, exist_ok=True)
    browser.set_window_size(1280, height)
    picture = image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
    picture.quantize(64, dither=image.Dither.NONE).save(path, optimize=True)


def serious_violations(browser: Any, script: str) -> list[tuple[str, list[str]]]:
    """What axe-core calls serious or critical: the rule, and where."""
    # As a debugger does: the policy of the page lets no other script in.
    browser.execute_cdp_cmd("Runtime.evaluate", {"expression": script})
    found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    return [
        (violation["id"], [node["target"][0] for node in violation["nodes"]])
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    yield chromium
    chromium.set_window_size(1280, 1200)
    chromium.get("about:blank")
    chromium.get_log("browser")


def test_every_page(
    make_service: Callable[..., Any],
    make_record: Callable[..., Any],
    browser: Any,
    wait_until: Callable[..., None],
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    pictures: Path | None = pytestconfig.getoption("--screenshots")
    folder = pictures / "pages" if pictures is not None else None
    axe: Path | None = pytestconfig.getoption("--axe")
    url = f"sqlite:///{tmp_path / 'filled.db'}"
    migrations.upgrade(url)
    ids = fill(url, make_record)
    service = make_service(DEUTERON_SCHEDULER="none", DEUTERON_DATABASE_URL=url)
    for name, address in PAGES.items():
        browser.set_window_size(1280, 960)
        browser.get(service.url + address.format(**ids))
        if name in DRAWN:
            wait_until(lambda wanted=DRAWN[name]: bool(browser.find_elements("css selector", wanted)), 20)
        assert len(browser.find_elements("css selector", "h1")) == 1, name
        if name == "job":
            wait_until(lambda: len(browser.find_elements("css selector", "#trials tr")) == 122, 20)
            most = browser.execute_script("return document.getElementById('roofline').data.at(-1).y.at(-1)")
            assert most == pytest.approx(PEAK_FLOP_S / 1e9)
        if name == "code":
            mark = "document.querySelector('[data-stage=source] [data-line=\"20\"]').click();"
            marked = "return [...document.querySelectorAll('.on')].map(e => e.closest('pre').dataset.stage)"
            lines = "return [...document.querySelectorAll('[data-stage=ptx] [data-line]')].map(e => e.dataset.line)"
            line = browser.execute_script(lines)[0]
            assert set(browser.execute_script(mark.replace("20", line) + marked)) >= {"source", "ptx"}
        if folder is not None:
            save_picture(browser, folder / f"{name}.png", HEIGHTS.get(name, 760))
        if axe is not None:
            assert serious_violations(browser, axe.read_text()) == [], name
        browser.set_window_size(390, 800)
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth"), name
        messages = [entry["message"] for entry in browser.get_log("browser")]
        assert [message for message in messages if "favicon" not in message] == [], name
