#!/bin/sh
# Passwords for compose.yaml, a file each: for the users of Redis, and for RLX clients. What is there stays.
#
#   sh scripts/make_passwords.sh FOLDER
set -eu
umask 022
folder=${1:?usage: make_passwords.sh FOLDER}
mkdir -p "$folder"
# Compose shows the files to a container as they are, and its user is another one: the folder keeps others out.
chmod 700 "$folder"
for name in administrator agent evaluation launcher learner observer parameter-server rlx-token; do
    [ -s "$folder/$name" ] || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$folder/$name"
done
