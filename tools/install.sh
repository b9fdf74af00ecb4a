#!/bin/sh
# Makes .venv with everything that building, testing and running slicelock needs. Called by `make install`.
set -eu
python=${PYTHON:-python3}
say() { printf 'make install: %s\n' "$*" >&2; }

if ! command -v "$python" >/dev/null 2>&1; then
    say "there is no $python; install Python 3.11 or later, or name one: make install PYTHON=/path/to/python3"
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    say "$("$python" --version 2>&1) is too old; slicelock needs 3.11 or later: make install PYTHON=python3.12"
    exit 1
fi

# Debian ships venv without pip unless python3-venv is installed; another pip can fill the gap.
if ! "$python" -m venv .venv >/dev/null 2>&1; then
    rm -rf .venv
    "$python" -m venv --without-pip .venv
    if ! "$python" -m pip --python .venv/bin/python install --quiet pip >/dev/null 2>&1; then
        rm -rf .venv
        say "$python cannot make virtual environments; on Debian or Ubuntu: apt-get install python3-venv"
        exit 1
    fi
fi

# The pip that comes with Python 3.11 and 3.12 does not know dependency groups (--group: 25.1).
.venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[demo,bench]' --group dev
touch .venv/installed
