"""Matrix products of warp groups: ``wgmma.mma_async`` (PTX ISA, "Asynchronous warpgroup level matrix instructions")."""

from __future__ import annotations

from ...errors import UnsupportedOp
from ...gpu.asynchronous import SharedView, Wgmma
from ...gpu.tensorcore import WGMMA_DEPTH_BYTES
from ...ir.core import Value
from ...layout import LinearLayout, MatrixDescriptor, matrix_descriptor
from ..simt.lowering import Lowering, rule
from ..simt.vectors import packed_words
from .machine import RULES
from .mma import PTX_NAMES
from .uniform import uniform_warp_bits

#: Warp bits inside a group.
_GROUP_BITS = 2
#: Words of A that one instruction takes from registers.
_A_WORDS = 4


@rule(SharedView, RULES)
def _view(state: Lowering, op: SharedView) -> None:
    state.places[op.result] = state.places[op.x]


@rule(Wgmma, RULES)
def _wgmma(state: Lowering, op: Wgmma) -> None:
    layout = op.acc.type.layout
    if layout is None:
        raise UnsupportedOp("gpu.wgmma needs an accumulator with a layout", location=op.location)
    size = op.a.type.elem.bytes
    step = WGMMA_DEPTH_BYTES // size
    steps = op.a.type.shape[1] // step
    acc = state.values[op.acc].force()
    held = op.columns // 2  # registers of one instruction: 64 rows of 128 threads
    coordinates = layout.register_coordinates()
    b = _Operand(state, op.b, 0, [basis[1] for basis in layout.warp])
    a: _Operand | _Fragments = (
        _Operand(state, op.a, 1, [basis[0] for basis in layout.warp])
        if op.a.type.shared is not None
        else _Fragments(state, op.a, steps)
    )
    products = []
    for place in range(0, len(acc), held):
        row, column = coordinates[place]
        products += [(place, [*a(row, k * step), *b(column, k * step)]) for k in range(steps)]
    state.define(op.result, _products(state, op, step, products, acc, (a, b)))


class _Operand:
    """An operand in shared memory: descriptors of its parts."""

    def __init__(self, state: Lowering, value: Value, k_axis: int, warp: list[int]) -> None:
        shared = value.type.shared
        form = matrix_descriptor(shared, k_axis, value.type.elem.bits) if shared is not None else None
        if form is None:
            raise UnsupportedOp("wgmma cannot read this layout of shared memory")
        self.state = state
        self.form: MatrixDescriptor = form
        #: Whether K is not the contiguous axis (imm-trans).
        self.transposed = not form.k_major
        groups = [0] * _GROUP_BITS + [form.offset(outer, 0) for outer in warp[_GROUP_BITS:]]
        first = state.plus(state.places[value], uniform_warp_bits(state, groups))
        self.base = self._descriptor(first)

    def _descriptor(self, offset: str) -> str:
        text = self.state.text
        address = text.op(f"ptrtoint ptr addrspace(3) {self.state.shared(offset)} to i32")
        chunk = text.op(f"and i32 {text.op(f'lshr i32 {address}, 4')}, 16383")
        return text.op(f"or disjoint i64 {text.op(f'zext i32 {chunk} to i64')}, {_signed(self.form.bits)}")

    def __call__(self, outer: int, k: int) -> list[tuple[str, str]]:
        """The operand of the instruction for the part that begins at row ``outer`` and depth ``k``."""
        offset = self.form.offset(outer, k) >> 4
        return [("i64", self.state.text.op(f"add i64 {self.base}, {offset}") if offset else self.base)]


class _Fragments:
    """Operand A in registers."""

    transposed = False

    def __init__(self, state: Lowering, value: Value, steps: int) -> None:
        registers = state.values[value]
        per_word = 4 // value.type.elem.bytes
        if per_word == 1:
            floats = registers.force()
            self.words = [state.text.op(f"bitcast float {v} to i32") for v in floats]
        else:
            starts = range(0, len(registers), per_word)
            self.words = [packed_words(state, value, range(i, i + per_word))[0] for i in starts]
        layout = value.type.layout
        self.steps = steps
        self.depth = value.type.shape[1] // steps
        self.rows = _rows(layout) if layout is not None else 1

    def __call__(self, outer: int, k: int) -> list[tuple[str, str]]:
        """Four words for the 64 rows of the group from ``outer`` on, at depth ``k``."""
        first = _A_WORDS * (outer // self.rows * self.steps + k // self.depth)
        return [("i32", word) for word in self.words[first : first + _A_WORDS]]


def _rows(layout: LinearLayout) -> int:
    """Rows that all warps cover before registers repeat."""
    return 16 << sum(bool(basis[0]) for basis in layout.warp)


def _products(
    state: Lowering,
    op: Wgmma,
    depth: int,
    products: list[tuple[int, list[tuple[str, str]]]],
    acc: list[str],
    operands: tuple[_Operand | _Fragments, _Operand],
) -> list[str]:
    """One instruction for each product (its first accumulator, its inputs), from the fence to the wait in one piece of
    assembly: LLVM must neither compute an input behind the fence nor read a sum before the wait, and what it takes for
    a piece grows with the accumulators that go through it."""
    kind = PTX_NAMES[op.a.type.scalar]
    floating = op.acc.type.is_float
    word, letter, name = ("float", "f", "f32") if floating else ("i32", "r", "s32")
    # scale-d, then for floats the signs of A and B, then for 16-bit elements what is transposed.
    immediates = ["1", *(["1", "1"] if floating else [])]
    if op.a.type.elem.bits == 16:
        immediates += [str(int(side.transposed)) for side in operands if isinstance(side, _Operand)]
    passed: dict[tuple[str, str], str] = {}
    lines = ["wgmma.fence.sync.aligned;"]
    for place, inputs in products:
        sums = ", ".join(f"${place + i}" for i in range(op.columns // 2))
        *words, right = (passed.setdefault(x, f"${len(acc) + len(passed)}") for x in inputs)
        left = words[0] if len(words) == 1 else "{" + ", ".join(words) + "}"
        lines.append(
            f"wgmma.mma_async.sync.aligned.m64n{op.columns}k{depth}.{name}.{kind}.{kind} "
            f"{{{sums}}}, {left}, {right}, {', '.join(immediates)};"
        )
    lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    letters = {"i64": "l", "i32": "r"}
    constraints = [f"={letter}"] * len(acc) + [letters[t] for t, _ in passed] + [str(i) for i in range(len(acc))]
    return state.text.asm(
        [word] * len(acc),
        "\n".join(lines),
        ",".join(constraints) + ",~{memory}",
        [*passed, *((word, v) for v in acc)],
        convergent=True,
    )


def _signed(bits: int) -> int:
    """64 bits as LLVM writes an i64."""
    return bits - (1 << 64) if bits >> 63 else bits
