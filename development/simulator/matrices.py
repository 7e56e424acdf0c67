"""ldmatrix and stmatrix: 8 by 8 matrices of 16-bit elements between shared memory and the lanes of a warp (PTX ISA).

Row j of matrix m is at the address that lane 8m + j gives; lane l holds elements 2l and 2l + 1 of each matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .statements import Assembly, Maker, Run, Statement, require_all, vector
from .values import LANES, Array, SimulationError
from .warp import Lanes, Warp

_ROW = 8


def _count(statement: Statement) -> int:
    number = next((part for part in statement.opcode.split(".") if part in ("x1", "x2", "x4")), None)
    if number is None or not statement.has("m8n8") or not statement.has("b16"):
        raise SimulationError(f"the simulator does not know {statement.opcode}")
    return int(number[1:])


def _givers(warp: Warp, lanes: Lanes, statement: Statement, count: int) -> Lanes:
    require_all(warp, lanes, statement)
    givers: Lanes = np.arange(LANES) < _ROW * count
    return givers


def _load(statement: Statement, assembly: Assembly) -> Run:
    count, address = _count(statement), assembly.place(statement.operands[1])
    outputs = vector(statement.operands[0])

    def run(warp: Warp, lanes: Lanes) -> None:
        givers = _givers(warp, lanes, statement, count)
        rows = warp.shared.load(address(warp), np.dtype(np.int16), _ROW, 16, givers, warp.agents)
        for register, matrix in zip(outputs, rows[givers].reshape(count, _ROW, _ROW), strict=True):
            turned = matrix.T if statement.has("trans") else matrix
            warp.registers[register] = np.ascontiguousarray(turned.reshape(LANES, 2)).view(np.int32)[:, 0]

    return run


def _store(statement: Statement, assembly: Assembly) -> Run:
    count, address = _count(statement), assembly.place(statement.operands[0])
    words = [assembly.read(word) for word in vector(statement.operands[1])]

    def run(warp: Warp, lanes: Lanes) -> None:
        givers = _givers(warp, lanes, statement, count)
        rows = np.zeros((LANES, _ROW), np.int16)
        rows[givers] = _matrices([word(warp) for word in words], statement.has("trans")).reshape(-1, _ROW)
        warp.shared.store(address(warp), rows, 16, givers, warp.agents)

    return run


def _matrices(words: Sequence[Array], transposed: bool) -> Array:
    elements = [np.ascontiguousarray(word).view(np.int16).reshape(_ROW, _ROW) for word in words]
    return np.stack([matrix.T if transposed else matrix for matrix in elements])


MAKERS: dict[str, Maker] = {"ldmatrix.": _load, "stmatrix.": _store}
