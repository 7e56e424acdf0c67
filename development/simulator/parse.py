"""LLVM text, as the code generator writes it, to steps that run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from deuteron.compiler.errors import KernelAssertionError

from .values import Held, SimulationError, held_operand, operand

if TYPE_CHECKING:
    from .barriers import Wait
    from .warp import Lanes, Warp

#: Does one thing; what it returns the warp has to wait for.
Step = Callable[["Warp"], "Wait | None"]
Phi = Callable[["Warp", str], Held]


@dataclass(frozen=True)
class Split:
    """A branch that the lanes in ``taken`` take to ``yes``, others to ``no``."""

    taken: Lanes
    yes: str
    no: str


@dataclass
class SimulatedBlock:
    """One basic block; ``next`` is where the warp goes from here, "" at the end."""

    phi_names: list[tuple[str, str]] = field(default_factory=list)
    phis: list[Phi] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    next: Callable[[Warp], str | Split] = lambda warp: ""
    successors: tuple[str, ...] = ()


@dataclass
class Kernel:
    """The parameters (name, type) and blocks of a function."""

    parameters: list[tuple[str, str]]
    blocks: dict[str, SimulatedBlock]

    def meeting_point(self, label: str) -> str:
        """The immediate post-dominator of a block: the next one that all paths from it pass; "" is the end."""
        after = self._post_dominators[label] - {label}
        return max(after, key=lambda other: len(self._post_dominators.get(other, ())), default="")

    @cached_property
    def _post_dominators(self) -> dict[str, frozenset[str]]:
        every = frozenset(self.blocks)
        found = dict.fromkeys(self.blocks, every)
        changed = True
        while changed:
            changed = False
            for label in reversed(self.blocks):
                after = [found[s] for s in self.blocks[label].successors]
                new = frozenset.intersection(*after) | {label} if after else frozenset({label})
                changed |= new != found[label]
                found[label] = new
        return found


_DEFINE = re.compile(r"define ptx_kernel void @[\w.$]+\((.*)\) #0 \{")
_STRUCT = re.compile(r"^(%\w+) = type (\{.*\})$", re.MULTILINE)
_STRING = re.compile(r'^(@[\w.]+) = private unnamed_addr constant \[\d+ x i8\] c"([\\0-9A-F]*)\\00"$', re.MULTILINE)
_FAILURE = re.compile(r"call void @__assertfail\(ptr (@[\w.]+),")
_RESULT = re.compile(r"(%[\w.]+) = (.*)")
_PHI = re.compile(r"phi (.+?) (\[.*)")
_ARM = re.compile(r"\[([^,\]]+), %([\w.]+)\]")
_BRANCH = re.compile(r"br i1 (\S+), label %(\S+), label %([^\s,]+)")


@lru_cache(maxsize=4)  # the same module runs in several orders, one after the other
def parse_kernel(llvm: str) -> Kernel:
    """The only kernel of a module."""
    from .instructions import parse_instruction

    structs, strings = dict(_STRUCT.findall(llvm)), dict(_STRING.findall(llvm))
    lines = re.sub(r"%struct\d+\b", lambda name: structs[name[0]], llvm).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("define ptx_kernel"))
    header = _DEFINE.match(lines[start])
    if header is None:
        raise SimulationError(f"cannot read the function header {lines[start]!r}")
    kernel = Kernel([_parameter(p) for p in split_commas(header[1])], {})
    block = SimulatedBlock()
    for line in lines[start + 1 :]:
        text = line.strip()
        if line == "}":
            break
        if text.endswith(":") and not line.startswith(" "):
            block = kernel.blocks[text[:-1]] = SimulatedBlock()
        elif text.startswith(("br ", "ret ")):
            block.next, block.successors = _terminator(text)
        elif "= phi " in text:
            _add_phi(block, text)
        elif failure := _FAILURE.match(text):
            block.steps.append(_failure(bytes.fromhex(strings[failure[1]].replace("\\", "")).decode()))
        else:
            match = _RESULT.fullmatch(text)
            name, body = (match[1], match[2]) if match else ("", text)
            block.steps += parse_instruction(name, body)
    return kernel


def _failure(message: str) -> Step:
    """What __assertfail does: the launch ends, and nothing that it wrote is read."""

    def step(warp: Warp) -> None:
        raise KernelAssertionError(f"device-side assertion failed: {message}")

    return step


def split_commas(text: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    parts, depth, current, quoted = [], 0, "", False
    for char in text:
        quoted ^= char == '"'
        depth += 0 if quoted else (char in "([{<") - (char in ")]}>")
        if char == "," and depth == 0 and not quoted:
            parts.append(current.strip())
            current = ""
        else:
            current += char
    if current.strip():
        parts.append(current.strip())
    return parts


def _parameter(text: str) -> tuple[str, str]:
    kind, name = text.rsplit(" ", 1)
    return name, re.sub(r" align \d+", "", kind)


def _add_phi(block: SimulatedBlock, text: str) -> None:
    match = _RESULT.fullmatch(text)
    parts = _PHI.fullmatch(match[2]) if match else None
    if match is None or parts is None:
        raise SimulationError(f"cannot read the phi {text!r}")
    arms = {label: held_operand(parts[1], value) for value, label in _ARM.findall(parts[2])}
    block.phi_names.append((match[1], parts[1]))
    block.phis.append(lambda warp, before: arms[before](warp.env))


def _terminator(text: str) -> tuple[Callable[[Warp], str | Split], tuple[str, ...]]:
    if text.startswith("ret"):
        return lambda warp: "", ()
    match = _BRANCH.match(text)
    if match is None:
        target = text.split("%")[1].split(",")[0]
        return lambda warp: target, (target,)
    condition, yes, no = operand("i1", match[1]), match[2], match[3]

    def choose(warp: Warp) -> str | Split:
        taken = condition(warp.env).astype(np.bool_)
        here = taken[warp.active]
        if here.all():
            return yes
        return Split(taken, yes, no) if here.any() else no

    return choose, (yes, no)
