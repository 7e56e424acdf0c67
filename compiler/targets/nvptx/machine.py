"""How PTX spells what :class:`~..simt.SimtTarget` asks for: intrinsics of LLVM's NVPTX back end where they say all that
is needed, inline assembly elsewhere.

``ex2.approx`` and its like have no libdevice behind them, so a kernel needs no bitcode library. Accuracy: PTX ISA,
sections "div", "ex2", "sqrt", "rsqrt". LLVM's own ``atomicrmw`` drops ordering and scope on this target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import UnsupportedOp
from ...gpu.asynchronous import Roles, Wgmma
from ...gpu.ops import Mma
from ...ir.core import Op
from ...ir.rules import RuleSet
from ...ir.types import F8E4M3, F8E5M2, F16, Scalar
from ...llvm.text import float_constant
from ...target import Target
from ...tile.control import For
from ...tile.matmul import Dot
from ...tile.reduction import Reduce
from .. import simt
from ..simt.narrowing import narrow_pair_to_e5m2
from ..simt.registers import register_type
from .memory import CONSTRAINTS, PtxMemory

TRIPLE = "nvptx64-nvidia-cuda"

#: The shared rules and those of PTX's own operations (mma.py).
RULES: RuleSet[Callable[[simt.Lowering, Op], None]] = simt.RULES.extended("cuda")

_AXES = "xyz"
#: The barrier at which consumers meet; number 0 is that of all threads.
GROUP_BARRIER = 1
#: The first of two of sixteen (PTX ISA, "bar"): where a group waits for its turn.
TURN_BARRIER = 14
#: Threads of a CTA that registers are not saved for, so that more CTAs find room: where it loops; and where a loop
#: carries a tile on and reduces it, without products, as the state of a recurrence.
FEW_THREADS = 64
FEW_OF_RECURRENCES = 128
_EIGHT_BIT = {F8E4M3: "e4m3x2", F8E5M2: "e5m2x2"}
#: The first architecture with conversions from and to them.
_EIGHT_BIT_CAPABILITY = 89
_PRINT_BYTES = 64


def in_first_thread(state: simt.Lowering, statements: list[str], operands: list[tuple[str, str]], kinds: str) -> None:
    """Statements of the first thread alone, with a letter of ``kinds`` for each operand. One branch leads around all of
    them: of predicates ptxas would make one around each, with a fence of its own where they are about mbarriers."""
    test = state.text.op(f"icmp eq i32 {state.thread}, 0")
    text = "\n".join(["{", f"@!${len(operands)} bra PASSED_${{:uid}};", *statements, "PASSED_${:uid}:", "}"])
    state.text.asm([], text, ",".join([*kinds, "b", "~{memory}"]), [*operands, ("i1", test)])


def _recurs(loop: For) -> bool:
    """Whether a loop carries a tile of numbers on and reduces tiles, and nothing in it is a product of tiles."""
    carried = any(value.type.rank > 1 and not value.type.is_pointer for value in loop.inits)
    inside = list(loop.body.walk())
    reduces = any(isinstance(op, Reduce) for op in inside)
    return carried and reduces and not any(isinstance(op, Dot | Mma | Wgmma) for op in inside)


class PtxMachine(PtxMemory):
    """NVIDIA GPUs, for one architecture."""

    name = "cuda"
    triple = TRIPLE
    calling_convention = "ptx_kernel"
    rules = RULES

    def __init__(self, target: Target) -> None:
        self.target = target

    # Threads -------------------------------------------------------------------------------------------------

    def kernel_attributes(self, state: simt.Lowering) -> list[str]:
        """``.reqntid``; how many CTAs an SM shall hold at least, where that is known; and, where the schedule
        asks for it, ``.maxnreg``.

        Small CTAs that loop are told that one is enough: left alone, ptxas makes room for all the CTAs that an
        SM may hold, and puts loads off to where they are used, so that an iteration waits for memory more than
        once. Steps of fused_recurrent_comba of flash-linear-attention took three times as long
        (benchmarks/results/2026-11-26-h100-launches).
        """
        attributes = [f'"nvvm.reqntid"="{state.launched_threads}"']
        for op in state.source.body.ops:
            if isinstance(op, Roles) and op.resident_ctas:
                # The registers of a thread follow from it: a CTA's part of those that an SM has.
                attributes.append(f'"nvvm.minctasm"="{op.resident_ctas}"')
        loops = state.source.ops_of(For)
        few = FEW_OF_RECURRENCES if any(map(_recurs, loops)) else FEW_THREADS
        if loops and state.launched_threads <= few:
            attributes.append('"nvvm.minctasm"="1"')
        if state.schedule.maxnreg is not None:
            attributes.append(f'"nvvm.maxnreg"="{state.schedule.maxnreg}"')
        return attributes

    def hidden_parameters(self, state: simt.Lowering) -> list[str]:
        """TMA descriptors, in constant memory; the grid that the user asked for, where another one is launched."""
        recipe = state.source.recipe
        made = [f'ptr byval([128 x i8]) align 64 "nvvm.grid_constant" %d{i}' for i in range(len(recipe.descriptors))]
        return made + ([f"i32 %g{axis}" for axis in range(3)] if recipe.persistent else [])

    def begin(self, state: simt.Lowering) -> None:
        """Fetch the descriptors: the first copy that uses one would wait for it (PTX ISA, "prefetch"). A kernel that
        records begins to."""
        descriptors = [("ptr", f"%d{i}") for i in range(len(state.source.recipe.descriptors))]
        if descriptors:
            fetches = [f"prefetch.tensormap [${i}];" for i in range(len(descriptors))]
            in_first_thread(state, fetches, descriptors, "l" * len(descriptors))
        simt.begin_track(state)

    def end(self, state: simt.Lowering) -> None:
        """A kernel that records says how much."""
        simt.end_track(state)

    def thread_id(self, state: simt.Lowering) -> str:
        """``%tid.x``."""
        state.module.declare("llvm.nvvm.read.ptx.sreg.tid.x", "i32", [])
        return state.text.op(f"call range(i32 0, {state.launched_threads}) i32 @llvm.nvvm.read.ptx.sreg.tid.x()")

    def program_id(self, state: simt.Lowering, axis: int) -> str:
        """``%ctaid``."""
        return state.text.call("i32", f"llvm.nvvm.read.ptx.sreg.ctaid.{_AXES[axis]}", [])

    def num_programs(self, state: simt.Lowering, axis: int) -> str:
        """``%nctaid``."""
        return state.text.call("i32", f"llvm.nvvm.read.ptx.sreg.nctaid.{_AXES[axis]}", [])

    def barrier(self, state: simt.Lowering) -> None:
        """``barrier.cta.sync``; that of a group has a name of its own."""
        if state.group_threads is not None:
            state.text.asm([], f"bar.sync {GROUP_BARRIER}, {state.group_threads};", "~{memory}", [], convergent=True)
            return
        state.text.call("void", "llvm.nvvm.barrier.cta.sync.aligned.all", [("i32", "0")])

    def warp_barrier(self, state: simt.Lowering) -> None:
        """``bar.warp.sync`` of all lanes."""
        state.text.call("void", "llvm.nvvm.bar.warp.sync", [("i32", "-1")])

    def publish_shared(self, state: simt.Lowering) -> None:
        """A fence between the generic and the asynchronous proxy (PTX ISA, "membar, fence"), from sm_90 on."""
        if "tma" in self.target.features:
            state.text.asm([], "fence.proxy.async.shared::cta;", "~{memory}", [])

    def shuffle_xor(self, state: simt.Lowering, value: str, word: str, lane_xor: int) -> str:
        """``shfl.sync.bfly``."""
        return _shuffle(state, "bfly", value, word, str(lane_xor))

    def shuffle_from(self, state: simt.Lowering, value: str, word: str, lane: str) -> str:
        """``shfl.sync.idx``."""
        return _shuffle(state, "idx", value, word, lane)

    def reduce_warp(self, state: simt.Lowering, kind: str, value: str) -> str:
        """``redux.sync``, from sm_80 on."""
        return state.text.call("i32", f"llvm.nvvm.redux.sync.{kind}", [("i32", value), ("i32", "-1")])

    # Records: special registers, read in their place among accesses and asynchronous operations -----------------

    def clock(self, state: simt.Lowering, word: str) -> str:
        """``%clock64`` or ``%clock`` (PTX ISA, "Special Registers")."""
        text, kind = ("mov.u64 $0, %clock64;", "l") if word == "i64" else ("mov.u32 $0, %clock;", "r")
        return state.text.asm([word], text, f"={kind},~{{memory}}", [])[0]

    def timer(self, state: simt.Lowering) -> str:
        """``%globaltimer`` (PTX ISA, "Special Registers: %globaltimer"), which may tick once a microsecond or less."""
        return state.text.asm(["i64"], "mov.u64 $0, %globaltimer;", "=l,~{memory}", [])[0]

    def sm_number(self, state: simt.Lowering) -> str:
        """``%smid`` (PTX ISA, "Special Registers: %smid")."""
        return state.text.asm(["i32"], "mov.u32 $0, %smid;", "=r", [])[0]

    def load_words(self, state: simt.Lowering, address: str) -> list[str]:
        """``ld.global``."""
        return state.text.asm(["i64"] * 2, "ld.global.v2.b64 {$0, $1}, [$2];", "=l,=l,l", [("i64", address)])

    def store_words(self, state: simt.Lowering, address: str, word: str, values: Sequence[str], predicate: str) -> None:
        """A predicated ``st.global``; ``.cs``: lines that are stored once leave the caches first."""
        count, kind = len(values), "l" if word == "i64" else "r"
        stored = f"{{{', '.join(f'${n + 1}' for n in range(count))}}}" if count > 1 else "$1"
        template = f"@${count + 1} st.global.cs{f'.v{count}' if count > 1 else ''}.b{word[1:]} [$0], {stored};"
        operands = [("i64", address), *((word, value) for value in values), ("i1", predicate)]
        state.text.asm([], template, ",".join(["l", *kind * count, "b"]), operands)

    # Arithmetic ----------------------------------------------------------------------------------------------

    def divide_integers(self, state: simt.Lowering, kind: str, scalar: Scalar, x: str, y: str) -> str:
        """``div`` and ``rem``. PTX ISA leaves division by zero open; ptxas tests for it and sets all bits then, for all
        targets from sm_80 to sm_120."""
        instruction = f"{kind}.{'s' if scalar.is_signed else 'u'}32 $0, $1, $2;"
        return state.text.asm(["i32"], instruction, "=r,r,r", [("i32", x), ("i32", y)], effects=False)[0]

    def divide(self, state: simt.Lowering, x: str, y: str) -> str:
        """``div.full.f32``."""
        return state.text.call("float", "llvm.nvvm.div.full", [("float", x), ("float", y)])

    def divider(self, state: simt.Lowering, y: str) -> Callable[[str], str]:
        """``div.full.f32`` as ptxas writes it for sm_80 to sm_120: both sides are scaled so that the divisor and its
        inverse are normal numbers. It scales a dividend by two predicated products, by 1/4 and by 2^24, of which one at
        most takes place; by a factor that is 1 otherwise it is one, with the same result. The 64 quotients of an
        attention kernel took a tenth of ptxas' time."""
        text = state.text
        size = text.call("float", "llvm.fabs.f32", [("float", y)])
        large = text.op(f"fcmp ogt float {size}, {float_constant(2.0**126, 'float')}")
        small = text.op(f"fcmp olt float {size}, {float_constant(2.0**-126, 'float')}")
        factor = text.op(f"select i1 {large}, float {float_constant(0.25, 'float')}, float 1.0")
        factor = text.op(f"select i1 {small}, float {float_constant(2.0**24, 'float')}, float {factor}")
        inverse = self.reciprocal(state, text.op(f"fmul float {y}, {factor}"))
        return lambda x: text.op(f"fmul float {text.op(f'fmul float {x}, {factor}')}, {inverse}")

    def fma_down(self, state: simt.Lowering, x: str, y: str, z: str) -> str:
        """``fma.rm.f32``."""
        return state.text.call("float", "llvm.nvvm.fma.rm.f", [("float", x), ("float", y), ("float", z)])

    def exp2(self, state: simt.Lowering, x: str, *, flush: bool) -> str:
        """``ex2.approx.f32``; with ``.ftz``, one instruction instead of four, results under 2^-126 are zero."""
        return state.text.call("float", f"llvm.nvvm.ex2.approx{'.ftz' if flush else ''}.f", [("float", x)])

    def log2(self, state: simt.Lowering, x: str) -> str:
        """``lg2.approx.ftz.f32``."""
        return state.text.call("float", "llvm.nvvm.lg2.approx.ftz.f", [("float", x)])

    def reciprocal(self, state: simt.Lowering, x: str) -> str:
        """``rcp.approx.ftz.f32``, one instruction; without ``.ftz`` it is five."""
        return state.text.call("float", "llvm.nvvm.rcp.approx.ftz.f", [("float", x)])

    def sqrt(self, state: simt.Lowering, x: str, precise: bool) -> str:
        """``sqrt.rn.f32`` or ``sqrt.approx.f32``."""
        name = "llvm.nvvm.sqrt.rn.f" if precise else "llvm.nvvm.sqrt.approx.f"
        return state.text.call("float", name, [("float", x)])

    def rsqrt(self, state: simt.Lowering, x: str) -> str:
        """``rsqrt.approx.f32``."""
        return state.text.call("float", "llvm.nvvm.rsqrt.approx.f", [("float", x)])

    def round_towards_zero(self, state: simt.Lowering, x: str, source: Scalar, to: Scalar) -> str:
        """``cvt.rz``."""
        name = register_type(source)
        spelled = source.code if source.is_float else f"{'s' if source.is_signed else 'u'}{source.bits}"
        word = "i16" if to == F16 else "float"
        constraints = f"={CONSTRAINTS[word]},{CONSTRAINTS[name]}"
        made = state.text.asm([word], f"cvt.rz.{to.code}.{spelled} $0, $1;", constraints, [(name, x)], effects=False)[0]
        return state.text.op(f"bitcast i16 {made} to half") if to == F16 else made

    def widen_e4m3(self, state: simt.Lowering, pair: str) -> str:
        """``cvt.rn.f16x2.e4m3x2``, from sm_89 on."""
        self._require_eight_bit(F8E4M3)
        made = state.text.asm(["i32"], "cvt.rn.f16x2.e4m3x2 $0, $1;", "=r,h", [("i16", pair)], effects=False)[0]
        return state.text.op(f"bitcast i32 {made} to <2 x half>")

    def pick_bytes(self, state: simt.Lowering, low: str, high: str, places: int) -> str:
        """``prmt.b32``."""
        operands = [("i32", low), ("i32", high), ("i32", str(places))]
        return state.text.call("i32", "llvm.nvvm.prmt", operands)

    def narrow_to_eight_bit(self, state: simt.Lowering, low: str, high: str, to: Scalar) -> str:
        """``cvt.rn.satfinite``, from sm_89 on; it takes the upper one first. Before, f8e5m2 are made by integer
        arithmetic."""
        if to == F8E5M2 and self.target.capability < _EIGHT_BIT_CAPABILITY:
            return narrow_pair_to_e5m2(state, low, high)
        self._require_eight_bit(to)
        instruction = f"cvt.rn.satfinite.{_EIGHT_BIT[to]}.f32 $0, $1, $2;"
        operands = [("float", high), ("float", low)]
        return state.text.asm(["i16"], instruction, "=h,f,f", operands, effects=False)[0]

    def _require_eight_bit(self, scalar: Scalar) -> None:
        if self.target.capability < _EIGHT_BIT_CAPABILITY:
            raise UnsupportedOp(
                f"{self.target} has no conversions of {scalar.code}: they need sm_89 or newer",
                hint="keep the data in tl.float16 on this GPU",
            )

    # Debugging: the two functions that the CUDA driver provides ----------------------------------------------

    def print_line(self, state: simt.Lowering, template: str, fields: Sequence[tuple[str, str]]) -> None:
        """``vprintf``, which takes its arguments in a buffer."""
        text = state.text
        buffer = "%" + text.fresh("buffer")
        state.entry.append(f"  {buffer} = alloca [{_PRINT_BYTES} x i8], align 8")
        offset = 0
        for type, value in fields:
            size = 8 if type in ("i64", "double") else 4
            offset = -(-offset // size) * size
            place = text.op(f"getelementptr i8, ptr {buffer}, i32 {offset}")
            text.do(f"store {type} {value}, ptr {place}, align {size}")
            offset += size
        text.call("i32", "vprintf", [("ptr", state.module.string(template)), ("ptr", buffer)])

    def fail(self, state: simt.Lowering, message: str, file: str, line: int, function: str) -> None:
        """``__assertfail``."""
        place = [("ptr", file), ("i32", str(line)), ("ptr", function)]
        state.text.call("void", "__assertfail", [("ptr", message), *place, ("i64", "1")])


def _shuffle(state: simt.Lowering, mode: str, value: str, word: str, lane: str) -> str:
    kind = "f32" if word == "float" else "i32"
    operands = [("i32", "-1"), (word, value), ("i32", lane), ("i32", "31")]
    return state.text.call(word, f"llvm.nvvm.shfl.sync.{mode}.{kind}", operands)
