"""``torch.compile`` with deuteron as Inductor's compiler of Triton kernels.

Inductor, the default backend of ``torch.compile``, writes kernels in Triton's language. After :func:`install` they are
compiled and launched by deuteron: on GPUs, and on the CPU where ``torch._inductor.config.cpu_backend`` is "triton".
"""

from __future__ import annotations

import importlib
import sys

from deuteron.compat import alias
from deuteron.compiler.errors import DeuteronError

#: The oldest PyTorch whose Inductor has the classes that are replaced.
OLDEST = (2, 7)


def install() -> None:
    """Have deuteron compile what Inductor writes from now on, in this process. The name ``triton`` is deuteron's, too,
    as after :func:`deuteron.compat.triton.install`. Doing so twice changes nothing.

    Kernels are compiled in this process: Inductor's own worker processes would import Triton.

    Raises:
        DeuteronError: PyTorch is missing or too old, or Triton itself is imported already (Inductor imports it with the
            first ``torch.compile``).
    """
    present = sys.modules.get("triton")
    if present is not None and present.__name__ != alias.ALIASES["triton"]:
        raise DeuteronError(
            "Triton itself is imported already, and what Inductor compiled with it stays in use",
            hint="call deuteron.compat.inductor.install() before the first torch.compile, and before any import of "
            "triton",
        )
    _check_torch()
    alias.install()
    backends = importlib.import_module("deuteron.compat.inductor.backends")
    backends.offer()
    importlib.import_module("deuteron.compat.inductor.switch").switch()


def _check_torch() -> None:
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise DeuteronError(
            f"PyTorch cannot be imported: {error}", hint="install torch; deuteron does not depend on it"
        ) from error
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < OLDEST:
        raise DeuteronError(
            f"the Inductor of PyTorch {torch.__version__} is too old",
            hint=f"use PyTorch {'.'.join(map(str, OLDEST))} or newer",
        )
