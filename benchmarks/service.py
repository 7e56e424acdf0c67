"""Speed and memory of the service: lookups with many stored configurations, and a streamed bundle.

    python benchmarks/service.py [--configs 100000] [--seconds 5] [--out service.json]

The service runs in a process of its own on SQLite, as `deuteron serve` runs it; the load comes from this
process over keep-alive connections, so on a machine with two cores it takes a part of what it measures.
Targets: 2,000 lookups/s on one server process with 100,000 configurations, 99 of 100 within 5, 20 and 60 ms for 1, 8
and 64 clients, and a 50 MB bundle that does not make the server's memory grow by its size.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from rich.console import Console
from rich.table import Table

from deuteron import migrations
from deuteron.server import ServiceStore, Settings
from deuteron.server.configs import stored_config
from deuteron.server.listen import bind
from deuteron.tuner import ConfigRecord, DeviceFingerprint, Interval
from deuteron.tuner.records.reach import Reach

KERNELS, DTYPES = 10, ("f32", "bf16")
GPUS = (
    ("H200", 132, 141),
    ("H100", 132, 80),
    ("A100", 108, 80),
    ("L4", 58, 24),
    ("B200", 148, 180),
)

TARGET_PER_S, TARGET_GROWTH, TARGET_HEALTH_MS = 2000.0, 1.0, 50.0
#: Within how many ms 99 of 100 lookups are answered, by the number of clients.
TARGETS_P99_MS = {1: 5.0, 8: 20.0, 64: 60.0}
BURST = 45


@dataclasses.dataclass(frozen=True)
class Measurement:
    name: str
    value: float
    unit: str
    target: str
    met: bool


def kernel_hash(number: int) -> str:
    return f"{number:064x}"


def devices() -> list[DeviceFingerprint]:
    return [
        DeviceFingerprint("cuda", f"NVIDIA {name}", None, sms, gib << 30, (9, 0), None, 700.0)
        for name, sms, gib in GPUS
    ]


DEVICE_KEYS = [device.key for device in devices()]


def make_record(kernel: int, device: DeviceFingerprint, dtype: str, number: int) -> ConfigRecord:
    time_ns = Interval(1e5 + number, 0.99e5 + number, 1.01e5 + number, 32)
    return ConfigRecord(
        kernel_name=f"kernel_{kernel}",
        kernel_hash=kernel_hash(kernel),
        device=device,
        shape={"M": 64 * (number % 100 + 1), "N": 64 * (number // 100 + 1), "K": 4096},
        dtype=dtype,
        toolchain={
            "deuteron": "0.1.0",
            "llvmlite": "0.50.0",
            "target": "cuda:90a",
            "driver": "580",
        },
        config={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 4},
        default_config={
            "BLOCK_M": 64,
            "BLOCK_N": 64,
            "BLOCK_K": 32,
            "num_warps": 4,
            "num_stages": 3,
        },
        time_ns=time_ns,
        default_time_ns=time_ns,
        speedup=Interval(1.0, 1.0, 1.0, 32),
        verdict="SAME",
        trials=100,
        checked=True,
        dims_from_arguments={"M": "M", "N": "N", "K": "K"},
        dtype_argument="a_ptr",
        reach=Reach(sizes={"M": 1 << 20, "N": 1 << 20, "K": 1 << 20}, together=True),
    )


def fill(settings: Settings, count: int) -> None:
    """Store ``count`` configurations, spread over kernels, devices and dtypes."""
    migrations.upgrade(settings.database_url)
    store = ServiceStore.open(settings.database_url)
    groups = [(k, d, t) for k in range(KERNELS) for d in devices() for t in DTYPES]
    per_group = -(-count // len(groups))
    left = count
    for kernel, device, dtype in groups:
        records = [make_record(kernel, device, dtype, n) for n in range(min(per_group, left))]
        left -= len(records)
        with store.write() as tx:
            tx.configs.add_many([stored_config(record, None) for record in records])
            tx.devices.remember(
                key=device.key,
                kind=device.kind,
                name=device.name,
                fingerprint=json.dumps(device.to_json()),
            )
    store.close()


class Server:
    """The service in a process of its own."""

    def __init__(self, settings: Settings) -> None:
        probe = bind(dataclasses.replace(settings, port=0))
        self.port = int(probe.getsockname()[1])
        probe.close()
        code = (
            "import sys\nfrom pathlib import Path\nfrom deuteron.server import Settings, serve\n"
            "serve(Settings(home=Path(sys.argv[1]), port=int(sys.argv[2]), scheduler='none',"
            " rate_per_minute=0))"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code, str(settings.home), str(self.port)],
            stderr=subprocess.DEVNULL,
        )

    async def wait(self) -> None:
        for _ in range(300):
            try:
                status, _ = await Connection(self.port).get("/readyz")
            except OSError:
                await asyncio.sleep(0.1)
                continue
            if status == 200:
                return
        raise SystemExit("the server did not start")

    def memory_bytes(self, field: str) -> int:
        """VmRSS or VmHWM of the server process."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
        raise SystemExit(f"/proc has no {field}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


class Connection:
    """One keep-alive connection; the least HTTP that works, so that the client costs little."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> tuple[int, int]:
        """Status and length of the body, which is read and dropped."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        left = length = int(lengths[0].split(b":")[1])
        while left:
            chunk = await reader.read(min(left, 1 << 18))
            if not chunk:
                raise SystemExit("the server closed the connection")
            left -= len(chunk)
        return int(head.split(b" ", 2)[1]), length


def random_lookup(random_: random.Random, count: int) -> str:
    per_group = -(-count // (KERNELS * len(GPUS) * len(DTYPES)))
    number = random_.randrange(per_group)
    # One in five asks for a shape that is not stored: the nearest is searched.
    k = 4096 if random_.random() < 0.8 else 4000
    shape = f"M={64 * (number % 100 + 1)},N={64 * (number // 100 + 1)},K={k}"
    kernel, device = random_.randrange(KERNELS), random_.choice(DEVICE_KEYS)
    return lookup_path(kernel, device, shape, random_.choice(DTYPES))


def lookup_path(kernel: int, device: str, shape: str, dtype: str) -> str:
    parameters = {"kernel": kernel_hash(kernel), "device": device, "shape": shape, "dtype": dtype}
    return "/v1/configs/lookup?" + urlencode(parameters)


async def measure_lookups(port: int, count: int, seconds: float, connections: int) -> tuple[float, list[float]]:
    """Lookups per second, and their times in ms."""
    times: list[float] = []
    deadline = time.perf_counter() + seconds

    async def client(seed: int) -> None:
        random_ = random.Random(seed)
        connection = Connection(port)
        while time.perf_counter() < deadline:
            path = random_lookup(random_, count)
            started = time.perf_counter()
            status, _ = await connection.get(path)
            times.append(1e3 * (time.perf_counter() - started))
            if status != 200:
                raise SystemExit(f"{path} answered {status}")

    started = time.perf_counter()
    await asyncio.gather(*(client(seed) for seed in range(connections)))
    return len(times) / (time.perf_counter() - started), times


async def measure_clients(port: int, count: int, seconds: float, clients: int) -> list[Measurement]:
    """Rate and times of lookups from so many connections."""
    rate, times = await measure_lookups(port, count, seconds, clients)
    p99, most = statistics.quantiles(times, n=100)[98], TARGETS_P99_MS[clients]
    from_ = f"{clients} client{'s' if clients > 1 else ''}"
    wanted = f">= {TARGET_PER_S:g}" if clients > 1 else ""
    return [
        Measurement(f"lookups/s, {from_}", rate, "1/s", wanted, clients == 1 or rate >= TARGET_PER_S),
        Measurement(f"lookup p50, {from_}", statistics.median(times), "ms", "", True),
        Measurement(f"lookup p99, {from_}", p99, "ms", f"<= {most:g}", p99 <= most),
    ]


async def measure_cold(port: int, *, k: int) -> list[float]:
    """Times in ms of one lookup for each kernel, device and dtype."""
    connection, times = Connection(port), []
    for kernel in range(KERNELS):
        for device in DEVICE_KEYS:
            for dtype in DTYPES:
                started = time.perf_counter()
                await connection.get(lookup_path(kernel, device, f"M=64,N=64,K={k}", dtype))
                times.append(1e3 * (time.perf_counter() - started))
    return times


async def measure_bundle(server: Server) -> list[Measurement]:
    """Build and stream everything as one bundle, twice."""
    before = server.memory_bytes("VmRSS")
    connection = Connection(server.port)
    started = time.perf_counter()
    status, size = await connection.get("/v1/bundles/latest")
    built = time.perf_counter() - started
    started = time.perf_counter()
    status_again, _ = await connection.get("/v1/bundles/latest")
    streamed = time.perf_counter() - started
    if (status, status_again) != (200, 200):
        raise SystemExit(f"the bundle answered {status}, {status_again}")
    growth = max(0, server.memory_bytes("VmHWM") - before) / size
    return [
        Measurement("bundle size", size / 1e6, "MB", "", True),
        Measurement("bundle build and download", built, "s", "", True),
        Measurement("bundle download again", size / 1e6 / streamed, "MB/s", "", True),
        Measurement(
            "server memory growth / bundle size",
            growth,
            "x",
            f"<= {TARGET_GROWTH:g}",
            growth <= TARGET_GROWTH,
        ),
    ]


async def measure_burst(server: Server, settings: Settings) -> list[Measurement]:
    """Many clients ask for everything right after a change, while a load balancer asks whether the process lives."""
    store = ServiceStore.open(settings.database_url)
    with store.write() as tx:
        tx.configs.add_many([stored_config(make_record(KERNELS, devices()[0], "f32", 0), None)])
    store.close()
    waiting: list[float] = []
    finished = asyncio.Event()

    async def probe() -> None:
        connection = Connection(server.port)
        while not finished.is_set():
            started = time.perf_counter()
            await connection.get("/healthz")
            waiting.append(1e3 * (time.perf_counter() - started))
            await asyncio.sleep(0.005)

    prober = asyncio.create_task(probe())
    started = time.perf_counter()
    answers = await asyncio.gather(*(Connection(server.port).get("/v1/bundles/latest") for _ in range(BURST)))
    seconds = time.perf_counter() - started
    finished.set()
    await prober
    if {status for status, _ in answers} != {200}:
        raise SystemExit(f"bundles answered {answers}")
    waiting.sort()
    p99 = waiting[int(0.99 * (len(waiting) - 1))]
    target = f"<= {TARGET_HEALTH_MS:g}"
    return [
        Measurement(f"{BURST} simultaneous bundles after a change", seconds, "s", "", True),
        Measurement("/healthz meanwhile, p99", p99, "ms", target, p99 <= TARGET_HEALTH_MS),
        Measurement("/healthz meanwhile, longest", waiting[-1], "ms", "", True),
    ]


async def run(count: int, seconds: float, say: Callable[[str], None], *, bundle_only: bool) -> list[Measurement]:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder), scheduler="none")
        started = time.perf_counter()
        fill(settings, count)
        say(f"{count} configurations stored in {time.perf_counter() - started:.1f} s")
        server = Server(settings)
        try:
            await server.wait()
            bundle = await measure_bundle(server)
            if bundle_only:
                return bundle
            burst = await measure_burst(server, settings)
            exact = await measure_cold(server.port, k=4096)
            nearest = await measure_cold(server.port, k=4000)
            lookups = [await measure_clients(server.port, count, seconds, clients) for clients in TARGETS_P99_MS]
        finally:
            server.stop()
    return [
        *(item for group in lookups for item in group),
        Measurement("first exact lookup in a group", statistics.median(exact), "ms", "", True),
        Measurement("first nearest lookup in a group", statistics.median(nearest), "ms", "", True),
        *bundle,
        *burst,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--configs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each lookup run")
    parser.add_argument("--bundle-only", action="store_true", help="measure the bundle, and nothing else")
    parser.add_argument("--out", type=Path, help="write the measurements as JSON")
    arguments = parser.parse_args()
    console = Console()
    measured = asyncio.run(run(arguments.configs, arguments.seconds, console.print, bundle_only=arguments.bundle_only))
    table = Table("", "measured", "target", "")
    for item in measured:
        verdict = ("met" if item.met else "MISSED") if item.target else ""
        table.add_row(item.name, f"{item.value:.3g} {item.unit}", item.target, verdict)
    console.print(table)
    if arguments.out:
        document = {
            "configs": arguments.configs,
            "results": [dataclasses.asdict(m) for m in measured],
        }
        arguments.out.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
