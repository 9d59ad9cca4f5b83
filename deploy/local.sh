#!/usr/bin/env bash
# A Dask cluster on this machine that stays until Ctrl-C: deploy/local.sh [WORKERS] [PORT]
#
# orograph from any session or shell then uses it: distributed.Client("127.0.0.1:8786"), or
# orograph mst ... --scheduler 127.0.0.1:8786. Nothing listens beyond this machine.
set -euo pipefail

workers=${1:-2}
port=${2:-8786}
bin=${ORO_BIN:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv/bin}
loopback=127.0.0.1

"$bin/dask" scheduler --host "$loopback" --port "$port" --dashboard-address "$loopback:8787" \
    --preload orograph.dashboard.tile_map &
scheduler=$!
trap 'kill "$scheduler" 2> /dev/null; wait' EXIT
"$bin/dask" worker "$loopback:$port" --nworkers "$workers" --nthreads 1 \
    --host "$loopback" --dashboard-address "$loopback:0" \
    --preload orograph.run.cluster.workers
