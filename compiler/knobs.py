"""Every environment setting of the compiler, the profiler and the tuner, typed and in one place.

Nothing else below ``server/`` reads the environment. A knob is read each time it is asked for, so a variable set by
a test or a notebook counts at once; :meth:`Knob.scope` overrides one without touching the environment. Where Triton
has a variable that means the same, its name works too; the DEUTERON name wins when both are set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, Literal, TypeVar, cast

from .epoch import epoch as epoch
from .errors import KnobError
from .setting_texts import BOOLEANS, SIZES, absolute_path, architecture_of, bytes_of, written

T = TypeVar("T")

_REGISTRY: dict[str, Knob[object]] = {}


class Knob(Generic[T]):
    """One setting: its variables (first one wins), its default, how its text is read and what it is for.

    Raises:
        KnobError: from :meth:`get`, when a variable is set to a text that the knob cannot take.
    """

    def __init__(
        self,
        names: str,
        default: Callable[[], T],
        parse: Callable[[str], T],
        allowed: str,
        doc: str,
        default_text: str | None = None,
    ) -> None:
        self.names = tuple(names.split())
        self.doc = doc
        self.allowed = allowed
        self._default = default
        self._default_text = default_text
        self.parse = parse
        self._override: list[T] = []
        self._assigned: list[T] = []
        for name in self.names:
            if name in _REGISTRY:
                raise TypeError(f"two knobs read {name}")
            _REGISTRY[name] = cast("Knob[object]", self)

    @property
    def name(self) -> str:
        """The variable that wins."""
        return self.names[0]

    @property
    def attribute(self) -> str:
        """What programs call it: ``knobs.cpu_threads``."""
        return next((f"knobs.{name}" for name, value in globals().items() if value is self), self.name)

    @property
    def default_text(self) -> str:
        """The default as documentation shows it."""
        return self._default_text if self._default_text is not None else written(self._default())

    def source(self) -> str | None:
        """Where the value comes from: ``scope``, ``program``, a variable's name, or None for the default."""
        if self._override:
            return "scope"
        if self._assigned:
            return "program"
        return next((n for n in self.names if os.environ.get(n, "").strip()), None)

    def get(self) -> T:
        """The value now; an empty or blank variable counts as not set."""
        if self._override:
            return self._override[-1]
        if self._assigned:
            return self._assigned[0]
        name = self.source()
        if name is None:
            return self._default()
        text = os.environ[name]
        try:
            return self.parse(text.strip())
        except (ValueError, KeyError) as error:
            raise KnobError(f"environment variable {name} is {text!r}", hint=f"use {self.allowed}") from error

    @contextmanager
    def scope(self, value: T) -> Iterator[None]:
        """Give the knob ``value`` inside a ``with`` block, for the whole process (all threads).

        Raises:
            KnobError: the knob cannot have this value.
        """
        if not self._takes(value):
            raise KnobError(f"{self.attribute}.scope({value!r})"[:120], hint=f"use {self.allowed}")
        self._override.append(value)
        epoch.value += 1
        try:
            yield
        finally:
            self._override.pop()
            epoch.value += 1

    def _takes(self, value: object) -> bool:
        """Whether a variable could say it, or it is the default that stands for nothing."""
        if value is None or value == "":
            return bool(value == self._default())
        try:
            return self.parse(written(value)) == (absolute_path(str(value)) if isinstance(value, Path) else value)
        except (ValueError, KeyError):
            return False

    @property
    def assigned(self) -> tuple[T, ...]:
        """The value that the program gave the knob, if it did."""
        return tuple(self._assigned)

    def assign(self, *value: T) -> None:
        """Give the knob a value for the rest of the process, or take it away again when called without one. A scope
        wins over it, and it wins over the environment."""
        self._assigned[:] = value[:1]
        epoch.value += 1

    def variables(self) -> dict[str, str]:
        """The variables of this knob that the environment has."""
        return {name: os.environ[name] for name in self.names if name in os.environ}

    def put_variables(self, variables: Mapping[str, str]) -> None:
        """Have these of the knob's variables in the environment and none of its others; processes that are started from
        now on read them."""
        for name in self.names:
            if name in variables:
                os.environ[name] = variables[name]
            else:
                os.environ.pop(name, None)

    def __repr__(self) -> str:
        return f"<Knob {self.name} = {written(self.get())}>"


def inherited_environment() -> dict[str, str]:
    """All variables, knobs or not: what a process finds that is started now."""
    return dict(os.environ)


def import_first_from(folder: Path) -> None:
    """Python processes that are started from now on look for modules in ``folder`` before they look elsewhere."""
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(folder)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *others])


def all_knobs() -> tuple[Knob[object], ...]:
    """Every knob once, in the order of this file: for documentation and ``--help``."""
    return tuple(dict.fromkeys(_REGISTRY.values()))


def describe() -> str:
    """All knobs as text: names, default, meaning, values and Triton's names, one paragraph each."""
    paragraphs = []
    for knob in all_knobs():
        also = f" Also: {', '.join(knob.names[1:])}." if knob.names[1:] else ""
        names = f"{knob.name}, {knob.attribute}"
        paragraphs.append(f"{names} (default: {knob.default_text})\n    {knob.doc} Values: {knob.allowed}.{also}")
    return "\n".join(paragraphs)


def _flag(names: str, default: bool, doc: str) -> Knob[bool]:
    return Knob(names, lambda: default, lambda t: BOOLEANS[t.lower()], "0 or 1", doc)


def _number(names: str, default: int, doc: str, *, low: int, high: int) -> Knob[int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return Knob(names, lambda: default, parse, f"a whole number from {low} to {high}", doc)


def _size(names: str, default: int, doc: str) -> Knob[int]:
    return Knob(names, lambda: default, bytes_of, SIZES, doc)


def _optional_path(names: str, doc: str) -> Knob[Path | None]:
    return Knob(names, lambda: None, absolute_path, "a path", doc)


def _text(names: str, doc: str, allowed: str = "any text") -> Knob[str]:
    return Knob(names, str, str, allowed, doc)


# ---- where things are kept -------------------------------------------------------------------------------------


def default_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder for what is kept between runs where DEUTERON_HOME names none.

    Raises:
        KnobError: it would be in the home folder of a user who has none, as in some containers.
    """
    try:
        return absolute_path(environment.get("TRITON_HOME") or "~") / ".deuteron"
    except ValueError as error:
        raise KnobError(f"there is no home folder {error}", hint="set DEUTERON_HOME to a folder") from None


def _default_cache() -> Path:
    shared = os.environ.get("TRITON_CACHE_DIR")
    return absolute_path(shared) / "deuteron" if shared else home.get() / "cache"


home: Knob[Path] = Knob(
    "DEUTERON_HOME",
    default_home,
    absolute_path,
    "a path",
    "Folder for everything kept between runs, of the service its database, bundles, profiles and spools. With "
    "TRITON_HOME set: $TRITON_HOME/.deuteron.",
    "~/.deuteron",
)
cache_dir: Knob[Path] = Knob(
    "DEUTERON_CACHE_DIR",
    _default_cache,
    absolute_path,
    "a path",
    "Compiled variants and autotuning results. With TRITON_CACHE_DIR set: $TRITON_CACHE_DIR/deuteron.",
    "$DEUTERON_HOME/cache",
)
cache_bytes = _size(
    "DEUTERON_CACHE_BYTES",
    2 << 30,
    "Size the compile cache may grow to before its least recently used entries go; 0 turns it off.",
)
always_compile = _flag(
    "DEUTERON_ALWAYS_COMPILE TRITON_ALWAYS_COMPILE",
    False,
    "Compile even when the cache has the variant.",
)

token = _text(
    "DEUTERON_TOKEN",
    "Bearer token for a service: of workers, of the client, and of deuteron.tuned where it is given an address "
    "(then of scope read).",
    "a line of ASCII",
)
trusted_keys_only = _flag(
    "DEUTERON_TRUSTED_KEYS_ONLY",
    False,
    "Take only bundles that this machine or a trusted key signed: no file without a signature, and no key because a "
    "service showed it first.",
)

# ---- how kernels run -------------------------------------------------------------------------------------------

interpret = _flag(
    "DEUTERON_INTERPRET TRITON_INTERPRET",
    False,
    "Run kernels as Python under the interpreter, so that print and pdb work inside them. Read when a kernel is "
    "decorated.",
)
debug = _flag(
    "DEUTERON_DEBUG TRITON_DEBUG",
    False,
    "Compile tl.device_assert and checks of integer overflow into kernels. Read when a launch needs a new variant.",
)
cpu_threads = _number(
    "DEUTERON_CPU_THREADS",
    0,
    "Threads of the CPU target's grid; 0 takes one per core that this process may use.",
    low=0,
    high=1024,
)
device = _text(
    "DEUTERON_DEVICE",
    "Device for launches whose arguments are on none, such as cpu or cuda:0.",
)

# ---- what kernels are compiled to ------------------------------------------------------------------------------

default_fp_fusion = _flag(
    "DEUTERON_DEFAULT_FP_FUSION TRITON_DEFAULT_FP_FUSION",
    True,
    "Default of enable_fp_fusion: contract a*b+c to one fma.",
)
plain_globals = _flag(
    "DEUTERON_PLAIN_GLOBALS TRITON_ALLOW_NON_CONSTEXPR_GLOBALS",
    False,
    "Let kernels read globals that are plain numbers, texts or None as compile-time constants; otherwise a global has "
    "to be a tl.constexpr.",
)
F32Precision = Literal["ieee", "tf32", "tf32x3"]
_PRECISIONS: dict[str, F32Precision] = {"ieee": "ieee", "tf32": "tf32", "tf32x3": "tf32x3"}
f32_default: Knob[F32Precision] = Knob(
    "DEUTERON_F32_DEFAULT TRITON_F32_DEFAULT",
    lambda: "tf32",
    lambda text: _PRECISIONS[text.lower()],
    "ieee, tf32 or tf32x3",
    "Default input_precision of tl.dot on f32 inputs.",
)
override_arch: Knob[str | None] = Knob(
    "DEUTERON_OVERRIDE_ARCH TRITON_OVERRIDE_ARCH",
    lambda: None,
    architecture_of,
    "an architecture such as 90a or sm90a",
    "Compile for this GPU architecture instead of the device's own. Read when a device is first used.",
)
ptxas_path = _optional_path(
    "DEUTERON_PTXAS_PATH TRITON_PTXAS_PATH",
    "The ptxas to assemble with, instead of the one on PATH or in the nvidia-cuda-nvcc wheel.",
)
ptxas_options = _text("DEUTERON_PTXAS_OPTIONS PTXAS_OPTIONS", "More options for ptxas, separated by spaces.")
disable_ptxas_opt = _flag(
    "DEUTERON_DISABLE_PTXAS_OPT DISABLE_PTXAS_OPT",
    False,
    "Assemble without optimisation, for debuggers.",
)
cuobjdump_path = _optional_path(
    "DEUTERON_CUOBJDUMP_PATH TRITON_CUOBJDUMP_PATH",
    "The cuobjdump that prints machine code of a cubin, instead of the one on PATH.",
)
nvdisasm_path = _optional_path(
    "DEUTERON_NVDISASM_PATH TRITON_NVDISASM_PATH",
    "The nvdisasm that prints machine code of a cubin, instead of the one on PATH.",
)

# ---- looking inside --------------------------------------------------------------------------------------------

kernel_dump = _flag(
    "DEUTERON_KERNEL_DUMP TRITON_KERNEL_DUMP",
    False,
    "Write every stage of each compiled variant under DEUTERON_DUMP_DIR.",
)
dump_dir: Knob[Path] = Knob(
    "DEUTERON_DUMP_DIR TRITON_DUMP_DIR",
    lambda: home.get() / "dump",
    absolute_path,
    "a path",
    "Where DEUTERON_KERNEL_DUMP writes.",
    "$DEUTERON_HOME/dump",
)
verify = _flag(
    "DEUTERON_VERIFY",
    False,
    "Check tile IR after each pass and GPU IR, with its layouts, after each step, and name the one that broke it.",
)

# ---- autotuning ------------------------------------------------------------------------------------------------

print_autotuning = _flag(
    "DEUTERON_PRINT_AUTOTUNING TRITON_PRINT_AUTOTUNING",
    False,
    "Print what an @autotune search timed and chose.",
)
cache_autotuning = _flag(
    "DEUTERON_CACHE_AUTOTUNING TRITON_CACHE_AUTOTUNING",
    False,
    "Keep the timings of @autotune on disk, so that a search is run once per machine.",
)

# ---- profiler --------------------------------------------------------------------------------------------------

cupti_path = _optional_path(
    "DEUTERON_CUPTI_LIB_PATH TRITON_CUPTI_LIB_PATH",
    "libcupti.so, or the folder that holds it, instead of the one that CUDA's wheels or PATH provide.",
)
proton_disable = _flag(
    "DEUTERON_PROTON_DISABLE TRITON_PROTON_DISABLE",
    False,
    "Make the profiler's calls do nothing.",
)
profile_buffer_bytes = _size(
    "DEUTERON_PROFILE_BUFFER_SIZE TRITON_PROFILE_BUFFER_SIZE",
    64 << 20,
    "Memory for GPU activity records between two flushes.",
)
profile_metric_buffer_bytes = _size(
    "DEUTERON_PROFILE_METRIC_BUFFER_SIZE TRITON_PROFILE_METRIC_BUFFER_SIZE",
    64 << 20,
    "Memory of the host for metrics that GPUs tell, between two flushes; taken when the first one does.",
)
nvtx_injection = _optional_path(
    "NVTX_INJECTION64_PATH",
    "NVTX's own: the library that it tells of ranges. The profiler names libcupti here while it runs.",
)
nvtx_ranges = _flag(
    "DEUTERON_NVTX TRITON_ENABLE_NVTX",
    True,
    "Profile ranges of NVTX (torch.cuda.nvtx.range_push) as scopes, in sessions that record GPUs.",
)
