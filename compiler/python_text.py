"""The text of functions of the running program, as it was when they were decorated: files change while programs run."""

from __future__ import annotations

import inspect
import types
from functools import cached_property
from weakref import WeakKeyDictionary


class PythonText:
    """The lines of one function. Those of its file are read at once, and where the function ends is found when somebody
    asks, which takes a hundred times as long.

    Raises:
        OSError, TypeError: the text cannot be read.
    """

    def __init__(self, function: types.FunctionType) -> None:
        self.filename = inspect.getsourcefile(function) or "<unknown>"
        self._file_lines, self._start = inspect.findsource(function)

    @property
    def first_line(self) -> int:
        """The number of its first line, a decorator's perhaps, in its file."""
        return self._start + 1

    @cached_property
    def lines(self) -> list[str]:
        """Its lines, with their ends."""
        lines = list(inspect.getblock(self._file_lines[self._start :]))
        self._file_lines = []
        return lines


#: None: there was nothing to be read.
_TEXTS: WeakKeyDictionary[types.FunctionType, PythonText | None] = WeakKeyDictionary()


def remember(function: types.FunctionType) -> None:
    """Read the text of ``function``, or of the one that it wraps, which has just been defined. Where there is none,
    :func:`text_of` will say so."""
    _read(inspect.unwrap(function))


def text_of(function: types.FunctionType) -> PythonText:
    """The text of ``function`` itself as it was when it was remembered; of others, as it is when this is first called.

    Raises:
        OSError: it cannot be read.
    """
    text = _read(function)
    if text is None:
        raise OSError(f"could not get the source of {function!r}")
    return text


def _read(function: types.FunctionType) -> PythonText | None:
    if not isinstance(function, types.FunctionType):
        return None
    if function not in _TEXTS:
        try:
            _TEXTS[function] = PythonText(function)
        except (OSError, TypeError):
            _TEXTS[function] = None
    return _TEXTS[function]
