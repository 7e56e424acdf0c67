"""Random functions give what the interpreter gives, to the bit where no fusion is allowed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.targets import interpreter
from deuteron.compiler.tile.passes import optimize


def _compare(function, arguments, run):
    expected, found = ([a.copy() if isinstance(a, np.ndarray) else a for a in arguments] for _ in range(2))
    with np.errstate(all="ignore"):
        try:
            interpreter.run(function, (2,), expected)
        except DeuteronError:  # undefined behaviour, such as division by zero
            return
    run(function, found, (2,))
    for wanted, got in zip(expected, found, strict=True):
        if isinstance(wanted, np.ndarray):
            np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64))


@given(data=st.data())
@settings(max_examples=120, suppress_health_check=list(HealthCheck))
def test_as_written(functions, run, data):
    _compare(*data.draw(functions(steps=16)), run)


@given(data=st.data())
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_optimized(functions, run, data):
    function, arguments = data.draw(functions(steps=16))
    _compare(optimize(function), arguments, run)


@given(data=st.data(), vector_bytes=st.sampled_from([4, 8, 16, 32]))
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_narrower_vectors(functions, run, data, vector_bytes):
    """What processors without AVX-512 get; with 4 and 8 bytes the small tiles take several chunks."""
    from deuteron.compiler.targets.cpu import program
    from deuteron.compiler.targets.cpu.processor import Processor

    function, arguments = data.draw(functions(steps=16))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "host_processor", lambda: Processor(vector_bytes, 16))
        _compare(function, arguments, run)
