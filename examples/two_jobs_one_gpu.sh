#!/bin/sh
# Two GRPO jobs take turns on one GPU: each learns while the other's answers are graded. Needs PyTorch and
# `pip install 'slicelock[cuda,embedded]'`. Without a GPU, give a simulated one: sh two_jobs_one_gpu.sh sim:0
#
#   sh two_jobs_one_gpu.sh [GPU] [options of torch_grpo.py]
set -eu
gpu=${1:-0}
[ $# -eq 0 ] || shift
here=$(dirname "$0")
python=${PYTHON:-python3}
folder=$(mktemp -d)
started=

stop() {
    for pid in $started; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT TERM

# A Redis server and an agent for this machine; where there is a pool, both run already.
: >"$folder/log"
"$python" -m slicelock up --slice "trainers=$gpu" >"$folder/variables" 2>"$folder/log" &
up=$!
started=$up
until grep -q '^# Slices' "$folder/log"; do
    kill -0 "$up" 2>/dev/null || { cat "$folder/log" >&2; exit 1; }
    sleep 0.1
done
. "$folder/variables"

# start NAME SEED OPTIONS: a job of that name, which puts its name before each line.
start() {
    name=$1 seed=$2
    shift 2
    mkfifo "$folder/$name"
    sed "s/^/$name  /" <"$folder/$name" &
    SLICELOCK_JOB=$name "$python" "$here/torch_grpo.py" --seed "$seed" "$@" >"$folder/$name" 2>&1 &
    started="$started $!"
}
start one 1 "$@"
one=$!
start two 2 "$@"
two=$!

status=0
wait "$one" || status=$?
wait "$two" || status=$?
exit $status
