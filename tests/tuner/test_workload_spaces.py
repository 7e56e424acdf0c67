"""Which configurations of a workload are searched: what the device can hold, and what changes code."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import pytest

from deuteron.compiler import DeviceProperties, KernelSource
from deuteron.compiler.errors import OutOfResources
from deuteron.compiler.gpu.estimates import PRODUCT_BYTES_A_CYCLE, SHORT_ITERATION_CYCLES
from deuteron.compiler.hardware import WARPS_PER_GROUP
from deuteron.compiler.options import SCHEDULE_OPTIONS, effective_options
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.targets import Target
from deuteron.tuner import Problem, WorkloadSpec, builtin_workload
from deuteron.tuner.evaluate.compilation import compile_variant
from deuteron.tuner.space import Configuration
from deuteron.tuner.workloads.inferred import infer_workload

CPU = DeviceProperties("some CPU", "cpu", sm_count=2)
H200 = DeviceProperties("NVIDIA H200", "cuda", sm_count=132, shared_bytes_per_block=232448)


@pytest.mark.parametrize("target", ["cuda:86", "cuda:90a", "cuda:120"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_shared_memory_strikes_out_what_the_device_cannot_hold_and_nothing_else(dtype: str, target: str) -> None:
    """Of persistent programs that is so where products are those of warp groups. What is held is fetched as far ahead
    as it asks for: through as many slots, or one less that is filled again behind the product that reads it; where
    several groups of warps read the ring and products are short, each may have one more, and where one does and a
    producer feeds it, as many less as leave room for another CTA."""
    problem = Problem(builtin_workload("matmul"), {"M": 4096, "N": 4096, "K": 4096}, dtype)
    held = problem.searched(replace(H200, shared_bytes_per_block=Target.parse(target).shared_bytes))[0]
    unlimited = problem.searched(replace(H200, shared_bytes_per_block=1 << 30))[0]
    told = [c for c in unlimited.configurations() if c["GROUP_M"] == 1 and c["persistent"] <= (target == "cuda:90a")]
    rng = random.Random(1)
    for config in rng.sample([c for c in told if not held.contains(c)], 20):
        assert slots(problem, config, target) < config["num_stages"]
    fitting = [c for c in told if held.contains(c)]
    for config in rng.sample(fitting, min(20, len(fitting))):
        groups = config["num_warps"] // WARPS_PER_GROUP
        bytes_of_steps = math.prod(config[f"BLOCK_{d}"] for d in "MNK") * (4 if dtype == "f32" else 2)  # type: ignore[misc]
        short = bytes_of_steps / PRODUCT_BYTES_A_CYCLE <= SHORT_ITERATION_CYCLES
        more = groups if target == "cuda:90a" and groups > 1 and short else 0
        found, asked = ahead(problem, config, target), config["num_stages"]
        item = 4 if dtype == "f32" else 2
        slot = (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"] * item  # type: ignore[operator]
        shared, reserved = Target.parse(target).limits.shared_bytes, Target.parse(target).limits.reserved_bytes
        lone = target == "cuda:90a" and groups == 1 and not config["persistent"]
        room = (shared // 2 - reserved) // slot
        assert 0 <= found - asked <= more or (lone and 2 <= found < asked and found == room)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_small_devices_compile_what_their_space_holds(dtype: str) -> None:
    problem = Problem(builtin_workload("matmul"), {"M": 4096, "N": 4096, "K": 4096}, dtype)
    sm86 = replace(H200, sm_count=10, shared_bytes_per_block=Target.parse("cuda:86").shared_bytes)
    found = list(problem.searched(sm86)[0].configurations())
    for config in sorted(found, key=lambda c: math.prod(c[f"BLOCK_{d}"] for d in "MNK"))[-12:]:  # type: ignore[misc]
        slots(problem, config, "cuda:86")


def slots(problem: Problem, config: Configuration, target: str) -> int:
    """Of the ring that feeds the products; 0 where there is none."""
    found = re.findall(r"gpu\.pipe \{slots = (\d+)", gpu_text(problem, config, target))
    return int(found[0]) if found else 0


def ahead(problem: Problem, config: Configuration, target: str) -> int:
    """The slots of the ring, and one more where as many copies are under way as there are slots."""
    count, text = slots(problem, config, target), gpu_text(problem, config, target)
    if count == 1:  # it is refilled where the loop fetches behind what it waits for
        return count + (text.rfind("gpu.fetch") > text.rfind("gpu.receive"))
    return count + (f"{{pending = {count - 1}," in text)


def gpu_text(problem: Problem, config: Configuration, target: str) -> str:
    """The GPU IR; empty where shared memory has no room for it."""
    plan = problem.variant(config)
    variant = make_variant(problem.source, plan.signature, plan.constexprs, target, plan.schedule)
    try:
        return str(build(variant, stop_after="gpu").artifacts["gpu"])
    except OutOfResources:
        return ""


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_inferred_spaces_offer_only_options_that_change_code(kind: str) -> None:
    text = builtin_workload("vector_add").kernel
    source = KernelSource.from_text(text.source, text.name)
    names = infer_workload(source, dims=("n",), scalars={"n_elements": "n"}).space_for(kind).names
    assert set(names) & set(SCHEDULE_OPTIONS) <= set(effective_options(kind))


def with_space(name: str, parameters: dict[str, list[int]], *constraints: str, **more: object) -> WorkloadSpec:
    """A built-in workload with a user's space for every device."""
    space = {"parameters": parameters, "constraints": list(constraints)}
    data = {key: value for key, value in builtin_workload(name).to_json().items() if key not in ("spaces", "defaults")}
    return WorkloadSpec.from_json({**data, "space": space, **more})


@pytest.mark.parametrize(
    ("sides", "arch", "dtype"),
    [
        ((1024, 1024, 1024), "90a", "f16"),
        ((1024, 1024, 1024), "80", "f32"),
        ((1000, 333, 777), "80", "f16"),
        ((1000, 333, 777), "90a", "f16"),
        ((1000, 333, 777), "120", "f32"),
        ((100, 100, 100), "120", "f16"),
        ((100, 100, 100), "90a", "f32"),
    ],
)
def test_ring_lengths_are_searched_where_they_change_code(sides: tuple[int, ...], arch: str, dtype: str) -> None:
    """What is held changes the PTX of no configuration that is drawn; what is searched changes that of most."""
    problem = Problem(builtin_workload("matmul"), dict(zip("MNK", sides, strict=True)), dtype)
    target = Target.parse(f"cuda:{arch}")
    device = replace(H200, shared_bytes_per_block=target.shared_bytes)
    whole, (space, held) = problem.full_space(device), problem.searched(device, str(target))
    assert held == ({"num_stages": held.get("num_stages")} if dtype == "f16" and sides[1] % 8 else {})
    assert {config["num_stages"] for config in space.configurations()} >= ({2, 3} if not held else set())
    drawn, pairs = random.Random(1), []
    while len(pairs) < 2:
        config = whole.sample(drawn)
        if config["BLOCK_M"] * config["BLOCK_N"] > 64 * 128:
            continue  # as true, and seconds to assemble
        if whole.contains(more := {**config, "num_stages": 2}) and whole.contains({**more, "num_stages": 3}):
            pairs.append([ptx(problem, {**more, "num_stages": stages}, str(target)) for stages in (2, 3)])
    assert [a == b for a, b in pairs] == [True, True] if held else not all(a == b for a, b in pairs)


def ptx(problem: Problem, config: Configuration, target: str) -> str:
    """What a launch runs."""
    return str(compile_variant(problem, problem.variant(config), target).asm["ptx"])


def test_options_without_effect_in_a_users_space_are_held() -> None:
    """Each configuration of the others once, at the value of the default configuration, which constraints allow."""
    spec = with_space(
        "vector_add",
        {"BLOCK_SIZE": [128, 256, 512, 1024], "num_warps": [1, 2, 4], "num_stages": [1, 2, 3]},
        "BLOCK_SIZE >= 128 * num_stages",
        default={"BLOCK_SIZE": 256, "num_warps": 2, "num_stages": 2},
    )
    problem = Problem(spec, {"n": 1000}, "f32")
    for device, idle in ((CPU, ("num_warps", "num_stages")), (H200, ("num_stages",))):
        assert problem.idle_parameters(device.kind) == idle
        found = list(problem.searched(device)[0].configurations())
        assert {config["num_stages"] for config in found} == {2}
        assert {config["BLOCK_SIZE"] for config in found} == {256, 512, 1024}
        assert {config["num_warps"] for config in found} == ({2} if device is CPU else {1, 2, 4})
        assert len(found) == problem.searched(device)[0].count() == (3 if device is CPU else 9)
        assert problem.default(problem.searched(device)[0], device.kind) == spec.default_for(device.kind)


def test_a_held_parameter_drops_its_own_condition() -> None:
    """Where its condition is false a parameter keeps its default; one that changes no code keeps one value anyway."""
    data = [
        {"name": "BLOCK_SIZE", "choices": [128, 256]},
        {"name": "num_stages", "choices": [1, 2, 3], "when": "BLOCK_SIZE > 128"},
    ]
    default = {"BLOCK_SIZE": 256, "num_stages": 3}
    spec = with_space("vector_add", data, default=default)  # type: ignore[arg-type]
    found = list(Problem(spec, {"n": 1000}, "f32").searched(CPU)[0].configurations())
    assert found == [{"BLOCK_SIZE": 128, "num_stages": 3}, {"BLOCK_SIZE": 256, "num_stages": 3}]


@pytest.mark.parametrize(
    ("line", "idle"),
    [
        ("for k in tl.range(0, n, num_stages=STAGES):", ("STAGES",)),
        ("for k in tl.range(0, n, num_stages=2 * STAGES, flatten=STAGES > 1):", ("STAGES",)),
        ("for k in tl.range(0, n):", ("STAGES",)),
        ("for k in tl.range(0, n, loop_unroll_factor=STAGES):", ()),
        ("for k in tl.range(0, n, STAGES, num_stages=STAGES):", ()),
    ],
)
def test_a_constexpr_that_is_only_a_hint_is_held(line: str, idle: tuple[str, ...]) -> None:
    text = (
        "import triton\nimport triton.language as tl\n\n@triton.jit\n"
        "def fill(y, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):\n"
        f"    {line}\n        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "        tl.store(y + at, k + 1.0, mask=at < n)\n"
    )
    spec = WorkloadSpec.from_json(
        {
            "kernel": {"name": "fill", "source": text},
            "dims": ["n"],
            "tensors": [{"name": "y", "shape": ["n"], "role": "output"}],
            "scalars": {"n": "n"},
            "grid": ["cdiv(n, BLOCK)"],
            "space": {"parameters": {"BLOCK": [128, 256], "STAGES": [1, 2, 4]}},
        }
    )
    problem = Problem(spec, {"n": 1000}, "f32")
    assert problem.idle_parameters("cuda") == problem.idle_parameters("cpu") == idle
    codes = set()
    for stages in (1, 2, 4):
        variant = problem.variant({"BLOCK": 128, "STAGES": stages})
        made = make_variant(problem.source, variant.signature, variant.constexprs, "cuda:90a", {})
        codes.add(build(made, stop_after="ptx").artifacts["ptx"])
    assert len(codes) == (1 if idle else 3)


def test_a_parameter_that_the_launch_uses_is_not_held() -> None:
    spec = with_space(
        "vector_add", {"BLOCK_SIZE": [128], "num_warps": [1, 2]}, grid=["cdiv(n, BLOCK_SIZE) * num_warps"]
    )
    problem = Problem(spec, {"n": 1000}, "f32")
    assert problem.idle_parameters("cpu") == ()
    assert problem.searched(CPU)[0].count() == 2


def test_the_order_of_choices_does_not_decide_what_is_compared() -> None:
    """Rings of five slots and more are cut to the same length; those of two are shorter."""
    for choices in ([2, 5, 6, 7], [5, 6, 2, 7]):
        tile = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8}
        spec = with_space(
            "matmul",
            {**{name: [value] for name, value in tile.items()}, "num_stages": choices},
            default={**tile, "num_stages": 5},
        )
        space, held = Problem(spec, {"M": 4096, "N": 4096, "K": 4096}, "bf16").searched(H200, "cuda:90a")
        assert space.count() == 4 and not held


def test_configurations_that_do_not_compile_are_left_to_the_search() -> None:
    tile = {"BLOCK_M": 64, "BLOCK_N": 64, "GROUP_M": 8, "num_warps": 4}
    first = "pid = tl.program_id(axis=0)"
    kernel = builtin_workload("matmul").to_json()["kernel"]
    spec = with_space(
        "matmul",
        {**{name: [value] for name, value in tile.items()}, "BLOCK_K": [64, 16], "num_stages": [2, 3]},
        kernel={**kernel, "source": kernel["source"].replace(first, f"tl.static_assert(BLOCK_K >= 32)\n    {first}")},
        default={**tile, "BLOCK_K": 64, "num_stages": 2},
    )
    space, held = Problem(spec, {"M": 333, "N": 333, "K": 333}, "bf16").searched(H200, "cuda:90a")
    assert held == {"num_stages": 2} and space.count() == 2
