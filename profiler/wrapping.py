"""Decorators that put functions, coroutines and generators inside a context manager."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar, cast

from .errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
#: Makes the context of one step; True for the steps of a generator after its first.
Around = Callable[[bool], AbstractContextManager[object]]


def decorated(function: Callable[P, R], around: Around) -> Callable[P, R]:
    """``function`` with each call inside ``around``: plain functions and coroutines as a whole, generators step by
    step. Raises UsageError for what cannot be called, such as a classmethod."""
    if not callable(function):
        raise UsageError(
            f"{type(function).__name__} objects cannot be called, and so not be in a scope",
            hint="decorate the function itself: @classmethod above, the scope below",
        )
    wrapper: Any
    if inspect.iscoroutinefunction(function):
        wrapper = _coroutine(function, around)
    elif inspect.isasyncgenfunction(function):
        wrapper = _async_generator(function, around)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(function, around)
    else:
        wrapper = _function(function, around)
    return cast("Callable[P, R]", functools.wraps(function)(wrapper))


def _function(function: Callable[..., object], around: Around) -> Callable[..., object]:
    def wrapper(*args: object, **kwargs: object) -> object:
        with around(False):
            return function(*args, **kwargs)

    return wrapper


def _coroutine(function: Callable[..., Any], around: Around) -> Callable[..., Any]:
    async def wrapper(*args: object, **kwargs: object) -> object:
        with around(False):
            return await function(*args, **kwargs)

    return wrapper


def _generator(function: Callable[..., Generator[Any, Any, Any]], around: Around) -> Callable[..., Any]:
    def wrapper(*args: object, **kwargs: object) -> Generator[Any, Any, Any]:
        inner = function(*args, **kwargs)
        step: Callable[[], Any] = functools.partial(next, inner)
        resumed = False
        while True:
            try:
                with around(resumed):
                    made = step()
            except StopIteration as end:
                return end.value
            resumed = True
            try:
                sent = yield made
            except GeneratorExit:
                with around(resumed):
                    inner.close()
                raise
            except BaseException as error:
                step = functools.partial(inner.throw, error)
            else:
                step = functools.partial(inner.send, sent)

    return wrapper


def _async_generator(function: Callable[..., AsyncGenerator[Any, Any]], around: Around) -> Callable[..., Any]:
    async def wrapper(*args: object, **kwargs: object) -> AsyncGenerator[Any, Any]:
        inner = function(*args, **kwargs)
        step: Callable[[], Any] = inner.__anext__
        resumed = False
        while True:
            try:
                with around(resumed):
                    made = await step()
            except StopAsyncIteration:
                return
            resumed = True
            try:
                sent = yield made
            except GeneratorExit:
                with around(resumed):
                    await inner.aclose()
                raise
            except BaseException as error:
                step = functools.partial(inner.athrow, error)
            else:
                step = functools.partial(inner.asend, sent)

    return wrapper
