#!/bin/sh
# Starts a server with users, as a container's command: sh start.sh [SETTING…]
#
# Each argument is a line for its configuration. Passwords come from /run/secrets and go into files that only this user
# reads. What Sentinels write into the configuration (who is whose replica) stays with the data.
set -eu
umask 077
here=/etc/slicelock

sh $here/users.sh /run/secrets >/data/users.acl
if [ ! -f /data/redis.conf ]; then
    {
        cat $here/redis.conf
        printf '%s\n' "$@"
        if [ -f /run/secrets/replica_password ]; then
            echo "masteruser replica"
            printf 'masterauth %s\n' "$(cat /run/secrets/replica_password)"
        fi
    } >/data/redis.conf
fi
exec valkey-server /data/redis.conf
