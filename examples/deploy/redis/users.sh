#!/bin/sh
# Prints the ACL file for Redis: users.acl with the hashes of the passwords in a folder of secrets. A user without a
# secret there is left out.
#
#   sh users.sh SECRETS >/etc/valkey/users.acl
set -eu
here=$(dirname "$0")
secrets=$1

# The password in NAME_url (scheme://user:password@…), or all of NAME_password; nothing in ps shows it.
password() {
    if [ -f "$secrets/$1_url" ]; then
        sed -n 's|^[^:]*://[^:]*:\([^@]*\)@.*|\1|p' "$secrets/$1_url"
    elif [ -f "$secrets/$1_password" ]; then
        cat "$secrets/$1_password"
    fi
}

grep -v '^#' "$here/users.acl" | awk '/^[^ ]/ { if (NR > 1) print ""; printf "%s", $0 } /^ / { $1 = $1; printf " %s", $0 } END { print "" }' |
    while read -r line; do
        name=$(printf '%s\n' "$line" | sed -n 's/.*#<\([a-z]*\)>.*/\1/p')
        if [ -n "$name" ]; then
            secret=$(password "$name")
            [ -n "$secret" ] || continue
            hash=$(printf '%s' "$secret" | sha256sum | cut -d' ' -f1)
            line=$(printf '%s\n' "$line" | sed "s/#<$name>/#$hash/")
        fi
        [ -z "$line" ] || printf '%s\n' "$line"
    done
