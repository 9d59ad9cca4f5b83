#!/usr/bin/env bash
# Dask workers on this machine's GPUs, one each: deploy/cuda.sh [SCHEDULER]
#
# Without an address a scheduler is started here too, on port 8786, and all of it stays until Ctrl-C.
# It listens on this machine's loopback address alone. For several machines give the address that
# the others reach this one by: ORO_HOST=10.0.0.1 deploy/cuda.sh on the first, deploy/cuda.sh
# 10.0.0.1:8786 on the others. Who reaches that port runs code here: see TLS in README.md.
# CUDA_VISIBLE_DEVICES chooses GPUs. Stores must lie where all machines see them under one path.
set -euo pipefail

address=${1:-}
bin=${ORO_BIN:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv/bin}
host=${ORO_HOST:-}
loopback=127.0.0.1

if [[ -z $address ]]; then
    host=${host:-$loopback}
    "$bin/dask" scheduler --host "$host" --port 8786 --dashboard-address "$loopback:8787" \
        --preload orograph.dashboard.tile_map &
    scheduler=$!
    trap 'kill "$scheduler" 2> /dev/null; wait' EXIT
    address=$host:8786
fi
"$bin/dask" cuda worker "$address" --nthreads 4 --dashboard-address "$loopback:0" \
    --preload orograph.run.cluster.workers \
    ${host:+--host "$host"}
