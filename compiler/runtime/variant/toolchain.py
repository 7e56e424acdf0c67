"""What, besides kernel, configuration and target, generated code depends on: the identity of all that made it.

The key of the variant cache and the stored best configurations use this one definition, so that neither takes what
another compiler made for its own.
"""

from __future__ import annotations

import hashlib
import platform
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ... import knobs
from ...target import Target
from ...targets.assembler import assembler_identity, assembler_options
from ...version import __version__

#: Longest text of options that is kept as it is; what is longer stands as its digest, for stored keys have a limit.
_LONGEST_OPTIONS = 100


def toolchain(target: Target, driver: str | None = None) -> dict[str, str]:
    """Names and versions of what makes the code for ``target``; two of them are equal exactly when they make the same
    code from the same variant.

    ``compiler``: digest of the compiler's own source. ``host``: of this processor's features, on the CPU.
    ``assembler``: build of ptxas or version of nvJitLink. ``driver``: given for measured times, which depend on it.
    """
    chain = {
        "deuteron": __version__,
        "compiler": compiler_digest(),
        "llvmlite": _version("llvmlite"),
        "target": str(target),
        "f32_default": knobs.f32_default.get(),
    }
    if target.kind == "cpu":
        chain["host"] = f"{platform.machine()} {_host_features()}"
    else:
        chain["assembler"] = assembler_identity()
        chain["assembler_options"] = _short(" ".join(assembler_options()))
    return chain if driver is None else chain | {"driver": driver}


@cache
def compiler_digest() -> str:
    """A digest of the compiler's source files. Reading them takes some 5 ms, once per process and when first needed."""
    digest = hashlib.blake2b(digest_size=16)
    root = Path(__file__).parents[2]
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _host_features() -> str:
    """A digest of what this processor can do; code for one with more features must not reach one with fewer."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.findall(r"^(?:model name|flags|Features)\s*:.*$", text, re.MULTILINE)
    return hashlib.sha256("\n".join(sorted(set(found))).encode()).hexdigest()[:16]


def _short(text: str) -> str:
    if len(text) <= _LONGEST_OPTIONS:
        return text
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"


@cache
def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "absent"
