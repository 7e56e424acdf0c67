"""Which line of the source each instruction comes from, as LLVM's debug metadata: assembly then says so by ``.loc``.

LLVM Language Reference, "Specialized Metadata Nodes". Only directives are asked for (``DebugDirectivesOnly``): no
tables and no sections.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import Location
from ..source.kernel import KernelSource

#: Code generators number their own nodes from 0.
_FIRST = 10_000
_UNIT, _FILE, _KERNEL, _TYPE, _NOTHING, _VERSION = range(_FIRST, _FIRST + 6)


class SourceLines:
    """Numbers the places of one kernel, which begins at ``start``."""

    def __init__(self, kernel: str, start: Location) -> None:
        self._files = {start.file: _FILE}
        self._scopes = {start.file: _KERNEL}
        self._places: dict[Location, int] = {}
        self._nodes = [
            f"distinct !DICompileUnit(language: DW_LANG_C99, file: !{_FILE}, isOptimized: true, runtimeVersion: 0,"
            " emissionKind: DebugDirectivesOnly)",
            _file(start.file),
            f'distinct !DISubprogram(name: "{kernel}", scope: !{_FILE}, file: !{_FILE}, line: {start.line},'
            f" type: !{_TYPE}, unit: !{_UNIT}, spFlags: DISPFlagDefinition | DISPFlagOptimized)",
            f"!DISubroutineType(types: !{_NOTHING})",
            "!{}",
            '!{i32 2, !"Debug Info Version", i32 3}',
        ]

    @classmethod
    def of(cls, source: KernelSource) -> SourceLines:
        """Those of a kernel and of the functions that it calls."""
        return cls(source.name, source.locate(source.node))

    @property
    def of_kernel(self) -> str:
        """What follows the kernel's header."""
        return f" !dbg !{_KERNEL}"

    def after(self, location: Location | None) -> str:
        """What follows an instruction that ``location`` was compiled to; without one line 0, which stands for none."""
        where = location or Location(next(iter(self._files)), 0, 0)
        number = self._places.get(where)
        if number is None:
            scope = self._scope(where.file)
            node = f"!DILocation(line: {where.line}, column: {where.column + 1}, scope: !{scope})"
            number = self._places[where] = self._add(node)
        return f", !dbg !{number}"

    def metadata(self) -> list[str]:
        """The lines that end the module."""
        nodes = [f"!{number} = {node}" for number, node in enumerate(self._nodes, _FIRST)]
        return [f"!llvm.dbg.cu = !{{!{_UNIT}}}", f"!llvm.module.flags = !{{!{_VERSION}}}", *nodes]

    def _scope(self, file: str) -> int:
        if file not in self._scopes:
            self._files[file] = self._add(_file(file))
            block = f"!DILexicalBlockFile(scope: !{_KERNEL}, file: !{self._files[file]}, discriminator: 0)"
            self._scopes[file] = self._add(block)
        return self._scopes[file]

    def _add(self, node: str) -> int:
        self._nodes.append(node)
        return _FIRST + len(self._nodes) - 1


def _file(path: str) -> str:
    name, folder = (
        text.replace("\\", "\\5C").replace('"', "\\22") for text in (Path(path).name, str(Path(path).parent))
    )
    return f'!DIFile(filename: "{name}", directory: "{folder}")'
