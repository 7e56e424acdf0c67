"""A stand-in for the worker process: it does what the configuration says."""

import ctypes
import json
import os
import sys
import time

prepared: dict = {}
opened = None
for line in sys.stdin:
    request = json.loads(line)
    operation = request["operation"]
    if operation == "open":
        prepared, opened = {}, request["device"]
        continue
    config = request.get("config", {})
    deed = config.get("deed", "ok")
    answer = {"status": "ok", "request": request["request"]}
    if operation == "prepare":
        prepared = request
        if request.get("workload", {}).get("name") == "unpreparable":
            answer |= {"status": "failed", "error": "cannot prepare"}
        if request.get("device") and request.get("dims", {}).get("n") == 65:
            time.sleep(30)
    elif operation == "race":
        deeds = [c.get("deed") for c in request["configs"]]
        if "segfault" in deeds:
            ctypes.string_at(0)
        answer |= {
            "times": [[100.0] * 7 for _ in deeds],
            "errors": [None for _ in deeds],
            "sm_mhz": 1500,
            "check_seconds": 0.1,
            "measure_seconds": 0.2,
            "reference": f"seed {prepared.get('seed')} in {os.getpid()}" + (f", {opened} open" if opened else ""),
        }
    elif operation == "screen" and deed in ("ok", "print"):
        answer["reference"] = f"{deed} of n={prepared.get('dims', {}).get('n')}"
    elif deed == "segfault":
        ctypes.string_at(0)
    elif deed == "abort":
        os.abort()
    elif deed == "exit":
        sys.exit(7)
    elif deed == "hang":
        time.sleep(60)
    elif deed == "nonsense":
        print("<<<", flush=True)
        continue
    elif deed == "print":
        os.write(2, b"a kernel printed this\n")
    elif deed == "last":
        print(json.dumps({**answer, "status": "crashed", "last": True}), flush=True)
        time.sleep(0.5)
        sys.exit(3)
    elif deed == "slow":
        time.sleep(0.3)
    answer |= {
        "pid": os.getpid(),
        "identity": deed,
        "metrics": {"registers": 8, **prepared.get("dims", {})},
        "seconds": 0.5,
        "time_ns": {"median": 5.0, "low": 4.0, "high": 6.0, "samples": 7},
    }
    print(json.dumps(answer), flush=True)
