"""Random functions: the interpreter defines what they mean, the simulator runs what was generated for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deuteron.compiler.targets import interpreter


def _same(here: np.ndarray, there: np.ndarray) -> bool:
    if here.dtype.kind in "iub":
        return bool((here == there).all())
    # bf16 and f16 chains round at other places than the interpreter does.
    wide = here.astype(np.float64), there.astype(np.float64)
    return np.allclose(*wide, rtol=2e-2, atol=1e-2, equal_nan=True)


@pytest.mark.parametrize("floats, warps", [(False, 1), (False, 4), (True, 2)])
def test_random_functions_agree_with_the_interpreter(functions, run_function, floats, warps) -> None:
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        # Stores of colliding elements are left out: their order is open.
        function, arguments = data.draw(functions(floats=floats, effects=False, steps=20))
        wanted = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        made = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        with np.errstate(all="ignore"):
            interpreter.run(function, (2,), wanted)
        run_function(function, (2,), made, warps)
        for place, (got, want) in enumerate(zip(made, wanted, strict=True)):
            if isinstance(got, np.ndarray):
                assert _same(got, want), f"argument {place} of\n{function}"

    check()
