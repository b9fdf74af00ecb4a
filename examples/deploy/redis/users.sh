#!/bin/sh
# Prints the ACL file for Redis: users.acl with the hashes of the passwords in a folder, which has a file
# USER_password for each user. A user without one is left out.
#
#   sh users.sh SECRETS [RULES] >/etc/valkey/users.acl
set -eu
rules=$(dirname "$0")/${2:-users.acl}
secrets=$1

# Comments go, and what is indented continues its line. No password is ever an argument: ps would show it.
grep -v '^#' "$rules" |
    awk '/^ / { $1 = $1; printf " %s", $0; next } { printf "%s%s", (NR > 1 ? "\n" : ""), $0 } END { print "" }' |
    while read -r line; do
        user=$(printf '%s\n' "$line" | sed -n 's/.*#<\([a-z]*\)>.*/\1/p')
        if [ -n "$user" ]; then
            [ -f "$secrets/${user}_password" ] || continue
            hash=$(tr -d '\r\n' <"$secrets/${user}_password" | sha256sum | cut -d' ' -f1)
            line=$(printf '%s\n' "$line" | sed "s/#<$user>/#$hash/")
        fi
        [ -z "$line" ] || printf '%s\n' "$line"
    done
