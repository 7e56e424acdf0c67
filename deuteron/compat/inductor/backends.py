"""The devices that Inductor asks Triton for."""

from __future__ import annotations

from dataclasses import dataclass

from deuteron.compat.triton.backends import backends
from deuteron.compat.triton.backends.compiler import BaseBackend
from deuteron.compat.triton.runtime.driver import ActiveDriver


@dataclass(frozen=True)
class Backend:
    """An entry of ``triton.backends.backends``. One driver serves every device, so it is the active one of each."""

    compiler: type[BaseBackend]
    driver: type[ActiveDriver]


def offer() -> None:
    """Name what deuteron compiles for in ``triton.backends.backends``, where Inductor looks for it."""
    backends.update(dict.fromkeys(("cpu", "nvidia"), Backend(BaseBackend, ActiveDriver)))
