#!/bin/sh
# Builds the game in a folder of this process, as several may start at once, and plays it with the given options.
set -e
here=$(dirname "$0")
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
mcs -nologo "$here/RlxAgent.cs" "$here/Catch.cs" -out:"$built/catch.exe"
mono "$built/catch.exe" "$@"
