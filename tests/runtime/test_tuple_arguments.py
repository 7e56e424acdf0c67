"""Tuples and ``*args`` on their way into a launch: signatures, keys, guards, binding, tuning and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deuteron
import deuteron.language as tl
from deuteron import Config
from deuteron.compiler import knobs
from deuteron.compiler.errors import DeuteronError, LaunchError, SignatureError
from deuteron.compiler.launch_recipe import Guard, LaunchRecipe
from deuteron.compiler.runtime.variant import pipeline
from deuteron.compiler.signature import gathered, scattered


@deuteron.jit
def total(out, *terms, SCALE: tl.constexpr = 1):
    found = 0.0
    for array, factor in terms:
        found += tl.load(array) * factor
    tl.store(out, found * SCALE)


@deuteron.jit
def pick(out, source):
    tl.store(out, tl.load(source[0] + source[1][0]))


@deuteron.jit(do_not_specialize=["loose"])
def declared(source: tl.const, loose, *numbers: tl.float64):
    tl.static_print(source, loose, numbers)


@pytest.fixture
def out() -> np.ndarray:
    return np.zeros(1, np.float32)


X, N = np.full(32, 5, np.float32), np.full(32, 7, np.int32)


def leaves_of(values: Any) -> Any:
    return st.recursive(values, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8)


@given(st.dictionaries(st.sampled_from("abc"), leaves_of(st.integers())))
def test_tuples_come_back_from_their_leaves(arguments: dict[str, Any]) -> None:
    flat = scattered(arguments)
    assert not any(value and isinstance(value, tuple) for value in flat.values())
    assert gathered(flat) == arguments


@pytest.mark.parametrize("names", [["a.1"], ["a", "a.0"], ["a.0", "a.2"], ["a.size0"], ["a.0.0", "a.0.x"]])
def test_leaves_that_make_no_tuple_are_refused(names: list[str]) -> None:
    message = "the tuple '.*' has the elements|'a' is given as a whole and by its elements"
    with pytest.raises(SignatureError, match=message) as caught:
        gathered(dict.fromkeys(names))
    assert str(caught.value.hint).startswith("give ")


def test_leaves_have_types_and_constants_of_their_own(recorder: Any, out: np.ndarray) -> None:
    total[(1,)](out, (X, 3), (N[1:], 1), (X, None))
    assert recorder.types() == {"out": "*f32:16", "terms.0.0": "*f32:16", "terms.0.1": "i32", "terms.1.0": "*i32"} | {
        "terms.2.0": "*f32:16"
    }
    assert recorder.last.constants == {"terms.1.1": 1, "terms.2.1": None, "SCALE": 1}
    address = X.ctypes.data
    assert recorder.launches[-1][2] == (out.ctypes.data, address, 3, N[1:].ctypes.data, address)
    total[(1,)](out)
    assert recorder.last.constants == {"terms": (), "SCALE": 1}


def test_a_variant_for_each_form(recorder: Any, out: np.ndarray) -> None:
    forms: list[tuple[Any, ...]] = [(), ((X, 3),), ((X, 3.0),), ((X, 1),), ((X, 3), (X, 3)), ((X[1:], 3),), ((X, 16),)]
    for _ in range(2):
        for form in forms:
            total[(1,)](out, *form)
    assert len(recorder.compiled) == len({v.key for v in recorder.compiled}) == len(forms)
    total[(1,)](out, (X, 4))  # nothing that was not seen
    assert len(recorder.compiled) == len(forms)


def test_declarations_hold_for_every_leaf(recorder: Any) -> None:
    declared[(1,)]((X, (X,)), (1, (X, 16)), 2, True, 2.5)
    assert recorder.types() == {
        "source.0": "*const f32:16",
        "source.1.0": "*const f32:16",
        "loose.0": "i32",
        "loose.1.0": "*f32",
        "loose.1.1": "i32",
        "numbers.0": "f64",
        "numbers.1": "f64",
        "numbers.2": "f64",
    }
    with pytest.raises(LaunchError, match=r"argument 'numbers.1': numpy.ndarray of .* is an array, .* as f64"):
        declared[(1,)]((X,), (), 2, X)


@pytest.mark.parametrize("interpret", [False, True])
def test_binding_and_hooks_see_what_was_given(out: np.ndarray, interpret: bool) -> None:
    seen: list[Any] = []
    kernel = deuteron.JITFunction(total.fn)  # type: ignore[arg-type]
    kernel.add_pre_run_hook(lambda *args, **options: seen.append((args, options)))
    with knobs.interpret.scope(interpret):
        again = kernel.bound(lambda meta: (len(meta["terms"]),), out, (X, 3), (N, 1), SCALE=2)
        assert out[0] == 0
        again()
        assert out[0] == 2 * (15 + 7)
        again.rebind(out, (X, 4), SCALE=1)()
        assert out[0] == 20 + 7
        kernel[(1,)](out, (N, 2))
        assert out[0] == 14
    assert [(len(args), options) for args, options in seen] == [(3, {"SCALE": n}) for n in (2, 1)] + [(2, {})]
    assert seen[0][0][1:] == ((X, 3), (N, 1))


def test_guards_of_leaves(monkeypatch: pytest.MonkeyPatch, out: np.ndarray) -> None:
    build, guard = pipeline._build_cpu, Guard("source.1.0", "multiple", 4)

    def with_guard(work: pipeline.Build, *rest: Any) -> None:
        build(work, *rest)
        work.recipe = LaunchRecipe(128, tuple({guard}.difference(work.variant.denied)))

    monkeypatch.setattr(pipeline, "_build_cpu", with_guard)
    ramp = np.arange(32, dtype=np.float32)
    for place in (4, 6, 8, 7):
        made: Any = pick[(1,)](out, (ramp, (place, None)))
        assert (made.variant.denied == (guard,), out[0]) == (place % 4 != 0, place)


def test_ahead_of_time(out: np.ndarray) -> None:
    by_leaf = deuteron.compile(pick, {"out": "*f32", "source.0": "*f32:16", "source.1.0": "i32"})
    by_form = deuteron.compile(pick, {"out": "*f32", "source": ("*f32:16", ("i32",))})
    assert by_leaf.hash == by_form.hash
    by_form.run((1,), out, np.arange(32, dtype=np.float32), 9)
    assert out[0] == 9


@pytest.mark.parametrize(
    ("signature", "constexprs"),
    [
        ({"p": ["i32", "i32"]}, {}),
        ({"p": "i32", "k": 3}, {}),
        ({"p": "i32", "rest": (3,)}, {}),
        ({"p": "i32", "rest": (None,)}, {}),
        ({"p.0": "i32", "p.1": "constexpr"}, {}),
    ],
)
def test_a_default_stands_for_nothing_that_was_given(signature: Any, constexprs: Any) -> None:
    def kernel(out, p=(1, 2), *rest, k=5):
        tl.store(out, k)

    made = deuteron.JITFunction(kernel)
    with pytest.raises(SignatureError, match="the type of the parameter|no type for its parameter"):
        deuteron.compile(made, {"out": "*f32", "rest": (), **signature}, constexprs)
    assert deuteron.compile(made, {"out": "*f32", "p": "constexpr", "rest": ()}).variant.constants["p"] == (1, 2)


def test_missing_leaves_are_named_in_full() -> None:
    with pytest.raises(SignatureError, match=r"the tuple 'a\.0' has the elements a\.0\.size0") as caught:
        gathered({"a.0.size0": "i32"})
    assert caught.value.hint == "give all of its elements: a.0.0, a.0.1, ..."


def test_arrays_in_tuples_are_reset(out: np.ndarray) -> None:
    @deuteron.jit
    def bump(first, *others, SCALE: tl.constexpr):
        tl.store(first, tl.load(first) + 1)
        for array, factor in others:
            tl.store(array, tl.load(array) + factor)

    for option, value in (("restore_value", 6.0), ("reset_to_zero", 1.0)):
        x, y = np.full(4, 5, np.float32), np.full(4, 5, np.float32)
        options: Any = {option: ["first", "others"], "do_bench": lambda call, quantiles: call() and 1.0}
        tuned: Any = deuteron.autotune([Config({"SCALE": 1}), Config({"SCALE": 2})], [], **options)(bump)
        tuned[(1,)](x, (y, 1))
        assert (x[0], y[0]) == (value, value)
        tuned[(1,)](x)


@pytest.mark.parametrize("interpret", [False, True])
def test_positional_only_and_keyword_only(out: np.ndarray, interpret: bool) -> None:
    def kernel(out, n, /, m, *, k):
        tl.store(out, n + 10 * m + 100 * k)

    seen: list[Any] = []
    made = deuteron.JITFunction(kernel)
    made.add_pre_run_hook(lambda *args, **options: seen.append((args, options)))
    with knobs.interpret.scope(interpret):
        made[(1,)](out, 2, m=3, k=4)
        assert out[0] == 432
        args, options = seen.pop()
        made[(1,)](*args, **options)  # what hooks are given repeats the launch
    assert (args[1:], options) == ((2,), {"m": 3, "k": 4})
    with pytest.raises(TypeError, match=r"kernel.*\(\) got multiple values for argument 'm'"):
        made[(1,)](out, 2, 3, m=3, k=4)


def test_warming_up(out: np.ndarray) -> None:
    made: Any = total[(1,)](out, (X, 3), (N, 1))
    assert total.warmup(out, ("*f32:16", "i32"), (N, 1), grid=(1,)).hash == made.hash
    assert total.warmup(out, (tl.float32, 3), (tl.int32, 1), grid=(1,)).hash == made.hash


def test_autotuning_tells_tuples_apart(out: np.ndarray) -> None:
    searched: list[int] = []

    def measure(call: Callable[[], object], *, quantiles: Any) -> list[float]:
        call()
        searched.append(1)
        return [1.0] * 3

    configs = [Config({"SCALE": 1}), Config({"SCALE": 2})]
    kernel = deuteron.autotune(configs, ["terms"], do_bench=measure)(deuteron.JITFunction(total.fn))  # type: ignore
    for terms, searches in (((X, 3),), 2), (((X, 4),), 4), (((X, 3),), 4), (((N, 3),), 6), (((X, 3), (X, 3)), 8):
        kernel[(1,)](out, *terms)
        assert len(searched) >= searches and len(kernel.cache) == searches // 2


class Described(NamedTuple):
    """Arrays with names that arrays themselves have."""

    data: np.ndarray
    dtype: int
    device: int


def test_autotuning_looks_into_tuples_that_look_like_arrays(out: np.ndarray) -> None:
    def add(out, source, SCALE: tl.constexpr):
        tl.store(out, tl.load(source[0]) * SCALE)

    configs = [Config({"SCALE": 1}), Config({"SCALE": 2})]
    kernel: Any = deuteron.autotune(configs, [], do_bench=lambda call, quantiles: [1.0] * 3)(deuteron.JITFunction(add))
    for dtype in (np.int32, np.int64, np.int32):
        kernel[(1,)](out, Described(np.full(1, 3, dtype), 1, 0))
    assert len(kernel.cache) == 2


def test_heuristics_see_them_by_name(out: np.ndarray) -> None:
    kernel = deuteron.heuristics({"SCALE": lambda given: len(given["terms"])})(total)
    kernel[(1,)](out, (X, 3), (N, 2))
    assert out[0] == 2 * (15 + 14)


@pytest.mark.parametrize(
    ("launch", "message", "hint"),
    [
        (lambda out: total[(1,)](out, (X, object())), "argument 'terms.0.1': a builtins.object is neither", "arrays"),
        (lambda out: total[(1,)](out, terms=((X, 3),)), r"total takes \*terms, which cannot be given by", "after out"),
        (lambda out: total.bound((1,), out, terms=3), r"total takes \*terms, which cannot be given by", "after out"),
        (lambda out: total[(1,)](out, (X, 3), SCAL=3), "total has no argument 'SCAL'", "SCALE"),
        (lambda out: total[(1,)](out, num_warps=X), "num_warps = array", "takes an int"),
        (lambda out: total[(1,)](out, [X, 3]), "argument 'terms.0': a builtins.list is neither", "are a tuple"),
        (lambda out: pick[(1,)](out, (X, (2**70,))), "argument 'source.1.0': the integer .* 64 bits", "parts"),
        (lambda out: pick[(1,)](out, (X, 3)), "unsupported tensor index 0", ""),
        (lambda out: deuteron.compile(pick, {"out": "*f32", "source.1": "i32"}), "the tuple 'source'", "all of its"),
        (lambda out: deuteron.compile(pick, {"out": "*f32", "sourc.0": "i32"}), "no parameter 'sourc'", "'source'"),
        (lambda out: deuteron.compile(total, {"out": "*f32", "terms.0": "*f33"}), "unknown dtype 'f33'", ""),
    ],
)
@pytest.mark.filterwarnings("error")
def test_bad_input_says_what_would_have_worked(out: np.ndarray, launch: Any, message: str, hint: str) -> None:
    with pytest.raises(DeuteronError, match=message) as caught:
        launch(out)
    assert hint in (caught.value.hint or "")
