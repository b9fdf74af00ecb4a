#!/bin/bash
# Slurm's Prolog on a node where jobs of several users share GPUs as shards: makes sure that this node's agent is there before
# a job begins. A prolog that fails drains the node, so it waits only shortly, and says why.
set -euo pipefail
[[ ${SLURM_JOB_GPUS:-}${SLURM_SHARDS_ON_NODE:-}${CUDA_VISIBLE_DEVICES:-} ]] || exit 0 # a job without GPUs
set -a
. "${SLICELOCK_ENV:-/etc/slicelock/agent.env}" # Slurm gives its own scripts no environment
set +a
export PATH=$PATH:${SLICELOCK_BIN:-/opt/slicelock/bin} # nor a search path
export SLICELOCK_REDIS_PASSWORD_FILE=${SLICELOCK_REDIS_PASSWORD_FILE:-/etc/slicelock/agent_password}

service=${SLICELOCK_SERVICE:-slicelock-agent.service}
systemctl is-active --quiet "$service" || systemctl start "$service"
until slicelock-agent --health >/dev/null; do
    if ((SECONDS >= 15)); then
        echo "slicelock: the agent of $(hostname) is not heard of; see journalctl -u $service" >&2
        exit 1
    fi
    sleep 0.5
done
