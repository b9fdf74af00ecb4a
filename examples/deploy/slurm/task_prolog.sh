#!/bin/bash
# Slurm's TaskProlog: what it prints as `export NAME=VALUE` is added to the task's environment.
#
# Redis and the pool are those of the node's agent, and the job's name is Slurm's, unless the job has named others. Every job
# is a run of its own, named by job and step, so that nobody else's run can claim its processes.
set -euo pipefail
url=${SLICELOCK_REDIS_URL:-} pool=${SLICELOCK_POOL:-}
. "${SLICELOCK_ENV:-/etc/slicelock/agent.env}"
echo "export SLICELOCK_REDIS_URL=${url:-$SLICELOCK_REDIS_URL}"
echo "export SLICELOCK_POOL=${pool:-${SLICELOCK_POOL:-default}}"
echo "export SLICELOCK_REDIS_USER=client"
echo "export SLICELOCK_REDIS_PASSWORD_FILE=${SLICELOCK_CLIENT_PASSWORD:-/etc/slicelock/client_password}"
echo "export SLICELOCK_JOB=${SLICELOCK_JOB:-slurm-${SLURM_JOB_NAME//[^A-Za-z0-9._-]/-}}"
echo "export SLICELOCK_RUN=slurm-${SLURM_JOB_ID}-${SLURM_STEP_ID:-0}${SLURM_RESTART_COUNT:+-$SLURM_RESTART_COUNT}"
