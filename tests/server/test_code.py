"""The page with the code of a trial: compiled again from the stored text, in a process of its own."""

from __future__ import annotations

import json
import re
import uuid
from html import unescape
from typing import Any

import pytest
from fastapi.testclient import TestClient

from deuteron.server import checking
from deuteron.server.dispatch.ingest import Delivery
from deuteron.server.store import NewJob
from deuteron.tuner import Interval, JobSpec, Trial
from deuteron.tuner.evaluate import trial_compile
from deuteron.tuner.events import TrialFinished
from deuteron.tuner.measure.measurement import CodeFacts, Measurement, TimingProtocol

KERNEL = """import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, i < n) * 2, i < n)  # "</pre><script>alert(1)</script>"
"""
WORKLOAD = {
    "kernel": {"name": "scale", "source": KERNEL},
    "dims": ["n"],
    "tensors": [{"name": "x_ptr", "shape": ["n"]}, {"name": "y_ptr", "shape": ["n"], "role": "output"}],
    "scalars": {"n": "n"},
    "grid": ["cdiv(n, BLOCK)"],
    "space": {"parameters": {"BLOCK": [64, 128, 256]}},
    "bytes": "2 * n * element_bytes",
}


def page_of(client: TestClient, device: str, trial: Trial) -> str:
    """The address of the page of a trial of a new job."""
    spec = JobSpec.from_json({"workload": WORKLOAD, "shapes": [{"n": 4096}], "device": device})
    job_id = str(uuid.uuid4())
    ingest = client.app.state.context.ingest  # type: ignore[attr-defined]
    with ingest.store.write() as tx:
        tx.jobs.add(NewJob(job_id, "scale", "a" * 64, device, json.dumps(spec.to_json()), 10))
    ingest.claim(job_id, claim_id="t.1", worker="w")
    event = TrialFinished({"n": 4096}, "f32", trial, None).to_json()
    ingest.deliver(job_id, claim_id="t.1", events=[Delivery(1, event)])
    return f"/jobs/{job_id}/trials/{trial.id}"


def stages_of(text: str) -> dict[str, list[tuple[str, int | None]]]:
    """Lines and source lines of each stage."""
    found = {}
    for name, code in re.findall(r'data-stage="(\w+)"[^>]*><code>(.*?)</code>', text, re.DOTALL):
        lines = re.findall(r'<span(?: data-line="(\d+)")?>(.*?)</span>', code, re.DOTALL)
        found[name] = [(unescape(line), int(number) if number else None) for number, line in lines]
    return found


def test_the_code_of_a_trial_for_a_gpu_that_is_not_here(client: TestClient) -> None:
    page = page_of(client, "cuda:0", Trial(3, {"BLOCK": 128, "num_warps": 2}, "ok", "screen"))
    assert f"{page.rsplit('/', 1)[1]}/code" in client.get(page).text
    text = client.get(f"{page}/code").text
    assert "<script>alert" not in text
    stages = stages_of(text)
    assert list(stages)[:4] == ["source", "tile", "gpu", "ptx"]
    assert [number for _, number in stages["source"]] == [5, 6, 7], "lines as the file has them"
    load = next(number for line, number in stages["source"] if "tl.load" in line)
    for name, instruction in (("tile", "load"), ("gpu", "load"), ("ptx", "ld.global")):
        assert load in [number for line, number in stages[name] if instruction in line], name
    assert any(".reqntid 64" in line or ".maxntid 64" in line for line, _ in stages["ptx"]), "2 warps, as the trial"


def test_what_cannot_be_compiled_is_said(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_of(client, "cpu", Trial(0, {"BLOCK": 100}, "compile_error", "screen", error="of old"))
    text = client.get(f"{page}/code").text
    assert "does not compile here" in text and "100" in text and "data-stage" not in text
    assert "of old" in client.get(page).text
    monkeypatch.setattr(trial_compile, "PATIENCE_S", 0.01)
    assert "more than 0.01 s" in client.get(f"{page}/code").text
    monkeypatch.setattr(checking, "_TURN_S", 0.01)
    for _ in range(2):
        checking._compilers.acquire()
    try:
        busy = client.get(f"{page}/code")
    finally:
        for _ in range(2):
            checking._compilers.release()
    assert (busy.status_code, busy.json()["type"]) == (503, "urn:deuteron:problem:compilers-busy")
    assert client.get(f"{page[:-1]}/code").status_code == 404


def test_a_trial_says_everything_that_is_known_of_it(client: TestClient) -> None:
    time = Interval(1000.0, 990.0, 1010.0, 30)
    code = CodeFacts(
        32, threads=128, registers=168, spill_bytes=24, shared_bytes=49152, resident_warps=12, most_warps=64,
        limiter="registers",
    )  # fmt: skip
    protocol = TimingProtocol("device", True, "first look")
    measured = Measurement(time, protocol, 1e12, 2e12, 0.1, 0.4, code, bound="registers")
    metrics: dict[str, Any] = {"worst_error": 0.25, "compile_s": 1.5}
    trial = Trial(
        7, {"BLOCK": 64}, "ok", "screen", time, reference="numpy <float64>", measurement=measured, metrics=metrics
    )
    text = unescape(re.sub(r"<[^>]*>", "|", client.get(page_of(client, "cpu", trial)).text))
    for said in (
        "agrees with numpy <float64>, worst error 0.25 of what is tolerated", "168 a thread", "24 bytes",
        "49152 bytes a program", "19%, limited by registers", "compile_s", "1.5", "BLOCK=64",
    ):  # fmt: skip
        assert said in text, said
    wrong = Trial(
        8, {"BLOCK": 64}, "wrong_result", "screen", reference="numpy", error="first\n    second", metrics=metrics
    )
    text = client.get(page_of(client, "cpu", wrong)).text
    assert "differs from numpy" in text and "first\n    second</pre>" in text
