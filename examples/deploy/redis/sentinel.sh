#!/bin/sh
# Starts a Sentinel, as a container's command: sh sentinel.sh [SETTING…]
#
# Each argument is a line for its configuration. What it learns stays with its data.
set -eu
umask 077
here=/etc/slicelock

sh $here/users.sh /run/secrets sentinels.acl >/data/sentinels.acl
if [ ! -f /data/sentinel.conf ]; then
    secret=$(cat /run/secrets/sentinel_password)
    {
        cat $here/sentinel.conf
        printf '%s\n' "$@"
        echo "sentinel auth-user mymaster sentinel"
        echo "sentinel sentinel-user sentinel"
        printf 'sentinel auth-pass mymaster %s\n' "$secret"
        printf 'sentinel sentinel-pass %s\n' "$secret"
    } >/data/sentinel.conf
fi
exec valkey-server /data/sentinel.conf --sentinel
