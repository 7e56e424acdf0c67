"""Vector addition, and softmax, layer norm and RMS norm with their gradients, beside Triton (same source) and torch.

python benchmarks/rows.py [--only NAME ...] [--quick] [--limit SECONDS] [--out FILE] [--device cpu]

f32. Vectors of 2^12 to 2^27 elements; 4096 rows of 256 to 65536. Each result is checked against float64 on a poisoned
output, then timed in turns with a cold L2. GB/s count each input read once and each output written once. The table of
single sizes comes first, then geometric mean and least ratio of each operation, and at how many sizes ours is slower
beyond the 95 % intervals of both medians. The peers torch has for gradients run
through autograd, whose own time on the host may show where the work is small.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import torch
from isolated import Isolated, WorkFailed, raise_if_lost
from sources import environment, load_kernels
from timing import Call, Timing, geomean, race, relative_error
from torch.nn import functional

ROWS = 4096
COLUMNS = [256 << i for i in range(9)]
LENGTHS = [1 << i for i in range(12, 28)]
TOLERANCE = 1e-5
PATIENCE, ROUNDS = 90.0, 50


@dataclass
class Work:
    """One operation at one size: how each compiler runs it, where its results lie and what they must be."""

    bytes: float
    run: Callable[[str], Call]
    outputs: list[torch.Tensor]
    wanted: list[torch.Tensor]
    torch: Call


@dataclass
class Row:
    """What came out of it: timings by who ran it, and who could not."""

    name: str
    size: int
    bytes: float = 0.0
    timings: dict[str, Timing] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def ratio(self, peer: str) -> float | None:
        """The peer's time over deuteron's; None where one is missing."""
        if "deuteron" not in self.timings or peer not in self.timings:
            return None
        return self.timings[peer].us / self.timings["deuteron"].us

    def is_slower_than(self, peer: str) -> bool:
        """Whether deuteron is slower beyond what chance makes of so many launches."""
        both = "deuteron" in self.timings and peer in self.timings
        return both and self.timings["deuteron"].is_slower_than(self.timings[peer])


def _matrix(n: int, device: str) -> torch.Tensor:
    return torch.randn(ROWS, n, device=device) * 2 + 1


def _gradients(forward: Callable[..., torch.Tensor], inputs: list[torch.Tensor], dy: torch.Tensor) -> Call:
    """torch's own gradients of ``forward`` for ``dy``, as a call that can be repeated."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    y = forward(*leaves)
    return partial(torch.autograd.grad, y, leaves, dy, retain_graph=True)


def _in_float64(gradients: Call, inputs: int) -> list[torch.Tensor]:
    found = gradients()
    assert isinstance(found, tuple) and len(found) == inputs
    return list(found)


def vector_add(n: int, device: str) -> Work:
    """x + y: 12 bytes an element."""
    x, y = (torch.randn(n, device=device) for _ in range(2))
    out = torch.empty_like(x)
    return Work(
        12.0 * n,
        lambda package: partial(load_kernels("vector_add", package).add, x, y, out),
        [out],
        [x.double() + y.double()],
        partial(torch.add, x, y, out=out),
    )


def softmax(n: int, device: str) -> Work:
    """8 bytes an element."""
    x = _matrix(n, device)
    out = torch.empty_like(x)
    return Work(
        8.0 * x.numel(),
        lambda package: partial(load_kernels("softmax", package).softmax, x, out, num_programs=ROWS),
        [out],
        [torch.softmax(x.double(), 1)],
        partial(torch.softmax, x, 1, out=out),
    )


def softmax_backward(n: int, device: str) -> Work:
    """12 bytes an element."""
    x, dy = _matrix(n, device), _matrix(n, device)
    y = torch.softmax(x, 1)
    dx = torch.empty_like(x)
    y64, dy64 = y.double(), dy.double()
    return Work(
        12.0 * x.numel(),
        lambda package: partial(load_kernels("softmax", package).softmax_backward, dy, y, dx),
        [dx],
        [y64 * (dy64 - (y64 * dy64).sum(1, keepdim=True))],
        _gradients(partial(torch.softmax, dim=1), [x], dy),
    )


def layer_norm(n: int, device: str) -> Work:
    """8 bytes an element."""
    x, weight, bias = _matrix(n, device), torch.randn(n, device=device), torch.randn(n, device=device)
    out, mean, rstd = torch.empty_like(x), torch.empty(ROWS, device=device), torch.empty(ROWS, device=device)
    return Work(
        8.0 * x.numel(),
        lambda package: partial(load_kernels("layer_norm", package).layer_norm, x, weight, bias, out, mean, rstd),
        [out],
        [functional.layer_norm(x.double(), (n,), weight.double(), bias.double())],
        partial(functional.layer_norm, x, (n,), weight, bias),
    )


def layer_norm_backward(n: int, device: str) -> Work:
    """12 bytes an element for dx; reading both inputs again for the sums over rows is not counted."""
    x, dy, weight, bias = _matrix(n, device), _matrix(n, device), *torch.randn(2, n, device=device)
    mean, rstd = x.mean(1), (x.var(1, correction=0) + 1e-5).rsqrt()
    outputs = [torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias)]

    def run(package: str) -> Call:
        module = load_kernels("layer_norm", package)
        partials = torch.empty(2, module.groups_of_rows(n), n, device=device)
        return partial(module.layer_norm_backward, dy, x, weight, mean, rstd, *outputs, [partials[0], partials[1]])

    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (n,), weight, bias)

    wanted = _in_float64(_gradients(forward, [v.double() for v in (x, weight, bias)], dy.double()), 3)
    return Work(12.0 * x.numel(), run, outputs, wanted, _gradients(forward, [x, weight, bias], dy))


def rms_norm(n: int, device: str) -> Work:
    """8 bytes an element."""
    x, weight = _matrix(n, device), torch.randn(n, device=device)
    out, rstd = torch.empty_like(x), torch.empty(ROWS, device=device)
    return Work(
        8.0 * x.numel(),
        lambda package: partial(load_kernels("rms_norm", package).rms_norm, x, weight, out, rstd),
        [out],
        [functional.rms_norm(x.double(), (n,), weight.double(), 1e-6)],
        partial(functional.rms_norm, x, (n,), weight, 1e-6),
    )


def rms_norm_backward(n: int, device: str) -> Work:
    """12 bytes an element, as for layer norm."""
    x, dy, weight = _matrix(n, device), _matrix(n, device), torch.randn(n, device=device)
    rstd = (x.square().mean(1) + 1e-6).rsqrt()
    outputs = [torch.empty_like(x), torch.empty_like(weight)]

    def run(package: str) -> Call:
        module = load_kernels("rms_norm", package)
        partials = torch.empty(module.groups_of_rows(n), n, device=device)
        return partial(module.rms_norm_backward, dy, x, weight, rstd, *outputs, partials)

    def forward(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (n,), weight, 1e-6)

    wanted = _in_float64(_gradients(forward, [x.double(), weight.double()], dy.double()), 2)
    return Work(12.0 * x.numel(), run, outputs, wanted, _gradients(forward, [x, weight], dy))


OPERATIONS: dict[str, tuple[Callable[[int, str], Work], list[int]]] = {
    "vector add": (vector_add, LENGTHS),
    "softmax": (softmax, COLUMNS),
    "softmax backward": (softmax_backward, COLUMNS),
    "layer norm": (layer_norm, COLUMNS),
    "layer norm backward": (layer_norm_backward, COLUMNS),
    "rms norm": (rms_norm, COLUMNS),
    "rms norm backward": (rms_norm_backward, COLUMNS),
}


class Bench:
    """The service of the child that holds the device."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce

    def measure(self, name: str, n: int, device: str, packages: list[str], rounds: int) -> Row:
        """Check and time one operation at one size."""
        torch.manual_seed(0)
        row = Row(name, n)
        work = OPERATIONS[name][0](n, device)
        row.bytes = work.bytes
        calls = {"torch": work.torch}
        for package in packages:
            self._announce(package)
            try:
                call = work.run(package)
                _check(call, work)
                calls[package] = call
            except Exception as problem:  # of either compiler, or a wrong result: the others are still timed
                row.failures[package] = f"{type(problem).__name__}: {problem}"
                if device.startswith("cuda"):
                    raise_if_lost(problem)
        row.timings = race(calls, device, rounds, self._announce)
        return row


def _check(call: Call, work: Work) -> None:
    for output in work.outputs:
        output.fill_(float("nan"))
    call()
    for i, (found, wanted) in enumerate(zip(work.outputs, work.wanted, strict=True)):
        error = relative_error(found, wanted)
        if not error < TOLERANCE:
            raise ValueError(f"result {i} is wrong: relative error {error:.1e}")


def detail(row: Row) -> str:
    """One line: rates and ratios of one size."""
    rates = {who: f"{row.bytes / t.us / 1e3:.0f}" for who, t in row.timings.items()}
    ratios = [row.ratio(peer) for peer in ("triton", "torch")]
    shown = "".join(f"{r:>9.2f}" if r else f"{'-':>9}" for r in ratios)
    own = row.timings.get("deuteron")
    spread = f"{own.spread:9.3f}" if own else ""
    columns = "".join(f"{rates.get(who, '-'):>10}" for who in ("deuteron", "triton", "torch"))
    return f"{row.name:22}{row.size:>10}{columns}{shown}{spread}"


def summary(rows: list[Row]) -> str:
    """Geometric mean and least ratio of each operation, with the size where it is least, and how many are slower."""
    lines = [f"{'geomean, least (at), slower':26}{'/triton':>28}{'/torch':>28}"]
    for name in dict.fromkeys(r.name for r in rows):
        cells = []
        for peer in ("triton", "torch"):
            found = {r.size: ratio for r in rows if r.name == name and (ratio := r.ratio(peer))}
            slower = sum(r.is_slower_than(peer) for r in rows if r.name == name)
            at = min(found, key=lambda size: found[size], default=0)
            cells.append(f"{geomean(list(found.values())):.3f}, {found[at]:.3f} ({at}), {slower}" if found else "-")
        lines.append(f"{name:26}{cells[0]:>28}{cells[1]:>28}")
    return "\n".join(lines)


def main() -> None:
    """Measure size after size; what is done is written after each operation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=OPERATIONS, default=list(OPERATIONS), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="two sizes of each, fewer rounds")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS", help="begin nothing after this")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--device", default="cuda:0", help="cuda:0, or cpu, where there is no Triton")
    options = parser.parse_args()
    packages = ["deuteron"] if options.device == "cpu" else ["deuteron", "triton"]
    bench, rows, begin = Isolated(Bench), [], time.monotonic()
    print(f"{'GB/s':22}{'':>10}{'deuteron':>10}{'triton':>10}{'torch':>10}{'/triton':>9}{'/torch':>9}{'spread':>9}")
    for name in options.only:
        sizes = OPERATIONS[name][1]
        for n in sizes[:: len(sizes) // 2] if options.quick else sizes:
            if time.monotonic() - begin > options.limit:
                print(f"{name} {n}: not begun in {options.limit:.0f} s")
                break
            try:
                asked = (name, n, options.device, packages, 8 if options.quick else ROUNDS)
                rows.append(bench.ask("measure", *asked, patience=PATIENCE))
            except WorkFailed as failure:
                rows.append(Row(name, n, failures={failure.last or "all": str(failure)}))
            print(detail(rows[-1]), flush=True)
            for who, why in rows[-1].failures.items():
                print(f"{name} {n}: {who}: {why}", file=sys.stderr)
        if options.out:
            record = {"environment": environment(), "rows": [asdict(r) for r in rows]}
            options.out.write_text(json.dumps(record, indent=1) + "\n")
    bench.close()
    print(summary(rows))


if __name__ == "__main__":
    main()
