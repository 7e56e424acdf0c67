#!/usr/bin/env bash
# make gpu: everything that needs an NVIDIA GPU, in one run. GPU tests first (a missing GPU is an error), then random
# kernels against NumPy, rows, products, mixtures of experts, additions by atomics and attention against Triton and
# torch's libraries, compile times and autotuning against Triton, kernels of many kinds beside Triton's, the profiler
# against Proton and what scopes inside a kernel cost, what launches cost and how steady their times are, searches
# against all configurations that are known, the main job on cuda:0, and examples under compute-sanitizer where it is
# installed. Each step has its own time-out, so that a kernel that hangs costs minutes, not the machine.
# STEPS="gemm rows" runs only these; QUICK=1 measures less. Logs and JSON go to $OUT; a short table comes last.
set -u
cd "$(dirname "$0")/.."
OUT=${OUT:-gpu-results}
mkdir -p "$OUT"
if [ -z "${PYTHON:-}" ]; then
    if [ -x .venv/bin/python ] && .venv/bin/python -c 'import torch, triton' 2>/dev/null; then PYTHON=.venv/bin/python; else PYTHON=python3; fi
fi
# An interpreter that has torch but not deuteron sees the checkout through the links for type checkers. The checkout's own
# deuteron/ folder is only part of the package, so -P keeps the working directory off the path.
"$PYTHON" -P -c 'import deuteron.compiler' 2>/dev/null || export PYTHONPATH="$PWD/.typing${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1 DEUTERON_CACHE_DIR=${DEUTERON_CACHE_DIR:-$(mktemp -d)} DEUTERON_HOME=${DEUTERON_HOME:-$(mktemp -d)}

summary=""
ran=""
failed=0
step() { # name, seconds, command...
    local name=$1 limit=$2 begin rc
    shift 2
    case " ${STEPS:-$name} " in *" $name "*) ;; *) return ;; esac
    ran+=" $name"
    begin=$SECONDS
    timeout --kill-after=10 "$limit" "$@" >"$OUT/$name.log" 2>&1
    rc=$?
    [ $rc -eq 0 ] || failed=1
    summary+=$(printf '%-10s exit %-4s %4ss   %s' "$name" $rc $((SECONDS - begin)) "$(tail -n 1 "$OUT/$name.log" | cut -c1-110)")$'\n'
}

STEPS= step machine 30 sh -c 'nvidia-smi --query-gpu=name,driver_version,clocks.sm,temperature.gpu,power.draw --format=csv,noheader; echo "commit ${COMMIT:-$(git rev-parse HEAD 2>/dev/null)}"'
# Processes share the GPU well: eight run the tests in a quarter of the time.
workers=$("$PYTHON" -c 'import xdist' 2>/dev/null && echo "-n 8 --dist loadfile --no-loadscope-reorder")
# shellcheck disable=SC2086
step tests 270 "$PYTHON" -P -m pytest -q --maxfail=20 -m gpu --require-gpu -p no:cacheprovider $workers tests
step fuzz 180 "$PYTHON" tests/fuzz/kernels.py --target cuda --programs 100000 --seconds 90 --seed "${FUZZ_SEED:-2000000}" --jobs 8 --out "$OUT/fuzz"
step rows 240 "$PYTHON" benchmarks/rows.py --limit 200 --out "$OUT/rows.json" ${QUICK:+--quick}
step gemm 400 "$PYTHON" benchmarks/gemm.py --peers --limit 330 --out "$OUT/gemm.json" ${QUICK:+--quick}
step fp8 150 "$PYTHON" benchmarks/gemm.py --peers --dtype fp8 --shapes 1024,1024,1024 4096,4096,4096 8192,8192,8192 --limit 100 --out "$OUT/gemm-fp8.json" ${QUICK:+--quick}
step experts 150 "$PYTHON" benchmarks/experts.py --peers --limit 100 --out "$OUT/experts.json" ${QUICK:+--quick}
step updates 60 "$PYTHON" benchmarks/updates.py --out "$OUT/updates.json" ${QUICK:+--rounds 10}
step attention 400 "$PYTHON" benchmarks/attention.py --peers --limit 300 --out "$OUT/attention.json" ${QUICK:+--quick}
step pairs 600 "$PYTHON" benchmarks/kernel_pairs.py --seconds 540 --out "$OUT/pairs.json" ${QUICK:+--rounds 6}
step compile 150 "$PYTHON" benchmarks/compile_time.py --quick --out "$OUT/compile_time.json"
step profiler 260 "$PYTHON" benchmarks/gpu_profiler.py --out "$OUT/profiler.json" --profile "$OUT/examples"
step trees 150 "$PYTHON" benchmarks/gpu_trees.py --out "$OUT/trees.json"
step scopes 240 "$PYTHON" benchmarks/kernel_scopes.py --out "$OUT/scopes.json" --trace "$OUT/matmul"
step launch 60 "$PYTHON" benchmarks/launch_overhead.py --out "$OUT/launch.json"
step rests 60 "$PYTHON" benchmarks/rests.py --out "$OUT/rests.json" ${QUICK:+--rounds 16}
step search 240 "$PYTHON" benchmarks/gpu_search.py --out "$OUT/search" --limit 100
step autotune 400 "$PYTHON" benchmarks/autotune.py --out "$OUT/autotune.json" ${QUICK:+--quick}
step demo 240 env PYTHONSAFEPATH=1 "$PYTHON" -m deuteron.cli demo --device cuda:0 --out "${DEMO_DIR:-$OUT/demo}"
sanitize() { # every example under both tools; prints a line each, the findings of those that fail, and counts them
    local example tool found=0
    for example in matmul split_k attention softmax layer_norm rms_norm; do
        for tool in memcheck racecheck; do
            if "$SANITIZER" --tool $tool --error-exitcode 9 "$PYTHON" examples/$example.py --device cuda:0 >"$OUT/sanitizer.tmp" 2>&1; then
                echo "$example $tool: clean"
            else
                grep '^=' "$OUT/sanitizer.tmp" | head -n 20
                echo "$example $tool: failed"
                found=$((found + 1))
            fi
        done
    done
    rm -f "$OUT/sanitizer.tmp"
    echo "$found of 12 failed"
    [ $found -eq 0 ]
}
SANITIZER=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
export -f sanitize
export SANITIZER PYTHON OUT
[ -z "$SANITIZER" ] || step sanitize 120 bash -c sanitize

for name in ${STEPS:-}; do
    case " $ran " in *" $name "*) ;; *) echo "there is no step $name"; failed=1 ;; esac
done
for name in $ran; do
    echo "== $name"
    tail -n 30 "$OUT/$name.log"
done
echo "== summary"
printf '%s' "$summary"
exit $failed
