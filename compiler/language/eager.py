"""Running a kernel's Python code itself, one program after the other, on NumPy arrays.

This is what TRITON_INTERPRET=1 does: the kernel is ordinary Python, so ``breakpoint()``, ``pdb`` and ``print`` work
inside it. Every function of the language evaluates at once, by the interpreter's rules.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import Location
from ..ir.core import Block, Value
from .context import activate
from .tensor import tensor

if TYPE_CHECKING:
    from types import FunctionType

    from ..ir.types import Tile
    from ..targets.interpreter import Argument, EagerBuilder


def run(
    function: FunctionType,
    grid: tuple[int, int, int],
    types: Mapping[str, Tile],
    arguments: Mapping[str, Argument],
    constexprs: Mapping[str, object],
    *,
    debug: bool = False,
) -> None:
    """Call ``function`` once for every program of ``grid``.

    ``types`` and ``arguments`` describe the run-time parameters (NumPy arrays and numbers), ``constexprs`` all others.

    Raises:
        MemoryAccessError: a program touched memory outside its arrays.
        KernelAssertionError: a tl.device_assert failed and ``debug`` is set.
        Whatever the kernel's own Python code raises.
    """
    from ..targets.interpreter import EagerBuilder, Memory

    memory = Memory()
    axes = (range(n) for n in reversed(grid))
    for z, y, x in itertools.product(*axes):
        builder = EagerBuilder(memory, (x, y, z), grid)
        context = EagerContext(builder, function.__code__.co_filename, debug)
        values = {n: tensor(builder.argument(n, types[n], arguments[n])) for n in arguments}
        with activate(context):
            function(**values, **constexprs)


class EagerContext:
    """The context of one running program (see language/context.py)."""

    def __init__(self, builder: EagerBuilder, filename: str, debug: bool) -> None:
        self._builder = builder
        self._filename = filename
        self.debug = debug

    @property
    def builder(self) -> EagerBuilder:
        """The evaluating builder, told where in the user's file the program stands."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename != self._filename:
            frame = frame.f_back
        self._builder.location = Location(self._filename, frame.f_lineno, 0)
        return self._builder

    def call(
        self, function: object, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        """Run a jit function as Python."""
        return function(*args, **kwargs)  # type: ignore[operator]

    def region(self, function: object, args: Sequence[tensor], block: Block) -> None:
        """A combining region is compiled even here: the reduction's rule evaluates it on whole arrays."""
        from ..frontend.lower import Compilation

        compilation = Compilation(self._builder, self.debug)
        with activate(compilation):
            compilation.region(function, args, block)

    def read(self, value: Value) -> int | float | bool:
        """The number that a scalar holds: what Python's if, while and range ask for."""
        return self._builder.item(value)

    def show(self, value: Value) -> str:
        """The elements of a value as NumPy prints them."""
        return str(self._builder.array(value))

    def report(self, text: str) -> None:
        sys.stdout.write(text)
