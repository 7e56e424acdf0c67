"""Built-in functions made at run time: machine code that Python calls as it calls its own functions written in C."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from functools import cache

from ...llvm import driver as llvm
from . import driver as cuda

#: CPython's METH_FASTCALL, METH_NOARGS: how the machine code is called, with what it is bound to first; of the former
#: the address of its arguments and their number follow.
VALUES, NOTHING = 0x80, 0x04
#: Functions of Python that texts may call, by the names that stand for them there.
_PYTHON = {
    "BYTEARRAY": "PyByteArray_AsString",
    "HELD": "PyBytes_AsString",
    "LET_GO": "PyEval_SaveThread",
    "TAKE": "PyEval_RestoreThread",
    "NUMBER": "PyLong_FromLongLong",
    "SIGNED": "PyLong_AsLongLong",
    "UNSIGNED": "PyLong_AsUnsignedLongLong",
    "FLOAT": "PyFloat_AsDouble",
    "TRUTH": "PyObject_IsTrue",
    "RAISED": "PyErr_Occurred",
    "CLEAR": "PyErr_Clear",
}
#: Threads that compiled at the same time would each have functions, of which one's definitions would be gone.
_lock = threading.Lock()


class _MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def builtin_function(
    text: str, called_with: int, own: object, driver: Mapping[str, str], numbers: Mapping[str, int]
) -> Callable[..., int]:
    """A function of Python whose machine code is ``launch`` in this LLVM IR, bound to ``own``.

    In the text names in braces stand for functions of Python (:data:`_PYTHON`), those of the ``driver``, and
    ``numbers``. Compiled once for each text; raises DeuteronError or OSError where it cannot be.
    """
    with _lock:
        places = tuple((name, driver_function(called)) for name, called in driver.items())
        definition = _compiled(text, called_with, places, tuple(numbers.items()))
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    made: Callable[..., int] = make(ctypes.byref(definition), own, None)
    return made


def driver_function(name: str) -> int:
    """Where a function of the driver is."""
    return ctypes.cast(getattr(cuda.library(), name), ctypes.c_void_p).value or 0


@cache
def _compiled(
    text: str, called_with: int, driver: tuple[tuple[str, int], ...], numbers: tuple[tuple[str, int], ...]
) -> _MethodDefinition:
    """The definition of the function; kept to the end of the process."""
    python = {
        name: ctypes.cast(getattr(ctypes.pythonapi, called), ctypes.c_void_p).value for name, called in _PYTHON.items()
    }
    places = {name: f"inttoptr (i64 {address} to ptr)" for name, address in (*python.items(), *driver)}
    loaded = llvm.LoadedObject(llvm.compile_text(text.format(**places, **dict(numbers)), llvm.host_machine(), "object"))
    loaded.keep()
    definition = _MethodDefinition(b"launch", loaded.address("launch"), called_with, None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(definition))  # functions made of it know where it is, and hold nothing
    return definition
