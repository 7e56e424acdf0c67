"""C source and header that hold compiled kernels and launch them through the CUDA driver.

Function names, the file's directives for the linker and the order of arguments are those of Triton's ahead-of-time
tool. A launch does what the compiler's recipe says: it makes descriptors of the copy engine, runs persistent programs,
and takes another variant where arguments break a promise that the first one relies on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deuteron.compiler import CompiledKernel
from deuteron.compiler.errors import LaunchError, SignatureError
from deuteron.compiler.ir.types import SCALARS
from deuteron.compiler.launch_recipe import Guard, HostExpression, TensorMap
from deuteron.compiler.llvm.symbols import symbol_of
from deuteron.compiler.signature import ArgumentType
from deuteron.compiler.version import __version__

#: Shared memory of a program that needs no permission, in bytes (CUDA C++ Programming Guide, compute capabilities).
_SHARED_WITHOUT_OPT_IN = 48 << 10
_C_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while"
)
_CPP_WORDS = "class delete friend namespace new operator private protected public template this throw try using virtual"
_KEYWORDS = frozenset(_C_WORDS.split() + _CPP_WORDS.split())
#: What names of the file's own begin with, but for the functions that it is for.
_OWN = "launch_"
_FLOATS = {"f32": "float", "f64": "double"}
_DATA_TYPES = {"u8": "UINT8", "u16": "UINT16", "f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32", "f64": "FLOAT64"}
_DATA_TYPES |= {"i16": "UINT16", "u32": "UINT32", "i32": "INT32", "u64": "UINT64", "i64": "INT64"}
_OPERATORS = {"+": "({} + {})", "*": "({} * {})", "//": "launch_quotient({}, {})", "max": "launch_larger({}, {})"}


@dataclass(frozen=True)
class CLauncher:
    """A function that launches a kernel, or one of several variants of it.

    ``name``: of the function; ``variants``: the first whose guards hold is launched, and the last one has none;
    ``arguments``: names and C types; ``grid``: three expressions of C over the arguments; ``about``: a comment, line
    by line; ``directives``: comments that the linker reads.
    """

    name: str
    variants: Sequence[CompiledKernel]
    arguments: Mapping[str, str]
    grid: tuple[str, str, str]
    about: Sequence[str]
    directives: Sequence[str]

    def __post_init__(self) -> None:
        for name in self.arguments:
            if name in _KEYWORDS or name.startswith(_OWN):
                raise SignatureError(f"the parameter {name!r} has a name that the C code needs", hint="rename it")

    @property
    def prototype(self) -> str:
        """The function's declaration, without a semicolon."""
        return f"CUresult {self.name}({', '.join(['CUstream launch_stream', *self._parameters()])})"

    def _parameters(self) -> list[str]:
        return [f"{kind} {name}" for name, kind in self.arguments.items()]

    def header(self) -> str:
        """The declarations, safe for C and C++."""
        guard = f"{self.name.upper()}_H"
        lines = [f"#ifndef {guard}", f"#define {guard}", "", "#include <cuda.h>", "#include <stdint.h>", ""]
        lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", "", *(f"// {text}" for text in self.directives), ""]
        lines += [f"void load_{self.name}(void);", f"void unload_{self.name}(void);", f"{self.prototype};", ""]
        return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "", "#endif", ""])

    def source(self) -> str:
        """The definitions: machine code as bytes, and the functions."""
        images = "\n".join(_image(f"launch_cubin{i}", v.asm["cubin"]) for i, v in enumerate(self.variants))
        table = ", ".join(
            f'{{launch_cubin{i}, "{symbol_of(v.metadata.name)}", {v.metadata.shared}, NULL, NULL}}'
            for i, v in enumerate(self.variants)
        )
        about = "\n".join(f"   {line}".replace("*/", "* /") for line in self.about)
        head = _HEAD.format(
            version=__version__, about=about, name=self.name, images=images, table=table, prototype=self.prototype
        )
        launches = [self._launch(i, kernel) for i, kernel in enumerate(self.variants)]
        return "\n".join([head, *launches, self._entry()])

    def _launch(self, number: int, kernel: CompiledKernel) -> str:
        recipe = kernel.metadata.recipe
        if recipe.cluster > 1:
            raise LaunchError(f"{self.name}: kernels in clusters of programs cannot be compiled ahead of time")
        parameters = ", ".join(
            ["CUstream launch_stream", *(f"unsigned launch_{a}" for a in "xyz"), *self._parameters()]
        )
        passed = [f"&{name}" for name in self.arguments]
        lines = [f"static CUresult launch_{number}({parameters}) {{"]
        lines += [f"  CUresult launch_code = launch_prepare(&launch_variants[{number}]);"]
        for place, made in enumerate(recipe.descriptors):
            lines += _descriptor(f"launch_map{place}", made, self.arguments)
            passed.append(f"&launch_map{place}")
        if recipe.persistent:
            lines += _PERSISTENT.format(occupancy=recipe.occupancy).split("\n")
            passed += [f"&launch_{axis}" for axis in "xyz"]
        grid = "launch_programs, 1, 1" if recipe.persistent else "launch_x, launch_y, launch_z"
        lines += ["  if (launch_code != CUDA_SUCCESS) return launch_code;"]
        lines += [f"  void *launch_arguments[] = {{{', '.join([*passed, 'NULL'])}}};"]
        call, more = ("cuLaunchCooperativeKernel", "") if recipe.cooperative else ("cuLaunchKernel", ", NULL")
        launched = f"launch_variants[{number}].function, {grid}, {recipe.threads}, 1, 1"
        lines += [
            f"  return {call}({launched}, {kernel.metadata.shared}, launch_stream, launch_arguments{more});",
            "}",
            "",
        ]
        return "\n".join(lines)

    def _entry(self) -> str:
        lines = [f"{self.prototype} {{"]
        sizes = zip("xyz", self.grid, strict=True)
        lines += [f"  unsigned launch_{axis} = (unsigned)({size.strip()});" for axis, size in sizes]
        lines += ["  if (launch_x == 0 || launch_y == 0 || launch_z == 0) return CUDA_SUCCESS;"]
        passed = ", ".join(["launch_stream, launch_x, launch_y, launch_z", *self.arguments])
        for number, kernel in enumerate(self.variants):
            guards = kernel.metadata.recipe.argument_guards
            holds = f"if ({' && '.join(_condition(guard) for guard in guards)}) " if guards else ""
            lines += [f"  {holds}return launch_{number}({passed});"]
        return "\n".join([*lines, "}", ""])


def c_arguments(signature: Mapping[str, ArgumentType]) -> dict[str, str]:
    """Names and C types of the run-time parameters: pointers are CUdeviceptr, f16 and bf16 their bits as uint16_t,
    8-bit floats and booleans one byte. Sizes and strides of a tensor descriptor follow its address (``d_size0``)."""
    return {c_name(name): c_type(kind) for name, kind in signature.items()}


def c_name(name: str) -> str:
    """The name of a parameter in C: that of an element of a tuple, or of a descriptor's size, has a dot."""
    return name.replace(".", "_")


def c_type(kind: ArgumentType) -> str:
    """The type of an argument in C."""
    if kind.pointer:
        return "CUdeviceptr"
    scalar = SCALARS[kind.dtype]
    signed = "" if scalar.is_signed and not scalar.is_float else "u"
    return _FLOATS.get(kind.dtype) or f"{signed}int{max(8, scalar.bits)}_t"


def _image(name: str, code: str | bytes) -> str:
    data = code if isinstance(code, bytes) else code.encode()
    rows = (", ".join(f"0x{byte:02x}" for byte in data[i : i + 20]) for i in range(0, len(data), 20))
    return f"static const unsigned char {name}[{len(data)}] = {{\n  " + ",\n  ".join(rows) + "};"


def _condition(guard: Guard) -> str:
    name = c_name(guard.parameter)
    return f"{name} % {guard.value} == 0" if guard.kind == "multiple" else f"{name} >= {guard.value}"


def _expression(expression: HostExpression) -> str:
    if isinstance(expression, str):
        return f"(int64_t){c_name(expression)}"
    if isinstance(expression, tuple):
        operator, left, right = expression
        return _OPERATORS[operator].format(_expression(left), _expression(right))
    return f"INT64_C({expression})"


def _descriptor(name: str, made: TensorMap, arguments: Mapping[str, str]) -> list[str]:
    """Lines that make a descriptor; the driver counts dimensions from the innermost, whose stride it takes for 1."""
    if c_name(made.base) not in arguments:
        raise LaunchError(f"the launch recipe names {made.base!r}, which is no argument")
    rank, step = len(made.box), SCALARS[made.elem].bytes
    sizes = ", ".join(f"launch_extent({_expression(size)})" for size in made.sizes[::-1])
    strides = ", ".join(f"(cuuint64_t)({_expression(stride)} * {step})" for stride in made.strides[-2::-1])
    box = ", ".join(map(str, made.box[::-1]))
    kind = _DATA_TYPES.get(made.elem, "UINT8")
    swizzle = f"{made.swizzle}B" if made.swizzle else "NONE"
    padding = "NAN_REQUEST_ZERO_FMA" if made.padding == "nan" else "NONE"
    lines = [
        f"  CUtensorMap {name};",
        f"  cuuint64_t {name}_sizes[] = {{{sizes}}}, {name}_strides[] = {{{strides or 0}}};",
        f"  cuuint32_t {name}_box[] = {{{box}}}, {name}_steps[] = {{{', '.join(['1'] * rank)}}};",
    ]
    if made.strides[-1] != 1:
        lines += [f"  if ({_expression(made.strides[-1])} != 1) return CUDA_ERROR_INVALID_VALUE;"]
    return [
        *lines,
        "  if (launch_code == CUDA_SUCCESS)",
        f"    launch_code = cuTensorMapEncodeTiled(&{name}, CU_TENSOR_MAP_DATA_TYPE_{kind}, {rank},",
        f"        (void *)(uintptr_t){c_name(made.base)}, {name}_sizes, {name}_strides, {name}_box, {name}_steps,",
        f"        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_{swizzle},",
        f"        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_{padding});",
    ]


_PERSISTENT = """\
  CUdevice launch_device = 0;
  int launch_processors = 0;
  if (launch_code == CUDA_SUCCESS) launch_code = cuCtxGetDevice(&launch_device);
  if (launch_code == CUDA_SUCCESS)
    launch_code = cuDeviceGetAttribute(&launch_processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, launch_device);
  unsigned launch_programs = launch_x * launch_y * launch_z, launch_most = (unsigned)launch_processors * {occupancy}u;
  if (launch_programs > launch_most) launch_programs = launch_most;"""

_HEAD = """\
/* Made by deuteron {version}.
{about} */
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/* What launches compute from their arguments. A size of 0 is refused by the driver. */
static inline int64_t launch_quotient(int64_t x, int64_t y) {{ return y != 0 ? x / y : 0; }}
static inline int64_t launch_larger(int64_t x, int64_t y) {{ return x > y ? x : y; }}
static inline cuuint64_t launch_extent(int64_t n) {{ return n < 0 ? 0 : (cuuint64_t)(n >> 32 ? INT64_C(1) << 32 : n); }}

{images}

static struct launch_variant {{
  const unsigned char *image;
  const char *kernel;
  unsigned shared;
  CUmodule module;
  CUfunction function;
}} launch_variants[] = {{{table}}};
#define LAUNCH_VARIANTS (sizeof launch_variants / sizeof *launch_variants)

/* Loads a variant into the current context, once. Not for several threads at a time: call load_{name} before them. */
static CUresult launch_prepare(struct launch_variant *variant) {{
  if (variant->function != NULL) return CUDA_SUCCESS;
  CUfunction function = NULL;
  CUresult code = CUDA_SUCCESS;
  if (variant->module == NULL) code = cuModuleLoadData(&variant->module, variant->image);
  if (code == CUDA_SUCCESS) code = cuModuleGetFunction(&function, variant->module, variant->kernel);
  if (code == CUDA_SUCCESS && variant->shared > {limit})
    code = cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)variant->shared);
  if (code == CUDA_SUCCESS) variant->function = function;
  return code;
}}

/* What goes wrong here is tried again, and returned, by the next launch. */
void load_{name}(void);
void load_{name}(void) {{
  for (size_t i = 0; i < LAUNCH_VARIANTS; i++) (void)launch_prepare(&launch_variants[i]);
}}

void unload_{name}(void);
void unload_{name}(void) {{
  for (size_t i = 0; i < LAUNCH_VARIANTS; i++) {{
    if (launch_variants[i].module != NULL) cuModuleUnload(launch_variants[i].module);
    launch_variants[i].module = NULL;
    launch_variants[i].function = NULL;
  }}
}}

{prototype};
""".replace("{limit}", str(_SHARED_WITHOUT_OPT_IN))
