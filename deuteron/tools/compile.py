"""A kernel as C source and header: what ``python -m triton.tools.compile`` is in Triton, with its options.

python -m deuteron.tools.compile kernel.py -n NAME -s "*fp32:16, *fp32:16, i32, 1024" -g "(n + 1023) / 1024, 1, 1"

The kernel's file is executed, as in Triton, with ``import triton`` giving deuteron. A signature has a type for each
run-time argument, with a promise where that is wanted (":16" a multiple of 16, ":1" the number 1, which then is no
argument of the function), and a value for each compile-time one. The grid is three expressions of C over the
arguments. Written are ``OUT.HASH_PROMISES.c`` and ``.h`` with the function

    CUresult OUT_HASH_PROMISES(CUstream stream, CUdeviceptr x, ..., int32_t n);

and ``load_...`` and ``unload_...``; ``triton.tools.link`` joins several of them into one that looks at its arguments.
No GPU is needed, except to find out for which one to compile where ``--target`` does not say it.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from deuteron.cli.pairs import split_outside
from deuteron.compat.alias import install
from deuteron.compat.triton.backends.compiler import GPUTarget, own_target
from deuteron.compiler import CompiledKernel, KernelSource, Target, get_device
from deuteron.compiler.errors import SignatureError
from deuteron.compiler.language.inline import Inlinable
from deuteron.compiler.runtime.launch.compiled import compile_variant
from deuteron.compiler.runtime.variant.variant import Variant, make_variant
from deuteron.compiler.signature import parse_argument_type
from deuteron.compiler.source.kernel import source_of
from deuteron.tools.c_launcher import CLauncher, c_arguments, c_name
from deuteron.tools.command import check_c_name, exit_status, write_beside


@dataclass
class CompileArgs:
    """What the command line says. ``target``: Triton's ``cuda:90:32`` or ours, ``cuda:90a``; None: this machine's
    GPU. ``out_name``: of the function, by default the kernel's; ``out_path``: of the files, the suffix is replaced."""

    path: str = ""
    kernel_name: str = ""
    signature: str = ""
    grid: str = ""
    target: str | None = None
    num_warps: int = 1
    num_stages: int = 3
    out_name: str | None = None
    out_path: Path | None = None


def compile_kernel(args: CompileArgs) -> tuple[str, list[Path]]:
    """Write header and source; returns the function's name and the files.

    Raises:
        SignatureError: the file has no such kernel, the signature does not fit it, or the grid is not three
            expressions.
        ToolError: the function's name is none in C, or the files cannot be written.
        TargetError: the target is no GPU of NVIDIA's that deuteron compiles for.
        CompilationError, OutOfResources, AssemblerError: as :func:`deuteron.compile`.
    """
    grid = tuple(part.strip() for part in split_outside(args.grid))
    if len(grid) != 3:
        raise SignatureError(
            f"--grid {args.grid!r} has {len(grid)} sizes", hint='it has three: "(n + 127) / 128, 1, 1"'
        )
    function = args.kernel_name if args.out_name is None else args.out_name
    check_c_name("--out-name", function)
    kernel = find_kernel(Path(args.path), args.kernel_name)
    given = Given(kernel, args.signature)
    options = {"num_warps": args.num_warps, "num_stages": args.num_stages}
    variant = make_variant(kernel, given.types, given.constants, str(_target(args.target)), options)
    variants = with_fallbacks(variant)
    name = "_".join([function, given.digest(options), given.promises])
    launcher = CLauncher(
        name,
        variants,
        c_arguments(variant.signature),
        (grid[0], grid[1], grid[2]),
        [variant.describe(), ", ".join(f"{option}={value}" for option, value in options.items())],
        ["tt-linker-backend: cuda", f"tt-linker: {name}:{given.c_parameters(variant)}:{given.algorithm(options)}"],
    )
    ending = f".{name.removeprefix(f'{function}_')}"
    texts = {f"{ending}.h": launcher.header(), f"{ending}.c": launcher.source()}
    return name, write_beside("--out-path", Path(function) if args.out_path is None else args.out_path, texts)


def find_kernel(path: Path, name: str) -> KernelSource:
    """The kernel of a file, which is executed with its folder on the path; raises SignatureError without one, and where
    the file does not run to its end: what it raised is printed then."""
    install()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SignatureError(f"there is no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        traceback.print_exception(type(error), error, _frames_of(error, module.__file__))
        raise SignatureError(f"{path} did not run to its end: it raised {type(error).__name__}") from None
    kernel = getattr(module, name, None)
    if not isinstance(kernel, Inlinable):
        raise SignatureError(f"{path} has no kernel {name!r}", hint="kernels are functions decorated with @triton.jit")
    return source_of(kernel)


def _frames_of(error: BaseException, file: str | None) -> TracebackType | None:
    """The traceback of what a file raised, from its own frames on; None where it was not even begun."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != file:
        frames = frames.tb_next
    return frames


class Given:
    """A signature, part by part: ``types`` and ``constants`` by the names of the kernel's parameters. ``promises`` are
    places among the run-time parameters, those that are 1 too, each with d (a multiple of 16) or c (1)."""

    def __init__(self, kernel: KernelSource, signature: str) -> None:
        self.parts = [part.strip() for part in split_outside(signature)]
        names = [parameter.name for parameter in kernel.parameters]
        if len(self.parts) != len(names):
            raise SignatureError(
                f"the signature has {len(self.parts)} parts, {kernel.name} has {len(names)} parameters",
                hint=f"give a type or a value for each of {', '.join(names)}",
            )
        self.types: dict[str, str] = {}
        self.constants: dict[str, object] = {}
        for name, part in zip(names, self.parts, strict=True):
            try:
                self.constants[name] = ast.literal_eval(part)
            except (ValueError, SyntaxError):
                self.types[name] = part
        kinds = [parse_argument_type(text) for text in self.types.values()]
        marks = ["c" if kind.is_one else "d" if kind.divisibility > 1 and not kind.block else "" for kind in kinds]
        self.promises = "".join(f"{place}{mark}" for place, mark in enumerate(marks) if mark)

    def digest(self, options: dict[str, int]) -> str:
        """Eight digits that stand for the signature and the options."""
        return hashlib.sha256(" ".join([*self.parts, _spelled(options)]).encode()).hexdigest()[:8]

    def algorithm(self, options: dict[str, int]) -> str:
        """What functions have in common that the linker chooses among by their arguments."""
        values = "x".join(str(value) for value in self.constants.values())
        return re.sub(r"\W", "_", "_".join([values, _spelled(options)]))

    def c_parameters(self, variant: Variant) -> str:
        """The parameters as the linker sees them: those that are 1 are among them."""
        typed = c_arguments(variant.signature)
        listed = []
        for name, text in self.types.items():
            if parse_argument_type(text).is_one:
                listed.append(f"int32_t {name}")
            listed += [f"{typed[c]} {c}" for n in variant.signature if n.partition(".")[0] == name and (c := c_name(n))]
        return ", ".join(listed)


def _spelled(options: dict[str, int]) -> str:
    return f"warps{options['num_warps']}xstages{options['num_stages']}"


def with_fallbacks(variant: Variant) -> list[CompiledKernel]:
    """The compiled variant, then the one that does without what it takes on trust of its arguments, and so on."""
    made = [compile_variant(variant)]
    while guards := made[-1].metadata.recipe.argument_guards:
        variant = variant.without(guards)
        made.append(compile_variant(variant))
    return made


def _target(text: str | None) -> Target:
    if text is None:
        target = Target.parse(get_device("cuda:0").target)
    else:
        backend, _, arch = text.removesuffix(":32").partition(":")
        target = own_target(GPUTarget(backend, arch, 32))
    if target.kind != "cuda":
        raise SignatureError(f"{target} is no GPU", hint="--target cuda:90:32")
    return target


def parser() -> argparse.ArgumentParser:
    """The options of Triton's tool."""
    made = argparse.ArgumentParser(
        prog="python -m triton.tools.compile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("path", help="file with the kernel")
    made.add_argument("--kernel-name", "-n", required=True, help="name of the kernel")
    made.add_argument("--target", "-t", help="cuda:90:32 or cuda:90a; default: the GPU of this machine")
    made.add_argument("--num-warps", "-w", type=int, default=1, help="warps of a program")
    made.add_argument("--num-stages", "-ns", type=int, default=3, help="slots of rings that feed products")
    made.add_argument("--out-name", "-on", help="name of the function; default: the kernel's")
    made.add_argument("--out-path", "-o", type=Path, help="name of the files; default: the function's")
    made.add_argument("--signature", "-s", required=True, help="types and compile-time values")
    made.add_argument("--grid", "-g", required=True, help="three expressions of C")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: 0, or 2 after a mistake that its message explains."""
    args = CompileArgs(**vars(parser().parse_args(arguments)))
    return exit_status(lambda: compile_kernel(args))


if __name__ == "__main__":
    sys.exit(main())
