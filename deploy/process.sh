#!/usr/bin/env bash
# One process on this machine: what start-cluster.sh, stop-cluster.sh and jobmaster.sh run, here or by ssh on a host.
#
#   process.sh start ROLE NAME URL [KEY=VALUE]...    returns when URL answers; says so if it is running already
#   process.sh run ROLE NAME [KEY=VALUE]...          in the foreground, instead of this script
#   process.sh stop NAME                             SIGTERM, SIGKILL if it is still there after a while
#   process.sh stop-all ROLE                         every process of that role that was started from here
#
# ROLE is replica, dispatcher or jobmaster, its config $METASTORE_HOME/conf/ROLE.toml with each KEY=VALUE on top. The
# process id is in run/NAME.pid, the log is log/NAME.log, the data in data/NAME (or $METASTORE_DATA/NAME).
# METASTORE_START_SECONDS (60) and METASTORE_STOP_SECONDS (30) bound the waits.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() { sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

# The real path: a process is found again by whichever way its directory was named.
home=$(realpath -- "${METASTORE_HOME:-$root_dir}")
data=$(realpath -m -- "${METASTORE_DATA:-$home/data}")
[ -x "$home/bin/metastored" ] || die "there is no $home/bin/metastored: set METASTORE_HOME to an unpacked archive"
mkdir -p "$home/run" "$home/log"

pid_file() { printf '%s\n' "$home/run/$1.pid"; }
pid_of() { cat "$(pid_file "$1")" 2> /dev/null || true; }
# What the command line of process NAME has, and of no other.
mark_of() { printf '%s\n' "--config $home/conf/${1%%-*}.toml --set node.name=$1 "; }
is_running() { is_process "$(pid_of "$1")" "$(mark_of "$1")"; }

# take_lock NAME: holds NAME's lock in $lock until it is closed, so that two starts at once start one process.
take_lock() {
  exec {lock}> "$home/run/$1.lock"
  flock -w 120 "$lock" || die "$1: another start or stop of it does not end"
}

# The whole command of a process, an argument a line.
command_of() {
  local role=$1 name=$2 set own=()
  shift 2
  case $role in
    replica) own=("data-dir=$data/$name") ;;
    dispatcher) own=("work-dir=$data/$name/work" "web.tmpdir=$data/$name/upload") ;;
    jobmaster) own=("work-dir=$data/$name/work") ;;
  esac
  printf '%s\n' "$home/bin/metastored" "$role" --config "$home/conf/$role.toml"
  for set in "node.name=$name" "${own[@]}" "$@"; do printf '%s\n' --set "$set"; done
}

# begin ROLE NAME [KEY=VALUE]...: fills $words with the command; exits if the process is running already.
begin() {
  take_lock "$2"
  if is_running "$2"; then
    printf '%s is already running (pid %s)\n' "$2" "$(pid_of "$2")"
    exit 0
  fi
  mkdir -p "$data/$2"
  mapfile -t words < <(command_of "$@")
}

start() {
  local role=$1 name=$2 url=$3 pid
  shift 3
  begin "$role" "$name" "$@"
  # Without the lock: the process would hold it for as long as it lives.
  launch "$(pid_file "$name")" "$home/log/$name.log" "${words[@]}" {lock}>&-
  exec {lock}>&-
  pid=$(pid_of "$name")
  await_launched "$pid" "$name" "$url" "$home/log/$name.log" "${METASTORE_START_SECONDS:-60}" ||
    die "the log of $name is $home/log/$name.log"
  url=${url#http://}
  printf 'started %s at %s (pid %s)\n' "$name" "${url%%/*}" "$pid"
}

run() {
  begin "$@"
  printf '%s\n' "$$" > "$(pid_file "$2")"
  exec "${words[@]}" {lock}>&-
}

stop() {
  local pid
  take_lock "$1"
  if ! is_running "$1"; then
    printf '%s is not running\n' "$1"
    return
  fi
  pid=$(pid_of "$1")
  kill -TERM "$pid" 2> /dev/null || true
  await_end "$1" "$pid" "$(mark_of "$1")" "${METASTORE_STOP_SECONDS:-30}" || return 1
  rm -f "$(pid_file "$1")"
  printf 'stopped %s\n' "$1"
}

stop_all() {
  local file name stopping=() failed=0
  for file in "$home/run/$1"-*.pid; do
    name=$(basename "$file" .pid)
    is_running "$name" || continue
    stop "$name" &
    stopping+=("$!")
  done
  [ "${#stopping[@]}" -gt 0 ] || printf 'no %s is running\n' "$1"
  for name in "${stopping[@]}"; do wait "$name" || failed=1; done
  return "$failed"
}

case ${1:-} in
  start | run | stop-all) [[ ${2:-} =~ ^(replica|dispatcher|jobmaster)$ ]] || usage ;;
esac
case ${1:-}:$# in
  start:[4-9] | start:[1-9][0-9]) start "${@:2}" ;;
  run:[3-9] | run:[1-9][0-9]) run "${@:2}" ;;
  stop:2) stop "$2" ;;
  stop-all:2) stop_all "$2" ;;
  *) usage ;;
esac
