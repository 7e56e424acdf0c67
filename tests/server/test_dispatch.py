"""Spools, leases and devices: the parts of dispatching that need no cluster, and two that need one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deuteron.compiler.errors import DeviceError
from deuteron.server.dispatch.ingest import Delivery
from deuteron.server.dispatch.resources import resources_for, resources_of
from deuteron.server.dispatch.run import load_runner
from deuteron.server.dispatch.spool import Spool, leftovers

# -- devices


@pytest.mark.parametrize(
    ("selector", "needed", "fits"),
    [
        ("cpu", {"cpu": 1}, {"cpu"}),
        ("cuda", {"GPU": 1}, {"cuda:0", "cuda:1"}),
        ("cuda:1", {"GPU": 1, "cuda:1": 1}, {"cuda:1"}),
    ],
)
def test_a_job_holds_its_device_alone(selector: str, needed: dict[str, float], fits: set[str]) -> None:
    assert resources_for(selector) == needed
    offered = {device: resources_of(device) for device in ("cpu", "cuda:0", "cuda:1")}
    assert {
        device
        for device, offer in offered.items()
        if all(offer.get(name, 0) >= amount for name, amount in needed.items())
    } == fits


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(DeviceError, match="'rocm' is not a device") as caught:
        resources_for("rocm")
    assert caught.value.hint == "cpu, cuda or cuda:0"


def test_a_runner_that_is_not_there_is_named() -> None:
    with pytest.raises(Exception, match="'nowhere:run' cannot be loaded"):
        load_runner("nowhere:run")


# -- spool


def test_a_spool_keeps_what_was_not_acknowledged(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "job", "ticket.run")
    for number in range(3):
        spool.append({"n": number})
    spool.acknowledge(2)
    assert spool.unsent() == [Delivery(3, {"n": 2})]
    assert list(leftovers(tmp_path)) == [], "its writer is alive"
    spool.close()
    (left,) = leftovers(tmp_path)
    assert (left.job_id, left.claim_id) == ("job", "ticket.run")
    assert left.deliveries == [Delivery(n + 1, {"n": n}) for n in range(3)]


def test_an_acknowledged_spool_disappears(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "job", "t.r")
    spool.append({})
    spool.acknowledge(1)
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_half_a_line_is_not_an_event(tmp_path: Path) -> None:
    line = json.dumps({"sequence": 1, "event": {"kind": "a"}})
    (tmp_path / "job.t.r.jsonl").write_text(line + "\n" + line[:20])
    (left,) = leftovers(tmp_path)
    assert left.deliveries == [Delivery(1, {"kind": "a"})]


def test_events_survive_kill_9_right_after_append(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from deuteron.server.dispatch.spool import Spool\n"
        "spool = Spool(Path(sys.argv[1]), 'job', 't.r')\n"
        "spool.append({'n': 1}); spool.append({'n': 2})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    (left,) = leftovers(tmp_path)
    assert [item.event["n"] for item in left.deliveries] == [1, 2]


# -- with a cluster


def test_a_stopped_service_gives_its_jobs_back_and_goes_on(
    make_service: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    """SIGTERM is not the job's fault: it does not count as an attempt."""
    service = make_service(DEUTERON_MAX_ATTEMPTS="1")
    job_id = service.submit(budget={"trials": 10, "seconds": 3})
    wait_until(lambda: len(service.trials(job_id)) >= 3, 60)
    service.stop()
    assert service.process.returncode == -signal.SIGTERM, "it ends as it was asked to, after cleaning up"
    service.start()
    wait_until(lambda: service.job(job_id)["finished_at"] is not None, 60)
    job = service.job(job_id)
    assert (job["state"], job["attempts"]) == ("succeeded", 1)
    assert [item["trial"]["number"] for item in service.trials(job_id)] == list(range(10))


@pytest.mark.slow
def test_a_silent_worker_loses_its_job(make_service: Callable[..., Any], wait_until: Callable[..., None]) -> None:
    """A worker that hangs for longer than its lease: the job is queued, and the run that lost it stops."""
    service = make_service(DEUTERON_LEASE_SECONDS="2")
    job_id = service.submit(budget={"trials": 10, "seconds": 5})
    wait_until(lambda: len(service.trials(job_id)) >= 3, 60)
    pid = int(service.job(job_id)["worker"].rsplit("/", 1)[1])
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: service.job(job_id)["state"] == "queued", 20)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: service.job(job_id)["finished_at"] is not None, 60)
    job = service.job(job_id)
    assert (job["state"], job["attempts"]) == ("succeeded", 2)
    assert [item["trial"]["number"] for item in service.trials(job_id)] == list(range(10))


def test_devices_are_announced_and_others_are_refused(
    make_service: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    service = make_service()
    with pytest.raises(AssertionError, match="not present"):
        service.submit(device="cuda:7")
    wait_until(lambda: bool(service.get("/v1/devices")["devices"]), 20)
    (device,) = service.get("/v1/devices")["devices"]
    assert device["kind"] == "cpu"
    assert device["worker"].startswith("cpu@")


# -- memory


@pytest.mark.slow
def test_a_bundle_of_25_mb_is_never_held_in_memory(tmp_path: Path) -> None:
    """Built from the database, written to disk, streamed: the server must not grow by the size of the file."""
    out = tmp_path / "out.json"
    root = Path(__file__).resolve().parents[2]
    subprocess.run(
        [
            *(sys.executable, str(root / "benchmarks" / "service.py")),
            *("--configs", "24000", "--bundle-only", "--out", str(out)),
        ],
        check=True,
        capture_output=True,
        timeout=200,
    )
    results = {item["name"]: item["value"] for item in json.loads(out.read_text())["results"]}
    assert results["bundle size"] >= 25
    assert results["server memory growth / bundle size"] < 0.5
