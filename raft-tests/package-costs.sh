#!/usr/bin/env bash
# What a package costs, against the least that a disk can do, in one run on this machine.
#
#   raft-tests/package-costs.sh [--rounds 3] [--mib 256] [--nodes 5] [--debug]
#
# Each round: copies MIB mebibytes of ten files NODES times with cp and syncs them; creates them as a package on NODES
# nodes; then a second version in which one of the ten changed. Prints the times, their ratio, what nodes sent to each
# other over the package's size, and the largest peak memory of any process. Needs python3 for the arithmetic.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/lib.sh
rounds=3 mib=256 nodes=5 profile=release
while [ $# -gt 0 ]; do case $1 in
  --debug) profile=debug; shift; continue;;
  --rounds) rounds=$2;; --mib) mib=$2;; --nodes) nodes=$2;;
  *) sed -n '2,8p' "$0" | sed 's/^# \{0,1\}//' >&2; exit 2;; esac; shift 2; done
bin=$(bin_dir "$profile")
work=$(mktemp -d)
cluster=$work/cluster
flags=(); [ "$profile" = debug ] || flags=(--release)
cleanup() { deploy/local-cluster.sh stop --dir "$cluster" > /dev/null 2>&1 || true; rm -rf "$work"; }
trap cleanup EXIT

calc() { python3 -c "print(f'{$1}')"; }
now() { date +%s.%N; }
# sent: bytes of packages that each node gave to others, a line each.
sent() {
  for n in $(seq "$nodes"); do
    http GET "$(cat "$cluster/jobmaster-$n.url")/metrics" |
      sed -n 's/^metastore_icp_blob_bytes_total \([0-9.e+]*\)$/\1/p'
  done
}
# sums of two such lists, the second less the first: all, and the most of one node.
spread() { python3 - "$1" "$2" << 'PY'
import sys
before, after = ([float(x) for x in part.split()] for part in sys.argv[1:3])
given = [b - a for a, b in zip(before, after)]
print(int(sum(given)), int(max(given)))
PY
}
peak_kib() {
  for pid in $(cat "$cluster"/*.pid); do sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$pid/status"; done |
    sort -n | tail -n 1
}

printed=$(deploy/local-cluster.sh start --replicas 3 --dispatchers 2 --jobmasters "$nodes" --dir "$cluster" "${flags[@]}")
endpoints=$(sed -n 's/^endpoints=//p' <<< "$printed")
ctl() { "$bin/metactl" --endpoints "$endpoints" "$@"; }
size=$((mib * 1024 * 1024))
printf '%-6s %8s %8s %6s %11s %14s %14s %10s\n' \
  round cp+sync create ratio one-node/pkg all-nodes/pkg second-version peak-MiB
for round in $(seq "$rounds"); do
  mkdir -p "$work/files"
  for i in $(seq 10); do head -c $((size / 10)) /dev/urandom > "$work/files/part-$i.jar"; done
  start=$(now)
  for n in $(seq "$nodes"); do cp -r "$work/files" "$work/copy-$n"; sync "$work/copy-$n"/*; done
  floor=$(calc "$(now) - $start")
  rm -rf "$work"/copy-*
  before=$(sent)
  start=$(now)
  ctl icp create "costs:$round.0" "$work/files" --timeout 5m > /dev/null 2> "$work/progress" ||
    { cat "$work/progress" >&2; exit 1; }
  create=$(calc "$(now) - $start")
  read -r all most < <(spread "$before" "$(sent)")
  head -c $((size / 10)) /dev/urandom > "$work/files/part-1.jar"
  before=$(sent)
  ctl icp create "costs:$round.1" "$work/files" --timeout 5m > /dev/null 2> "$work/progress"
  read -r second _ < <(spread "$before" "$(sent)")
  printf '%-6s %7ss %7ss %6s %11s %14s %14s %10s\n' "$round" "$(calc "$floor:.2f")" "$(calc "$create:.2f")" \
    "$(calc "$create / $floor:.2f")" "$(calc "$most / $size:.2f")" "$(calc "$all / $size:.2f")" \
    "$(calc "$second / $size:.2f")" "$(calc "$(peak_kib) / 1024:.0f")"
  ctl icp remove "costs:$round.0" --wait --timeout 2m > /dev/null
  ctl icp remove "costs:$round.1" --wait --timeout 2m > /dev/null
done
