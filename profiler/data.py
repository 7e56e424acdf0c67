"""A running session's data in memory, and its phases. Nothing here waits for a GPU; ``deactivate(flushing=True)``
does."""

from __future__ import annotations

from .device_fields import describe_devices
from .errors import UsageError
from .profiles import Profile
from .recorder import recorder
from .session import RUNNING, Session, registry


def _session(number: int) -> Session:
    return registry.select(number)[0]


def get_profile(session: int = RUNNING, phase: int = 0) -> Profile:
    """The live :class:`~deuteron.profiler.Profile` of one phase. Raises UnknownSession, or UsageError for a trace."""
    found = _session(session)
    if found.data != "tree":
        raise UsageError("a session with data='trace' has no tree", hint="start it with data='tree'")
    if recorder.gpu is not None:
        recorder.gpu.drain()
    profile = found.data_of(phase).profile
    describe_devices(profile)
    return profile


def get(session: int | None = RUNNING, phase: int = 0) -> list[object] | None:
    """The data of one phase as the lists and dictionaries of a ``.hatchet`` file; None for session None."""
    return None if session is None else get_profile(session, phase).to_literal()


def get_json(session: int | None = RUNNING, phase: int = 0) -> str | None:
    """The data of one phase as the text of a ``.hatchet`` file; None for session None."""
    return None if session is None else get_profile(session, phase).to_hatchet()


def get_msgpack(session: int | None = RUNNING, phase: int = 0) -> bytes | None:
    """The data of one phase as MessagePack; None for session None."""
    return None if session is None else get_profile(session, phase).to_msgpack()


def advance_phase(session: int | None = RUNNING) -> int | None:
    """Start the next phase and return its number. Launches in flight still go to the phase they began in."""
    if session is None:
        return None
    found = _session(session)
    number = found.advance()
    recorder.sessions_changed()
    recorder.phase_advanced(found)
    return number


def is_phase_complete(session: int | None = RUNNING, phase: int = 0) -> bool:
    """True when a phase is over and every GPU record of it has arrived."""
    if session is None:
        return False
    found = _session(session)
    return phase < found.phase and (phase not in found.phases or found.phases[phase].complete)


def clear(session: int | None = RUNNING, phase: int = 0, clear_up_to_phase: bool = False) -> None:
    """Drop a phase's data (or all up to and including it). The current phase starts again empty."""
    if session is None:
        return
    found = _session(session)
    for number in [n for n in found.phases if n == phase or (clear_up_to_phase and n <= phase)]:
        if number == found.phase:
            found.phases[number] = found.new_phase()
        else:
            del found.phases[number]
    recorder.sessions_changed()
