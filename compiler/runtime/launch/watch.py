"""Globals that kernels captured when they were compiled. Changing one afterwards would silently not count, so launches
look and refuse."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator

from ...errors import KernelMismatch, LaunchError
from ...ir.types import Scalar
from ...language.constexpr import constexpr, unwrap
from ...language.inline import Inlinable, LibraryFunction
from ...source.dependencies import PythonMeanings
from ...source.identity import float_text
from ...source.kernel import KernelSource, reading_of
from ...source.meaning import functions_in
from ...source.namespace import LiveNamespace
from ...source.reading import Reading
from ..variant.constants import constant_text


class Watch:
    """The compile-time globals of one kernel and of the jit functions it reaches, with the values they had."""

    def __init__(self, source: KernelSource) -> None:
        self._kernel = source.name
        #: Namespace, name, the Python object then.
        self.entries: list[tuple[LiveNamespace, str, object]] = []
        #: Those that are a ``tl.constexpr``, whose value a program may change in place, with the value then.
        self._boxes: list[tuple[str, constexpr, object]] = []
        #: What functions that run as Python read and a program may change in place: where, what it held then, shown.
        self._mutable: dict[tuple[LiveNamespace, str], tuple[str, str]] = {}
        self._collect(source, set())
        #: Those that are globals: what finds one, its name, the Python object then.
        self._globals: list[tuple[Callable[[str], object], str, object]] = []
        #: Variables of enclosing functions and members of modules, as in entries.
        self._others: list[tuple[LiveNamespace, str, object]] = []
        for namespace, name, old in self.entries:
            if (namespace, name) in self._mutable:
                continue
            known = namespace.globals_with(name)
            if known is None:
                self._others.append((namespace, name, old))
            else:
                self._globals.append((known.get, name, old))

    def _collect(self, source: Reading, seen: set[int]) -> None:
        if id(source) in seen:
            return
        seen.add(id(source))
        for name, value in source.captured():
            if isinstance(value, LibraryFunction):
                continue
            for function in functions_in(value):
                self._collect(reading_of(function), seen)
            if not isinstance(source.namespace, LiveNamespace):
                continue
            raw = source.namespace.raw(name)
            read = source.runs and not (callable(raw) or isinstance(raw, types.ModuleType))
            if _may_change(value) or isinstance(raw, constexpr) or read:
                self.entries.append((source.namespace, name, raw))
                if isinstance(raw, constexpr):
                    self._boxes.append((name, raw, raw.value))
                elif read and not isinstance(raw, _IMMUTABLE) and (text := _told(raw, source.namespace)) is not None:
                    self._mutable[source.namespace, name] = text, _shown(raw)

    @property
    def values(self) -> dict[tuple[str, int], tuple[object, dict[str, object]]]:
        """The globals that are values, as Triton's kernels list them: the name and the identity of the dictionary that
        it is looked up in, with the value and that dictionary. Functions are not among them."""
        found = ((namespace.function.__globals__, name, value) for namespace, name, value in self.entries)
        return {(name, id(home)): (value, home) for home, name, value in found if not isinstance(value, Inlinable)}

    def check(self) -> None:
        """Raise KernelMismatch if a captured global has another value than when the kernel was compiled."""
        for find, name, old in self._globals:  # 0.04 us each; 0.8 by way of the namespace
            new = find(name)
            if new is not old:
                self._compare(name, old, new)
        for namespace, name, old in self._others:
            new = self._now(namespace, name)
            if new is not old:
                self._compare(name, old, new)
        for name, box, value in self._boxes:
            if box.value is not value:
                self._compare(name, constexpr(value), box)
        for (namespace, name), (text, shown) in self._mutable.items():
            if _told(new := self._now(namespace, name), namespace) != text:
                raise self._changed(name, shown, _shown(new))

    def _compare(self, name: str, old: object, new: object) -> None:
        if not _same(old, new):
            raise self._changed(name, _shown(old), _shown(new))

    def _changed(self, name: str, old: str, new: str) -> KernelMismatch:
        return KernelMismatch(
            f"{self._kernel}: Global variable {name} has changed since we compiled this kernel, from {old} to {new}",
            hint="pass it as a tl.constexpr parameter",
        )

    def _now(self, namespace: LiveNamespace, name: str) -> object:
        try:
            return namespace.raw(name)
        except (KeyError, ValueError):
            return None

    def __iter__(self) -> Iterator[str]:
        return (name for _, name, _ in self.entries)


#: What Python code cannot change in place, or nobody does.
_IMMUTABLE = (type(None), int, float, str, Scalar)


class _Told(PythonMeanings):
    """What a value holds in this process."""

    def number(self, function: Inlinable) -> int:
        return id(function)


def _told(value: object, reader: LiveNamespace) -> str | None:
    """What a value holds that a function of this namespace reads, as text; None if that cannot be told."""
    try:
        return _Told().meaning_in_python(value, reader.function)
    except LaunchError:
        return None


def _may_change(value: object) -> bool:
    """Numbers, strings, tuples, dtypes and jit functions; not modules and functions of the language."""
    return value is None or isinstance(value, int | float | str | tuple | Scalar | Inlinable)


def _shown(value: object) -> str:
    """A value as Triton's messages have it."""
    return f"constexpr[{value.value!r}]" if isinstance(value, constexpr) else repr(value)


def _same(old: object, new: object) -> bool:
    """Whether a kernel would be compiled to the same code: 0.0 is not -0.0, and math.nan is itself."""
    old, new = unwrap(old), unwrap(new)
    if type(old) is not type(new):
        return False
    if isinstance(old, float):
        return float_text(old) == float_text(new)  # type: ignore[arg-type]
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(map(_same, old, new))
    if isinstance(old, Inlinable):
        return old == new
    try:
        return constant_text(old) == constant_text(new)
    except LaunchError:
        return False
