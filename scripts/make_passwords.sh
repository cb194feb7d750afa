#!/bin/sh
# Make passwords for compose.yaml, one file each: for the users of Redis, and for RLX clients. Existing files are kept.
#
#   sh scripts/make_passwords.sh FOLDER
set -eu
umask 022
folder=${1:?usage: make_passwords.sh FOLDER}
mkdir -p "$folder"
# The files must be readable by the containers' user, which is another one. Only the folder is closed to other users.
chmod 700 "$folder"
for name in administrator agent evaluation launcher learner observer parameter-server rlx-token; do
    [ -s "$folder/$name" ] || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$folder/$name"
done
