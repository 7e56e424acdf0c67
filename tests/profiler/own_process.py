"""Tests that leave a process of the GPU in a state in which others of their kind fail."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_CHILD = "DEUTERON_TEST_IN_OWN_PROCESS"


def runs_here(request: pytest.FixtureRequest) -> bool:
    """Whether the test is in a process of its own, and goes on; else it is run in one, and must pass there."""
    if os.environ.get(_CHILD):
        return True
    test = f"{request.path}::{request.node.name}"
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "gpu"]
    child = subprocess.run(
        [*command, "--require-gpu", test], env={**os.environ, _CHILD: "1"}, capture_output=True, text=True, timeout=150
    )
    assert child.returncode == 0 and "1 passed" in child.stdout, child.stdout + child.stderr
    return False
