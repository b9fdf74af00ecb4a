#!/bin/bash
#SBATCH --job-name=two-experiments
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --mem=0
#SBATCH --time=24:00:00
# Two experiments in one allocation take turns on all of its GPUs. Nobody but you is needed: the agent is a step of yours.
#
#   sbatch two_jobs.sh "python train.py --config a.yaml" "python train.py --config b.yaml"
#
# Needs slicelock on all nodes, and SLICELOCK_REDIS_URL (with user and password) in the environment or a .env file.
set -euo pipefail
: "${SLICELOCK_REDIS_URL:?set it to your Redis, for example redis://login-1:6379/0}"

export SLICELOCK_POOL="slurm-$SLURM_JOB_ID"
state="${TMPDIR:-/tmp}/slicelock-$SLURM_JOB_ID"

# --overlap lets steps share the allocation's resources, GPUs too; without it the second step waits for the first to end.
# To be started in the background: srun itself gets the signals.
step() { exec srun --overlap --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --gpus-per-node="${GPUS:-8}" "$@"; }

# A slice over several nodes is declared before its agents start.
if ((SLURM_JOB_NUM_NODES > 1)); then
    nodes=()
    for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do nodes+=(--node "$host=${DEVICES:-0,1,2,3,4,5,6,7}"); done
    slicelock slice declare trainers "${nodes[@]}"
fi

step --job-name=slicelock-agent bash -c \
    "exec slicelock-agent --node \$SLURMD_NODENAME --state-dir '$state' --slice trainers='${DEVICES:-all}'" &
agent=$!
trap 'kill -TERM "$agent" 2>/dev/null || true' EXIT
until slicelock status trainers >/dev/null 2>&1; do
    kill -0 "$agent" || exit 1 # it has said why
    sleep 1
done

jobs=()
for command in "$@"; do
    number=$((${#jobs[@]} + 1))
    # Each experiment is a step and thereby a run of its own; its ranks are its members.
    SLICELOCK_JOB="experiment-$number" SLICELOCK_MEMBERS=auto \
        step --job-name="experiment-$number" bash -c "$command" &
    jobs+=($!)
done

status=0
for job in "${jobs[@]}"; do wait "$job" || status=$?; done

# Nobody is left to be served.
kill -TERM "$agent" 2>/dev/null || true
wait "$agent" || true
slicelock slice forget trainers || true
exit "$status"
