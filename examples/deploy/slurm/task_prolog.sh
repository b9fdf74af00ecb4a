#!/bin/bash
# Slurm's TaskProlog: what it prints as `export NAME=VALUE` is added to the task's environment.
#
# Every job is a run of its own, named by job and step, so that nobody else's run can claim its processes.
echo "export SLICELOCK_REDIS_URL=${SLICELOCK_REDIS_URL:-redis://redis:6379/0}"
echo "export SLICELOCK_REDIS_USER=client"
echo "export SLICELOCK_REDIS_PASSWORD_FILE=${SLICELOCK_CLIENT_PASSWORD:-/etc/slicelock/client_password}"
echo "export SLICELOCK_JOB=slurm-${SLURM_JOB_NAME//[^A-Za-z0-9._-]/-}"
echo "export SLICELOCK_RUN=slurm-${SLURM_JOB_ID}-${SLURM_STEP_ID:-0}${SLURM_RESTART_COUNT:+-$SLURM_RESTART_COUNT}"
