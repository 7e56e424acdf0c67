"""``deuteron demo``: what it promises to print and to leave behind, and that nothing stays when it is interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deuteron.tuner import read_bundle

COMMAND = [sys.executable, "-P", "-m", "deuteron", "demo", "--device", "cpu"]


@pytest.mark.slow
def test_the_main_job_from_end_to_end(run_process, tmp_path: Path):
    began = time.monotonic()
    ran = run_process("demo", "--device", "cpu", "--seconds", "12", cwd=tmp_path)
    assert ran.code == 0, ran.err + (tmp_path / "deuteron-demo/service.log").read_text()
    # Everything but the searches, on a machine that may be busy.
    assert time.monotonic() - began < 12 + 100

    for step in ("start the service on SQLite", "submit softmax and matmul", "watch the searches"):
        assert step in ran.err
    assert ran.err.count("best so far") >= 3  # one a shape at least: the progress
    assert ran.err.index("service stopped") < ran.err.index("launch from the file")

    shapes = ("M=16384,N=128", "M=1823,N=781", "K=1024,M=1024,N=256")
    for shape in shapes:
        (row,) = [li for li in ran.out.splitlines() if li.startswith("│") and shape in li]
        cells = [cell.strip() for cell in row.strip("│").split("│")]
        assert len(re.findall(r"\d (?:us|ms)", row)) == 2, "default and best time"
        # A narrow interval has three digits.
        number = r"\d+\.\d{2,3}"
        assert re.fullmatch(rf"{number}x( \[{number}, {number}\])?", cells[4]), "the speed-up"
        assert re.search(r"(TILES|BLOCK_M)=\d+", cells[6]), "the configuration"

    assert "$ proton-viewer -m time/us,gflop/s" in ran.out
    for frame in ("softmax_kernel", "matmul_kernel", "final", "race"):
        assert re.search(rf"─ [\d.]+ [\d.]+ {frame}\n", ran.out), f"the tree has {frame}"

    assert "softmax 16384 x 128: exact: tuned for M=16384,N=128" in ran.out
    assert "softmax 1500 x 700: nearest_shape: " in ran.out
    assert "matmul 1024 x 256 x 1024: exact: " in ran.out
    assert "vector add 1048576: default: no record of the kernel" in ran.out

    assert "Warning" not in ran.out + ran.err

    folder = tmp_path / "deuteron-demo"
    assert "The files are in deuteron-demo:" in ran.out
    for name in ("configs.bundle", "softmax.hatchet", "matmul.hatchet", "service", "service.log"):
        assert (folder / name).exists()
        assert f"deuteron-demo/{name} " in ran.out
    assert {r.shape_key for r in read_bundle(folder / "configs.bundle").records()} == set(shapes)
    assert json.loads((folder / "matmul.hatchet").read_text())[0]["frame"]["name"] == "ROOT"


@pytest.mark.slow
def test_an_interrupt_stops_the_service(tmp_path: Path, living_members):
    process = subprocess.Popen(
        [*COMMAND, "--seconds", "60"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    seen = ""
    while "best so far" not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    (service,) = processes_mentioning(f"--home {tmp_path}")
    assert len(living_members(service)) >= 2, "the service and its worker"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert "Traceback" not in errors
    assert living_members(service) == []


@pytest.mark.slow
def test_a_service_that_cannot_start_is_explained(run_process, tmp_path: Path):
    environment = {**os.environ, "DEUTERON_MAX_BODY_BYTES": "many"}
    ran = run_process("demo", "--device", "cpu", cwd=tmp_path, env=environment)
    assert ran.code == 2
    assert "the service did not start" in ran.err
    assert "DEUTERON_MAX_BODY_BYTES: 'many'" in ran.err
    assert "service.log" in ran.err
    assert "Traceback" not in ran.err


def test_a_device_that_is_not_there_is_refused_before_anything_starts(run, tmp_path: Path):
    ran = run("demo", "--device", "cuda:77", "--out", tmp_path / "demo")
    assert ran.code == 2
    assert "cuda:77" in ran.err
    assert not (tmp_path / "demo").exists()


def processes_mentioning(text: str) -> list[int]:
    """Ids of the processes whose command line has ``text``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # gone by now
        if text in command:
            found.append(int(entry.name))
    return found
