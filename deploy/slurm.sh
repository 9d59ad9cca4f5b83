#!/usr/bin/env bash
#SBATCH --job-name=orograph
#SBATCH --ntasks=8 --cpus-per-task=1 --mem-per-cpu=4G
#SBATCH --time=04:00:00
#SBATCH --requeue --signal=B:TERM@120 --open-mode=append
#SBATCH --output=orograph-%j.log
#
# A command of orograph on the nodes of a SLURM job:
#
#     sbatch --ntasks=33 deploy/slurm.sh mst dem.zarr forest.zarr --resume
#
# One task is for the scheduler and the command, each other one is a worker. Paths must lie where
# all nodes see them. Two minutes before its time is over the job puts itself into the queue again,
# and `--resume` goes on from what is on disk. ORO_BIN is the folder of the programs `orograph` and
# `dask`, if they are not on PATH; ORO_INTERFACE the network between the nodes, such as ib0. Who
# reaches the scheduler's port runs code here: dask.yaml, named by DASK_CONFIG, sets TLS up.
set -euo pipefail

terminated=
command=
# Set before the scheduler starts: a job that is stopped then is requeued as well.
trap 'terminated=1; [[ -z $command ]] || kill "$command" 2> /dev/null || true' TERM

[[ -z ${ORO_BIN-} ]] || PATH=$ORO_BIN:$PATH
if ((SLURM_NTASKS < 2)); then
    echo "slurm.sh: --ntasks=$SLURM_NTASKS; 2 or more, one of them for the scheduler" >&2
    exit 2
fi
file=$PWD/.orograph-scheduler-$SLURM_JOB_ID.json
rm -f "$file"
limit=${SLURM_MEM_PER_CPU:+${SLURM_MEM_PER_CPU}MiB}
network=(${ORO_INTERFACE:+--interface "$ORO_INTERFACE"})

dask scheduler --port 0 --no-dashboard --scheduler-file "$file" "${network[@]}" &
started=("$!")
srun --ntasks=$((SLURM_NTASKS - 1)) --cpus-per-task=1 dask worker --scheduler-file "$file" \
    --nthreads 1 --memory-limit "${limit:-auto}" --local-directory "${TMPDIR:-/tmp}" \
    --no-dashboard --preload orograph.run.cluster.workers --death-timeout 300 "${network[@]}" &
started+=("$!")
end() {
    kill "${started[@]}" 2> /dev/null || true
    wait || true
    rm -f "$file"
}
trap end EXIT

until [[ -s $file || -n $terminated ]]; do
    kill -0 "${started[0]}" 2> /dev/null || { echo "slurm.sh: the scheduler ended" >&2; exit 1; }
    sleep 0.5
done
status=143 # that of a command that was terminated
if [[ -z $terminated ]]; then
    address=$(sed -n 's/.*"address": "\([^"]*\)".*/\1/p' "$file")
    orograph "$@" --scheduler "$address" &
    command=$!
    [[ -z $terminated ]] || kill "$command" 2> /dev/null || true
    status=0
    wait "$command" || status=$?
    if [[ -n $terminated ]]; then # that wait was cut short
        status=0
        wait "$command" || status=$?
    fi
fi
if [[ -n $terminated ]] && ((status == 143)); then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
