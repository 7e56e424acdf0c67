"""What reaches the CUDA driver: parameters, descriptors, grids, attributes; on a driver that runs nothing."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from cuda.bindings import driver as bindings
from fake_driver import LEGAL_UNDER_CAPTURE, FakeCode, FakeDriver, give_recipes

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import DeviceError, LaunchError, OutOfResources
from deuteron.compiler.launch_recipe import Guard, LaunchRecipe, TensorMap
from deuteron.compiler.runtime.cuda import descriptors
from deuteron.compiler.runtime.cuda.launch import LoadedOnCuda, load_on_cuda

MATRIX = TensorMap("x", "bf16", ("m", "n"), ("stride", 1), (64, 32), 64)
TYPES = {"x": "*bf16:16", "y": "*f32", "m": "i32", "n": "i32", "stride": "i32"}
PLAIN_SIZES = [8, 8, 4, 4, 4]
X, Y = 0x7F0000000010, 0x7F0000001000


def load(recipe: LaunchRecipe, **more: Any) -> LoadedOnCuda:
    return load_on_cuda(FakeCode(TYPES, recipe, **more), deuteron.get_device("cuda:0"))


def numbers(parameters: list[bytes]) -> list[int]:
    return [int.from_bytes(p, "little", signed=True) for p in parameters]


def test_plain_launches(driver: FakeDriver) -> None:
    driver.sizes = PLAIN_SIZES
    kernel = load(LaunchRecipe(256), shared=1000)
    kernel.launch((7, 2, 1), (X, Y, 100, -3, 64), 5)
    (made,) = driver.launches
    assert (made.grid, made.block, made.shared, made.stream) == ((7, 2, 1), (256, 1, 1), 1000, 5)
    assert made.cluster is None
    assert numbers(made.parameters) == [X, Y, 100, -3, 64]


def test_helper_warps_count_as_threads(driver: FakeDriver) -> None:
    kernel = load(LaunchRecipe(384))
    kernel.launch((1, 1, 1), (X, Y, 1, 1, 1), None)
    assert driver.launches[0].block == (384, 1, 1)
    with pytest.raises(OutOfResources, match="threads, Required: 1152, Hardware limit: 1024\nhint: use fewer warps"):
        load(LaunchRecipe(1152))


def test_descriptors_are_what_the_hardware_wants(driver: FakeDriver) -> None:
    rows = TensorMap("y", "f32", (("max", "m", 3), 5, "n"), (("*", "stride", 2), ("+", "stride", 4), 1), (1, 8, 4), 0)
    recipe = LaunchRecipe(128, descriptors=(MATRIX, replace(rows, padding="nan")))
    driver.sizes = [*PLAIN_SIZES, 128, 128]
    load(recipe).launch((1, 1, 1), (X, Y, 2, 40, 64), None)
    first, second = driver.encoded
    assert (first.data_type, first.base) == (9, X)
    assert (first.sizes, first.strides, first.box, first.element_strides) == ([40, 2], [128], [32, 64], [1, 1])
    assert (first.interleave, first.swizzle, first.promotion, first.fill) == (0, 2, 3, 0)
    assert (second.data_type, second.base, second.swizzle, second.fill) == (7, Y, 0, 1)
    assert (second.sizes, second.strides, second.box) == ([40, 5, 3], [272, 512], [4, 8, 1])
    (made,) = driver.launches
    assert numbers(made.parameters[:5]) == [X, Y, 2, 40, 64]
    assert made.parameters[5:] == [first.result, second.result]


def test_data_types_and_modes_are_those_of_the_driver() -> None:
    for name, number in {"f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32", "f64": "FLOAT64"}.items():
        kind = getattr(bindings.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{number}")
        assert descriptors._DATA_TYPES[name] == int(kind)
    for name, number in {"i32": "INT32", "i64": "INT64", "u32": "UINT32", "u64": "UINT64", "i8": "UINT8"}.items():
        kind = getattr(bindings.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{number}")
        assert descriptors._DATA_TYPES[name] == int(kind)
    swizzle, fill = bindings.CUtensorMapSwizzle, bindings.CUtensorMapFloatOOBfill
    assert [descriptors._SWIZZLES[n] for n in (0, 32, 64, 128)] == [
        int(swizzle.CU_TENSOR_MAP_SWIZZLE_NONE),
        int(swizzle.CU_TENSOR_MAP_SWIZZLE_32B),
        int(swizzle.CU_TENSOR_MAP_SWIZZLE_64B),
        int(swizzle.CU_TENSOR_MAP_SWIZZLE_128B),
    ]
    assert descriptors._PADDINGS["nan"] == int(fill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
    promotion = bindings.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B
    assert int(promotion) == descriptors._L2_PROMOTION_256B
    assert int(bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) == 4


def test_descriptors_are_made_once_for_the_same_values(driver: FakeDriver) -> None:
    kernel = load(LaunchRecipe(128, descriptors=(MATRIX,)))
    driver.sizes = [*PLAIN_SIZES, 128]
    for y, m in ((Y, 8), (Y + 4, 8), (Y, 9), (Y, 8)):  # the descriptor does not depend on y
        kernel.launch((1, 1, 1), (X, y, m, 40, 64), None)
    assert [e.sizes for e in driver.encoded] == [[40, 8], [40, 9]]
    given = [made.parameters[5] for made in driver.launches]
    assert given[0] == given[1] == given[3] != given[2]
    for m in range(2000):
        kernel.launch((1, 1, 1), (X, Y, m + 1, 40, 64), None)
    assert kernel._maps is not None and len(kernel._maps) <= descriptors._KEPT


def test_sizes_are_clamped_to_what_a_descriptor_can_say(driver: FakeDriver) -> None:
    endless = replace(MATRIX, sizes=(1 << 62, ("*", "n", 1 << 31)))
    load(LaunchRecipe(128, descriptors=(endless,))).launch((1, 1, 1), (X, Y, 1, 40, 64), None)
    assert driver.encoded[0].sizes == [1 << 32, 1 << 32]


@pytest.mark.parametrize(
    ("changes", "values", "message"),
    [
        ({}, (X + 8, Y, 8, 40, 64), "argument 'x' .*address 0x7f0000000018 is not a multiple of 16 bytes"),
        ({}, (X, Y, 8, 40, 12), "'x' .*stride stride along axis 0 is 12 elements, 24 bytes, not a multiple of 16"),
        ({}, (X, Y, 8, 40, -8), "stride along axis 0 is -8 elements, -16 bytes, outside 0"),
        ({}, (X, Y, 0, 40, 64), "'x' .*its size m along axis 0 is 0"),
        ({"sizes": ("m", ("+", "n", -40))}, (X, Y, 1, 40, 64), r"its size \(n \+ -40\) along axis 1 is 0"),
        ({"strides": ("stride", "n")}, (X, Y, 1, 40, 64), "stride n along axis 1 is 40 elements, not 1"),
        ({"sizes": ("m", ("//", 8, "n"))}, (X, Y, 1, 0, 64), "divide by an argument that is 0"),
    ],
)
def test_arrays_that_have_no_descriptor(driver: FakeDriver, changes: Any, values: Any, message: str) -> None:
    kernel = load(LaunchRecipe(128, descriptors=(replace(MATRIX, **changes),)))
    with pytest.raises(LaunchError, match=f"^kernel: the {message}" if message.startswith("arg") else message):
        kernel.launch((1, 1, 1), values, None)
    assert driver.launches == driver.encoded == []


def test_what_the_driver_refuses_names_the_argument(driver: FakeDriver) -> None:
    driver.code = 1
    kernel = load(LaunchRecipe(128, descriptors=(MATRIX,)))
    for _ in range(2):  # a failure is not kept
        with pytest.raises(LaunchError, match=r"'x' .*driver refuses sizes \[8, 40\], strides \[128, 2\] in bytes"):
            kernel.launch((1, 1, 1), (X, Y, 8, 40, 64), None)
    assert len(driver.encoded) == 2


def test_a_recipe_that_names_no_argument(driver: FakeDriver) -> None:
    with pytest.raises(LaunchError, match="names 'z', which is not passed"):
        load(LaunchRecipe(128, descriptors=(replace(MATRIX, base="z"),)))


@pytest.mark.parametrize(
    ("grid", "occupancy", "cluster", "programs"),
    [
        ((3, 1, 1), 1, 1, 3),
        ((1000, 2, 1), 1, 1, 132),
        ((1000, 2, 1), 2, 1, 264),
        ((2**31 - 1, 65535, 1), 1, 1, 132),
        ((8, 1, 1), 1, 8, 8),
        ((800, 1, 1), 1, 8, 128),
    ],
)
def test_persistent_grids(driver: FakeDriver, grid: Any, occupancy: int, cluster: int, programs: int) -> None:
    recipe = LaunchRecipe(128, (), (MATRIX,), persistent=True, occupancy=occupancy, cluster=cluster)
    driver.sizes = [*PLAIN_SIZES, 128, 4, 4, 4]
    load(recipe).launch(grid, (X, Y, 8, 40, 64), None)
    (made,) = driver.launches
    assert made.grid == (programs, 1, 1)
    assert made.cluster == ((cluster, 1, 1) if cluster > 1 else None)
    assert made.parameters[5] == driver.encoded[0].result
    assert tuple(numbers(made.parameters[6:])) == grid


def test_clusters(driver: FakeDriver) -> None:
    kernel = load(LaunchRecipe(128, cluster=2))
    driver.sizes = PLAIN_SIZES
    kernel.launch((6, 3, 1), (X, Y, 1, 2, 3), None)
    assert (driver.launches[0].cluster, driver.launches[0].grid) == ((2, 1, 1), (6, 3, 1))
    with pytest.raises(LaunchError, match="size 7 along axis 0, and the kernel runs in clusters of 2"):
        kernel.launch((7, 1, 1), (X, Y, 1, 2, 3), None)


def test_bf16_scalars_travel_as_bits(driver: FakeDriver) -> None:
    code = FakeCode({"s": "bf16", "m": "i32", "x": "*bf16:16"}, LaunchRecipe(128))
    driver.sizes = [2, 4, 8]
    kernel = load_on_cuda(code, deuteron.get_device("cuda:0"))
    kernel.launch((1, 1, 1), (1.0, 2, X), None)
    assert numbers(driver.launches[0].parameters) == [0x3F80, 2, X]
    with pytest.raises(LaunchError, match="argument 'm': int 2147483648 does not fit i32"):
        kernel.launch((1, 1, 1), (1.0, 2**31, X), None)


def test_8_bit_scalars_travel_as_bits(driver: FakeDriver) -> None:
    code = FakeCode({"a": "f8e4m3", "b": "f8e5m2", "c": "f8e4b8"}, LaunchRecipe(128))
    driver.sizes = [1, 1, 1]
    kernel = load_on_cuda(code, deuteron.get_device("cuda:0"))
    kernel.launch((1, 1, 1), (1.0, -1e300, float("nan")), None)
    assert driver.launches[0].parameters == [b"\x38", b"\xfb", b"\x80"]


FLOATS = {"x": "*f32", "h": "f16", "b": "bf16", "s": "f32", "d": "f64"}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("value", [1e40, 2.0**128 - 2.0**103])  # the latter is half-way to 2**128
def test_floats_beyond_their_type_are_infinite(driver: FakeDriver, value: float, sign: int) -> None:
    recipe = LaunchRecipe(96, persistent=True, cooperative=True)
    kernel = load_on_cuda(FakeCode(FLOATS, recipe, shared=1000), deuteron.get_device("cuda:0"))
    driver.sizes = [8, 2, 2, 4, 8, 4, 4, 4]
    values, inf = (X, *[sign * value] * 4), sign * float("inf")
    kernel.launch((500, 2, 1), values, 5)
    kernel.bound((500, 2, 1), values)(5)
    for made in driver.launches:
        assert (made.grid, made.block, made.shared, made.stream) == ((132, 1, 1), (96, 1, 1), 1000, 5)
        address, half, brain, single, double, *grid = made.parameters
        assert numbers([address, *grid]) == [X, 500, 2, 1]
        assert struct.unpack("<efd", half + single + double) == (inf, inf, sign * value)
        assert int.from_bytes(brain, "little") == (0x7F80 if sign > 0 else 0xFF80)
    assert len(driver.launches) == 2


def test_what_does_not_fit_is_named_without_addresses(driver: FakeDriver) -> None:
    kernel = load(LaunchRecipe(128))
    with pytest.raises(LaunchError, match="^kernel: argument 'n': int -2147483649 does not fit i32\nhint: ") as error:
        kernel.bound((1, 1, 1), (X, Y, 1, -(2**31) - 1, 64))
    assert str(X) not in str(error.value)
    with pytest.raises(LaunchError, match=r"^kernel: argument 'y': no address of 64 bits was passed as \*f32$"):
        kernel.launch((1, 1, 1), (X, -8, 1, 1, 64), None)
    with pytest.raises(LaunchError, match="^kernel: launching on the stream -1: "):
        kernel.launch((1, 1, 1), (X, Y, 1, 1, 64), -1)


def test_bound_launches_share_memory_on_a_stream(driver: FakeDriver) -> None:
    kernel = load(LaunchRecipe(128, (), (MATRIX,), persistent=True))
    driver.sizes = [*PLAIN_SIZES, 128, 4, 4, 4]
    launch = kernel.bound((500, 1, 1), (X, Y, 8, 40, 64))
    for stream in (3, 3, 4, None):
        launch(stream)
    driver.stream = 4
    launch(None)
    assert [made.stream for made in driver.launches] == [3, 3, 4, 0, 4]
    assert len({made.arguments for made in driver.launches}) == 3
    assert len({(made.grid, *made.parameters) for made in driver.launches}) == 1
    assert len(driver.encoded) == 1
    for stream in range(1000):
        launch(stream)
    assert driver.launches[-1].stream == 999


# ---- from a kernel to the driver ---------------------------------------------------------------------------------


def rows(x, y, m, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i * stride, mask=i < n).to(tl.float32), mask=i < m)


GUARD = Guard("stride", "multiple", 8)
TMA = LaunchRecipe(160, (GUARD,), (MATRIX,), persistent=True)


@pytest.fixture
def kernel(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> deuteron.JITFunction:
    """Copies in boxes where the stride allows it, and otherwise without descriptors."""
    give_recipes(monkeypatch, lambda denied: LaunchRecipe(128) if GUARD in denied else TMA)
    return deuteron.JITFunction(rows)


@pytest.fixture
def arrays(driver: FakeDriver) -> tuple[Any, Any]:
    gpu = deuteron.get_device("cuda:0")
    return gpu.empty((64, 64), "bf16"), gpu.empty((64,), "f32")


def ways(kernel: Any, arrays: tuple[Any, Any], stride: int) -> dict[str, Any]:
    """Every way to launch, each ready to be called again."""
    x, y = arrays
    tuned = deuteron.autotune([deuteron.Config({"BLOCK": 32})], ["n"])(kernel)
    chosen = deuteron.heuristics({"BLOCK": lambda given: 32})(kernel)
    types = {"x": "*bf16:16", "y": "*f32:16", "m": "i32", "n": "i32", "stride": "i32"}
    compiled = deuteron.compile(kernel, types, {"BLOCK": 32}, target="cuda:90a")
    return {
        "jit": lambda: kernel[(300,)](x, y, 60, 60, stride, BLOCK=32),
        "bound": kernel.bound((300,), x, y, 60, 60, stride, BLOCK=32),
        "autotuned": lambda: tuned[(300,)](x, y, 60, 60, stride),
        "autotuned, bound": tuned.bound((300,), x, y, 60, 60, stride),
        "heuristics": lambda: chosen[(300,)](x, y, 60, 60, stride),
        "heuristics, bound": chosen.bound((300,), x, y, 60, 60, stride),
        "compiled": lambda: compiled.run((300,), x, y, 60, 60, stride),
    }


@pytest.mark.parametrize("stride", [64, 66])
@pytest.mark.parametrize("gpus", [1, 2])
def test_every_launch_may_be_captured_after_the_first(
    driver: FakeDriver, kernel: Any, arrays: Any, monkeypatch: pytest.MonkeyPatch, stride: int, gpus: int
) -> None:
    """No allocation, no loading, no waiting: what a capturing stream does not allow happens in the first launch."""
    driver.install(monkeypatch, gpus)
    fits = stride % 8 == 0
    driver.sizes = [*PLAIN_SIZES, 128, 4, 4, 4] if fits else PLAIN_SIZES
    for name, launch in ways(kernel, arrays, stride).items():
        launch()
        assert "cuLaunchKernelEx" in driver.calls, name
        driver.calls.clear()
        for stream in (0, 0, 7):
            driver.stream = stream
            launch()
            assert driver.launches[-1].stream == stream
        assert set(driver.calls) <= LEGAL_UNDER_CAPTURE, name
        assert driver.calls.count("cuLaunchKernelEx") == 3
        made = driver.launches[-1]
        assert (made.grid, made.block) == (((132, 1, 1), (160, 1, 1)) if fits else ((300, 1, 1), (128, 1, 1))), name
        assert numbers(made.parameters[:5]) == [arrays[0].address, arrays[1].address, 60, 60, stride]
        if fits:
            assert numbers(made.parameters[6:]) == [300, 1, 1]


def test_hooks_see_the_grid_that_the_user_asked_for(
    driver: FakeDriver, kernel: Any, arrays: Any, watch_launches: Any
) -> None:
    driver.sizes = [*PLAIN_SIZES, 128, 4, 4, 4]
    every = ways(kernel, arrays, 64)
    with watch_launches() as events:
        for launch in every.values():
            launch()
    assert [(e.name, e.grid) for e in events] == [("rows", (300, 1, 1))] * len(every)
    assert {made.grid for made in driver.launches} == {(132, 1, 1)}


def test_an_empty_grid_launches_nothing(driver: FakeDriver, kernel: Any, arrays: Any) -> None:
    x, y = arrays
    kernel[(0,)](x, y, 60, 60, 64, BLOCK=32)
    kernel.bound((5, 0), x, y, 60, 60, 64, BLOCK=32)()
    assert driver.launches == []


def test_the_gpu_code_keeps_its_recipe(driver: FakeDriver, kernel: Any, arrays: Any) -> None:
    made = kernel.warmup(*arrays, 60, 60, 64, BLOCK=32)
    assert made.metadata.recipe == TMA
    assert made.metadata.num_threads == 160
    other = deuteron.JITFunction(rows).warmup(*arrays, 60, 60, 64, BLOCK=32)
    assert other.metadata.recipe == TMA
    assert other.metadata.cached == ("cubin" in made._artifacts)  # without an assembler nothing is kept


def test_code_stays_for_launches_that_have_it(driver: FakeDriver, kernel: Any, arrays: Any) -> None:
    driver.sizes = [*PLAIN_SIZES, 128, 4, 4, 4]
    made = kernel[(5,)](*arrays, 60, 60, 64, BLOCK=32)
    bound = kernel.bound((5,), *arrays, 60, 60, 64, BLOCK=32)
    assert (made.module, made.function) != (None, None)
    made.__del__()
    assert made.module is None and made.function is None
    bound()
    kernel[(5,)](*arrays, 60, 60, 64, BLOCK=32)
    assert len(driver.launches) == 3 and driver.calls.count("cuModuleLoadData") == 1
    assert "cuModuleUnload" not in driver.calls  # a CUDA graph may hold the launches


def test_an_architecture_may_be_named(driver: FakeDriver, arrays: Any) -> None:
    kernel = deuteron.JITFunction(rows)
    args = (*arrays, 60, 60, 64)
    made = {
        arch: kernel.warmup(*args, BLOCK=32, arch=arch, grid=(1,)) for arch in ("sm80", "sm_90", "90", "SM90A", None)
    }
    targets = {arch: compiled.target for arch, compiled in made.items()}
    assert targets == {"sm80": "cuda:80", **dict.fromkeys(("sm_90", "90", "SM90A", None), "cuda:90a")}
    assert ".target sm_80" in made["sm80"].asm["ptx"] and ".target sm_90a" in made["sm_90"].asm["ptx"]
    assert made["sm80"].hash != made["sm_90"].hash == made[None].hash
    assert kernel[(1,)](*args, BLOCK=32, arch="sm90").target == "cuda:90a"
    with pytest.raises(DeviceError, match="was compiled for cuda:80; cuda:0 .* has compute capability 9.0"):
        kernel[(1,)](*args, BLOCK=32, arch="sm80")
    for wrong, words in {
        "sm70": "unknown target 'cuda:70'",
        "gfx942": "'cuda:gfx942'",
        90: "arch = 90",
        "": "'cuda:'",
    }.items():
        with pytest.raises(deuteron.DeuteronError, match=words) as error:
            kernel.warmup(*args, BLOCK=32, arch=wrong)
        assert error.value.hint is not None and "90" in error.value.hint
