"""Starting, pausing and finishing sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar, cast, overload

from deuteron.compiler import knobs
from deuteron.compiler.runtime.launch.hooks import LaunchHook

from . import open_scopes
from .ending import ending, finalize_sessions
from .errors import UsageError
from .hooks import LaunchMetadata
from .mode import Mode, parse_mode
from .recorder import recorder
from .sample_frames import sampling_source
from .session import check_writable, expand_name, registry, suffix_for
from .wrapping import decorated

DEFAULT_PROFILE_NAME = "proton"

P = ParamSpec("P")
R = TypeVar("R")
Hook = str | LaunchMetadata | LaunchHook

_CONTEXTS = ("shadow", "python")
_DATA = ("tree", "trace")
_BACKENDS = (None, "cpu", "cupti", "instrumentation")


def start(
    name: str | None = None,
    *,
    context: str = "shadow",
    data: str = "tree",
    backend: str | None = None,
    mode: str | Mode | None = None,
    hook: Hook | None = None,
) -> int | None:
    """Start a profiling session and return its id; None when profiling is disabled or the proton command runs us.

    ``name`` is the output path without suffix, from the folder that is current now ("-" is the standard output; ``%p``
    and ``{pid}`` become the process id, ``%%`` a percent sign); a session of that name that exists already is activated
    again. A session that is never finalized is written when Python ends, or on SIGTERM. ``context``: "shadow" (scopes)
    or "python" (Python frames). ``data``: "tree" or "trace". ``backend``: None (CPU launches, and GPUs where there are
    any), "cpu", "cupti" (fail without a GPU) or "instrumentation" (cycles of scopes inside kernels, in place of times
    of launches). ``mode``: see :mod:`deuteron.profiler.mode`. ``hook``: "triton" evaluates ``launch_metadata``; a
    :class:`LaunchMetadata` does so for chosen kernels; any launch hook is called on launches.

    Raises UsageError, ProfileFileError (no such folder), CuptiError.
    """
    if registry.command_line or knobs.proton_disable.get():
        return None
    return start_session(name, context=context, data=data, backend=backend, mode=mode, hook=hook)


def start_session(
    name: str | None,
    *,
    context: str,
    data: str,
    backend: str | None,
    mode: str | Mode | None,
    hook: Hook | None,
) -> int:
    """As :func:`start`, also under the proton command."""
    _check(context, data, backend)
    parsed = parse_mode(mode, backend)
    suffix_for(data, parsed.format)
    if parsed.period is not None and data == "trace":
        raise UsageError("samples of program counters have no place on a time line", hint="data='tree'")
    metadata = _metadata_hook(hook)
    pattern = DEFAULT_PROFILE_NAME if name is None else name
    if not isinstance(pattern, str):
        raise UsageError(f"name = {pattern!r}", hint="the path of the profile without its suffix, as text")
    name = expand_name(pattern)
    check_writable(name)
    with registry.lock:
        session = registry.by_name(name)
        if session is not None:
            activate(session.number)
            return session.number
        _check_records(parsed)
        _check_samples(parsed)
        if parsed.period is not None:
            recorder.start_gpu(required=True, source=None if recorder.gpu else sampling_source(parsed.period))
        elif backend not in ("cpu", "instrumentation"):
            recorder.start_gpu(required=backend == "cupti")
        open_scopes.session_started()
        session = registry.create(pattern, context=context, data=data, mode=parsed, metadata_hook=metadata)
        ending.watch()
        if hook is not None and metadata is None:
            recorder.add_custom_hook(session, cast(LaunchHook, hook))
        recorder.sessions_changed()
    return session.number


def _check(context: str, data: str, backend: str | None) -> None:
    if context not in _CONTEXTS:
        raise UsageError(f"unknown context {context!r}", hint=f"one of {', '.join(_CONTEXTS)}")
    if data not in _DATA:
        raise UsageError(f"unknown data {data!r}", hint=f"one of {', '.join(_DATA)}")
    if backend not in _BACKENDS:
        raise UsageError(f"unknown backend {backend!r}", hint="leave it out, or 'cpu', 'cupti' or 'instrumentation'")


def _check_records(mode: Mode) -> None:
    """Kernels record in one way at a time."""
    for other in registry.sessions.values():
        if mode.records is not None and other.mode.records not in (None, mode.records):
            raise UsageError(
                f"the session {other.name!r} records inside kernels with other options",
                hint="finalize it first, or use the same mode",
            )


def _check_samples(mode: Mode) -> None:
    """Program counters are sampled of all kernels or of none, in one way."""
    for other in registry.sessions.values():
        if mode.period != other.mode.period:
            raise UsageError(
                # In Proton's words.
                "Cannot add a session with the same profiler but a different mode than existing sessions: "
                f"{other.name!r} has the mode {str(other.mode)!r}",
                hint="finalize it first: only sessions of one interval sample program counters together",
            )


def _metadata_hook(hook: Hook | None) -> LaunchMetadata | None:
    if hook == "triton":
        return LaunchMetadata()
    if isinstance(hook, LaunchMetadata):
        return hook
    if hook is None or (hasattr(hook, "enter") and hasattr(hook, "exit")):
        return None
    raise UsageError(
        f"unsupported hook {hook!r}",
        hint="'triton', a LaunchMetadata, or an object with enter and exit",
    )


def activate(session: int | None = None) -> None:
    """Record again in a session, or in all."""
    _set_active(session, True)


def deactivate(session: int | None = None, flushing: bool = False) -> None:
    """Stop recording in a session, or in all; its data stay in memory.

    With ``flushing``, wait for the GPUs first, so that the data are complete. Raises ProfileFileError where a phase of
    such a session cannot be written.
    """
    failures = recorder.flush() if flushing else {}
    for number in _set_active(session, False):
        if number in failures:
            raise failures[number]


def _set_active(number: int | None, active: bool) -> list[int]:
    """Returns the numbers of the sessions."""
    with registry.lock:
        sessions = registry.select(number)
        for session in sessions:
            session.active = active
        recorder.sessions_changed()
    return [session.number for session in sessions]


def finalize(session: int | None = None, output_format: str | None = "") -> None:
    """Wait for the GPUs, write a session's file (or all), and forget the session.

    ``output_format``: "hatchet", "hatchet_msgpack" or "chrome_trace"; "" is the default of the kind of data.
    A session whose file cannot be written is kept, so that finalize can be tried again. Under the proton command
    finalize() without a session is left to the command. Raises ProfileFileError, UsageError, UnknownSession.
    """
    if registry.command_line and session is None:
        return
    finalize_sessions(registry.select(session), output_format or "")


@overload
def profile(
    func: Callable[P, R],
    *,
    name: str | None = ...,
    context: str = ...,
    data: str = ...,
    backend: str | None = ...,
    mode: str | Mode | None = ...,
    hook: Hook | None = ...,
) -> Callable[P, R]: ...


@overload
def profile(
    func: None = ...,
    *,
    name: str | None = ...,
    context: str = ...,
    data: str = ...,
    backend: str | None = ...,
    mode: str | Mode | None = ...,
    hook: Hook | None = ...,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def profile(
    func: Callable[P, R] | None = None,
    *,
    name: str | None = None,
    context: str = "shadow",
    data: str = "tree",
    backend: str | None = None,
    mode: str | Mode | None = None,
    hook: Hook | None = None,
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: profile every call of a function in one session (arguments as :func:`start`), of a coroutine until it
    has ended, of a generator while it runs.

    The session is deactivated, not finalized, when the function returns or raises: call :func:`finalize` at the end.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @contextmanager
        def profiled(resumed: bool) -> Iterator[None]:
            session = start(name, context=context, data=data, backend=backend, mode=mode, hook=hook)
            try:
                yield
            finally:
                if session is not None:
                    deactivate(session)

        return decorated(function, profiled)

    return decorate if func is None else decorate(func)
