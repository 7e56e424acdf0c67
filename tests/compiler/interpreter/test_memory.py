"""Loads, stores, atomics: what they touch, what they must not touch, and what they say when they would."""

import ctypes

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.compiler.errors import LaunchError, Location, MemoryAccessError
from deuteron.compiler.ir import REGISTRY, Builder, Function, Pointer, Tile, parse_function
from deuteron.compiler.ir.types import F32, I32
from deuteron.compiler.targets.interpreter import run
from deuteron.compiler.tile import elementwise as e
from deuteron.compiler.tile import memory as m
from deuteron.compiler.tile import shape as s

ADD_ONE = """
func @add_one(%x: *f32, %at: *i32, %use: *i1) {
  %r = arange {start = 0, end = 8} : tile<8xi32>
  %as = splat %at {shape = [8]} : tile<8x*i32>
  %ap = addptr %as %r : tile<8x*i32>
  %i = load %ap : tile<8xi32>
  %us = splat %use {shape = [8]} : tile<8x*i1>
  %up = addptr %us %r : tile<8x*i1>
  %m = load %up : tile<8xi1>
  %xs = splat %x {shape = [8]} : tile<8x*f32>
  %p = addptr %xs %i : tile<8x*f32>
  %v = load %p mask=%m : tile<8xf32>
  %one = constant {value = 1.0, type = tile<8xf32>} : tile<8xf32>
  %w = add %v %one : tile<8xf32>
  store %p %w mask=%m
}
"""


@given(
    places=st.permutations(range(-20, 40)).map(lambda p: p[:8]),
    wanted=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_masked_lanes_never_touch_memory(places, wanted):
    """Canaries lie on both sides of the array; masked-off lanes point at them and beyond."""
    memory = np.arange(48, dtype=np.float32)
    expected, inside = memory.copy(), memory[16:32]
    mask = np.array(wanted) & np.array([0 <= p < 16 for p in places])
    run(parse_function(ADD_ONE), (1,), [inside, np.array(places, np.int32), mask])
    expected[16 + np.array(places)[mask]] += 1
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize(("place", "element"), [(16, 16), (-1, -1), (1 << 30, 1 << 30), (-(1 << 30), -(1 << 30))])
def test_outside_an_array(place, element):
    memory = np.zeros(48, np.float32)
    places = np.array([0, 1, 2, place, 4, 5, 6, 7], np.int32)
    function = parse_function(ADD_ONE)
    for line, op in enumerate(function.walk()):
        op.location = Location("kernel.py", line, 4)
    with pytest.raises(MemoryAccessError) as caught:
        run(function, (1,), [memory[16:32], places, np.ones(8, bool)])
    message = str(caught.value)
    assert f"element {element} of x (16 elements" in message
    assert "load at kernel.py:9:5 by program (0, 0, 0), tile index (3,)" in message
    assert not memory.any()


def test_below_address_zero():
    function = parse_function(
        """
func @f(%x: *i32, %n: i64) {
  %p = addptr %x %n : *i32
  store %p %v
}""".replace("  store", "  %v = constant {value = 1, type = i32} : i32\n  store")
    )
    x = np.zeros(4, np.int32)
    for distance in (
        1 << 50,
        1 << 60,
    ):  # the first stays above address 0 on some machines, the second never
        with pytest.raises(MemoryAccessError, match=f"element -{distance} of x"):
            run(function, (1,), [x, -distance])


def test_program_of_the_failure_is_named():
    function = parse_function("""
func @f(%x: *i32) {
  %i = program_id {axis = 1} : i32
  %p = addptr %x %i : *i32
  store %p %i
}""")
    with pytest.raises(MemoryAccessError, match=r"store by program \(0, 2, 0\), tile index \(\)"):
        run(function, (1, 3), [np.zeros(2, np.int32)])


def test_an_array_is_not_reached_through_its_neighbour():
    both = np.zeros(32, np.float32)
    x = both[:16]
    function = parse_function(ADD_ONE)
    function.add_parameter("y", Tile(Pointer(F32)))
    places = np.arange(12, 20, dtype=np.int32)
    with pytest.raises(MemoryAccessError, match="element 16 of x"):
        run(function, (1,), [x, places, np.ones(8, bool), both[16:]])


def test_read_only_arrays():
    x = np.zeros(16, np.float32)
    x.flags.writeable = False
    with pytest.raises(MemoryAccessError, match="of x .* is read-only"):
        run(parse_function(ADD_ONE), (1,), [x, np.arange(8, dtype=np.int32), np.ones(8, bool)])


def test_strided_arrays_are_used_in_place():
    base = np.zeros((8, 4), np.float32)
    places = 4 * np.arange(8, dtype=np.int32)
    run(parse_function(ADD_ONE), (1,), [base[:, 1], places, np.ones(8, bool)])
    np.testing.assert_array_equal(base, np.eye(4)[1] * np.ones((8, 1)))


@pytest.mark.parametrize(
    ("dtype", "poisoned"),
    [
        ("float32", np.nan),
        ("int32", 0xAAAAAAAA - (1 << 32)),
        ("uint8", 0xAA),
        (ml_dtypes.bfloat16, np.nan),
    ],
)
def test_undefined_elements(dtype, poisoned):
    data, mask, out = np.ones(4, dtype), np.array([1, 0, 1, 0], bool), np.zeros(4, dtype)
    function = masked_load(data.dtype)
    for poison, expected in ((False, 0), (True, poisoned)):
        run(function, (1,), [data, mask, out], poison=poison)
        np.testing.assert_array_equal(out.astype(np.float64), [1, expected, 1, expected])


def masked_load(dtype: np.dtype) -> Function:
    names = {"float32": "f32", "int32": "i32", "uint8": "u8", "bfloat16": "bf16"}
    return parse_function(
        """
func @f(%x: *T, %use: *i1, %out: *T) {
  %r = arange {start = 0, end = 4} : tile<4xi32>
  %us = splat %use {shape = [4]} : tile<4x*i1>
  %up = addptr %us %r : tile<4x*i1>
  %m = load %up : tile<4xi1>
  %xs = splat %x {shape = [4]} : tile<4x*T>
  %xp = addptr %xs %r : tile<4x*T>
  %v = load %xp mask=%m : tile<4xT>
  %os = splat %out {shape = [4]} : tile<4x*T>
  %op = addptr %os %r : tile<4x*T>
  store %op %v
}""".replace("T", names[dtype.name])
    )


GATHER = """
func @gather(%rows: **f32, %out: *f32) {
  %i = program_id {axis = 0} : i32
  %pp = addptr %rows %i : **f32
  %p = load %pp : *f32
  %r = arange {start = 0, end = 4} : tile<4xi32>
  %ps = splat %p {shape = [4]} : tile<4x*f32>
  %q = addptr %ps %r : tile<4x*f32>
  %v = load %q : tile<4xf32>
  %four = constant {value = 4, type = i32} : i32
  %o = mul %i %four : i32
  %os = addptr %out %o : *f32
  %ob = splat %os {shape = [4]} : tile<4x*f32>
  %op = addptr %ob %r : tile<4x*f32>
  store %op %v
}"""


@pytest.mark.parametrize("registered", [True, False])
def test_pointers_loaded_from_memory(registered):
    rows = [np.arange(4, dtype=np.float32) + 10 * i for i in range(3)]
    table = np.array([row.ctypes.data for row in rows], np.uint64)
    out = np.zeros((3, 4), np.float32)
    run(parse_function(GATHER), (3,), [table, out], buffers=rows if registered else ())
    np.testing.assert_array_equal(out, rows)


def test_pointers_to_unmapped_memory_are_refused():
    table = np.array([16], np.uint64)
    with pytest.raises(MemoryAccessError, match="address 0x10 is not mapped"):
        run(parse_function(GATHER), (1,), [table, np.zeros(4, np.float32)])


def test_pointers_to_read_only_memory_are_refused():
    libc = ctypes.CDLL(None)
    code = ctypes.cast(libc.malloc, ctypes.c_void_p).value
    function = parse_function("""
func @f(%address: i64) {
  %p = bitcast %address {to = type(*i64)} : *i64
  store %p %address
}""")
    with pytest.raises(MemoryAccessError, match="is not mapped"):
        run(function, (1,), [code])


def test_pointers_made_from_integers():
    x = np.array([41, 0], np.int64)
    function = parse_function("""
func @f(%address: i64) {
  %p = bitcast %address {to = type(*i64)} : *i64
  %one = constant {value = 1, type = i64} : i64
  %v = load %p : i64
  %w = add %v %one : i64
  %q = addptr %p %one : *i64
  store %q %w
}""")
    run(function, (1,), [x.ctypes.data])
    assert x.tolist() == [41, 42]


def test_pointer_arguments_may_be_addresses():
    x = np.zeros(4, np.int32)
    function = parse_function("func @f(%p: *i32) {\n  %v = constant {value = 5, type = i32} : i32\n  store %p %v\n}")
    run(function, (1,), [x.ctypes.data])
    assert x[0] == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([1.0], "takes 2 arguments (x, n), got 1"),
        ([np.zeros(4), 3], "argument 'x' has dtype float64, the kernel wants float32"),
        ([3.5, 3], "argument 'x' must be an array (*f32)"),
        ([np.zeros(4, np.float32), 2.5], "argument 'n' must be a number of type i32"),
        ([np.zeros(4, np.float32), 6], "argument 'n' = 6 is not a multiple of 4"),
        ([np.zeros(8, np.float32)[1:], 8], "is not a multiple of 16"),
    ],
)
def test_arguments_are_checked(arguments, message):
    function = parse_function("func @f(%x: *f32 {divisibility = 16}, %n: i32 {divisibility = 4}) {\n}")
    with pytest.raises(LaunchError) as caught:
        run(function, (1,), arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize("grid", [(), (1, 1, 1, 1), (-1,)])
def test_grid_is_checked(grid):
    with pytest.raises(LaunchError, match="one to three sizes"):
        run(Function("f"), grid, [])


def atomic(kind: str, element: str) -> Function:
    """Program and lanes all work on element 0; what lanes read goes to %old."""
    return parse_function(
        f"""
func @f(%x: *T, %v: *T, %old: *T) {{
  %r = arange {{start = 0, end = 4}} : tile<4xi32>
  %zero = constant {{value = 0, type = tile<4xi32>}} : tile<4xi32>
  %xs = splat %x {{shape = [4]}} : tile<4x*T>
  %xp = addptr %xs %zero : tile<4x*T>
  %vs = splat %v {{shape = [4]}} : tile<4x*T>
  %vp = addptr %vs %r : tile<4x*T>
  %w = load %vp : tile<4xT>
  %o = atomic_rmw %xp %w {{kind = "{kind}"}} : tile<4xT>
  %os = splat %old {{shape = [4]}} : tile<4x*T>
  %op = addptr %os %r : tile<4x*T>
  store %op %o
}}""".replace("T", element)
    )


@pytest.mark.parametrize(
    ("kind", "start", "seen", "end"),
    [
        ("add", 1, [1, 6, 9, 18], 20), ("max", 4, [4, 5, 5, 9], 9), ("min", 4, [4, 4, 3, 3], 2),
        ("and", 7, [7, 5, 1, 1], 0), ("or", 0, [0, 5, 7, 15], 15), ("xor", 0, [0, 5, 6, 15], 13),
        ("xchg", 8, [8, 5, 3, 9], 2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("element", ["i32", "u64", "f32", "bf16", "f16", "f64"])
def test_atomics(kind, start, seen, end, element):
    if element[0] in "bf" and kind in ("and", "or", "xor") or "16" in element and kind != "add":
        return  # there are no such atomics
    dtype = {"bf16": ml_dtypes.bfloat16, "i32": "int32", "u64": "uint64"}.get(element, f"float{element[1:]}")
    x, old = np.array([start], dtype), np.zeros(4, dtype)
    run(atomic(kind, element), (1,), [x, np.array([5, 3, 9, 2], dtype), old])
    assert old.astype(int).tolist() == seen
    assert int(x[0]) == end


def test_masked_atomics_touch_nothing(apply):
    def make(build, x, at, mask):
        address = build.emit(e.Bitcast(at, Pointer(I32))).result
        return build.emit(m.AtomicRMW(address, x, mask, "add")).result

    counters = np.zeros(4, np.int32)
    at = counters.ctypes.data + 4 * np.array([0, 1, 1 << 40, 1])
    (old,) = apply(make, np.array([1, 2, 3, 4], np.int32), at, np.array([1, 1, 0, 1], bool))
    assert counters.tolist() == [1, 6, 0, 0]
    assert old.tolist() == [0, 0, 0xAAAAAAAA - (1 << 32), 2]


@pytest.mark.parametrize("element", ["i32", "f32"])
def test_compare_and_swap(element):
    function = parse_function(
        """
func @f(%x: *T, %e: T, %v: T, %old: *T) {
  %o = atomic_cas %x %e %v : T
  store %old %o
}""".replace("T", element)
    )
    dtype = {"i32": np.int32, "f32": np.float32}[element]
    for expected, left in ((7, 9), (6, 7)):
        x, old = np.array([7], dtype), np.zeros(1, dtype)
        run(function, (1,), [x, dtype(expected), dtype(9), old])
        assert (x[0], old[0]) == (left, 7)


@pytest.mark.parametrize("kind", [m.Barrier, m.GridWait, m.LaunchDependents])
def test_nobody_waits_where_all_is_in_order(apply, kind):
    def make(build, x):
        build.emit(kind())
        return x

    assert apply(make, np.array([1, 2]))[0].tolist() == [1, 2]


def test_other_fills_masked_lanes():
    function, data = Function("f"), np.arange(4, dtype=np.float32)
    x, out = (function.add_parameter(n, Tile(Pointer(F32))) for n in ("x", "out"))
    build = Builder(function.body)
    index = build.emit(s.Arange(0, 4)).result
    mask = build.emit(e.Compare(index, build.emit(e.Constant(2, Tile(I32, (4,)))).result, "lt")).result
    other = build.emit(e.Constant(-1.5, Tile(F32, (4,)))).result
    pointers = [build.emit(e.AddPtr(build.emit(s.Splat(p, (4,))).result, index)).result for p in (x, out)]
    build.emit(m.Store(pointers[1], build.emit(m.Load(pointers[0], mask, other)).result))
    result = np.zeros(4, np.float32)
    run(function, (1,), [data, result], poison=True)
    assert result.tolist() == [0, 1, -1.5, -1.5]


def test_every_memory_operation_is_tested_here():
    tested = {m.Load, m.Store, m.AtomicRMW, m.AtomicCAS, m.Barrier, m.GridWait, m.LaunchDependents}
    assert tested == {op for op in REGISTRY.values() if op.__module__ == m.__name__}
