#!/usr/bin/env bash
# Cuts the power under one replica, again and again, and asks whether what it acknowledged is still there.
#
#   raft-tests/powercut.sh one|member [--cycles 40] [--debug] [--rig PATH]
#
# one: a cluster of one, its data on the file system that is cut. member: one of three; the other two run through.
# Needs root, loop devices, xfsprogs and e2fsprogs (the rig says so), and binaries, built here if need be: optimized ones,
# or with --debug the ones that tests use.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-one}; shift || true
cycles=40 rig=raft-tests/powercut-rig.sh profile=release
while [ $# -gt 0 ]; do case $1 in
  --debug) profile=debug; shift; continue;;
  --cycles) cycles=$2;; --rig) rig=$2;; *) echo "powercut.sh: unknown option $1" >&2; exit 2;; esac; shift 2; done
flags=()
[ "$profile" = debug ] || flags=(--release)
cargo build --quiet "${flags[@]}" --bin metastored --bin powercut_load
bin=$(realpath "${CARGO_TARGET_DIR:-target}")/$profile
work=$(mktemp -d)
others=()
cleanup() { for pid in "${others[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"; }
trap cleanup EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
client=() peer=()
for i in 1 2 3; do client[i]=$(free_port); peer[i]=$(free_port); done
case $mode in
  one) initial="[\"r1=127.0.0.1:${peer[1]}\"]"; endpoints=127.0.0.1:${client[1]};;
  member) initial="[\"r1=127.0.0.1:${peer[1]}\", \"r2=127.0.0.1:${peer[2]}\", \"r3=127.0.0.1:${peer[3]}\"]"
    endpoints=127.0.0.1:${client[1]};;
  *) sed -n '2,8p' "$0" >&2; exit 2;;
esac
# Small thresholds, so that checkpoints and purges fall under the cuts too.
config() { cat <<TOML
data-dir = "$2"
listen.client = "127.0.0.1:${client[$1]}"
listen.peer = "127.0.0.1:${peer[$1]}"
node.name = "r$1"
cluster.initial = $initial
checkpoint.min-log-bytes = 8388608
TOML
}
config 1 "@DATA@" > "$work/r1.toml"
if [ "$mode" = member ]; then
  for i in 2 3; do
    mkdir -p "$work/r$i"; config $i "$work/r$i" > "$work/r$i.toml"
    "$bin/metastored" replica --config "$work/r$i.toml" > "$work/r$i.log" 2>&1 & others+=($!)
  done
fi
export POWERCUT_ENDPOINTS=$endpoints
run="sed \"s|@DATA@|\$POWERCUT_DATA|\" $work/r1.toml > $work/r1.run.toml; exec $bin/powercut_load"
replica="$bin/metastored replica --config $work/r1.run.toml"
"$rig" --cycles "$cycles" --write "$run write -- $replica" --verify "$run verify -- $replica"
