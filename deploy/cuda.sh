#!/usr/bin/env bash
# Dask workers on this machine's GPUs, one each: deploy/cuda.sh [SCHEDULER]
#
# Without an address a scheduler is started here too, on port 8786, and all of it stays until Ctrl-C.
# On several machines: deploy/cuda.sh on the first, deploy/cuda.sh tcp://first:8786 on the others.
# CUDA_VISIBLE_DEVICES chooses GPUs. Stores must lie where all machines see them under one path.
set -euo pipefail

address=${1:-}
bin=${ORO_BIN:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv/bin}

if [[ -z $address ]]; then
    "$bin/dask" scheduler --port 8786 &
    scheduler=$!
    trap 'kill "$scheduler" 2> /dev/null; wait' EXIT
    address=tcp://127.0.0.1:8786
fi
"$bin/dask" cuda worker "$address" --nthreads 4
