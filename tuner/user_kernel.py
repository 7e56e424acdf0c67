"""Finding the workload that a command means: a built-in name, or a kernel in the user's own file.

A user's kernel is described beside the file or in it:

- ``workload = {...}`` at the top level of the file, a literal (numbers, text, lists, dicts), read with
  ``ast.literal_eval``; ``workloads = {"kernel": {...}}`` where a file has several kernels;
- or a JSON file with the same content, given separately.

The fields are those of :class:`~.workloads.WorkloadSpec` without ``kernel``, which is the file itself. Neither form,
nor the file, is ever executed.
"""

from __future__ import annotations

import ast
from io import TextIOWrapper
from pathlib import Path

from deuteron.compiler.syntax import module_tree

from .codec import JsonObject, expect_object, parse_json
from .errors import WorkloadError
from .input_file import open_file
from .workloads import BUILTINS, WorkloadSpec, builtin_workload

EXAMPLE = (
    'workload = {"dims": ["n"], "tensors": [{"name": "x_ptr", "shape": ["n"]}, {"name": "y_ptr", "shape": ["n"], '
    '"role": "output"}], "scalars": {"n_elements": "n"}, "grid": ["cdiv(n, BLOCK)"], '
    '"space": {"parameters": {"BLOCK": [256, 512, 1024]}}}'
)


def resolve_workload(text: str, spec: str | Path | None = None) -> WorkloadSpec:
    """The workload called ``text``: a built-in name, or ``FILE.py:KERNEL``, described in the file or in the JSON file
    ``spec``. Raises :class:`WorkloadError`, :class:`~.errors.SchemaError`, naming what is missing."""
    if text in BUILTINS:
        return builtin_workload(text)
    file, colon, kernel = text.rpartition(":")
    if not colon:
        raise WorkloadError(
            f"{text!r} is neither a built-in workload nor FILE.py:KERNEL",
            hint=f"built-in: {', '.join(BUILTINS)}",
        )
    path = Path(file)
    source = _read(path)
    where = f"{path}: workload" if spec is None else str(spec)
    if spec is None:
        description = _literal_in(source, path, kernel)
    else:
        description = expect_object(parse_json(_read(Path(spec)), where), where)
    if "kernel" in description:
        raise WorkloadError(f"{where}: the kernel is {text}; remove the field 'kernel'")
    return WorkloadSpec.from_json(
        {
            "name": kernel,
            **description,
            "kernel": {"name": kernel, "source": source, "filename": str(path)},
        },
        where,
    )


def _read(path: Path) -> str:
    try:
        with open_file(path) as file:
            return TextIOWrapper(file, encoding="utf-8").read()
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise WorkloadError(f"cannot read {path}: {error}") from None


def _literal_in(source: str, path: Path, kernel: str) -> JsonObject:
    """The value of ``workload`` or ``workloads[kernel]`` in a file."""
    try:
        tree = module_tree(source, str(path))
    except SyntaxError as error:
        raise WorkloadError(f"{path}:{error.lineno}: not valid Python: {error.msg}") from None
    values = {
        target.id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and target.id in ("workload", "workloads")
    }
    if "workloads" in values:
        several = expect_object(_evaluate(values["workloads"], path), f"{path}: workloads")
        if kernel in several:
            return expect_object(several[kernel], f"{path}: workloads[{kernel!r}]")
    if "workload" not in values:
        raise WorkloadError(
            f"{path} does not describe how {kernel} is launched",
            hint=f"add to the file, or give a JSON file: {EXAMPLE}",
        )
    return expect_object(_evaluate(values["workload"], path), f"{path}: workload")


def _evaluate(node: ast.expr, path: Path) -> object:
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise WorkloadError(
            f"{path}:{node.lineno}: a workload is a literal: no names, calls or f-strings",
            hint="numbers, text, True, False, None, lists and dicts; sizes are expressions in text",
        ) from None
    return value
