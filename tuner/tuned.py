"""``tuned``: a kernel that picks its configuration from stored records at launch, without a network."""

from __future__ import annotations

import hashlib
import os
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from deuteron.compiler import JITFunction, knobs
from deuteron.compiler.errors import LaunchError
from deuteron.compiler.folders import make_folder
from deuteron.compiler.printable import shown
from deuteron.compiler.runtime.arrays.dtypes import canonical_dtype
from deuteron.compiler.runtime.devices import device_of
from deuteron.compiler.runtime.launch.bound import Bindable, Relaunch
from deuteron.compiler.runtime.launch.runner import check_kernel
from deuteron.compiler.runtime.variant.cache import CacheWarning
from deuteron.compiler.whole_file import write_whole

from .addresses import is_file_address, is_url
from .errors import BundleError
from .records import Answer, DeviceFingerprint, RecordIndex, current_toolchain, lookup, read_bundle
from .records.trust import admit_file, admit_pulled, machine_keys
from .workloads.spec import parse_dim_source

if TYPE_CHECKING:
    from deuteron.compiler import JITFunction
    from deuteron.compiler.runtime.device import Device
    from deuteron.compiler.runtime.launch.grid import Grid, GridFunction
    from deuteron.compiler.runtime.launch.runner import Runner

    from .fetch import Answered

#: Of a bundle that is fetched: until its head is there and between its pieces, until all of it is, and its bytes.
ANSWER_SECONDS, FETCH_SECONDS, MOST_BUNDLE_BYTES = 30.0, 600.0, 1 << 30
MOST_REDIRECTS = 5

Kernel: TypeAlias = "JITFunction | Runner"

_Reader: TypeAlias = Callable[[Mapping[str, object]], int]


class TunedKernel(Bindable):
    """A kernel with a :class:`~.records.RecordIndex`; made by :func:`tuned`.

    ``kernel[grid](*args, **constexprs)`` launches with the configuration found for shape, dtype and device of the
    arguments; what it sets wins over ``constexprs``, which serve where there is no record. The answer is kept per
    shape, so only the first launch of a shape looks it up. ``last_answer`` says what was chosen and why.
    """

    def __init__(self, kernel: Kernel, index: RecordIndex, *, strict: bool = False) -> None:
        check_kernel(kernel)
        if not hasattr(kernel, "base_fn"):
            raise LaunchError(f"{shown(kernel)} is no kernel", hint="pass a function that has @jit above it")
        self.kernel = kernel
        base = kernel.base_fn
        self.base_fn = base
        self.__name__ = base.__name__
        self.last_answer: Answer | None = None
        self._index = index
        self._strict = strict
        self._answers: dict[tuple[object, ...], Answer] = {}
        self._devices: dict[str, tuple[DeviceFingerprint, dict[str, str]]] = {}
        self._hash = base.source.hash
        record = index.of_kernel(self._hash)
        self._dims: dict[str, _Reader] = {}
        self._dtype_argument: str | None = None
        if record is not None:
            self._dims = {dim: _reader(record.dims_from_arguments.get(dim), dim) for dim in record.dims}
            self._dtype_argument = record.dtype_argument

    __iter__ = None  # a grid is no index: Python would count up for ever

    def __getitem__(self, grid: Grid | GridFunction) -> Callable[..., object]:
        return lambda *args, **constexprs: self.launch(grid, *args, **constexprs)

    def launch(self, grid: Grid | GridFunction, *args: object, **constexprs: object) -> object:
        """Launch on ``grid`` (a tuple, or a function of the compile-time values)."""
        answer = self.answer(*args, **constexprs)
        if answer.match == "default":
            return self.kernel[grid](*args, **constexprs)
        # Under @autotune the stored configuration takes the place of the search.
        return self.base_fn[grid](*args, **{**constexprs, **answer.config})

    def relauncher(self, grid: Grid | GridFunction, args: Sequence[object], kwargs: Mapping[str, object]) -> Relaunch:
        """What a launch with these arguments does once its configuration and everything else about it is known."""
        answer = self.answer(*args, **kwargs)
        if answer.match == "default":
            return self.kernel.relauncher(grid, args, kwargs)
        return self.base_fn.relauncher(grid, args, {**kwargs, **answer.config})

    def answer(self, *args: object, **constexprs: object) -> Answer:
        """What a launch with these arguments would use, and why. Raises :class:`~.errors.RecordNotFound` in strict
        mode when there is no exact record."""
        bound = {**self.base_fn.named(args), **constexprs}
        device = device_of(bound)
        dtype = self._dtype(bound)
        sizes = tuple(read(bound) for read in self._dims.values())
        key = (device.name, dtype, sizes)
        answer = self._answers.get(key)
        if answer is None:
            shape = dict(zip(self._dims, sizes, strict=True))
            fingerprint, toolchain = self._identity(device)
            answer = lookup(
                self._index,
                self._hash,
                fingerprint,
                shape,
                dtype,
                strict=self._strict,
                toolchain=toolchain,
            )
            self._answers[key] = answer
        self.last_answer = answer
        return answer

    def _identity(self, device: Device) -> tuple[DeviceFingerprint, dict[str, str]]:
        if device.name not in self._devices:
            self._devices[device.name] = (
                DeviceFingerprint.of(device.properties),
                current_toolchain(device),
            )
        return self._devices[device.name]

    def _dtype(self, bound: Mapping[str, object]) -> str:
        if self._dtype_argument is None:
            return ""

        value = bound.get(self._dtype_argument)
        return canonical_dtype(getattr(value, "dtype", type(value).__name__))


def tuned(
    kernel: Kernel, cache: str | Path | RecordIndex, *, strict: bool = False, allow_unsigned: bool = False
) -> TunedKernel:
    """``kernel`` with the configurations in ``cache``: a bundle file, a URL of one, or an index.

    A URL is fetched once, here, with the token of DEUTERON_TOKEN if there is one; a copy is kept, revalidated by ETag,
    and used when the server cannot be reached, or is in trouble, or there is no room for another.
    It must be signed by a key that this machine trusts, or that the server showed first (:mod:`.records.trust`),
    unless ``allow_unsigned``. Of a file that is asked only where DEUTERON_TRUSTED_KEYS_ONLY is set. ``strict``:
    launches without an exact record raise instead of falling back. Raises :class:`~.errors.BundleError`.
    """
    if isinstance(cache, RecordIndex):
        return TunedKernel(kernel, cache, strict=strict)
    if not isinstance(cache, str | os.PathLike):
        raise BundleError(f"no bundle is named: cache = {cache!r}", hint="pass the path or the URL of one, or an index")
    text = str(cache)
    if not is_url(text):
        bundle = read_bundle(cache)
        if knobs.trusted_keys_only.get():
            admit_file(bundle, machine_keys(), allow_unsigned=allow_unsigned)
        return TunedKernel(kernel, bundle.index(), strict=strict)
    bundle = read_bundle(fetch_bundle(text, allow_unsigned=allow_unsigned))
    # Once more for a copy: since it was fetched its key may have been forgotten.
    admit_pulled(bundle, text, machine_keys(), allow_unsigned=allow_unsigned)
    return TunedKernel(kernel, bundle.index(), strict=strict)


def fetch_bundle(url: str, folder: Path | None = None, *, allow_unsigned: bool = False) -> Path:
    """Download a bundle unless the copy kept in ``folder`` is still current; the copy's path. Raises
    :class:`BundleError` when the service refuses, or sends no bundle, or there is no copy, and neither a service that
    can answer now nor a ``folder`` that takes one, and UntrustedBundle for one that
    :func:`~.records.trust.admit_pulled` refuses; then the copy stays. A CacheWarning says that ``folder`` takes none
    where there is one already."""
    if not is_file_address(url):
        raise BundleError(
            f"cannot fetch {url}: {url!r} is not an address", hint="http://host/path, or the path of a bundle file"
        )
    folder = folder or knobs.home.get() / "bundles"
    path = folder / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.bundle"
    etag = _etag_of(path)
    known = {} if etag is None else {"If-None-Match": etag}
    from .http import ServiceError, ServiceUnreachable  # lazy: httpx is for those who fetch
    from .http_body import BodyRefused  # lazy: as above

    part = path.with_suffix(f".{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        answered = _download(url, known, part)
        if answered.status != 304 or not known:
            if not part.exists():
                raise BundleError(
                    f"what {url} sends is no bundle: the answer ({answered.status}) is empty", hint="check the address"
                )
            digest = _keep(part, path, url, allow_unsigned)
            write_whole(_etag_path(path), f"{digest} {answered.etag}")
    except (ServiceError, ServiceUnreachable) as error:
        if not error.temporary:
            raise BundleError(
                f"{url} answered: {error.message}", hint="check the address, and the token in DEUTERON_TOKEN"
            ) from None
        if not path.exists():
            raise BundleError(
                f"cannot fetch {url}: {error.message}", hint="pull a bundle to a file and pass its path"
            ) from None
    except BodyRefused as error:
        raise BundleError(f"what {url} sends is no bundle: {error.message}", hint="check the address") from None
    except OSError as error:
        problem = f"cannot keep what {url} sends: {folder}: {error.strerror or error}"
        if not path.exists():
            raise BundleError(
                problem, hint="DEUTERON_HOME names another folder; or pull a bundle to a file and pass its path"
            ) from None
        warnings.warn(f"{problem}; the copy that is there is used", CacheWarning, 3)
    finally:
        with suppress(OSError):  # where there is no folder, nothing is in it
            part.unlink()
    return path


def _download(url: str, headers: Mapping[str, str], path: Path) -> Answered:
    """Write what is at ``url`` to ``path``, within :data:`FETCH_SECONDS` and :data:`MOST_BUNDLE_BYTES`."""
    from .fetch import Fetcher, FetchLimits  # lazy: httpx is for those who fetch
    from .http import CONNECT_SECONDS  # lazy: as above

    limits = FetchLimits(
        CONNECT_SECONDS, ANSWER_SECONDS, FETCH_SECONDS, MOST_BUNDLE_BYTES, ANSWER_SECONDS, MOST_REDIRECTS
    )
    fetcher, part = Fetcher(url, limits, token=knobs.token.get()), _Part(path)
    try:
        return fetcher.start(fetcher.get(url, {}, headers, part)).result()
    finally:
        fetcher.close()
        part.close()


class _Part:
    """A file that is made when there is something to write: a copy that is current needs no folder to write to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def write(self, piece: bytes) -> None:
        """Append, to a file that is made with the first piece."""
        if self._file is None:
            make_folder(self._path.parent)
            self._file = self._path.open("xb")
        self._file.write(piece)

    def flush(self) -> None:
        """Bring what was written to the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file, if there is one."""
        if self._file is not None:
            self._file.close()


def _keep(part: Path, path: Path, url: str, allow_unsigned: bool) -> str:
    """Publish a bundle that came from ``url`` at ``path``, if it is whole and may be trusted; its sha256."""
    admit_pulled(read_bundle(part), url, machine_keys(), allow_unsigned=allow_unsigned)
    with part.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    part.replace(path)
    return digest


def _etag_path(path: Path) -> Path:
    """Beside the copy at ``path``: the sha256 of a copy, and the ETag that it came with."""
    return path.with_suffix(".etag")


def _etag_of(path: Path) -> str | None:
    """The ETag of the copy at ``path``; None where there is none, where the note is damaged, or where what is noted is
    that of another copy: of several processes that fetch at once each publishes a file and then a note."""
    from .http import is_header  # lazy: httpx is for those who fetch

    try:
        noted, _, etag = _etag_path(path).read_text().partition(" ")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, UnicodeDecodeError):
        return None
    return etag if is_header(etag) and noted == digest else None


def _reader(source: str | None, dim: str) -> _Reader:
    """How a dim's size is read off the arguments."""
    if source is None:
        raise LaunchError(
            f"the records do not say which argument gives the size {dim!r}",
            hint="tune again with dims_from_arguments in the workload",
        )
    name, axis = parse_dim_source(source)

    def read(bound: Mapping[str, object]) -> int:
        value = bound.get(name)
        if axis is not None:
            shape = getattr(value, "shape", None)
            if shape is None or len(shape) <= axis:
                raise LaunchError(f"the argument {name!r} has no axis {axis}, which gives the size {dim!r}")
            return int(shape[axis])
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise LaunchError(
                f"the argument {name!r} is {value!r}; it gives the size {dim!r}",
                hint="pass a whole number",
            )
        return int(value.__index__())

    return read
