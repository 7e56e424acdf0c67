"""Arguments of a call by the names of their parameters, and what is said of those that do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from ...errors import ArgumentMismatch, LaunchError, UnknownArgument, UnreadableArgument
from ...options import NEUTRAL_OPTIONS, SCHEDULE_OPTIONS
from ..arrays.arguments import Key, describe, readers
from ..variant.constants import constant_key
from ..variant.variant import nearest
from .binding import MISSING, KernelParameter, KeyChange, parts_of
from .description import DescribedKernel


class CalledKernel(DescribedKernel):
    """A kernel that takes arguments as Python's functions do, and schedule options beside them."""

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
        """Arguments by parameter name, and the remaining keywords.

        Raises:
            ArgumentMismatch: too many arguments, one given twice, or one missing.
            UnknownArgument: a keyword that is neither a parameter nor an option.
        """
        parameters = self.parameters
        positional = len(self.positional_names)
        if len(args) > positional and not self.variadic_name:
            self._refuse_extra(args[positional:])
        bound = self.named(args)
        names = {p.name for p in parameters if not p.variadic}
        for name in bound:
            if name in names and name in kwargs:
                raise ArgumentMismatch(f"{self.__name__}: the argument {name!r} is given twice")
        options = {k: v for k, v in kwargs.items() if k not in names}
        self._check_options(options)
        bound |= {k: v for k, v in kwargs.items() if k in names}
        for p in parameters:
            if p.name not in bound:
                if not p.has_default:
                    self._refuse_missing(p.name)
                bound[p.name] = p.default
        return {p.name: bound[p.name] for p in parameters}, options

    def _check_options(self, options: Mapping[str, object]) -> None:
        for name in options:
            if name == self.variadic_name:
                raise ArgumentMismatch(
                    f"{self.__name__} takes *{name}, which cannot be given by name",
                    hint=f"pass them one by one, after {', '.join(self.positional_names) or 'nothing else'}",
                )
            if name not in SCHEDULE_OPTIONS and name not in NEUTRAL_OPTIONS:
                raise UnknownArgument(
                    f"{self.__name__} has no argument {name!r}",
                    hint=nearest(name, [*self.arg_names, *SCHEDULE_OPTIONS]),
                )

    def _refuse_missing(self, name: str) -> NoReturn:
        raise ArgumentMismatch(
            f"{self.__name__}: the argument {name!r} is missing",
            hint=f"its parameters: {', '.join(self.arg_names)}",
        )

    def _refuse_extra(self, extra: Sequence[object]) -> NoReturn:
        raise ArgumentMismatch(
            f"{self.__name__} takes {len(self.parameters)} arguments, got {len(extra)} more",
            hint=f"its parameters: {', '.join(self.arg_names)}",
        )

    def _explain(
        self,
        problem: LaunchError | RuntimeError,
        args: tuple[object, ...],
        extra: tuple[object, ...],
        options: dict[str, object],
    ) -> NoReturn:
        """Say which argument could not be read."""
        self._check_options(options)
        for parameter, value in zip(self.parameters, args, strict=True):
            if value is MISSING:
                self._refuse_missing(parameter.name)
            for leaf, part in parts_of(parameter, value):
                self.read(leaf, part)
        raise problem

    def read(self, parameter: KernelParameter, value: object) -> Key:
        """The type key of an argument; raises LaunchError that names it."""
        try:
            if parameter.constexpr:
                return constant_key(value)
            key, _ = readers[type(value)](value)
            return key if parameter.plain else KeyChange(parameter)[key]
        except LaunchError as error:
            message = error.message
            if message.startswith(("is ", "does ")):
                message = f"{describe(value)} {message}"
            raise type(error)(f"{self.__name__}: argument {parameter.name!r}: {message}", hint=error.hint) from error
        except RuntimeError as error:  # PyTorch's, of tensors without storage of their own
            raise UnreadableArgument(f"{self.__name__}: argument {parameter.name!r}: {error}") from error
