"""Machine code of kernels under deuteron and under Triton, side by side: what may be slow, without a GPU.

python benchmarks/machine_code.py [--only NAME ...] [--target cuda:90a] [--keep FOLDER]

The kernels and launches are those of ``pairs/``; ``--only`` takes cases and families. Of each it prints the registers
named, the instructions that spill, all instructions, those of each loop, and the counts of every class of instruction
that differ clearly, always deuteron's/Triton's. It needs Triton, ptxas and nvdisasm (DEUTERON_PTXAS_PATH and
DEUTERON_NVDISASM_PATH name them; Triton's package has both under backends/nvidia/bin), but neither torch nor a GPU.
``--keep`` writes the machine code there.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kernel_pairs import SIDES, choose
from pairs import cases_of
from pairs.arrays import Nowhere, signature_of
from pairs.case import Case

import deuteron
from deuteron.compiler.runtime.variant.disassemble import disassemble

INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([^\s;]+)([^;]*);")
LABEL = re.compile(r"\s*(\.L_\w+):")
#: To a label (nvdisasm), or to an address (cuobjdump).
DESTINATION = re.compile(r"`\((\.L_\w+)\)|\b0x([0-9a-f]+)\s*$")
#: Moves of memory, which are counted by their width, too.
MEMORY = {"LDG", "STG", "LDS", "STS", "LDL", "STL", "LD", "ST", "LDGSTS", "ATOM", "ATOMG", "ATOMS", "RED"}
WIDTH = re.compile(r"\.(?:[US]?(8|16)|(64|128))\b")


@dataclass(frozen=True)
class Instruction:
    """One line of machine code; ``target`` is the index of the instruction that it may jump to."""

    operation: str
    operands: str
    target: int | None

    @property
    def kind(self) -> str:
        """The operation without what modifies it, but with its width where it moves memory."""
        name = self.operation.split(".")[0]
        if name not in MEMORY:
            return name
        width = WIDTH.search(self.operation)
        return f"{name}.{(width[1] or width[2]) if width else 32}"


@dataclass(frozen=True)
class MachineCode:
    """The instructions of one kernel."""

    instructions: list[Instruction]

    @classmethod
    def parse(cls, text: str) -> MachineCode:
        """What nvdisasm -c or cuobjdump -sass prints."""
        found: list[re.Match[str]] = []
        places: dict[str, int] = {}
        for line in text.splitlines():
            if label := LABEL.match(line):
                places[label[1]] = len(found)
            elif instruction := INSTRUCTION.match(line):
                places[str(int(instruction[1], 16))] = len(found)
                found += [instruction] if instruction[2] != "NOP" else []
        return cls([_instruction(match[2], match[3], places) for match in found])

    @cached_property
    def kinds(self) -> Counter[str]:
        """How many instructions of each kind."""
        return Counter(instruction.kind for instruction in self.instructions)

    @property
    def registers(self) -> int:
        """The highest register named, and those below."""
        named = re.findall(r"\bR(\d+)\b", " ".join(i.operands for i in self.instructions))
        return max(map(int, named), default=-1) + 1

    @property
    def spills(self) -> int:
        """Instructions that move local memory."""
        return sum(count for kind, count in self.kinds.items() if kind.startswith(("LDL.", "STL.")))

    @property
    def loops(self) -> list[int]:
        """Instructions of each loop, by where it begins; a jump to itself, as behind a kernel's end, is none."""
        ends: dict[int, int] = {}
        for at, instruction in enumerate(self.instructions):
            if instruction.operation.startswith("BRA") and (to := instruction.target) is not None and to < at:
                ends[to] = at
        return [end - begin + 1 for begin, end in sorted(ends.items())]

    @property
    def totals(self) -> dict[str, str]:
        """What is said of each kernel, by what it is called."""
        loops = " ".join(map(str, self.loops)) or "-"
        counts = {"registers": self.registers, "spills": self.spills, "instructions": len(self.instructions)}
        return {**{what: str(count) for what, count in counts.items()}, "loops": loops}


def _instruction(operation: str, operands: str, places: dict[str, int]) -> Instruction:
    target = None
    if operation.startswith("BRA") and (named := DESTINATION.search(operands)):
        target = places.get(named[1] or str(int(named[2], 16)))
    return Instruction(operation, operands, target)


def cubin_of(side: str, case: Case, target: str) -> bytes:
    """The case compiled by one side for arrays aligned to 16 bytes."""
    signature = signature_of(case.arguments(Nowhere()))
    options: dict[str, Any] = {"num_warps": case.num_warps, "num_stages": case.num_stages}
    if side == "deuteron":
        made = deuteron.compile(case.kernel, signature=signature, constexprs=case.constants, target=target, **options)
    else:
        made = _compiled_by_triton(case, signature, target, options)
    found = made.asm["cubin"]
    assert isinstance(found, bytes)
    return found


def _compiled_by_triton(case: Case, signature: dict[str, str], target: str, options: dict[str, Any]) -> Any:
    import triton  # lazy: the parser of machine code needs no Triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types, constants, promises = {}, dict(case.constants), {}
    for place, name in enumerate(case.kernel.arg_names):
        types[name], _, promise = signature.get(name, "constexpr").partition(":")
        if promise == "1":
            types[name], constants[name] = "constexpr", 1
        elif promise == "16":
            promises[(place,)] = [["tt.divisibility", 16]]
    capability = int(re.sub(r"\D", "", target))
    return triton.compile(
        ASTSource(case.kernel, types, constants, promises), target=GPUTarget("cuda", capability, 32), options=options
    )


def comparison(name: str, ours: MachineCode, theirs: MachineCode) -> str:
    """Two lines: totals, and kinds of instructions whose counts differ by more than 3 and by a fifth."""
    totals = "  ".join(f"{what} {ours.totals[what]}/{theirs.totals[what]}" for what in ours.totals)
    counts = {kind: (ours.kinds[kind], theirs.kinds[kind]) for kind in sorted(ours.kinds | theirs.kinds)}
    unlike = [
        f"{kind} {left}/{right}"
        for kind, (left, right) in counts.items()
        if abs(left - right) > max(3, 0.2 * max(left, right))
    ]
    return f"{name:24}{totals}\n{'':24}{'  '.join(unlike)}".rstrip()


def compare(names: Sequence[str], target: str, keep: Path | None) -> None:
    """Print every case that is asked for, or why it has none."""
    for family, name in choose(names):
        found = []
        for side in SIDES:
            case = next(case for case in cases_of(family, side) if case.name == name)
            try:
                text = disassemble(cubin_of(side, case, target))
            except Exception as problem:  # of either compiler: the other cases are still compared
                print(f"{name:24}{side}: {type(problem).__name__}: {problem}", flush=True)
                break
            if keep:
                (keep / f"{name}.{side}.sass").write_text(text)
            found.append(MachineCode.parse(text))
        else:
            print(comparison(name, *found), flush=True)


def main() -> None:
    """Compare what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="cases or families")
    parser.add_argument("--target", default="cuda:90a")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the machine code there")
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    try:
        compare(options.only, options.target, options.keep)
    except ValueError as problem:
        parser.error(str(problem))


if __name__ == "__main__":
    main()
