"""Every error that compiling and launching raise on purpose. All derive from ``DeuteronError``, as the errors of the
profiler, the tuner and the service do."""

from deuteron.compiler.errors import ArgumentMismatch as ArgumentMismatch
from deuteron.compiler.errors import ArgumentOverflow as ArgumentOverflow
from deuteron.compiler.errors import AssemblerError as AssemblerError
from deuteron.compiler.errors import CalledOutside as CalledOutside
from deuteron.compiler.errors import CompilationError as CompilationError
from deuteron.compiler.errors import CompileTimeAssertionFailure as CompileTimeAssertionFailure
from deuteron.compiler.errors import DeuteronError as DeuteronError
from deuteron.compiler.errors import DeviceError as DeviceError
from deuteron.compiler.errors import IllegalSchedule as IllegalSchedule
from deuteron.compiler.errors import ImpossibleArray as ImpossibleArray
from deuteron.compiler.errors import ImpossibleBlock as ImpossibleBlock
from deuteron.compiler.errors import ImpossibleOption as ImpossibleOption
from deuteron.compiler.errors import InterpreterError as InterpreterError
from deuteron.compiler.errors import IRError as IRError
from deuteron.compiler.errors import KernelAssertionError as KernelAssertionError
from deuteron.compiler.errors import KernelMismatch as KernelMismatch
from deuteron.compiler.errors import KnobError as KnobError
from deuteron.compiler.errors import LaunchError as LaunchError
from deuteron.compiler.errors import MemoryAccessError as MemoryAccessError
from deuteron.compiler.errors import MissingExtra as MissingExtra
from deuteron.compiler.errors import NotComputable as NotComputable
from deuteron.compiler.errors import OutOfResources as OutOfResources
from deuteron.compiler.errors import SignatureError as SignatureError
from deuteron.compiler.errors import TargetError as TargetError
from deuteron.compiler.errors import TypeMismatch as TypeMismatch
from deuteron.compiler.errors import UnknownArgument as UnknownArgument
from deuteron.compiler.errors import UnknownName as UnknownName
from deuteron.compiler.errors import UnreadableArgument as UnreadableArgument
from deuteron.compiler.errors import UnsupportedOp as UnsupportedOp
from deuteron.compiler.errors import UnsupportedSyntax as UnsupportedSyntax
from deuteron.compiler.errors import UnusedResult as UnusedResult

__all__ = [
    "ArgumentMismatch",
    "ArgumentOverflow",
    "AssemblerError",
    "CalledOutside",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "DeuteronError",
    "DeviceError",
    "IRError",
    "IllegalSchedule",
    "ImpossibleArray",
    "ImpossibleBlock",
    "ImpossibleOption",
    "InterpreterError",
    "KernelAssertionError",
    "KernelMismatch",
    "KnobError",
    "LaunchError",
    "MemoryAccessError",
    "MissingExtra",
    "NotComputable",
    "OutOfResources",
    "SignatureError",
    "TargetError",
    "TypeMismatch",
    "UnknownArgument",
    "UnknownName",
    "UnreadableArgument",
    "UnsupportedOp",
    "UnsupportedSyntax",
    "UnusedResult",
]
