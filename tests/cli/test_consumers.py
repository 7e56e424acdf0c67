"""Exports, loaded by the programs that they are for: their own functions, where they are installed.

They are large and no dependencies; `benchmarks/compat/consumers.py` says how they are had.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks/compat/consumers.py"
NEEDS = {
    "vllm": ("vllm",),
    "sglang": ("sglang",),
    "triton": ("triton",),
    "helion": ("helion", "torch"),
    "t4": ("kernel_tuner", "autotuning_methodology"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_what_consumers_load_is_what_was_stored(name: str, tmp_path: Path) -> None:
    missing = [package for package in NEEDS[name] if find_spec(package) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: its own loader cannot be called")
    words = [sys.executable, "-P", str(SCRIPT), name, "--out", str(tmp_path / "found.json")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    result = json.loads((tmp_path / "found.json").read_text())["consumers"][name]
    assert done.returncode == 0, result.get("error") or result["differences"]
    assert result["compared"] >= 12 and result["different"] == 0
    counts = result["counts"]
    refused = sum(number for what, number in counts.items() if what.startswith("refused: "))
    assert counts.get("shipped", 0) == counts.get("read", 0) + refused


def test_a_consumer_that_is_missing_is_left_out(tmp_path: Path) -> None:
    """Without any of them the script says so and succeeds; a name that is none is refused."""
    done = subprocess.run([sys.executable, "-P", str(SCRIPT), "vlm"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "there is no consumer 'vlm': vllm, sglang" in done.stderr
    absent = [name for name, packages in NEEDS.items() if any(find_spec(package) is None for package in packages)]
    if not absent:
        pytest.skip("all consumers are installed")
    done = subprocess.run([sys.executable, "-P", str(SCRIPT), *absent], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("left out: ") == len(absent)
