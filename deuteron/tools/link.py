"""Functions that ``triton.tools.compile`` wrote, joined into one that looks at its arguments.

python -m deuteron.tools.link headers/*.h -o kernel

Written are ``kernel.h`` and ``kernel.c``. Functions of one set of compile-time values and options are an *algorithm*:
of them the first is called whose promises the arguments keep, those with most promises first. With ``NAME`` the name
that the functions have in common, there are

    CUresult NAME(CUstream stream, ..., int algo_id);      the algorithm with this number
    CUresult NAME_default(CUstream stream, ...);           number 0, that of the first header
    int NAME_get_num_algos(void);
    void load_NAME(void);  void unload_NAME(void);         all of them

and a function for each algorithm. Arguments that keep no function's promises, and numbers that do not exist, give
CUDA_ERROR_INVALID_VALUE.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deuteron.compiler.errors import DeuteronError
from deuteron.tools.command import check_c_name, exit_status, write_beside

_BACKEND = re.compile(r"^//\s*tt-linker-backend:\s*(\w+)", re.MULTILINE)
_KERNEL = re.compile(r"^//\s*tt-linker:\s*(\w+):([^:\n]*):(.*)$", re.MULTILINE)
_NAME = re.compile(r"(\w+)_([0-9a-f]{8})_((?:\d+[cd])*)")
_PARAMETER = re.compile(r"(\w+)\s+(\w+)")


class LinkerError(DeuteronError):
    """Headers cannot be joined; the message names one."""


@dataclass(frozen=True)
class CompiledFunction:
    """A function of one header. ``promises``: by the place of a parameter, "d" for a multiple of 16, "c" for 1."""

    symbol: str
    name: str
    algorithm: str
    parameters: tuple[tuple[str, str], ...]
    promises: Mapping[int, str]

    @property
    def passed(self) -> list[tuple[str, str]]:
        """The parameters that it takes itself: what is 1 is none."""
        return [p for place, p in enumerate(self.parameters) if self.promises.get(place) != "c"]

    def condition(self) -> str:
        """An expression of C: whether arguments keep the promises."""
        names = [name for _, name in self.parameters]
        tests = {"c": "{} == 1", "d": "(uintptr_t){} % 16 == 0"}
        return " && ".join(tests[kind].format(names[place]) for place, kind in self.promises.items()) or "1"


def read_headers(headers: Sequence[Path]) -> list[CompiledFunction]:
    """The functions that headers declare, in their order, each once.

    Raises:
        LinkerError: a header has no directives of ``triton.tools.compile``, names another backend than CUDA, or the
            functions differ in name or parameters.
    """
    # One that is read twice would be loaded twice, and unloaded once.
    found = list({function.symbol: function for header in headers for function in _read(header)}.values())
    for function in found:
        if function.name != found[0].name:
            raise LinkerError(f"{function.name} and {found[0].name} are different kernels", hint="link them one by one")
        if function.parameters != found[0].parameters:
            raise LinkerError(
                f"{function.symbol} takes {_declared(function.parameters)}, but {found[0].symbol} takes "
                f"{_declared(found[0].parameters)}",
                hint="functions of one kernel have one list of parameters; only promises and values may differ",
            )
    return found


def _read(header: Path) -> list[CompiledFunction]:
    try:
        text = header.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise LinkerError(f"cannot read {header}: {reason}") from error
    for backend in _BACKEND.findall(text):
        if backend != "cuda":
            raise LinkerError(f"{header} is for {backend}", hint="only kernels for CUDA can be linked")
    functions = []
    for symbol, parameters, algorithm in _KERNEL.findall(text):
        match = _NAME.fullmatch(symbol)
        if match is None:
            raise LinkerError(f"{header} names a function {symbol!r}", hint="names are NAME_HASH_PROMISES")
        name, _, marks = match.groups()
        promises = {int(place): kind for place, kind in re.findall(r"(\d+)([cd])", marks)}
        listed = tuple(_PARAMETER.findall(parameters))
        if any(place >= len(listed) for place in promises):
            raise LinkerError(f"{header}: {symbol} promises something of a parameter that it does not have")
        functions.append(CompiledFunction(symbol, name, f"{name}_{algorithm.strip()}", listed, promises))
    if not functions:
        raise LinkerError(f"{header} has no directive of triton.tools.compile", hint="pass the headers that it wrote")
    return functions


def _declared(parameters: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{kind} {name}" for kind, name in parameters)


class LinkedKernel:
    """All functions of one kernel, with names that begin with ``prefix``."""

    def __init__(self, functions: Sequence[CompiledFunction], prefix: str = "") -> None:
        self.name = prefix + functions[0].name
        self.parameters = functions[0].parameters
        self.algorithms: dict[str, list[CompiledFunction]] = {}
        for function in functions:
            self.algorithms.setdefault(prefix + function.algorithm, []).append(function)
        for members in self.algorithms.values():
            members.sort(key=lambda function: -len(function.promises))

    def _prototype(self, name: str, *more: str) -> str:
        return f"CUresult {name}({', '.join(['CUstream launch_stream', *_texts(self.parameters), *more])})"

    def header(self) -> str:
        """The declarations."""
        names = [*self.algorithms, f"{self.name}_default"]
        lines = ["#pragma once", "#include <cuda.h>", "#include <stdint.h>", ""]
        lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
        lines += [f"{self._prototype(name)};" for name in names]
        lines += [f"{self._prototype(self.name, 'int algo_id')};", f"int {self.name}_get_num_algos(void);"]
        lines += [f"void {what}_{name}(void);" for name in [*self.algorithms, self.name] for what in ("load", "unload")]
        return "\n".join([*lines, "", "#ifdef __cplusplus", "}", "#endif", ""])

    def source(self) -> str:
        """The definitions, which need no header."""
        lines = ["#include <cuda.h>", "#include <stdint.h>", ""]
        for members in self.algorithms.values():
            for function in members:
                lines.append(
                    f"CUresult {function.symbol}({', '.join(['CUstream launch_stream', *_texts(function.passed)])});"
                )
                lines += [f"void {what}_{function.symbol}(void);" for what in ("load", "unload")]
        for name, members in self.algorithms.items():
            lines += ["", *self._dispatcher(name, members)]
            lines += _both(name, [function.symbol for function in members])
        return "\n".join([*lines, "", *self._choice(), *_both(self.name, list(self.algorithms)), ""])

    def _dispatcher(self, name: str, members: Sequence[CompiledFunction]) -> list[str]:
        lines = [f"{self._prototype(name)} {{"]
        for function in members:
            passed = ", ".join(["launch_stream", *(parameter for _, parameter in function.passed)])
            lines.append(f"  if ({function.condition()}) return {function.symbol}({passed});")
        return [*lines, "  return CUDA_ERROR_INVALID_VALUE;", "}"]

    def _choice(self) -> list[str]:
        kinds = ", ".join(["CUstream", *(kind for kind, _ in self.parameters)])
        passed = ", ".join(["launch_stream", *(name for _, name in self.parameters)])
        return [
            f"static CUresult (*const {self.name}_algorithms[])({kinds}) = {{{', '.join(self.algorithms)}}};",
            "",
            f"int {self.name}_get_num_algos(void) {{ return {len(self.algorithms)}; }}",
            "",
            f"{self._prototype(self.name, 'int algo_id')} {{",
            f"  if (algo_id < 0 || algo_id >= {len(self.algorithms)}) return CUDA_ERROR_INVALID_VALUE;",
            f"  return {self.name}_algorithms[algo_id]({passed});",
            "}",
            "",
            f"{self._prototype(f'{self.name}_default')} {{ return {self.name}({passed}, 0); }}",
        ]


def _texts(parameters: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{kind} {name}" for kind, name in parameters]


def _both(name: str, members: Sequence[str]) -> list[str]:
    """Definitions of load_NAME and unload_NAME by those of the members."""
    return [
        f"void {what}_{name}(void) {{ {' '.join(f'{what}_{member}();' for member in members)} }}"
        for what in ("load", "unload")
    ]


def link(headers: Sequence[Path], out: Path, prefix: str = "") -> list[Path]:
    """Write ``out.h`` and ``out.c``, and return their paths. Raises LinkerError, and ToolError for a prefix that is
    none and for files that cannot be written."""
    if prefix:
        check_c_name("--prefix", prefix)
    linked = LinkedKernel(read_headers(headers), prefix)
    return write_beside("--out", out, {".h": linked.header(), ".c": linked.source()})


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: 0, or 2 after a mistake that its message explains."""
    parser = argparse.ArgumentParser(
        prog="python -m triton.tools.link", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("headers", nargs="+", type=Path, help="headers that triton.tools.compile wrote")
    parser.add_argument("--out", "-o", type=Path, required=True, help="name of the files")
    parser.add_argument("--prefix", default="", help="what names of functions begin with")
    given = parser.parse_args(arguments)
    return exit_status(lambda: link(given.headers, given.out, given.prefix))


if __name__ == "__main__":
    sys.exit(main())
