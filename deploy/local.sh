#!/usr/bin/env bash
# A Dask cluster on this machine that stays until Ctrl-C: deploy/local.sh [WORKERS] [PORT]
#
# orograph from any session or shell then uses it: distributed.Client("tcp://127.0.0.1:8786"), or
# orograph mst ... --scheduler tcp://127.0.0.1:8786
set -euo pipefail

workers=${1:-2}
port=${2:-8786}
bin=${ORO_BIN:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv/bin}

"$bin/dask" scheduler --host 127.0.0.1 --port "$port" &
scheduler=$!
trap 'kill "$scheduler" 2> /dev/null; wait' EXIT
"$bin/dask" worker "tcp://127.0.0.1:$port" --nworkers "$workers" --nthreads 1
