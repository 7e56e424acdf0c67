"""What tells a kernel apart: its text, what the names in it stand for, and the functions that it reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..errors import CompilationError, LaunchError, UnknownName
from ..language.inline import Inlinable
from .dependencies import CompileTimeNamespace, PythonMeanings
from .reading import Reading


class Reached(PythonMeanings):
    """A kernel and the functions that it reaches, numbered in the order in which they are found: numbers tell apart
    two functions of one text, whose own names stand for other things, and two that have changed places."""

    def __init__(self, kernel: Reading, reading_of: Callable[[Inlinable], Reading]) -> None:
        super().__init__()
        #: What a function is told apart by; raises CompilationError where there is nothing.
        self.reading_of = reading_of
        self.numbers = {kernel: 0}
        # A list of what is still to be seen, not recursion: functions may call each other thousands deep.
        self.waiting = [kernel]

    def lines(self) -> Iterator[str]:
        """What tells the kernel apart from any that may be compiled to other code."""
        for source in self.waiting:
            number, known = self.numbers[source], set()
            yield f"{number}: {source.text}"
            for name, value in source.captured():
                known.add(name.partition(".")[0])
                yield f"{number}: {name} = {self.captured(source, name, value)}"
            for name in sorted(source.free_names - known - source.local_names):
                yield f"{number}: {name} is unknown"
            for name, default in source.default_values():
                yield f"{number}: {name} by default {self.default(source, name, default)}"

    def default(self, source: Reading, name: str, default: Callable[[], object]) -> str:
        """What a parameter is by default; the names in its text are among those that the function reads."""
        try:
            return self.captured(source, name, default())
        except CompilationError:
            return "unknown"  # no constant; the compilation evaluates it, or says what is wrong

    def captured(self, source: Reading, name: str, value: object) -> str:
        """What a global stands for. Of one whose value cannot be told from others Python code may make anything, as in
        Triton; of kernels it raises UnknownName."""
        try:
            if isinstance(source.namespace, CompileTimeNamespace):
                return self.meaning_in_python(value, source.namespace.function)
            return self.meaning(value)
        except LaunchError as error:
            if source.runs:
                return "unknown"
            raise UnknownName(f"the global {name!r}: {error.message}", hint=error.hint) from error

    def number(self, function: Inlinable) -> int:
        """The number of a function; it is looked at later if it is new."""
        source = self.reading_of(function)
        if source not in self.numbers:
            self.numbers[source] = len(self.numbers)
            self.waiting.append(source)
        return self.numbers[source]
