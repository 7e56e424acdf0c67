"""Which layouts the GPU stage chooses, and how few conversions it needs."""

from __future__ import annotations

import pytest

from deuteron.compiler.errors import IRError, OutOfResources
from deuteron.compiler.gpu import ConvertLayout, Mma, VectorLoad, VectorStore
from deuteron.compiler.gpu.layouts.coalesce import Access, reaches_sectors
from deuteron.compiler.gpu.layouts.fitting import fits
from deuteron.compiler.gpu.verify import verify_gpu
from deuteron.compiler.ir import Function, parse_function, print_function
from deuteron.compiler.layout import coalesced, contiguous_registers, mma_accumulator, slice_layout
from deuteron.compiler.options import Schedule
from deuteron.compiler.target import Target
from deuteron.compiler.targets.nvptx import lower_to_llvm
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.elementwise import Exp
from deuteron.compiler.tile.matmul import Dot
from deuteron.compiler.tile.reduction import Reduce


def _all(function: Function, kind: type) -> list:
    return [op for op in function.walk() if isinstance(op, kind)]


ADD = """
def add(x_ptr, y_ptr, o_ptr, n, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(o_ptr + offs, x + y, mask=mask)
"""


@pytest.mark.parametrize(
    "types, divisible, vector",
    [
        (("fp32", "fp32", "fp32"), True, 4),
        (("fp16", "fp16", "fp16"), True, 8),
        (("fp64", "fp64", "fp64"), True, 2),
        (("i8", "i8", "i8"), True, 16),
        (("fp32", "fp32", "fp32"), False, 1),
    ],
)
def test_accesses_are_16_bytes_wide_where_mask_and_alignment_allow(to_gpu, types, divisible, vector) -> None:
    signature = {f"{name}_ptr": f"*{type}:16" for name, type in zip("xyo", types, strict=True)}
    signature["n"] = "i32:16" if divisible else "i32"
    function = to_gpu(ADD, signature, {"N": 4096})
    accesses = _all(function, VectorLoad) + _all(function, VectorStore)
    assert [op.vector for op in accesses] == [vector] * 3


@pytest.mark.parametrize(
    "types, vector",
    [
        (("fp16", "fp32", "fp16"), 8),  # reads of parts of sectors find them in the cache
        (("fp16", "fp32", "fp32"), 4),  # writes of parts do not
        (("i8", "i8", "fp32"), 4),
        (("fp32", "fp32", "i8"), 16),
    ],
)
def test_mixed_widths_share_one_layout_that_writes_whole_sectors(to_gpu, types, vector) -> None:
    signature = {f"{name}_ptr": f"*{type}:16" for name, type in zip("xyo", types, strict=True)}
    function = to_gpu(
        ADD.replace("x + y", "(x + y).to(o_ptr.dtype.element_ty)"), signature | {"n": "i32:16"}, {"N": 4096}
    )
    assert not _all(function, ConvertLayout)
    layouts = {op.result.type.layout for op in _all(function, VectorLoad)}
    assert layouts == {coalesced((4096,), 4, vector)}


PLACES = """
def places(x_ptr, i_ptr, o_ptr, n, N: tl.constexpr, WHERE: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    if WHERE == "strided":
        tl.store(o_ptr + 2 * offs, x)
    elif WHERE == "data":
        tl.store(o_ptr + tl.load(i_ptr + offs), x)
    else:
        for _ in range(n):
            x += tl.load(x_ptr + offs)
        tl.store(o_ptr + 1 + offs, x)
"""


@pytest.mark.parametrize("where, vector", [("strided", 1), ("data", 8), ("behind a loop", 8)])
def test_stores_narrow_loads_that_are_as_often_where_neighbours_are_known(to_gpu, where, vector) -> None:
    signature = {"x_ptr": "*fp16:16", "i_ptr": "*i32:16", "o_ptr": "*fp16:16", "n": "i32"}
    function = to_gpu(PLACES, signature, {"N": 4096, "WHERE": where})
    vectors = {op.vector for op in _all(function, VectorLoad) if op.pointer.type.pointee.bytes == 2}
    assert vectors == {vector}


MAXIMA = """
def maxima(x_ptr, y_ptr, z_ptr, n, M: tl.constexpr, N: tl.constexpr):
    m = tl.arange(0, M)
    x = tl.load(x_ptr + m[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(y_ptr + m, tl.max(x, 1), mask=m < n)
    tl.store(z_ptr + tl.arange(0, N), tl.max(x, 0))
"""


def test_threads_that_hold_the_same_results_store_a_part_each(to_gpu) -> None:
    signature = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "z_ptr": "*fp32:16", "n": "i32"}
    function = to_gpu(MAXIMA, signature, {"M": 128, "N": 128})
    rows, columns = (op.pointer.type.layout for op in _all(function, VectorStore))
    assert rows.registers == 1  # 32 lanes held each of them
    assert len(set(columns.register_offsets())) == 4  # warps hold copies of what is one vector
    assert len(_all(function, ConvertLayout)) == 1


SUMS = """
def sums(x_ptr, y_ptr, rows, columns, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + m[:, None] * rows + n[None, :] * columns)
    tl.store(y_ptr + m, tl.sum(x, 1))
"""


@pytest.mark.parametrize(
    ("rows", "columns", "m", "n", "crossing"),
    [
        # Rows contiguous: lanes follow them for coalescing, warps share out the rows, so nothing crosses warps...
        ("i32:16", "i32:1", 128, 128, (5, 0)),
        ("i32:16", "i32:1", 2, 1024, (5, 1)),  # ... unless there are fewer rows than warps.
        # Neighbours along no axis: every thread has rows of its own.
        ("i32:16", "i32:16", 128, 128, (0, 0)),
        ("i32:16", "i32:16", 64, 64, (0, 1)),
        # Columns contiguous: lanes with vectors of them leave none for warps.
        ("i32:1", "i32:16", 128, 128, (0, 2)),
    ],
)
def test_threads_share_out_what_is_not_reduced(to_gpu, rows, columns, m, n, crossing) -> None:
    signature = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "rows": rows, "columns": columns}
    function = to_gpu(SUMS, signature, {"M": m, "N": n})
    (reduce,) = _all(function, Reduce)
    layout = reduce.inputs[0].type.layout
    assert tuple(sum(bool(basis[1]) for basis in bits) for bits in (layout.lane, layout.warp)) == crossing


def test_misaligned_pointers_are_read_by_element(to_gpu) -> None:
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32:16", "o_ptr": "*fp32:16", "n": "i32:16"}
    function = to_gpu(ADD, signature, {"N": 4096})
    assert [op.vector for op in _all(function, VectorLoad)] == [1, 4]


TRANSPOSE = """
def transpose(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + i[None, :])
    tl.store(y_ptr + i[:, None] + i[None, :] * N, x)
"""


def test_transposed_store_converts_once_so_that_both_sides_are_coalesced(to_gpu) -> None:
    function = to_gpu(TRANSPOSE, {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}, {"N": 64})
    (load,), (store,) = _all(function, VectorLoad), _all(function, VectorStore)
    assert (load.vector, load.axis, store.vector, store.axis) == (4, 1, 4, 0)
    assert len(_all(function, ConvertLayout)) == 1


DEQUANTISED = """
def dequantised(a_ptr, b_ptr, o_ptr, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    sums = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + start + k[None, :])
        b = tl.load(b_ptr + n[None, :] * K + start + k[:, None]) if TRANSPOSED else tl.load(
            b_ptr + (start + k)[:, None] * N + n[None, :]
        )
        sums = tl.dot(a, b.to(tl.float16), sums)
    tl.store(o_ptr + m[:, None] * N + n[None, :], sums)
"""


TRANSPOSED = """
def k(x_ptr, s_ptr, y_ptr, n, m, B: tl.constexpr):
    i, j = tl.arange(0, B), tl.arange(0, B)
    x = tl.load(x_ptr + i[:, None] * n + j[None, :]).trans(1, 0)
    {more}
    tl.store(y_ptr + j[:, None] * m + i[None, :], x)
"""


@pytest.mark.parametrize("kind, vector", [("fp16", 8), ("fp8e5", 16), ("fp32", 4)])
@pytest.mark.parametrize("more", ["x *= 2", "x = x * tl.load(s_ptr + i[None, :])", "x = tl.exp(x.to(tl.float32))"])
def test_what_is_computed_from_a_transposed_tile_is_stored_in_whole_sectors(to_gpu, more, kind, vector) -> None:
    types = {"x_ptr": "*fp16:16", "s_ptr": "*fp16:16", "y_ptr": f"*{kind}:16", "n": "i32:16", "m": "i32:16"}
    made = to_gpu(TRANSPOSED.format(more=more), types, {"B": 128})
    (store,) = [op for op in made.walk() if op.mnemonic == "gpu.store"]
    load = next(op for op in made.walk() if op.mnemonic == "gpu.load")
    assert (store.vector, store.axis, load.vector, load.axis) == (vector, 1, 8, 1)


@pytest.mark.parametrize("transposed", [False, True])
def test_what_is_computed_from_a_slot_is_read_in_vectors_of_its_neighbours(to_gpu, transposed: bool) -> None:
    signature = {"a_ptr": "*fp16:16", "b_ptr": "*i8:16", "o_ptr": "*fp32:16", "K": "i32:16"}
    text = DEQUANTISED.replace("TRANSPOSED", str(transposed))
    function = to_gpu(text, signature, {"M": 16, "N": 64, "BK": 64})
    reads = [op for op in _all(function, ConvertLayout) if op.x.type.shared and op.x.type.elem.bits == 8]
    assert [contiguous_registers(op.to.layout, 1 - transposed) for op in reads] == [16]


COMPUTED = """
def computed(y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.exp((i[:, None] * N + i[None, :]).to(tl.float32))
    tl.store(y_ptr + i[:, None] + i[None, :] * N, x)
"""


def test_what_is_only_stored_is_computed_where_its_store_wants_it(to_gpu) -> None:
    """The columns are contiguous in memory, so the exponential is computed four elements of a column at a time."""
    function = to_gpu(COMPUTED, {"y_ptr": "*fp32:16"}, {"N": 64})
    (store,) = _all(function, VectorStore)
    assert (store.vector, store.axis) == (4, 0)
    assert not _all(function, ConvertLayout)
    (exponential,) = [op for op in function.walk() if isinstance(op, Exp)]
    assert exponential.result.type.layout == coalesced((64, 64), 4, 4, (0, 1))


def test_a_load_and_a_store_that_want_different_axes_follow_the_load(to_gpu) -> None:
    function = to_gpu(TRANSPOSE, {"x_ptr": "*fp32:16", "y_ptr": "*fp32"}, {"N": 64})
    (load,) = _all(function, VectorLoad)
    assert (load.vector, load.axis) == (4, 1)
    assert load.result.type.layout == coalesced((64, 64), 4, 4)


def test_a_wide_store_widens_the_layout_of_a_narrow_load(to_gpu) -> None:
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32:16", "o_ptr": "*fp32:16", "n": "i32:16"}
    text = ADD.replace("tl.load(y_ptr + offs, mask=mask)", "1.0")
    function = to_gpu(text, signature, {"N": 4096})
    assert [op.vector for op in _all(function, VectorLoad) + _all(function, VectorStore)] == [1, 4]
    assert not _all(function, ConvertLayout)


SOFTMAX_ROWS = """
def softmax_rows(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr):
    offs = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + offs)
    x = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(y_ptr + offs, x / tl.sum(x, 1)[:, None])
"""


PREFIXES = """
def prefixes(x_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    made = tl.cumsum(tl.load(x_ptr + m[:, None] * N + n), axis=0)
    tl.store(o_ptr + m[:, None] * N + n, made{more})
"""


@pytest.mark.parametrize(
    "dtype, columns, warps, moved",
    [
        ("fp32", 32, 8, True),  # lanes scan, and a warp has 16 bytes of each row
        ("fp32", 32, 4, False),  # 32 of them
        ("fp32", 32, 1, False),
        ("fp16", 32, 8, True),
        ("fp64", 32, 8, True),
    ],
)
@pytest.mark.parametrize("more", ["", " * 2"])
def test_results_of_scans_are_stored_in_whole_sectors(to_gpu, dtype, columns, warps, moved, more) -> None:
    signature = dict.fromkeys(("x_ptr", "o_ptr"), f"*{dtype}:16")
    function = to_gpu(PREFIXES.replace("{more}", more), signature, {"M": 64, "N": columns}, warps)
    (store,) = _all(function, VectorStore)
    (load,) = _all(function, VectorLoad)
    assert (store.value.type.layout == load.result.type.layout) is moved
    assert store.vector == load.vector


UNPACKED = """
def unpacked(x_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr, TIMES: tl.constexpr):
    m, n = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    made = tl.load(x_ptr + m * N + n)
    for _ in tl.static_range(TIMES):
        made = tl.interleave(made, made >> 4)
    wide: tl.constexpr = N << TIMES
    tl.store(o_ptr + m * wide + tl.arange(0, wide)[None, :], (made & 15).to(tl.float16))
"""


@pytest.mark.parametrize(("times", "moved"), [(1, False), (3, True)])
def test_what_is_interleaved_is_stored_in_whole_sectors(to_gpu, times: int, moved: bool) -> None:
    """A thread that reads 16 bytes of packed numbers has 64 of unpacked ones, of which an instruction stores 16."""
    signature = {"x_ptr": "*i32:16", "o_ptr": "*fp16:16"}
    function = to_gpu(UNPACKED, signature, {"M": 32, "N": 32, "TIMES": times}, 4)
    (store,) = _all(function, VectorStore)
    assert store.vector == 8
    assert reaches_sectors(store.value.type.layout, Access((1, 0), 8), 2)
    shared = [op for op in _all(function, ConvertLayout) if op.result.type.elem.bits == 16]
    assert bool(shared) == moved


def test_reduced_rows_are_broadcast_back_without_conversion(to_gpu) -> None:
    function = to_gpu(SOFTMAX_ROWS, {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}, {"M": 16, "N": 256})
    assert not _all(function, ConvertLayout)
    for reduce in _all(function, Reduce):
        layout = reduce.inputs[0].type.layout
        assert reduce.results[0].type.layout == slice_layout(layout, 1)


MATMUL = """
def matmul(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    a_ptrs = a_ptr + m[:, None] * K + k[None, :]
    b_ptrs = b_ptr + k[:, None] * N + n[None, :]
    acc = tl.zeros((M, N), dtype=tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc, input_precision=P)
        a_ptrs += BK
        b_ptrs += BK * N
    tl.store(c_ptr + m[:, None] * N + n[None, :], tl.maximum(acc, 0.0))
"""
SIGNATURE = {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "c_ptr": "*fp32:16", "K": "i32:16"}


def test_loops_carry_the_accumulators_and_the_loads_layouts(to_gpu) -> None:
    function = to_gpu(MATMUL, SIGNATURE, {"M": 64, "N": 64, "BK": 32, "P": "tf32"}, target="cuda:80", num_stages=1)
    (loop,), (mma,), loads = _all(function, For), _all(function, Mma), _all(function, VectorLoad)
    assert mma.instruction == "m16n8k16"
    assert mma.result.type.layout == mma_accumulator((64, 64), (2, 2))
    carried = {v.type.elem: v.type.layout for v in loop.results}
    assert carried.pop(mma.result.type.elem) == mma.result.type.layout
    assert [v.type.layout for v in loop.results if v.type.is_pointer] == [op.pointer.type.layout for op in loads]
    assert [op.vector for op in loads] == [8, 8]
    # Both operands, and the result on its way out. No pointer is ever converted.
    converted = [op.x.type.is_pointer for op in _all(function, ConvertLayout)]
    assert converted == [False, False, False]


@pytest.mark.parametrize(
    "dtype, precision, target, expected",
    [
        ("fp16", "tf32", "cuda:80", "m16n8k16"),
        ("bf16", "tf32", "cuda:120", "m16n8k16"),
        ("fp32", "tf32", "cuda:80", "m16n8k8"),
        ("fp32", "ieee", "cuda:90a", None),
        ("fp64", "ieee", "cuda:80", "m8n8k4"),
        ("fp64", "tf32", "cuda:89", "m8n8k4"),
        ("fp64", "tf32x3", "cuda:90a", "m16n8k16"),
        ("fp64", "ieee", "cuda:120", "m16n8k16"),
    ],
)
def test_instruction_follows_type_and_precision(to_gpu, dtype, precision, target, expected) -> None:
    signature = {**SIGNATURE, "a_ptr": f"*{dtype}:16", "b_ptr": f"*{dtype}:16"}
    constexprs = {"M": 64, "N": 64, "BK": 32, "P": precision}
    text = MATMUL.replace("tl.float32", "tl.float64") if dtype == "fp64" else MATMUL
    function = to_gpu(text, signature, constexprs, target=target)
    assert [op.instruction for op in _all(function, Mma)] == ([expected] if expected else [])
    assert len(_all(function, Dot)) == (expected is None)


def test_gpu_text_reads_back(to_gpu) -> None:
    function = to_gpu(MATMUL, SIGNATURE, {"M": 64, "N": 64, "BK": 32, "P": "tf32"})
    again = verify_gpu(parse_function(print_function(function)))
    assert print_function(again) == print_function(function)


def test_verifier_names_layouts_that_do_not_fit(to_gpu) -> None:
    function = to_gpu(SOFTMAX_ROWS, {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}, {"M": 16, "N": 256})
    reduce = _all(function, Reduce)[0]
    reduce.results[0].type = reduce.results[0].type.with_layout(coalesced((16,), 4))
    with pytest.raises(IRError, match="the layouts do not fit together"):
        verify_gpu(function)


def test_what_has_no_rule_is_refused(to_gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """By verification and by the back end, in words: forgotten rules let wrong layouts pass and were KeyErrors."""
    function = to_gpu(SOFTMAX_ROWS, {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}, {"M": 1, "N": 4096})
    monkeypatch.delitem(fits.rules, Reduce)
    with pytest.raises(IRError, match="<reduce .*: no rule says how its layouts fit together"):
        verify_gpu(function)
    reduce = _all(function, Reduce)[0]
    del function.allocation.places[reduce]
    with pytest.raises(IRError, match="<reduce .* has no shared memory: gpu/memory/scratch.py says"):
        lower_to_llvm(function, Target.parse("cuda:90a"), Schedule())


def test_too_much_scratch_is_out_of_resources(to_gpu) -> None:
    constexprs = {"M": 256, "N": 256, "BK": 512, "P": "tf32"}
    with pytest.raises(OutOfResources, match="shared memory, Required: 262144") as caught:
        to_gpu(MATMUL, SIGNATURE, constexprs, warps=8, target="cuda:80")
    assert caught.value.limit == 163 * 1024


PIXELS = """
def pixels(x_ptr, o_ptr, W, N, ROWS: tl.constexpr, C: tl.constexpr):
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, C)[None, :]
    at = (place // W * N + place % W * 2)[:, None]
    tl.store(o_ptr + place[:, None] * W + c * N, tl.load(x_ptr + at + c * N))
"""


def test_lanes_are_along_the_axis_where_neighbours_mostly_are_near(to_gpu) -> None:
    """Rows that wrap promise no neighbours, but most of them are; channels lie a size apart that nobody knows."""
    signature = {"x_ptr": "*fp16:16", "o_ptr": "*fp16:16", "W": "i32", "N": "i32"}
    made = to_gpu(PIXELS, signature, {"ROWS": 64, "C": 32})
    (load,) = _all(made, VectorLoad)
    assert [basis[0] for basis in load.result.type.layout.lane] == [1, 2, 4, 8, 16]


PACKED = """
def packed(b_ptr, o_ptr, N, K: tl.constexpr, COLUMNS: tl.constexpr):
    k = tl.arange(0, K)[:, None]
    n = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS))[None, :] % N
    word = tl.load(b_ptr + k // 8 * N + n)
    tl.store(o_ptr + k * N + n, (word >> k % 8 * 4) & 15)
"""


def test_lanes_are_along_neighbours_rather_than_along_copies_of_one(to_gpu) -> None:
    """Eight numbers of a word: lanes that lie along them would all hold every column."""
    made = to_gpu(PACKED, {"b_ptr": "*i32:16", "o_ptr": "*i32:16", "N": "i32"}, {"K": 64, "COLUMNS": 64})
    (load,) = _all(made, VectorLoad)
    assert [basis[1] for basis in load.result.type.layout.lane] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("turned", [False, True])
def test_lanes_are_not_along_what_is_sure_to_be_one_number(to_gpu, turned) -> None:
    """A thread reads the scale of a group once, however many of its elements that is for."""
    text = """
def scales(s_ptr, o_ptr, N, TURN: tl.constexpr):
    k, n = tl.arange(0, 64), tl.arange(0, 64)
    if TURN:
        tl.store(o_ptr + k[:, None] % 2 + n[None, :] % 2, tl.load(s_ptr + k[:, None] // 64 + n[None, :] * N))
    else:
        tl.store(o_ptr + k[None, :] % 2 + n[:, None] % 2, tl.load(s_ptr + k[None, :] // 64 + n[:, None] * N))
"""
    made = to_gpu(text, {"s_ptr": "*fp32:16", "o_ptr": "*fp32:16", "N": "i32"}, {"TURN": turned})
    (load,) = _all(made, VectorLoad)
    assert [basis[int(turned)] for basis in load.result.type.layout.lane] == [1, 2, 4, 8, 16]
