"""Settings that are variables of the environment, as attributes: Triton's ``env_str``, ``env_bool`` and the others, for
groups of settings that a program makes itself, and for Triton's own that nothing of deuteron's goes by."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from deuteron.compiler import knobs as own
from deuteron.compiler.errors import KnobError
from deuteron.compiler.setting_texts import BOOLEANS


class Env:
    """The class of :data:`env`."""

    def __repr__(self) -> str:
        return "env"


#: Assigned to a setting it means: what the environment says, again.
env = Env()


class Propagation:
    """Whether what is assigned to settings is put into the environment, too, for processes that the program starts.
    ``wanted`` asks; knobs.py says where: programs assign ``triton.knobs.propagate_env``."""

    def __init__(self) -> None:
        self.wanted: Callable[[], bool] = lambda: True


propagation = Propagation()


class VariableState(NamedTuple):
    """Everything that assigning a setting changes: what was assigned, if anything, and the variable."""

    assigned: tuple[object, ...]
    variable: str | None


class env_base:  # noqa: N801 -- Triton's name, as those below
    """One variable. A value that a program assigns is kept by the group of settings that it is assigned in, and wins
    over the environment; ``key`` is the variable's name. As in Triton, the variable keeps an assigned value when the
    setting is reset or deleted, so that the environment says it again; the group's ``scope()`` takes back both."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.name = key

    def __set_name__(self, owner: type[object], name: str) -> None:
        self.name = name

    def read(self, text: str | None) -> Any:
        """The value that the variable's text means; of None, which is a variable that is not set, the default."""
        raise NotImplementedError(type(self).__name__)

    def get(self) -> Any:
        """What the environment says."""
        return self.read(os.environ.get(self.key))

    def __get__(self, group: object, owner: type[object]) -> Any:
        if group is None:
            return self
        held = vars(group)
        return held[self.name] if self.name in held else self.get()

    def __set__(self, group: object, value: object) -> None:
        if isinstance(value, Env):
            self.__delete__(group)
            return
        vars(group)[self.name] = value
        if propagation.wanted() and (value is None or isinstance(value, bool | int | str)):
            put_variable(self.key, value)

    def __delete__(self, group: object) -> None:
        vars(group).pop(self.name, None)

    def state(self, group: object) -> VariableState:
        """Everything that assigning changes."""
        held = vars(group)
        return VariableState((held[self.name],) if self.name in held else (), os.environ.get(self.key))

    def put_back(self, group: object, state: VariableState) -> None:
        """Have what :meth:`state` said before."""
        vars(group).pop(self.name, None)
        if state.assigned:
            vars(group)[self.name] = state.assigned[0]
        put_variable(self.key, state.variable)


def put_variable(key: str, value: bool | int | str | None) -> None:
    """Have a value in the environment as text; None is a variable that is not set."""
    if value is None:
        os.environ.pop(key, None)
    else:
        os.environ[key] = str(int(value)) if isinstance(value, bool) else str(value)


class env_str(env_base):  # noqa: N801
    """A text."""

    def __init__(self, key: str, default: str) -> None:
        super().__init__(key)
        self.default = default

    def read(self, text: str | None) -> str:
        """The text itself."""
        return self.default if text is None else text


class env_str_callable_default(env_base):  # noqa: N801
    """A text whose default is asked for each time."""

    def __init__(self, key: str, default_factory: Callable[[], str]) -> None:
        super().__init__(key)
        self.default_factory = default_factory

    def read(self, text: str | None) -> str:
        """The text itself."""
        return self.default_factory() if text is None else text


class env_opt_str(env_base):  # noqa: N801
    """A text, or None."""

    def read(self, text: str | None) -> str | None:
        """The text itself."""
        return text


class env_bool(env_base):  # noqa: N801
    """Yes or no, in the words that every knob takes.

    Raises:
        KnobError: on reading, for any other word.
    """

    def __init__(self, key: str, default: bool = False) -> None:
        super().__init__(key)
        self.default = default

    def read(self, text: str | None) -> bool:
        """Yes or no."""
        return self.default if not text else _boolean(self.key, text)


class env_opt_bool(env_base):  # noqa: N801
    """Yes, no, or None where nobody said."""

    def read(self, text: str | None) -> bool | None:
        """Yes, no or None."""
        return None if not text else _boolean(self.key, text)


def _boolean(key: str, text: str) -> bool:
    try:
        return BOOLEANS[text.strip().lower()]
    except KeyError:
        raise KnobError(f"environment variable {key} is {text!r}", hint="use 0 or 1") from None


class env_int(env_base):  # noqa: N801
    """A whole number.

    Raises:
        KnobError: on reading, for anything else.
    """

    def __init__(self, key: str, default: int = 0) -> None:
        super().__init__(key)
        self.default = default

    def read(self, text: str | None) -> int:
        """The number."""
        if not text:
            return self.default
        try:
            return int(text)
        except ValueError:
            raise KnobError(f"environment variable {self.key} is {text!r}", hint="use a whole number") from None


class env_class(env_base):  # noqa: N801
    """A class by ``MODULE:CLASS``, or None. ``type`` is the name of a class that it has to extend.

    Raises:
        KnobError: on reading, where there is no such class, or it extends another one.
    """

    def __init__(self, key: str, type: str) -> None:
        super().__init__(key)
        self.type = type

    def read(self, text: str | None) -> type[Any] | None:
        """The class, imported now."""
        if not text:
            return None
        module, colon, name = text.partition(":")
        said = f"environment variable {self.key} is {text!r}"
        if not colon:
            raise KnobError(said, hint="use MODULE:CLASS")
        try:
            found: Any = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, TypeError, ValueError) as error:  # ..module, :CLASS
            raise KnobError(f"{said}: {error}", hint="use MODULE:CLASS") from error
        if not isinstance(found, type):
            raise KnobError(f"{said}, which is no class", hint="use MODULE:CLASS")
        if self.type not in (base.__name__ for base in found.mro()):
            raise KnobError(f"{said}, which is no {self.type}", hint=f"use a class that extends {self.type}")
        return found


class Folder(env_str_callable_default):
    """A folder that deuteron goes by, too: what is assigned to it decides where our knob's own folder is, in it."""

    def __init__(self, key: str, default_factory: Callable[[], str], knob: own.Knob[Path], inside: str) -> None:
        super().__init__(key, default_factory)
        self._knob, self._inside = knob, inside

    def __set__(self, group: object, value: object) -> None:
        super().__set__(group, value)
        self._follow(group)

    def __delete__(self, group: object) -> None:
        super().__delete__(group)
        self._follow(group)

    def put_back(self, group: object, state: VariableState) -> None:
        """Have what :meth:`state` said before."""
        super().put_back(group, state)
        self._follow(group)

    def _follow(self, group: object) -> None:
        held = vars(group).get(self.name)
        self._knob.assign(*([] if held is None else [Path(str(held)) / self._inside]))
