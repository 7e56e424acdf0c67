"""LLVM text for the simulator, written by hand as the code generator would write it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

WAIT = (
    "{ .reg .pred P1; LAB_WAIT_${:uid}: mbarrier.try_wait.parity.shared::cta.b64 P1, [$0], $1; "
    "@P1 bra DONE_${:uid}; bra LAB_WAIT_${:uid}; DONE_${:uid}: }"
)
_CONSTRAINTS = {"i1": "b", "i16": "h", "i32": "r", "i64": "l", "ptr": "l", "float": "f"}


class Text:
    """A kernel in the making; values are written as ``type name``."""

    def __init__(self, *parameters: str) -> None:
        self._lines = [f"define ptx_kernel void @k({', '.join(parameters)}) #0 {{", "entry:"]
        self._names = 0
        self.shared = "0"

    def do(self, line: str) -> None:
        """An instruction without a result."""
        self._lines.append("  " + line)

    def op(self, line: str) -> str:
        """An instruction; the name of its result."""
        self._names += 1
        self.do(f"%v{self._names} = {line}")
        return f"%v{self._names}"

    def i32(self, operation: str, x: str | int, y: str | int) -> str:
        """``operation`` on two integers."""
        return self.op(f"{operation} i32 {x}, {y}")

    def at(self, array: str, index: str, element: str = "i32") -> str:
        """``ptr addrspace(1) %p`` of an element of an array."""
        return f"ptr addrspace(1) {self.op(f'getelementptr {element}, ptr addrspace(1) {array}, i32 {index}')}"

    def label(self, name: str) -> None:
        """A block begins."""
        self._lines.append(f"{name}:")

    def asm(self, template: str, *operands: str, results: Sequence[str] = (), tied: Sequence[str] = ()) -> list[str]:
        """Assembly on ``operands`` ("i32 %x"), whose results may share the registers of ``tied`` ones."""
        quoted = template.replace("\n", "\\0A")
        constraints = ["=" + _CONSTRAINTS[r] for r in results]
        constraints += [_CONSTRAINTS[o.split()[0]] for o in operands] + [str(i) for i in range(len(tied))]
        made = "{" + ", ".join(results) + "}" if len(results) > 1 else results[0] if results else "void"
        given = ", ".join([*operands, *tied])
        call = f'call {made} asm sideeffect "{quoted}", "{",".join([*constraints, "~{memory}"])}"({given}) convergent'
        if not results:
            self.do(call)
            return []
        name = self.op(call)
        if len(results) == 1:
            return [name]
        return [self.op(f"extractvalue {made} {name}, {i}") for i in range(len(results))]

    def thread(self) -> str:
        """The number of the thread."""
        return self.op("call i32 @llvm.nvvm.read.ptx.sreg.tid.x()")

    def barrier(self) -> None:
        """All threads of the program meet."""
        self.do("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)")

    def wait(self, address: str, parity: str) -> None:
        """Wait for a phase of an mbarrier."""
        self.asm(WAIT, f"i32 {address}", f"i32 {parity}")

    def only(self, condition: str, name: str, body: Callable[[], None]) -> None:
        """Run ``body`` where ``condition`` holds."""
        self.do(f"br i1 {condition}, label %{name}, label %{name}_end")
        self.label(name)
        body()
        self.do(f"br label %{name}_end")
        self.label(f"{name}_end")

    def mbarriers(self, thread: str, *made: tuple[int, int]) -> None:
        """Thread 0 makes mbarriers (address, arrivals), then all meet."""

        def body() -> None:
            for address, count in made:
                self.asm(f"mbarrier.init.shared::cta.b64 [$0], {count};", f"i32 {address}")
            self.asm("fence.mbarrier_init.release.cluster;")

        self.only(self.op(f"icmp eq i32 {thread}, 0"), "init", body)
        self.barrier()

    def load_box(self, to: str, box: str, coordinates: Sequence[str], mbarrier: str, predicate: str = "") -> None:
        """A TMA load; ``coordinates``: innermost first."""
        places = ", ".join(f"${i + 2}" for i in range(len(coordinates)))
        last = len(coordinates) + 2
        self.asm(
            f"{f'@${last + 1} ' if predicate else ''}cp.async.bulk.tensor.{len(coordinates)}d.shared::cluster.global"
            f".mbarrier::complete_tx::bytes [$0], [$1, {{{places}}}], [${last}];",
            f"i32 {to}",
            f"ptr {box}",
            *(f"i32 {c}" for c in coordinates),
            f"i32 {mbarrier}",
            *([f"i1 {predicate}"] if predicate else []),
        )

    def expect(self, mbarrier: str, size: int) -> None:
        """Arrive, and expect bytes."""
        self.asm("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", f"i32 {mbarrier}", f"i32 {size}")

    def __str__(self) -> str:
        return "\n".join([*self._lines, "  ret void", "}"])


@pytest.fixture(scope="session")
def text() -> type[Text]:
    return Text


@pytest.fixture(scope="session")
def descriptor() -> Callable[[str], str]:
    """The parameter of a kernel that is a TMA descriptor."""
    return lambda name: f'ptr byval([128 x i8]) align 64 "nvvm.grid_constant" {name}'
