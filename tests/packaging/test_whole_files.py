"""Files appear whole: what is written under its own name, where a reader or a full disk may come between, is named."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("compiler", "profiler", "tuner", "server", "deuteron")
#: What writes otherwise than by :mod:`deuteron.compiler.whole_file`, and why it may.
OTHERS = {
    "compiler/whole_file.py": "it is how",
    "compiler/standard_streams.py": "a stream that is closed becomes /dev/null, and another is of an open file",
    "compiler/runtime/variant/cache.py": "entries have checksums, and are compiled again where they are damaged",
    "compiler/runtime/variant/disassemble.py": "the input of a tool, in a folder of its own",
    "deuteron/cli/demo/service.py": "the log of a process that is read while it grows",
    "server/client/difference.py": "a download that is not finished",
    "server/client/download.py": "a download that is not finished",
    "tuner/tuned.py": "a download that is not finished",
}


def is_writing(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return isinstance(call.func, ast.Name) and call.func.id == "open"
    if call.func.attr in ("write_text", "write_bytes"):
        return True
    modes = [value for value in call.args[:1] if isinstance(value, ast.Constant)]
    return call.func.attr == "open" and any(str(mode.value)[:1] in "wxa" for mode in modes)


def writers() -> Iterator[tuple[str, int]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and is_writing(node):
                    yield path.relative_to(ROOT).as_posix(), node.lineno


def test_files_are_written_in_one_way() -> None:
    found = list(writers())
    assert not [f"{path}:{line}" for path, line in found if path not in OTHERS], "write_whole or whole_file"
    assert {path for path, _ in found} == set(OTHERS), "an exception that is none any more"
