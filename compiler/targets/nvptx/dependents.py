"""Kernels that overlap with those around them on a stream: ``griddepcontrol`` (PTX ISA, from sm_90 on). Below, a kernel
begins when the one before it has ended, and there is nothing to say."""

from __future__ import annotations

from ...tile.memory import GridWait, LaunchDependents
from ..simt.lowering import Lowering, rule
from .machine import RULES, PtxMachine


@rule(GridWait, RULES)
def _wait(state: Lowering, op: GridWait) -> None:
    _control(state, "wait")


@rule(LaunchDependents, RULES)
def _launch_dependents(state: Lowering, op: LaunchDependents) -> None:
    _control(state, "launch_dependents")


def _control(state: Lowering, what: str) -> None:
    machine = state.machine
    if isinstance(machine, PtxMachine) and "griddepcontrol" in machine.target.features:
        state.text.asm([], f"griddepcontrol.{what};", "~{memory}", [])
