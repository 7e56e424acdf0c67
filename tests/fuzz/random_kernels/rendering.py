"""A random kernel as text, and as a script that runs by itself and says what is wrong."""

from __future__ import annotations

import base64
import zlib

import numpy as np

from .families import RandomKernel
from .kinds import Array
from .memory import Memory, memory_of, signature_of
from .statements import indented

HEADER = """import triton
import triton.language as tl


@triton.jit
def f_add(a, b):
    return a + b


@triton.jit
def f_max(a, b):
    return tl.maximum(a, b)


@triton.jit
def f_mul(a, b):
    return a * b


@triton.jit
def f_sum_min(a, b, c, d):
    return a + c, tl.minimum(b, d)


@triton.jit
def f_best(v, i, w, j):
    keep = (v > w) | ((v == w) & (i < j))
    return tl.where(keep, v, w), tl.where(keep, i, j)


@triton.jit
def f_after(a, b, c, d):
    # x -> b + a * x, then x -> d + c * x: the order matters.
    return a * c, b * c + d


@triton.jit
def f_last(a, b):
    return tl.where(b != 0, b, a)


@triton.jit
def f_ordered(a, b, first: tl.constexpr):
    low, high = tl.minimum(a, b), f_max(a, b)
    if first:
        return low, high
    return high - low, high


"""


def text_of(kernel: RandomKernel) -> str:
    """The module of a kernel, as a user of Triton writes it."""
    names = [*(x.name for x in kernel.inputs), *(o.name for o in kernel.outputs), *kernel.numbers]
    lines = "\n".join(indented(kernel.body))
    return f"{HEADER}@triton.jit\ndef kernel({', '.join(names)}):\n    pid = tl.program_id(0)\n{lines}\n"


SCRIPT = '''

import base64, sys, zlib  # noqa: E401

import ml_dtypes  # noqa: F401, E402
import numpy as np  # noqa: E402


def array(dtype, text):
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), np.dtype(dtype)).copy()


def placed(full):
    """A copy whose first byte is at a multiple of 256."""
    room = np.empty(full.nbytes + 256, np.uint8)
    at = -room.ctypes.data % 256
    room[at:at + full.nbytes] = full.view(np.uint8)
    return room[at:at + full.nbytes].view(full.dtype)


# Name, type in memory and in the language, elements before the argument's first, and all elements.
ARRAYS = {arrays}
# Name, values, the error that is allowed, and which elements are written.
EXPECTED = {expected}
NUMBERS = {numbers}
OPTIONS = {options}
SIGNATURE = {signature}


def compare(name, got, before, values, error, touched):
    got, before = (x if values.dtype.kind in "iu" else x.astype("f8") for x in (got, before))
    allowed = np.where(touched, error, 0.0)
    bad = (got != np.where(touched, values, before)) & ~(abs(got.astype("f8") - values.astype("f8")) <= allowed)
    print(name, "good" if not bad.any() else f"WRONG in {{bad.sum()}} of {{len(bad)}}")
    for place in np.flatnonzero(bad)[:8]:
        print(f"  [{{place}}] got {{got[place]}} expected {{values[place]}} within {{error[place]:.3g}}")


if __name__ == "__main__":  # [TRITON_INTERPRET=1] python FILE [cpu|cuda|sm_80|sm_90a]
    device = sys.argv[1] if len(sys.argv) > 1 else "{device}"
    if device.startswith("sm_"):
        print(triton.compile(kernel, SIGNATURE, {{}}, target=f"cuda:{{device[3:]}}", **OPTIONS))
        sys.exit()
    held, arguments = {{}}, []
    for name, dtype, language, lead, text in ARRAYS:
        held[name] = placed(array(dtype, text))
        if device == "cuda":
            import torch

            held[name] = torch.from_numpy(held[name].view(f"i{{held[name].itemsize}}")).cuda()
        arguments.append(triton.reinterpret(held[name][lead:], getattr(tl, language)))
    kernel[({programs},)](*arguments, *NUMBERS, **OPTIONS)
    for name, values, error, touched in EXPECTED:
        _, dtype, _, lead, text = next(entry for entry in ARRAYS if entry[0] == name)
        got = held[name].cpu().numpy().view(dtype) if device == "cuda" else held[name]
        values = array(*values)
        part = slice(lead, lead + len(values))
        compare(name, got[part], array(dtype, text)[part], values, array("f8", error), array("?", touched))
'''


def script_of(kernel: RandomKernel, target: str, what: str) -> str:
    """A file that launches the kernel with its arguments and compares; ``what``: was wrong with it on ``target``."""
    first = f"Seed {kernel.seed}, {kernel.family}, on {target}:"
    notes = "\n".join(f"# {line}".rstrip() for line in (first, *what.splitlines()[:40]))
    expected, wanted = kernel.expected(), []
    for output in kernel.outputs:
        found = expected[output.name]
        values = found.values.dtype.str, _packed(found.values)
        wanted.append((output.name, values, _packed(found.error * Memory.ALLOWED), _packed(found.touched)))
    fields = {
        "arrays": [_array(memory) for memory in memory_of(kernel)],
        "expected": wanted,
        "numbers": list(kernel.numbers.values()),
        "options": kernel.options,
        "signature": signature_of(kernel),
        "programs": kernel.programs,
    }
    device = target if target in ("cuda", "sm_80", "sm_90a") else "cpu"
    imports = "import triton\nimport triton.language as tl\n"
    text = text_of(kernel).replace(imports, "import deuteron as triton\nimport deuteron.language as tl\n")
    return f"{notes}\n{text}{SCRIPT.format(device=device, **fields)}"


def _array(memory: Memory) -> tuple[str, str, str, int, str]:
    kind = memory.kind
    return memory.name, kind.memory.name, kind.language, memory.lead, _packed(memory.elements)


def _packed(array: Array) -> str:
    return base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes())).decode()
