"""Loads, stores and atomics in PTX, predicated."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UnsupportedOp
from ...gpu.ops import VectorLoad, VectorStore, VectorUpdate
from ...ir.types import BF16, F16, Scalar
from ...layout import MatrixAccess
from ...target import Target
from ...tile.memory import AtomicCAS, AtomicRMW
from .. import simt
from ..simt.convert import from_integer, to_integer
from ..simt.registers import GLOBAL_POINTER, register_type
from ..simt.vectors import Words, pack

#: Inline assembly constraint of each LLVM type; others travel as integers of their width.
CONSTRAINTS = {"i16": "h", "i32": "r", "i64": "l", "float": "f", "double": "d", GLOBAL_POINTER: "l"}


class PtxMemory(simt.SimtTarget):
    """How NVIDIA GPUs reach memory."""

    target: Target

    def load_global(
        self,
        state: simt.Lowering,
        op: VectorLoad,
        words: Words,
        address: str,
        predicate: str | None,
        other: list[str] | None,
    ) -> list[str]:
        """A predicated ``ld.global``."""
        outputs = ", ".join(f"${i}" for i in range(words.count))
        place = f"{{{outputs}}}" if words.count > 1 else outputs
        space = ".volatile.global" if op.volatile else f".global{_modifiers(op)}"
        instruction = f"ld{space}{_suffix(words)} {place}, [${words.count}];"
        constraints = ",".join([f"={CONSTRAINTS[words.type]}"] * words.count) + ",l"
        operands = [(GLOBAL_POINTER, address)]
        if predicate is not None:
            # Outputs are tied to what they hold where the load does not happen.
            instruction = f"@${words.count + 1} {instruction}"
            constraints += ",b," + ",".join(map(str, range(words.count)))
            preset = pack(state, words, other) if other is not None else ["0"] * words.count
            operands.append(("i1", predicate))
            operands += [(words.type, _zero(words.type) if p == "0" else p) for p in preset]
        return state.text.asm([words.type] * words.count, instruction, constraints, operands)

    def store_global(
        self,
        state: simt.Lowering,
        op: VectorStore,
        words: Words,
        address: str,
        packed: list[str],
        predicate: str | None,
    ) -> None:
        """A predicated ``st.global``."""
        _hand_over(state, f"st.global{_modifiers(op)}{_suffix(words)}", words, address, packed, predicate)

    def store_shared(self, state: simt.Lowering, bits: int, value: str, address: str, predicate: str) -> None:
        """A predicated ``st.shared``."""
        target = state.text.op(f"ptrtoint ptr addrspace(3) {address} to i32")
        if bits == 8:  # of a register of 16 bits
            value = state.text.op(f"zext i8 {value} to i16")
        kind = f"i{max(bits, 16)}"
        state.text.asm(
            [],
            f"@$2 st.shared.b{bits} [$0], $1;",
            f"r,{CONSTRAINTS[kind]},b,~{{memory}}",
            [("i32", target), (kind, value), ("i1", predicate)],
        )

    def add_shared(self, state: simt.Lowering, value: str, address: str, predicate: str) -> None:
        """A predicated ``red.shared``."""
        target = state.text.op(f"ptrtoint ptr addrspace(3) {address} to i32")
        state.text.asm(
            [],
            "@$2 red.relaxed.cta.shared.add.u32 [$0], $1;",
            "r,r,b,~{memory}",
            [("i32", target), ("i32", value), ("i1", predicate)],
        )

    def load_matrices(self, state: simt.Lowering, read: MatrixAccess, address: str, offset: int) -> list[str]:
        """``ldmatrix``."""
        count = read.matrices
        outputs = ", ".join(f"${i}" for i in range(count))
        transposed = ".trans" if read.transposed else ""
        pointer = state.text.op(f"ptrtoint ptr addrspace(3) {address} to i32")
        return state.text.asm(
            ["i32"] * count,
            f"ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {{{outputs}}}, [${count} + {offset}];",
            ",".join(["=r"] * count) + ",r,~{memory}",
            [("i32", pointer)],
            convergent=True,
        )

    def store_matrices(
        self, state: simt.Lowering, write: MatrixAccess, address: str, offset: int, words: Sequence[str]
    ) -> None:
        """``stmatrix``, from sm_90 on."""
        count = write.matrices
        inputs = ", ".join(f"${1 + i}" for i in range(count))
        transposed = ".trans" if write.transposed else ""
        pointer = state.text.op(f"ptrtoint ptr addrspace(3) {address} to i32")
        state.text.asm(
            [],
            f"stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 [$0 + {offset}], {{{inputs}}};",
            ",".join(["r"] * (1 + count)) + ",~{memory}",
            [("i32", pointer), *(("i32", word) for word in words)],
            convergent=True,
        )

    def atomic(
        self,
        state: simt.Lowering,
        op: AtomicRMW,
        order: str,
        kind: str,
        elem: Scalar,
        address: str,
        value: str,
        predicate: str | None,
    ) -> str:
        """A predicated ``atom``; bf16 is added from sm_90 on."""
        self._require_addition(op)
        spelling, word = _atomic_spelling(kind, elem)
        travels = register_type(elem) == word
        operand = value if travels else to_integer(state, value, elem)
        result = _atom(state, op, order, spelling, word, address, [operand], predicate)
        return result if travels else from_integer(state, result, elem)

    def compare_and_swap(
        self,
        state: simt.Lowering,
        op: AtomicRMW | AtomicCAS,
        order: str,
        address: str,
        expected: str,
        value: str,
        predicate: str | None,
    ) -> str:
        """A predicated ``atom.cas``."""
        bits = op.value.type.elem.bits
        return _atom(state, op, order, f"cas.b{bits}", f"i{bits}", address, [expected, value], predicate)

    def update(
        self,
        state: simt.Lowering,
        op: VectorUpdate,
        words: Words,
        address: str,
        packed: list[str],
        predicate: str | None,
    ) -> None:
        """A predicated ``red``; bf16 is added from sm_90 on."""
        self._require_addition(op)
        opcode = f"red.relaxed.{op.scope}.global.{_update_spelling(op, words)}"
        _hand_over(state, opcode, words, address, packed, predicate)

    def _require_addition(self, op: AtomicRMW) -> None:
        if op.value.type.elem == BF16 and op.kind == "add" and self.target.capability < 90:
            raise UnsupportedOp(
                f"atomic_add of bf16 needs sm_90 or newer, the target is {self.target}",
                location=op.location,
                hint="add in f32",
            )

    def fence(self, state: simt.Lowering, scope: str) -> None:
        """``fence.acq_rel`` (PTX ISA, "membar / fence")."""
        state.text.asm([], f"fence.acq_rel.{scope};", "~{memory}", [])


def _modifiers(op: VectorLoad | VectorStore) -> str:
    """A cache operator or an eviction priority; they exclude each other."""
    if op.cache:
        return op.cache
    return f".L1::{op.eviction}" if op.eviction else ""


def _suffix(words: Words) -> str:
    """The end of a PTX ld or st: ``.v4.b32``."""
    bits = 8 * words.element.bytes
    if bits < 32:
        bits = min(32, words.vector * bits)
    return (f".v{words.count}" if words.count > 1 else "") + f".b{bits}"


def _zero(type: str) -> str:
    return "0.0" if type in ("float", "double") else "0"


def _atomic_spelling(kind: str, elem: Scalar) -> tuple[str, str]:
    """Operation and type of a PTX atom, and the LLVM type in which its operands travel."""
    bits = elem.bits
    if elem.is_float and kind == "add":
        return (f"add.noftz.{elem.code}", "i16") if elem in (F16, BF16) else (f"add.{elem.code}", register_type(elem))
    match kind:
        case "and" | "or" | "xor":
            return f"{kind}.b{bits}", f"i{bits}"
        case "xchg":
            return f"exch.b{bits}", f"i{bits}"
        case "add":
            return f"add.u{bits}", f"i{bits}"
        case _:
            return f"{kind}.{'s' if elem.is_signed else 'u'}{bits}", f"i{bits}"


def _hand_over(
    state: simt.Lowering, opcode: str, words: Words, address: str, packed: list[str], predicate: str | None
) -> None:
    """An instruction that gives words to memory and gets nothing back, where ``predicate`` (None: always) holds."""
    inputs = ", ".join(f"${i + 1}" for i in range(words.count))
    instruction = f"{opcode} [$0], {f'{{{inputs}}}' if words.count > 1 else inputs};"
    constraints = "l," + ",".join([CONSTRAINTS[words.type]] * words.count)
    operands = [(GLOBAL_POINTER, address), *((words.type, p) for p in packed)]
    if predicate is not None:
        instruction = f"@${words.count + 1} {instruction}"
        constraints += ",b"
        operands.append(("i1", predicate))
    state.text.asm([], instruction, constraints + ",~{memory}", operands)


def _update_spelling(op: VectorUpdate, words: Words) -> str:
    """Operation and type of a PTX red: a vector of words, which may be pairs of 16-bit floats."""
    elem = op.value.type.scalar
    spelling, _ = _atomic_spelling(op.kind, elem)
    if op.vector == 1:
        return spelling
    operation = spelling.removesuffix(f".{elem.code}")
    count = f".v{words.count}" if words.count > 1 else ""
    return f"{operation}{count}.{elem.code}" + ("x2" if words.per_word == 2 else "")


def _atom(
    state: simt.Lowering,
    op: AtomicRMW | AtomicCAS,
    semantics: str,
    spelling: str,
    word: str,
    address: str,
    operands: list[str],
    predicate: str | None,
) -> str:
    letter = CONSTRAINTS[word]
    inputs = ", ".join(f"${i + 2}" for i in range(len(operands)))
    # The order in which Triton writes them, which programs that read PTX know; the assembler takes any.
    order = (semantics, op.scope) if isinstance(op, AtomicCAS) else (op.scope, semantics)
    text = f"atom.global.{'.'.join(order)}.{spelling} $0, [$1], {inputs};"
    constraints = f"={letter},l" + f",{letter}" * len(operands)
    every = [(GLOBAL_POINTER, address), *((word, o) for o in operands)]
    if predicate is not None:
        text = f"@${len(operands) + 2} {text}"
        constraints += ",b,0"
        every += [("i1", predicate), (word, _zero(word))]
    return state.text.asm([word], text, constraints + ",~{memory}", every)[0]
