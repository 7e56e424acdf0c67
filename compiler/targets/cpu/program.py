"""A function as an LLVM module with one entry point, and the statements that say where a program stands.

Entry point: ``void name(ptr arguments, i64 first, i64 last, ptr grid, ptr scratch, ptr status)``. It runs programs
first..last-1 of a grid of three i32 sizes (axis 0 fastest). ``arguments`` holds one 8-byte slot for each parameter,
``scratch`` is 64-byte aligned and used by one thread, ``status`` is described in :mod:`.debug`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ...errors import TargetError
from ...ir.core import Function
from ...llvm import driver
from ...llvm.symbols import symbol_of
from ...llvm.text import FunctionText, ModuleText, bytes_constant
from ...llvm.typed import Typed, constant
from ...options import Schedule
from ...tile import program
from ...tile.elementwise import Constant
from .chunk import Uniform, llvm_element, memory_element, power_of_two_divisor
from .constants import constant_value
from .lower import CpuLowering
from .plan import make_plan
from .prepare import prepare
from .processor import Processor, host_processor
from .program_order import run
from .records import begin_track, emit_clock, end_track
from .rule_sets import statements

INFO_SYMBOL = "deuteron_info"
#: Characters of LLVM text beyond which code is optimised briefly: unrolled networks, not products or attention. One of
#: 2.5 million took 13 s of a core with all passes, 3 s with brief ones, and ran as fast; one of 290,000 took 1.9 s and
#: 0.3 s, and ran in 18.7 and 20.5 us. Of 389 kernels of public operators the longest has 470,000.
LONG_TEXT = 500_000


@dataclass(frozen=True, slots=True)
class CpuProgram:
    """LLVM text for the CPU. ``scratch_bytes`` are needed by each thread."""

    llvm: str
    name: str
    scratch_bytes: int


def lower_to_llvm(function: Function, schedule: Schedule, processor: Processor | None = None) -> CpuProgram:
    """Lower tile IR for this computer's processor, or for less of it: what ``processor`` says.

    Raises:
        UnsupportedOp: an operation has no rule on the CPU.
        TargetError: the processor lacks what generated code relies on.
    """
    machine = driver.host_machine()
    if machine.triple.startswith(("x86_64", "i686")) and not driver.host_has("f16c"):
        raise TargetError(
            "the cpu target needs an x86 processor with AVX2 and F16C",
            hint="run this kernel on the interpreter",
        )
    processor = processor or host_processor()
    function = prepare(function, processor)
    module = ModuleText(machine.triple, driver.data_layout(machine))
    parameters = (
        "ptr noalias readonly %arguments, i64 %first, i64 %last, ptr noalias readonly %grid,"
        " ptr noalias align 64 %scratch, ptr noalias %status"
    )
    text = FunctionText(module, f"define void @{symbol_of(function.name)}({parameters}) nounwind")
    low = CpuLowering(module, text, make_plan(function), schedule, processor)
    _emit_entry(low, function)
    _emit_info(low)
    if low.track is not None:
        emit_clock(module)
    return CpuProgram(str(module), function.name, low.arena.size)


def emit_object(program: CpuProgram) -> bytes:
    """Machine code for this computer, as an object file."""
    return driver.compile_text(program.llvm, driver.host_machine(), "object", brief=_is_long(program))


def emit_assembly(program: CpuProgram) -> str:
    """Assembly for this computer."""
    return driver.compile_text(program.llvm, driver.host_machine(), "assembly", brief=_is_long(program)).decode()


def _is_long(program: CpuProgram) -> bool:
    """Whether all of LLVM's passes would take longer than what they save: unrolled networks of millions of characters
    are straight code, most of which runs once."""
    return len(program.llvm) > LONG_TEXT


def _emit_entry(low: CpuLowering, function: Function) -> None:
    """Read the arguments, then loop over the programs."""
    e, blocks = low.e, low.blocks
    for index, parameter in enumerate(function.parameters):
        slot = e.offset(Typed("ptr", "%arguments"), Typed("i64", str(8 * index)), "i8")
        elem = parameter.value.type.elem
        value = e.load(memory_element(elem), slot, 8)
        if llvm_element(elem) == "i1":
            value = e.compare("ne", value, constant("i8", 0))
        divisor = power_of_two_divisor(parameter.divisibility)
        low.scalars[parameter.value] = Uniform(value, 0, None, divisor)
    low.live.define(p.value for p in function.parameters)
    grid = Typed("ptr", "%grid")
    for axis in range(3):
        place = e.offset(grid, Typed("i64", str(4 * axis)), "i8")
        low.grid.append(e.load("i32", place, 4))
    some = e.compare("slt", Typed("i64", "%first"), Typed("i64", "%last"))
    before = blocks.here
    head, done = blocks.new("program"), blocks.new("exit")
    blocks.branch(some, head, done)
    blocks.enter(head)
    low.program = blocks.fresh("i64", "program")
    low.program_ids = _program_ids(low)
    low.track = begin_track(low, function)
    run(low, function.body)
    end_track(low)
    following = e.binary("add nuw nsw", low.program, constant("i64", 1))
    again = e.compare("slt", following, Typed("i64", "%last"))
    blocks.branch(again, head, done)
    blocks.phi(head, low.program, [(Typed("i64", "%first"), before), (following, blocks.here)])
    blocks.enter(done)
    low.function.do("ret void")


def _program_ids(low: CpuLowering) -> list[Typed]:
    e = low.e
    x, y = (e.cast("zext", n, "i64") for n in low.grid[:2])
    rest = e.binary("udiv", low.program, x)
    parts = [
        e.binary("urem", low.program, x),
        e.binary("urem", rest, y),
        e.binary("udiv", rest, y),
    ]
    return [e.cast("trunc", p, "i32") for p in parts]


def _emit_info(low: CpuLowering) -> None:
    """What the launcher must know travels inside the object file, as JSON."""
    prints = [
        {
            "prefix": getattr(op, "prefix", ""),
            "hex": bool(getattr(op, "hex", False)),
            "values": [[v.type.elem.code, list(v.type.shape)] for v in op.operands],
        }
        for op in low.prints
    ]
    info = {"scratch_bytes": low.arena.size, "asserts": low.messages, "prints": prints}
    data = json.dumps(info).encode() + b"\0"
    low.module.globals[INFO_SYMBOL] = f"@{INFO_SYMBOL} = constant [{len(data)} x i8] {bytes_constant(data)}"


@statements(Constant)
def scalar_constant(low: CpuLowering, op: Constant) -> None:
    low.scalars[op.result] = constant_value(op)


@statements(program.ProgramId)
def program_id(low: CpuLowering, op: program.ProgramId) -> None:
    low.set_scalar(op.result, low.program_ids[op.axis])


@statements(program.NumPrograms)
def num_programs(low: CpuLowering, op: program.NumPrograms) -> None:
    low.set_scalar(op.result, low.grid[op.axis])
