"""Every target computes what the interpreter computes, on random functions whose results are fully defined."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from deuteron.compiler.ir import parse_function, print_function
from deuteron.compiler.targets import interpreter


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("floats", [False, True], ids=["integers", "floats"])
def test_targets_agree(data, functions, run_on_target, floats):
    function, arguments = data.draw(functions(floats=floats, effects=False, defined=True))
    text = print_function(function)
    note(text)
    results = []
    for run in (interpreter.run, run_on_target):
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        run(parse_function(text), (1,), copies)
        results.append([a for a in copies if isinstance(a, np.ndarray)])
    for expected, got in zip(*results, strict=True):
        if expected.dtype.kind not in "iub":
            expected, got = expected.astype(np.float64), got.astype(np.float64)
        np.testing.assert_array_equal(got, expected)
