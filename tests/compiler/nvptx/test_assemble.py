"""PTX for every architecture, accepted by ptxas, and what its instructions are. No GPU is needed."""

from __future__ import annotations

import importlib
import re

import pytest

from deuteron.compiler.errors import OutOfResources
from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import Target
from deuteron.compiler.targets.nvptx import Cubin, assemble, emit_ptx, lower_to_llvm

ARCHITECTURES = ("80", "86", "87", "89", "90a", "100a", "103a", "110a", "120", "121")
#: Architectures with the instructions of another one, and the oldest PTX that has their name.
ALIKE = {"87": ("86", "7.4"), "103a": ("100a", "8.8"), "110a": ("100a", "9.0"), "121": ("120", "8.8")}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_standard_kernels_assemble_without_spills(standard_kernel, arch) -> None:
    _, sample = standard_kernel
    target = Target.parse(f"cuda:{arch}")
    ptx = emit_ptx(sample.program(str(target)), target)
    cubin = assemble(ptx, target, sample.schedule)
    assert cubin.image[:4] == b"\x7fELF"
    assert cubin.spill_bytes == 0, cubin.log
    # ptxas for sm_120 and sm_121 keeps eight bytes for itself in some kernels, without a single access to them.
    assert cubin.stack_bytes <= (8 if arch in ("120", "121") else 0), cubin.log
    assert "ld.local" not in ptx and ".local" not in ptx


@pytest.fixture
def ptx_of(standard_kernels):
    def emit(name: str, target: str = "cuda:90a") -> str:
        sample = standard_kernels[name]
        parsed = Target.parse(target)
        return emit_ptx(sample.program(target), parsed)

    return emit


@pytest.mark.parametrize("arch", ALIKE)
def test_relatives_have_the_same_code(ptx_of, arch: str) -> None:
    other, version = ALIKE[arch]
    for name in ("vector_add", "matmul_f16"):  # of three numbers PTX 8.8 has a maximum, which softmax takes
        ptx, known = ptx_of(name, f"cuda:{arch}"), ptx_of(name, f"cuda:{other}")
        assert f".version {version}\n" in ptx and f".target sm_{arch}\n" in ptx
        assert ptx[ptx.index(".address_size") :] == known[known.index(".address_size") :]


def test_vector_add_moves_16_bytes_a_thread(ptx_of) -> None:
    ptx = ptx_of("vector_add")
    assert len(re.findall(r"ld\.global\.v4\.b32", ptx)) == 4
    assert len(re.findall(r"st\.global\.v4\.b32", ptx)) == 2
    assert not re.findall(r"ld\.global\.b32", ptx)
    assert "bar" not in ptx


def test_softmax_reads_once_and_needs_one_barrier_per_reduction(ptx_of) -> None:
    ptx = ptx_of("softmax")
    assert len(re.findall(r"ld\.global\.v4\.b32", ptx)) == 2
    assert len(re.findall(r"bar(?:rier)?\.\S*sync", ptx)) == 2
    assert len(re.findall(r"shfl\.sync\.bfly", ptx)) == 5  # the sum's
    assert len(re.findall(r"redux\.sync\.max", ptx)) == 1


def test_matmul_runs_on_tensor_cores(ptx_of) -> None:
    # 128x128x32 by 4 warps: (4 x 8 tiles of 16x8 ... a warp has 64x64) x 2 steps of 16.
    assert len(re.findall(r"mma\.sync\.aligned\.m16n8k16", ptx_of("matmul_f16", "cuda:80"))) == 64
    assert len(re.findall(r"mma\.sync\.aligned\.m16n8k8.*tf32", ptx_of("matmul_f32", "cuda:80"))) == 32
    assert "m16n8k16.row.col.f32.bf16.bf16.f32" in ptx_of("matmul_bf16", "cuda:80")


def test_matmul_runs_on_warp_groups_on_hopper(ptx_of) -> None:
    # Two groups of 64 rows in turn x 2 steps of 16.
    assert len(re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64n128k16\.f32\.f16\.f16", ptx_of("matmul_f16"))) == 4
    assert "cp.async.bulk.tensor.2d.shared::cluster.global" in ptx_of("matmul_f16")
    assert "cp.async.bulk.tensor.2d.global.shared::cta" in ptx_of("matmul_bf16")


def test_descriptors_are_fetched_first(ptx_of) -> None:
    """One prefetch for each of the three, by one thread, before anything waits; none where there are none. Another
    branch leads the other threads around all mbarriers."""
    before, made, after = ptx_of("matmul_f16").partition("mbarrier.init")
    fetched = re.search(r"@!%p\d+ bra (PASSED_\d+);\n((?:prefetch\.tensormap \[%rd\d+\];\n){3})\1:", before)
    assert fetched and before.count("prefetch") == 3
    assert re.fullmatch(r"(?s).*@!%p\d+ bra PASSED_\d+;\n", before)
    inits, _, _ = (made + after).partition("PASSED")
    assert re.fullmatch(r"(?:mbarrier\.init\.shared::cta\.b64 \[%r\d+\+\d+\], \d;\n)+", inits)
    assert "prefetch" not in ptx_of("matmul_f16", "cuda:80")


PRODUCT = """
def k(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, 64)
    a, b = tl.load(a_ptr + m[:, None] * 64 + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
    tl.store(c_ptr + m[:, None] * N + n[None, :], tl.dot(a, b, out_dtype=c_ptr.dtype.element_ty))
"""


def product_ptx(
    from_text, shape: tuple[int, int], warps: int = 4, maxnreg: int | None = None, sums: str = "fp32"
) -> tuple[str, set[str]]:
    """PTX of a product of depth 64, and how many columns its instructions for warp groups have."""
    types = {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "c_ptr": f"*{sums}:16"}
    sample = from_text(PRODUCT, types, dict(zip("MN", shape, strict=True)), warps, maxnreg=maxnreg)
    ptx = emit_ptx(sample.program(), Target.parse("cuda:90a"))
    return ptx, set(re.findall(r"wgmma\.mma_async\S+\.m64n(\d+)k16", ptx))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("maxnreg", [16, 24, 29, 30, 32])
def test_warps_multiply_each_for_itself_where_registers_do_not_do_for_groups(from_text, maxnreg: int) -> None:
    ptx, columns = product_ptx(from_text, (64, 64), maxnreg=maxnreg)
    assert not columns and "mma.sync.aligned.m16n8k16" in ptx


@pytest.mark.parametrize(
    ("shape", "warps", "maxnreg", "columns"),
    [
        ((64, 64), 4, None, 64),
        ((64, 64), 4, 62, 64),  # one instruction
        ((64, 64), 4, 61, 32),  # two in turn
        ((64, 64), 4, 54, 32),
        ((64, 64), 4, 53, 16),
        ((64, 64), 4, 42, 8),
        ((64, 64), 4, 41, 0),
        ((64, 64), 4, 32, 0),
        ((64, 64), 4, 28, 0),
        ((128, 128), 4, 102, 128),
        ((128, 128), 4, 101, 64),
        ((128, 128), 4, 70, 64),
        ((128, 128), 4, 64, 32),
        ((512, 64), 32, None, 64),
        ((512, 128), 32, None, 32),
    ],
)
def test_products_of_warp_groups_are_as_wide_as_registers_allow(
    from_text, shape: tuple[int, int], warps: int, maxnreg: int | None, columns: int
) -> None:
    """64 rows of a group hold half a register a thread for each column. ptxas refuses instructions that leave too few
    for the rest, and the more so several that take turns."""
    ptx, found = product_ptx(from_text, shape, warps, maxnreg)
    assert found == ({str(columns)} if columns else set())
    target = Target.parse("cuda:90a")
    assert assemble(ptx, target, Schedule(num_warps=warps, maxnreg=maxnreg)).image[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("shape", "maxnreg", "columns"),
    [
        ((64, 64), 46, 64),
        ((64, 64), 45, 16),
        ((64, 64), 40, 8),
        ((64, 64), 39, 0),
        ((64, 256), 94, 256),
        ((128, 128), 70, 128),
        ((128, 128), 69, 64),
    ],
)
def test_sums_in_halves_take_half_the_registers(from_text, shape: tuple[int, int], maxnreg: int, columns: int) -> None:
    ptx, found = product_ptx(from_text, shape, 4, maxnreg, "fp16")
    assert found == ({str(columns)} if columns else set())
    target = Target.parse("cuda:90a")
    assert assemble(ptx, target, Schedule(num_warps=4, maxnreg=maxnreg)).image[:4] == b"\x7fELF"


def test_producers_copy_by_an_elected_thread(ptx_of) -> None:
    """All of the warp elects, before it is the producer: another thread each time would wait for copies not its own."""
    ptx = ptx_of("matmul_f16")
    (elected,) = re.findall(r"elect\.sync \t%r\d+\|(%p\d+), -1;", ptx)
    copies = re.findall(r"@(%p\d+) (?:cp\.async\.bulk\.tensor\.2d\.shared|mbarrier\.arrive\.expect_tx)", ptx)
    assert len(copies) >= 3 and set(copies) == {elected}


def test_products_of_warp_groups_pass_llvm_briefly(standard_kernels, ptx_of) -> None:
    """Turned by LLVM, the loop would have its sums set to zero before its condition and again after it."""
    assert standard_kernels["matmul_f16"].program("cuda:90a").hoisted
    assert not standard_kernels["matmul_f16"].program("cuda:80").hoisted
    zeros = re.findall(r"mov\.b32 \t%r\d+, (?:0f00000000|%r\d+);", ptx_of("matmul_f16"))
    assert len(zeros) < 200


def test_sums_of_a_loop_are_rounded_in_pairs(from_text) -> None:
    text = """
def k(x_ptr, y_ptr, n, N: tl.constexpr):
    offs = tl.arange(0, N)
    total = tl.zeros((N,), dtype=tl.float32)
    for i in range(n):
        total += tl.load(x_ptr + offs)
    tl.store(y_ptr + offs, total.to(tl.bfloat16))
"""
    sample = from_text(text, {"x_ptr": "*fp32:16", "y_ptr": "*bf16:16", "n": "i32"}, {"N": 1024})
    ptx = emit_ptx(sample.program(), Target.parse("cuda:90a"))
    assert len(re.findall(r"cvt\.rn\.bf16x2\.f32", ptx)) == 4  # of 8 sums a thread
    assert "cvt.rn.bf16.f32" not in ptx


HALVES = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs).to(tl.float32)
    tl.store(y_ptr + offs, {value})
"""


def test_each_bf16_of_a_word_is_widened_by_one_instruction(from_text) -> None:
    sample = from_text(HALVES.format(value="tl.abs(x) * x"), {"x_ptr": "*bf16:16", "y_ptr": "*fp32:16"}, {"N": 1024})
    ptx = emit_ptx(sample.program(), Target.parse("cuda:90a"))
    words = [word for loaded in re.findall(r"ld\.global\S*\s+\{(.*?)\}", ptx) for word in loaded.split(", ")]
    assert len(words) == 4
    for word in words:
        assert len(re.findall(rf"shl\.b32 \t%r\d+, {word}, 16;", ptx)) == 1
        assert len(re.findall(rf"and\.b32 \t%r\d+, {word}, -65536;", ptx)) == 1
    assert "cvt." not in ptx and "mov.b32 \t{" not in ptx


def test_what_was_widened_and_is_narrowed_again_is_what_it_was(from_text) -> None:
    value = "tl.reshape(tl.reshape(x, (N // 2, 2)).to(tl.bfloat16), (N,))"
    sample = from_text(HALVES.format(value=value), {"x_ptr": "*bf16:16", "y_ptr": "*bf16:16"}, {"N": 1024})
    ptx = emit_ptx(sample.program(), Target.parse("cuda:90a"))
    assert not re.search(r"cvt\.|shl\.b32 \t%r\d+, %r\d+, 16|and\.b32", ptx)


COMPARED = """
def k(x_ptr, y_ptr, z_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x, y = tl.load(x_ptr + offs), tl.load(y_ptr + offs)
    tl.store(z_ptr + offs, {value})
"""


@pytest.mark.parametrize(
    "value",
    [
        "tl.maximum(x, y)",
        "tl.where(x.to(tl.float32) > y.to(tl.float32), x, y)",
        "tl.max(x, 0)",
        "tl.argmax(x, 0).to(tl.bfloat16)",
        "tl.where(offs < 7, x.to(tl.float32), y.to(tl.float32)).to(tl.bfloat16)",
        "x.to(tl.int32).to(tl.bfloat16)",
    ],
)
def test_what_is_only_compared_is_widened_so_that_llvm_can_undo_it(from_text, value) -> None:
    """There are instructions for pairs of bf16 then, and one that makes an integer of a bf16."""
    sample = from_text(
        COMPARED.format(value=value), dict.fromkeys(("x_ptr", "y_ptr", "z_ptr"), "*bf16:16"), {"N": 1024}
    )
    ptx = emit_ptx(sample.program(), Target.parse("cuda:90a"))
    assert not re.search(r"shl\.b32 \t%r\d+, %r\d+, 16;|, -65536;", ptx)


def test_what_is_compared_and_counted_with_is_widened_by_one_instruction(from_text) -> None:
    value = "tl.where(x > 0, x.to(tl.float32), 0.0) * y"
    sample = from_text(
        COMPARED.format(value=value), dict.fromkeys(("x_ptr", "y_ptr", "z_ptr"), "*bf16:16"), {"N": 1024}
    )
    ptx = emit_ptx(sample.program(), Target.parse("cuda:90a"))
    assert len(re.findall(r", -65536;", ptx)) >= 8


EIGHT_BITS = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.store(y_ptr + offs, {value})
"""


@pytest.mark.parametrize(
    ("value", "stored", "instruction"),
    [
        ("x.to(tl.float8e4nv)", "fp8e4nv", "e4m3x2"),
        ("x.to(tl.float8e5)", "fp8e5", "e5m2x2"),
        ("x.to(tl.float8e5).to(tl.float8e4nv, bitcast=True)", "fp8e4nv", "e5m2x2"),
        ("x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)", "u8", "e4m3x2"),
    ],
)
def test_floats_of_8_bits_are_rounded_in_pairs(from_text, value: str, stored: str, instruction: str) -> None:
    """Unless the bits are taken for something else."""
    types = {"x_ptr": "*fp32:16", "y_ptr": f"*{stored}:16"}
    sample = from_text(EIGHT_BITS.format(value=value), types, {"N": 2048})
    ptx = emit_ptx(sample.program(), Target.parse("cuda:90a"))
    made = re.findall(r"cvt\.rn\.satfinite\.(\S+)\.f32 %rs\d+, (%r\d+), (%r\d+);", ptx)
    assert {name for name, *_ in made} == {instruction}
    assert len(made) == (16 if "bitcast" in value else 8), "of 16 elements a thread"


@pytest.mark.parametrize("stored", ["fp8e4nv", "fp8e5"])
def test_pairs_of_8_bits_are_stored_in_the_order_of_what_they_were(from_text, stored: str) -> None:
    """``cvt`` takes the upper one first, ``mov`` the lower ones."""
    name = {"fp8e4nv": "float8e4nv", "fp8e5": "float8e5"}[stored]
    types = {"x_ptr": "*fp32:16", "y_ptr": f"*{stored}:16"}
    sample = from_text(EIGHT_BITS.format(value=f"x.to(tl.{name})"), types, {"N": 2048})
    ptx = emit_ptx(sample.program(), Target.parse("cuda:90a"))
    loaded = re.findall(r"%r\d+", "".join(re.findall(r"ld\.global\.v4\.b32 \t\{([^}]*)\}", ptx)))
    pairs = {made: (low, high) for made, high, low in re.findall(r"cvt\.rn\S+ (%rs\d+), (%r\d+), (%r\d+);", ptx)}
    words = {made: pairs[low] + pairs[high] for made, low, high in re.findall(r"(%r\d+), \{(%rs\d+), (%rs\d+)\}", ptx)}
    (kept,) = re.findall(r"st\.global\.v4\.b32 \[[^]]*\], \{([^}]*)\}", ptx)
    assert [x for word in re.findall(r"%r\d+", kept) for x in words[word]] == loaded and len(loaded) == 16


@pytest.mark.parametrize(("rows", "rounded"), [(64, 2 * 32), (128, 64)])
def test_left_operands_of_8_bits_are_rounded_in_pairs(from_text, rows: int, rounded: int) -> None:
    """Those of 64 rows once before the loop and once in it, which carries four to a register; those of 128 in the loop,
    where they change threads."""
    text = """
def chain(q_ptr, k_ptr, v_ptr, out_ptr, N, M: tl.constexpr, B: tl.constexpr, H: tl.constexpr):
    queries, rows, heads = tl.arange(0, M), tl.arange(0, B), tl.arange(0, H)
    q = tl.load(q_ptr + queries[:, None] * H + heads[None, :])
    sums = tl.zeros((M, H), tl.float32)
    for i in range(0, N, B):
        k = tl.load(k_ptr + (i + rows[None, :]) * H + heads[:, None])
        v = tl.load(v_ptr + (i + rows[:, None]) + heads[None, :] * 4096)
        p = tl.exp2(tl.dot(q, k))
        sums = tl.dot(p.to(tl.float8e5), v, sums)
    tl.store(out_ptr + queries[:, None] * H + heads[None, :], sums)
"""
    types = {**dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), "*fp8e5:16"), "out_ptr": "*fp32:16", "N": "i32:16"}
    sample = from_text(text, types, {"M": rows, "B": 64, "H": 64})
    ptx = emit_ptx(sample.program(), Target.parse("cuda:90a"))
    assert len(re.findall(r"ex2\.approx", ptx)) == rounded
    assert len(re.findall(r"cvt\.rn\.satfinite\.e5m2x2\.f32", ptx)) == rounded // 2


def test_loops_are_not_unrolled_by_ptxas(ptx_of) -> None:
    assert '.pragma "nounroll"' in ptx_of("matmul_f16")


LOOP = """
def k(x_ptr, y_ptr, n, N: tl.constexpr, WRITE: tl.constexpr):
    offs = tl.arange(0, N)
    total = tl.zeros((N,), dtype=tl.float32)
    for i in range(n):
        total += tl.load(x_ptr + i * N + offs)
        if WRITE:
            tl.store(y_ptr + i * N + offs, total)
    tl.store(y_ptr + offs, total)
"""


@pytest.mark.parametrize(
    "size, write, rounds", [(128, False, 4), (256, False, 4), (128, True, 4), (8192, False, 1)], ids=str
)
def test_short_loops_that_wait_for_memory_have_several_loads_on_their_way(from_text, size, write, rounds) -> None:
    sample = from_text(LOOP, {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "n": "i32"}, {"N": size, "WRITE": write})
    ptx = emit_ptx(sample.program(), Target.parse("cuda:90a"))
    blocks = re.split(r"^\$L\w+:", ptx, flags=re.MULTILINE)
    loads = max(len(re.findall(r"ld\.global", block)) for block in blocks)
    assert loads == rounds * max(1, size // 128 // 4)
    assert assemble(ptx, Target.parse("cuda:90a"), sample.schedule).spill_bytes == 0


@pytest.mark.parametrize(
    ("threads", "wanted", "registers", "times"),
    [(128, "", 255, 1), (128, "", 254, 2), (512, "", 128, 1), (384, "", 168, 1), (384, "", 160, 2)]
    + [(128, "\n.minnctapersm 1", 200, 1), (128, "\n.minnctapersm 2", 168, 2)],
)
def test_what_spills_is_assembled_again_where_registers_are_left(
    monkeypatch: pytest.MonkeyPatch, threads: int, wanted: str, registers: int, times: int
) -> None:
    module = importlib.import_module("deuteron.compiler.targets.nvptx.assemble")
    texts = []

    def made(ptx: str, *_: object) -> Cubin:
        texts.append(ptx)
        return Cubin(b"", registers, 64 // len(texts), 0, 0, "")

    monkeypatch.setattr(module, "_assemble", made)
    got = assemble(f".entry k()\n.reqntid {threads}{wanted}\n{{ }}", Target.parse("cuda:90a"), Schedule())
    assert len(texts) == times and got.spill_bytes == 64 // times
    assert times == 1 or texts[1] == f".entry k()\n.reqntid {threads}\n.minnctapersm 1\n{{ }}"


def test_register_cap_and_threads_are_in_the_ptx(standard_kernels) -> None:
    sample, target = standard_kernels["vector_add"], Target.parse("cuda:90a")
    schedule = Schedule(num_warps=8, maxnreg=64)
    function = lower_to_gpu(sample.tile(), target, schedule)
    ptx = emit_ptx(lower_to_llvm(function, target, schedule), target)
    assert ".reqntid 256" in ptx
    assert ".maxnreg 64" in ptx


def test_fusion_can_be_turned_off(from_text) -> None:
    text = """
def k(x_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.store(x_ptr + offs, x * x + x)
"""
    target = Target.parse("cuda:90a")
    found = {}
    for fused in (True, False):
        sample = from_text(text, {"x_ptr": "*fp32:16"}, {"N": 128}, enable_fp_fusion=fused)
        found[fused] = emit_ptx(sample.program(), target)
    assert "fma.rn.f32" in found[True]
    assert "fma.rn.f32" not in found[False] and "mul.rn.f32" in found[False]


def test_a_product_that_is_rounded_to_integers_is_rounded_before(from_text) -> None:
    """Fused with what rounding computes it would be another number, and at halves another integer."""
    text = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs) * tl.load(y_ptr + offs)
    tl.store(x_ptr + offs, tl.extra.libdevice.round(x))
"""
    sample = from_text(text, {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}, {"N": 128})
    made = emit_ptx(sample.program(), Target.parse("cuda:90a"))
    rounded = re.search(r"cvt\.rzi\.f32\.f32 \t(%\w+), (%\w+);", made)
    assert f", {rounded[2]}, {rounded[1]};" in made[made.index("sub.rn.f32") :]


def test_too_much_shared_memory_is_refused_before_code_generation(matmul) -> None:
    sample = matmul("fp32", (512, 512, 512), (256, 256, 256), 8)
    with pytest.raises(OutOfResources, match="shared memory.*Hardware limit: 101376"):
        sample.gpu("cuda:86")
