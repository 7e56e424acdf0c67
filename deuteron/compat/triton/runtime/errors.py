"""Errors of launches under Triton's names."""

from deuteron.compat.triton.errors import TritonError
from deuteron.compiler.errors import AssemblerError as PTXASError
from deuteron.compiler.errors import DeuteronError as InterpreterError  # what a kernel may raise that runs as Python
from deuteron.compiler.errors import LaunchError as AutotunerError
from deuteron.compiler.errors import OutOfResources

__all__ = ["AutotunerError", "InterpreterError", "OutOfResources", "PTXASError", "TritonError"]
