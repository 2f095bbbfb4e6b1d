#!/usr/bin/env bash
# Builds hello.jar from Hello.java (a JDK of 17 or newer; the result runs on Java 11). The same source gives the
# same bytes: the one date in the archive is fixed. Usage: examples/build.sh [OUT.jar]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${1:-$here/hello.jar}")
classes=$(mktemp -d)
trap 'rm -rf "$classes"' EXIT
javac --release 11 -d "$classes" "$here/Hello.java"
cd "$classes"
printf 'Main-Class: Hello\n' > manifest
jar --create --file "$out" --date 2024-01-01T00:00:00Z --manifest manifest Hello.class
