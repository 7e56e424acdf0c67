"""A seeded part of what the scripts of this folder run by the thousand, and tests that they would notice a mistake."""

import re

import control_flow
import numpy as np
import pytest


@pytest.mark.parametrize("block", range(8))
def test_random_control_flow_means_what_python_means(block):
    for seed in range(1_000_000 + block * 8, 1_000_000 + (block + 1) * 8):
        targets = ("tile", "cpu", "eager", "simulated") if seed % 4 == 0 else ("cpu", "eager")
        found = control_flow.check(seed, targets)
        assert not found, f"{found[0]}\n{control_flow.generate(seed).device}"


def test_programs_have_every_kind_of_exit():
    text = "".join(control_flow.generate(seed).device for seed in range(200))
    for pattern in (
        r"for \w+ in tl.static_range\(3\):(\n +.*)*?\n +(return|break|continue)",
        r"for \w+ in range\(.*\):(\n +.*)*?\n +(return|break|continue)",
        r"while .*:(\n +.*)*?\n +(return|break|continue)",
        r"else:(\n +.*)*?\n +return",
        r"return .*, \(",
    ):
        assert re.search(pattern, text), pattern


def test_a_dropped_store_is_noticed(monkeypatch):
    """The comparison can fail: a program whose last store is left out on the device is wrong."""
    generate = control_flow.generate

    def broken(seed):
        program = generate(seed)
        text = program.device.replace("    tl.store(out + 2, c + m)\n", "    pass\n")
        return control_flow.Program(seed, text, program.python)

    monkeypatch.setattr(control_flow, "generate", broken)
    assert any(control_flow.check(seed, ("cpu",)) for seed in range(5))


def test_the_reference_wraps_as_registers_do():
    assert control_flow.wrap(2**63) == -(2**63)
    assert control_flow.wrap(-(2**63) - 1) == 2**63 - 1
    with np.errstate(over="ignore"):
        assert control_flow.wrap(2**62 * 3) == np.int64(2**62) * np.int64(3)
    assert (control_flow.quotient(-7, 3), control_flow.remainder(-7, 3)) == (-2, -1)
