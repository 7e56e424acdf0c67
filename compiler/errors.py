"""The exception tree. Every error that a user can cause derives from :class:`DeuteronError`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from .printable import blanks


class DeuteronError(Exception):
    """Base of all errors that deuteron raises on purpose.

    ``message`` says what is wrong and where; ``hint`` says what would have worked. The command line prints
    both and exits with 2; the server turns them into a problem document (RFC 9457).
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling; measurement children send errors home.
        return (_rebuild, (type(self), self.__dict__))


def _rebuild(cls: type[DeuteronError], state: dict[str, object]) -> DeuteronError:
    error = cls.__new__(cls)
    Exception.__init__(error, str(state.get("message", "")))
    error.__dict__.update(state)
    return error


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a user's kernel: file, 1-based line, 0-based column in characters."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}"

    def caret(self, line: str) -> str:
        """A caret that points at the place where it is printed under ``line``, its source line."""
        return blanks(line[: self.column]) + "^"


#: How many calls a message of the compiler names at most.
MAX_CALLS = 8


class CompilationError(DeuteronError):
    """A kernel cannot be compiled. Shows the source line with a caret under the offending expression."""

    #: Whether the place of such an error comes with the message as its cause.
    has_bare_cause: ClassVar[bool] = True

    def __init__(
        self,
        message: str,
        *,
        location: Location | None = None,
        source_line: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.location = location
        self.source_line = source_line
        #: The function of the kernel language that it was found in, and where that was called, innermost first.
        self.function: object = None
        self.calls: tuple[str, ...] = ()

    @property
    def error_message(self) -> str:
        """The message without its place (Triton's name)."""
        return self.message

    def place(self, location: Location, source_line: str | None) -> None:
        """Say where in the kernel it is. The message by itself becomes the cause, if there is no other: programs that
        were written for Triton look for it there."""
        self.location, self.source_line = location, source_line
        if self.__cause__ is None and self.has_bare_cause:
            self.__cause__ = ValueError(self.message)

    def called(self, function: object, where: str) -> CompilationError:
        """The same error as ``function`` has it, which calls at ``where`` what the error is in; this one becomes its
        cause."""
        made = type(self).__new__(type(self))
        Exception.__init__(made, *self.args)
        made.__dict__.update(self.__dict__, function=function, calls=(*self.calls, where))
        made.__dict__.pop("__notes__", None)
        made.__cause__ = self
        return made

    def __str__(self) -> str:
        if self.location is None:
            return super().__str__()
        parts = [f"{self.location}: {self.message}"]
        if self.source_line is not None:
            parts += [self.source_line, self.location.caret(self.source_line)]
        parts += [f"called {where}" for where in self.calls[:MAX_CALLS]]
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)


class UnsupportedSyntax(CompilationError):
    """The kernel uses a Python construct that the kernel language does not have."""


class NotComputable(UnsupportedSyntax):
    """Python itself refuses an operation on compile-time values."""

    has_bare_cause = False


class CalledOutside(CompilationError, RuntimeError):
    """A kernel is called, not launched. Programs for Triton expect a RuntimeError."""


class UnusedResult(UnsupportedSyntax):
    """A kernel drops the result of a function whose result has to be used. The message comes last, as in Triton."""

    def __str__(self) -> str:
        if self.location is None or self.source_line is None:
            return super().__str__()
        caret = self.location.caret(self.source_line)
        return "\n".join([f"{self.location}:", self.source_line, caret, self.message])


class UnknownName(CompilationError):
    """A name in a kernel is not a local, a parameter, the language, a constexpr or another jit function."""


class TypeMismatch(CompilationError):
    """Shapes or dtypes of an operation do not fit together."""


class CompileTimeAssertionFailure(CompilationError):
    """A ``tl.static_assert`` in the kernel is false."""

    has_bare_cause = False


class InterpreterError(CompilationError):
    """The Python code of a kernel that runs under the interpreter raised an error of Python's, which is the cause."""

    has_bare_cause = False


class SignatureError(DeuteronError):
    """The signature, constexprs or schedule given to ``compile`` do not fit the kernel."""


class IllegalSchedule(SignatureError):
    """A schedule option has a value that the kernel or the target cannot have."""


class ImpossibleOption(IllegalSchedule, AssertionError):
    """A schedule option has a value that no kernel can have. Programs for Triton expect an AssertionError."""


class IRError(DeuteronError):
    """Tile IR breaks its own rules: parse errors in IR text, verifier failures."""


class UnsupportedOp(CompilationError):
    """A target has no lowering for an operation; the message gives the reason."""


class TargetError(DeuteronError):
    """The target string is unknown or the toolchain for it is missing."""


class AssemblerError(DeuteronError):
    """ptxas or the driver rejected generated code; the message carries its log."""


class OutOfResources(DeuteronError):
    """A variant needs more of a hardware resource (shared memory, registers, threads) than the target has. The message
    is in Triton's words, which programs look for."""

    def __init__(self, resource: str, required: int, limit: int, *, hint: str | None = None) -> None:
        super().__init__(
            f"out of resource: {resource}, Required: {required}, Hardware limit: {limit}",
            hint=hint or "smaller block sizes or more warps reduce the need",
        )
        self.resource = resource
        self.required = required
        self.limit = limit


class DeviceError(DeuteronError):
    """A device is not present, or its driver reported an error."""


class LaunchError(DeuteronError):
    """Arguments or grid of a launch do not fit the kernel."""


class ImpossibleBlock(LaunchError, ValueError):
    """A tensor descriptor's block has a shape that no tile has. Programs for Triton expect a ValueError."""


class ImpossibleArray(LaunchError, AssertionError):
    """An array's sizes, strides or address are not those of a tensor descriptor. Programs for Triton expect an
    AssertionError."""


class ArgumentMismatch(LaunchError, TypeError):
    """Arguments are missing, too many, given twice, or not what is taken there. As in Python, it is a TypeError."""


class UnknownArgument(LaunchError, KeyError):
    """A launch names an argument that the kernel does not have. Programs for Triton expect a KeyError."""


class UnreadableArgument(LaunchError, RuntimeError):
    """An array does not tell where it is, such as a sparse tensor. PyTorch raises RuntimeError for it: it is one."""


class ArgumentOverflow(LaunchError, OverflowError):
    """An integer argument has more than 64 bits."""


class KernelMismatch(LaunchError, RuntimeError):
    """What was compiled is not what a launch asks for: a global that the kernel read has another value now, or
    specialization data are of another kernel. Other libraries raise RuntimeError for it: it is one."""


class KernelAssertionError(DeuteronError, RuntimeError):
    """A ``tl.device_assert`` failed while a kernel ran. On a GPU other libraries raise RuntimeError for it: it is
    one."""


class MemoryAccessError(DeuteronError):
    """A kernel touched memory outside every array it was given (interpreter only)."""


class MissingExtra(DeuteronError, ImportError):
    """Something needs optional packages that are not installed; the hint is the command that installs them."""

    def __init__(self, by: str, packages: Sequence[str], extras: Sequence[str]) -> None:
        number = "a package that is" if len(packages) == 1 else "packages that are"
        super().__init__(
            f"{by} needs {number} not installed: {', '.join(packages)}",
            hint=f"pip install 'deuteron[{','.join(extras)}]'",
        )
        self.packages = tuple(packages)
        self.extras = tuple(extras)


class KnobError(DeuteronError):
    """An environment setting has a value that its knob cannot take."""
