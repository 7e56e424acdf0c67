"""Random functions, and running single operations or whole functions on every target that exists."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from deuteron.compiler.ir import Function
from deuteron.compiler.targets import interpreter

# Beside this file: kernels that tests make up, and what fixtures hand out.
sys.path.insert(0, str(Path(__file__).parent))
from function_sketches import sketched_functions  # noqa: E402
from target_runs import RUNNERS, Run  # noqa: E402
from whole_tiles import Apply, Array  # noqa: E402


@pytest.fixture
def apply() -> Apply:
    return Apply()


@pytest.fixture(params=[pytest.param(n, marks=pytest.mark.gpu) if n == "cuda" else n for n in RUNNERS])
def run_on_target(request: pytest.FixtureRequest) -> Run:
    """Runs a function on one target; tests that use it run once per target.

    "simulated" executes the code for NVIDIA GPUs on a simulator, "cuda" on a GPU.
    """
    return RUNNERS[request.param]


@pytest.fixture(scope="session")
def functions() -> Callable[..., st.SearchStrategy[tuple[Function, list[Array | int]]]]:
    """Strategy of (function, arguments). Stores of several programs overlap: compare targets on one program."""
    return sketched_functions


@pytest.fixture(scope="session")
def run_copy() -> Callable[[Function, list[Array | int]], list[Array]]:
    """Runs a function on copies of the arguments in the interpreter; returns the copies of the arrays."""

    def run(function: Function, arguments: list[Array | int]) -> list[Array]:
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        interpreter.run(function, (2,), copies, poison=True)
        return [a for a in copies if isinstance(a, np.ndarray)]

    return run


@pytest.fixture(scope="session")
def ring_kernel() -> Callable[[str], str]:
    """``ring_kernel(name)``: the text of a function of ring_kernels.py."""
    text = Path(__file__).with_name("ring_kernels.py").read_text()
    found = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    return lambda name: ast.get_source_segment(text, found[name]) + "\n"
