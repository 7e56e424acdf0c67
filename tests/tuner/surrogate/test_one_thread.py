"""Linear algebra on one thread, and on as many as before afterwards."""

from __future__ import annotations

import pytest

from deuteron.tuner.strategies.surrogate import one_thread as module


@pytest.fixture
def threads() -> module.Threads:
    found = module._openblas()
    if found is None:
        pytest.skip("this NumPy has no OpenBLAS of its own")
    return found


def test_threads_are_given_back(threads: module.Threads) -> None:
    before = threads.get()
    threads.set(2)
    try:
        with module.one_thread():
            assert threads.get() == 1
            with module.one_thread():
                assert threads.get() == 1
        assert threads.get() == 2
        with pytest.raises(ZeroDivisionError), module.one_thread():
            _ = 1 // 0
        assert threads.get() == 2
    finally:
        threads.set(before)


def test_other_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_openblas", lambda: None)
    with module.one_thread():
        pass
