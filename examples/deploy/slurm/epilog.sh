#!/bin/bash
# Slurm's Epilog: Slurm has killed what was left of the job, and the agent has seen it die. This only looks, and says what
# should not be: a failing epilog drains the node.
set -euo pipefail
[[ ${SLURM_JOB_GPUS:-}${SLURM_SHARDS_ON_NODE:-}${CUDA_VISIBLE_DEVICES:-} ]] || exit 0
set -a
. "${SLICELOCK_ENV:-/etc/slicelock/agent.env}" # Slurm gives its own scripts no environment
set +a
export PATH=$PATH:${SLICELOCK_BIN:-/opt/slicelock/bin} # nor a search path
export SLICELOCK_REDIS_PASSWORD_FILE=${SLICELOCK_REDIS_PASSWORD_FILE:-/etc/slicelock/agent_password}

while ((SECONDS < 15)); do
    held=$(slicelock status --json 2>/dev/null | grep -c "\"run\": \"slurm-${SLURM_JOB_ID}-" || true)
    ((held == 0)) && exit 0
    sleep 0.5
done
logger -t slicelock "job $SLURM_JOB_ID has ended and is still known to the pool; its lease ends it"
exit 0
