"""Host time of one launch with four arguments, against torch and Triton where they are installed. Prints JSON.

Launches are timed as users write them, bound (``kernel.bound``), with guards to check, and, on a GPU that has TMA, with
two descriptors. What the compiler writes into a launch recipe is put there by hand for the last two, around an empty
kernel, so that they are the launcher's and the driver's time for such a kernel and nothing else. "driver alone" is that
kernel's call of cuLaunchKernelEx through ctypes with everything ready.

python benchmarks/launch_overhead.py [--out FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import deuteron
import deuteron.language as tl
from deuteron.compiler.launch_recipe import Guard, LaunchRecipe, TensorMap
from deuteron.compiler.runtime.cuda import driver, packing
from deuteron.compiler.runtime.launch.compiled import CompiledKernel
from deuteron.compiler.runtime.variant.metadata import KernelMetadata

#: Fewer launches than a GPU's queue takes before a launch has to wait for the device.
BATCH = 200
BATCHES = 25


@deuteron.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(out + i, total, mask=i < n)


#: As a product of matrices has them: divisible strides, sizes above zero.
GUARDS = tuple(Guard("n", "multiple", value) for value in (8, 16, 128)) + (Guard("n", "least", 1),)
DESCRIPTORS = tuple(TensorMap(name, "f32", ("n", 128), ("n", 1), (8, 32), 128) for name in ("x", "y"))

#: A kernel that takes what ``add`` does, and two descriptors, and ends at once.
EMPTY = """.version 8.0
.target sm_90
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 out, .param .u32 n DESCRIPTORS)
{
    ret;
}
"""


def empty_kernel(arguments: tuple[Any, ...], recipe: LaunchRecipe) -> deuteron.JITFunction:
    """``add``, with an empty kernel and this recipe in place of what would be compiled for these arguments."""
    made = deuteron.JITFunction(add.fn)
    launch = made.specialized(arguments, {})
    key = launch.variant.key
    parameters = "".join(f", .param .align 64 .b8 box{i}[128]" for i in range(len(recipe.descriptors)))
    metadata = KernelMetadata("add", str(launch.variant.target), key, 4, 3, 1, recipe)
    ptx = EMPTY.replace(" DESCRIPTORS", parameters)
    made.cache[key] = CompiledKernel(metadata, launch.signature, {"ptx": ptx}, None)
    return made


def microseconds(launch: Callable[[], object], synchronize: Callable[[], object]) -> float:
    """Median over batches of the host's time for one launch."""
    launch()
    synchronize()
    batches = []
    for _ in range(BATCHES):
        start = time.perf_counter_ns()
        for _ in range(BATCH):
            launch()
        batches.append((time.perf_counter_ns() - start) / BATCH / 1e3)
        synchronize()
    return statistics.median(batches)


def own(device: deuteron.compiler.Device, arrays: list[Any]) -> dict[str, float]:
    x, y, out = arrays

    def grid(meta: Any) -> tuple[int, ...]:
        return (deuteron.cdiv(meta["n"], meta["BLOCK"]),)

    ready = add[(1,)]
    found = {
        "grid tuple": microseconds(lambda: add[(1,)](x, y, out, 128, BLOCK=128), device.synchronize),
        "grid function": microseconds(lambda: add[grid](x, y, out, 128, BLOCK=128), device.synchronize),
        "with options": microseconds(lambda: add[(1,)](x, y, out, 128, BLOCK=128, num_warps=4), device.synchronize),
        "kernel[grid] kept": microseconds(lambda: ready(x, y, out, 128, 128), device.synchronize),
        "bound": microseconds(add.bound((1,), x, y, out, 128, BLOCK=128), device.synchronize),
    }
    return found | with_recipes(device, (x, y, out, 128, 128))


def with_recipes(device: deuteron.compiler.Device, arguments: tuple[Any, ...]) -> dict[str, float]:
    """Launches of an empty kernel that has something to check or to make at a launch; none without TMA."""
    found: dict[str, float] = {}
    if (device.properties.compute_capability or (0, 0))[0] != 9:
        return found
    found["driver alone"] = driver_alone(device, arguments)
    recipes = {
        "nothing to do": LaunchRecipe(128),
        "four guards": LaunchRecipe(128, GUARDS),
        "two descriptors": LaunchRecipe(128, (), DESCRIPTORS),
        "four guards, two descriptors": LaunchRecipe(128, GUARDS, DESCRIPTORS),
    }
    for name, recipe in recipes.items():
        kernel = empty_kernel(arguments, recipe)
        found[f"empty, {name}"] = microseconds(lambda kernel=kernel: kernel[(1,)](*arguments), device.synchronize)
        found[f"empty, {name}, bound"] = microseconds(kernel.bound((1,), *arguments), device.synchronize)
    found["two new descriptors"] = _new_descriptors(device, arguments)
    return found


def driver_alone(device: deuteron.compiler.Device, arguments: tuple[Any, ...]) -> float:
    """The driver's own time for an empty kernel of four arguments."""
    types = list(add.specialized(arguments, {}).signature.values())
    module = driver.call("cuModuleLoadData", EMPTY.replace(" DESCRIPTORS", "").encode() + b"\0")
    handle = packing.address_argument(driver.integer("cuModuleGetFunction", module, b"add"))
    layout = packing.layout_of(types)
    pack = packing.ArgumentPack(layout.struct.size, layout.offsets)
    values = (1, 1, 1, packing.block_bytes(128, 0), 0, packing.attribute_bytes(None), 0, 0, 0, 128)
    layout.struct.pack_into(pack.buffer, 0, *values)
    library = driver.library()
    assert library is not None, "there is a GPU"
    start = library.cuLaunchKernelEx
    assert start(pack.config, handle, pack.arguments, None) == 0
    return microseconds(lambda: start(pack.config, handle, pack.arguments, None), device.synchronize)


def _new_descriptors(device: deuteron.compiler.Device, arguments: tuple[Any, ...]) -> float:
    """With descriptors that have to be made at every launch: the size is another one each time."""
    x, y, out, _, block = arguments
    kernel = empty_kernel(arguments, LaunchRecipe(128, (), DESCRIPTORS))
    sizes = itertools.count(128, 16)
    return microseconds(lambda: kernel[(1,)](x, y, out, next(sizes), block), device.synchronize)


def others() -> dict[str, float]:
    """torch's and Triton's launch of the same work."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    x = torch.zeros(128, device="cuda")
    y, out = torch.zeros_like(x), torch.zeros_like(x)
    found = {"torch.add": microseconds(lambda: torch.add(x, y, out=out), torch.cuda.synchronize)}
    found |= {f"deuteron, torch tensors, {k}": v for k, v in own(deuteron.get_device("cuda:0"), [x, y, out]).items()}
    try:
        import triton
        import triton.language
    except ImportError:
        return found
    names = {"triton": triton, "tl": triton.language}
    kernel = triton.jit(_for_triton(add.fn, names))
    found["triton, grid tuple"] = microseconds(lambda: kernel[(1,)](x, y, out, 128, BLOCK=128), torch.cuda.synchronize)
    try:
        from triton.tools.tensor_descriptor import TensorDescriptor
    except ImportError:
        return found
    matrix = torch.zeros(128, 128, device="cuda")
    first, second = (TensorDescriptor.from_tensor(m, [8, 32]) for m in (matrix, torch.zeros_like(matrix)))
    copy = triton.jit(_for_triton(copy_box, names))
    found["triton, two descriptors"] = microseconds(
        lambda: copy[(1,)](first, second, 128, BLOCK=128), torch.cuda.synchronize
    )
    return found


def copy_box(x, y, n, BLOCK: tl.constexpr):
    """One box from one descriptor to another; for Triton, where descriptors are arguments."""
    y.store([0, 0], x.load([0, 0]))


def _for_triton(original: Any, names: dict[str, Any]) -> Any:
    """The same kernel with Triton's names as its globals; Triton reads the source of the function."""
    import types

    if original is None:
        raise TypeError("the kernel is a function")
    made = types.FunctionType(original.__code__, {**original.__globals__, **names}, original.__name__)
    made.__annotations__ = {"BLOCK": names["tl"].constexpr}
    made.__module__, made.__qualname__ = original.__module__, original.__qualname__
    return made


def main() -> None:
    """Measure every device of this machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    result: dict[str, dict[str, float]] = {}
    for device in deuteron.list_devices()[:2]:
        arrays = [device.array(np.zeros(128, np.float32)) for _ in range(3)]
        result[f"{device.name} {device.properties.name}"] = own(device, arrays)
    result["others"] = others()
    text = json.dumps({k: {n: round(v, 2) for n, v in r.items()} for k, r in result.items()}, indent=2)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
