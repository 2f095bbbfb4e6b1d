#!/usr/bin/env bash
# A whole cluster as processes on loopback ports, for trying things and for tests.
#
#   local-cluster.sh start --replicas N --dispatchers N --jobmasters N --dir DIR
#                          [--port-base N] [--release] [--set KEY=VALUE]...
#   local-cluster.sh kill NAME|leader --dir DIR      SIGKILL; for leader prints: endpoint HOST:PORT
#   local-cluster.sh start NAME --dir DIR            starts a stopped process again, with its data and ports
#   local-cluster.sh stop --dir DIR                  SIGTERM to all, SIGKILL to what is left after 15 s
#
# start prints endpoints=HOST:PORT,... and dispatchers=URL,... and a line "pid NAME N" for each process. The processes
# are replica-1.., dispatcher-1.., jobmaster-1..; data in DIR/NAME, work-dir DIR/NAME/work, log DIR/NAME.log, config
# DIR/NAME.toml. With --jobmasters 0 the dispatchers host the JobMasters (single.enable = false). A --set goes to every
# process whose role knows the key.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Below the range from which systems take ports for outgoing connections, so that a killed process finds its own again.
readonly first_port=12000 last_port=31000
readonly ready_s=60

usage() { sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

port_is_free() { ! { exec 9<> "/dev/tcp/127.0.0.1/$1"; } 2> /dev/null; }

# free_block COUNT: the first port of a random block of free ones.
free_block() {
  local count=$1 base port try
  for try in $(seq 200); do
    base=$((first_port + (RANDOM * 32768 + RANDOM) % (last_port - first_port - count)))
    for ((port = base; port < base + count; port++)); do
      port_is_free "$port" || continue 2
    done
    printf '%s\n' "$base"
    return
  done
  die "no block of $count free ports between $first_port and $last_port"
}

role_of() { printf '%s\n' "${1%-*}"; }
pid_of() { cat "$dir/$1.pid" 2> /dev/null || true; }

is_alive() { is_process "$(pid_of "$1")" "$dir/$1.toml "; }
is_gone() { ! is_alive "$1"; }
names() { sed -n 's/^name=//p' "$dir/cluster"; }

launch_one() {
  local name=$1 args=()
  is_gone "$name" || die "$name is running already"
  mapfile -t args < "$dir/$name.args"
  launch "$dir/$name.pid" "$dir/$name.log" \
    "$bin/metastored" "$(role_of "$name")" --config "$dir/$name.toml" "${args[@]}"
}

# await NAME PATH: waits until it answers, and gives up at once if it died.
await() {
  await_launched "$(pid_of "$1")" "$1" "$(cat "$dir/$1.url")/$2" "$dir/$1.log" "$ready_s" || exit 1
}

# ---- start of a cluster -------------------------------------------------------------------------------------------

# known_sets ROLE: those of the --set flags whose key the role knows, one flag or value a line.
known_sets() {
  local set keys
  keys=$("$bin/metastored" "$1" --print-config | sed -E 's/^# ([^ ]+) is not set$/\1 =/; s/ =.*//')
  for set in "${sets[@]}"; do
    grep -qxF -- "${set%%=*}" <<< "$keys" && printf -- '--set\n%s\n' "$set"
  done
  return 0
}

check_sets() {
  local set known
  # Not through a pipe: grep -q ends at the first match, and what it leaves unread would fail the pipe.
  known=$(for role in replica dispatcher jobmaster; do known_sets "$role"; done)
  for set in "${sets[@]}"; do
    [[ $set = *=* ]] || die_usage "--set $set: wants KEY=VALUE"
    grep -qxF -- "$set" <<< "$known" && continue
    die_usage "--set $set: no process knows the key ${set%%=*}"
  done
}

quoted_list() {
  local item out=
  for item in "$@"; do out+="${out:+, }\"$item\""; done
  printf '[%s]\n' "$out"
}

# add NAME URL: remembers a process; its config comes on stdin.
add() {
  { printf 'node.name = "%s"\n' "$1"; cat; } > "$dir/$1.toml"
  printf '%s\n' "$2" > "$dir/$1.url"
  known_sets "$(role_of "$1")" > "$dir/$1.args"
  printf 'name=%s\n' "$1" >> "$dir/cluster"
}

lay_out() {
  local i at members=() endpoints=() urls=()
  for ((i = 1; i <= replicas; i++)); do
    at=$((base + 2 * (i - 1)))
    endpoints+=("127.0.0.1:$at")
    members+=("replica-$i=127.0.0.1:$((at + 1))")
  done
  for ((i = 1; i <= replicas; i++)); do
    at=$((base + 2 * (i - 1)))
    add "replica-$i" "http://127.0.0.1:$at" <<TOML
cluster.name = "local"
cluster.initial = $(quoted_list "${members[@]}")
data-dir = "$dir/replica-$i"
listen.client = "127.0.0.1:$at"
listen.peer = "127.0.0.1:$((at + 1))"
TOML
  done
  for ((i = 1; i <= dispatchers; i++)); do
    at=$((base + 2 * replicas + 2 * (i - 1)))
    urls+=("http://127.0.0.1:$at")
    add "dispatcher-$i" "http://127.0.0.1:$at" <<TOML
store.endpoints = $(quoted_list "${endpoints[@]}")
listen.rest = "127.0.0.1:$at"
listen.node = "127.0.0.1:$((at + 1))"
work-dir = "$dir/dispatcher-$i/work"
web.tmpdir = "$dir/dispatcher-$i/upload"
jobmanager.jobmaster.single.enable = $([ "$jobmasters" = 0 ] && echo false || echo true)
TOML
  done
  for ((i = 1; i <= jobmasters; i++)); do
    at=$((base + 2 * replicas + 2 * dispatchers + i - 1))
    add "jobmaster-$i" "http://127.0.0.1:$at" <<TOML
store.endpoints = $(quoted_list "${endpoints[@]}")
listen.node = "127.0.0.1:$at"
work-dir = "$dir/jobmaster-$i/work"
TOML
  done
  (IFS=,; printf 'endpoints=%s\ndispatchers=%s\n' "${endpoints[*]}" "${urls[*]}") >> "$dir/cluster"
}

start_cluster() {
  local name profile=debug
  [ -z "$release" ] || profile=release
  bin=$(bin_dir "$profile")
  mkdir -p "$dir"
  [ ! -e "$dir/cluster" ] || die "$dir holds a cluster already: stop it and remove the directory, or start NAME"
  check_sets
  [ -n "$base" ] || base=$(free_block $((2 * replicas + 2 * dispatchers + jobmasters)))
  printf 'bin=%s\n' "$bin" > "$dir/cluster"
  lay_out
  for name in $(names); do mkdir -p "$dir/$name"; launch_one "$name"; done
  for name in $(names); do await "$name" readyz; done
  grep -E '^(endpoints|dispatchers)=' "$dir/cluster"
  for name in $(names); do printf 'pid %s %s\n' "$name" "$(pid_of "$name")"; done
}

# ---- one process --------------------------------------------------------------------------------------------------

# A replica serves only with a majority: when others are down, answering at all is enough.
start_one() {
  local other path=readyz
  mkdir -p "$dir/$1"
  launch_one "$1"
  for other in $(names); do
    [[ $other != replica-* ]] || is_alive "$other" || path=livez
  done
  await "$1" "$path"
  printf 'pid %s %s\n' "$1" "$(pid_of "$1")"
}

kill_one() {
  local name=$1 pid endpoint
  if [ "$name" = leader ]; then
    wait_for 15 leader_name || die "no replica says that it is the leader"
    name=$(leader_name) || die "the leader changed meanwhile: try again"
    endpoint=$(cat "$dir/$name.url")
  fi
  is_alive "$name" || die "$name is not running"
  pid=$(pid_of "$name")
  kill -KILL "$pid"
  wait_for 10 is_gone "$name" || die "$name is still there after SIGKILL"
  [ -z "${endpoint:-}" ] || printf 'endpoint %s\n' "${endpoint#http://}"
}

# The leader says so in its own status; its member id is also in LEADER.
leader_name() {
  local endpoint name
  endpoint=$("$bin/metactl" --endpoints "$(sed -n 's/^endpoints=//p' "$dir/cluster")" endpoint status 2> /dev/null |
    awk 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "LEADER") column = i } NR > 1 && $column == "true" { print $1 }' |
    head -n 1)
  [ -n "$endpoint" ] || return 1
  for name in $(names); do
    [ "$(cat "$dir/$name.url")" != "http://$endpoint" ] || { printf '%s\n' "$name"; return; }
  done
  return 1
}

stop_all() {
  local name
  # Consumers before the store: a JobMaster that can still reach it hands its leases back.
  for name in $(names | tac); do
    is_gone "$name" || kill -TERM "$(pid_of "$name")" 2> /dev/null || true
    [[ $name = replica-* ]] || continue
    await_consumers
  done
  for name in $(names); do
    is_gone "$name" || await_end "$name" "$(pid_of "$name")" "$dir/$name.toml " 15 || exit 1
  done
}

await_consumers() {
  local name
  for name in $(names); do
    [[ $name = replica-* ]] || wait_for 15 is_gone "$name" || true
  done
}

# ---- command line -------------------------------------------------------------------------------------------------

[ $# -gt 0 ] || usage
command=$1
shift
name='' dir='' base='' release='' replicas=3 dispatchers=2 jobmasters=2 sets=()
while [ $# -gt 0 ]; do
  case $1 in
    --dir | --port-base | --replicas | --dispatchers | --jobmasters | --set) [ $# -gt 1 ] || usage ;;
  esac
  case $1 in
    --dir) dir=$2; shift 2 ;;
    --port-base) base=$2; shift 2 ;;
    --replicas) replicas=$2; shift 2 ;;
    --dispatchers) dispatchers=$2; shift 2 ;;
    --jobmasters) jobmasters=$2; shift 2 ;;
    --set) sets+=("$2"); shift 2 ;;
    --release) release=yes; shift ;;
    -*) die_usage "unknown flag $1" ;;
    *) [ -z "$name" ] || usage; name=$1; shift ;;
  esac
done
[ -n "$dir" ] || die_usage "--dir DIR is missing"
dir=$(realpath -m "$dir")
case $command in
  start | kill | stop) ;;
  *) usage ;;
esac
if [ "$command" = start ] && [ -z "$name" ]; then
  [[ "$replicas$dispatchers$jobmasters${base:-0}" =~ ^[0-9]+$ ]] && [ "$replicas" -gt 0 ] || die_usage "numbers, and at least one replica"
  start_cluster
  exit
fi
[ -f "$dir/cluster" ] || die "there is no cluster in $dir"
bin=$(sed -n 's/^bin=//p' "$dir/cluster")
[ -z "$name" ] || [ "$name" = leader ] || grep -qxF "name=$name" "$dir/cluster" || die_usage "no process $name in $dir"
case $command in
  start) start_one "$name" ;;
  kill) [ -n "$name" ] || usage; kill_one "$name" ;;
  stop) stop_all ;;
esac
