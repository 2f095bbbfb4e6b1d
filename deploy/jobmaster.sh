#!/usr/bin/env bash
# JobMaster processes by hand.
#
#   jobmaster.sh start [HOST[:PORT]]               starts those that conf/JOB_MASTERS lists for HOST
#   jobmaster.sh stop [HOST[:PORT]]                stops them
#   jobmaster.sh stop-all [HOST]                   stops every JobMaster process of HOST, listed or not
#   jobmaster.sh start-foreground [HOST[:PORT]]    the first of them that is not running, in the foreground
#
# HOST left out is this machine. A HOST that is not listed gets one more process, jobmaster-HOST. Where the store is,
# conf/REPLICAS says. A process that runs already is left alone, exit 0. See start-cluster.sh for the rest.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lists.sh"

usage() { sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

# A host of the list that is this machine.
is_here() {
  is_local "$1" && return
  grep -qxF -- "$1" <<< "$(hostname 2> /dev/null; hostname -f 2> /dev/null; hostname -I 2> /dev/null | tr ' ' '\n')"
}

# choose [HOST[:PORT]]: fills $chosen.
choose() {
  local name host=${1%%:*} port=
  [[ ${1:-} != *:* ]] || port=${1##*:}
  for name in "${jobmasters[@]}"; do
    if [ -z "$host" ]; then
      is_here "${host_of[$name]}" || continue
      this_machine[${host_of[$name]}]=yes
    else
      [ "$(same_host "${host_of[$name]}")" = "$(same_host "$host")" ] || continue
      [ -z "$port" ] || [ "${port_of[$name]}" = "$port" ] || continue
    fi
    chosen+=("$name")
  done
  [ "${#chosen[@]}" = 0 ] || return 0
  [ -n "$host" ] ||
    die_usage "$home/conf/JOB_MASTERS lists no process of this machine: add a line, or name the HOST by which others reach it"
  name=jobmaster-$host${port:+-$port}
  add_process "$name" "$host" "${port:-$node_port}" 0 || die_usage "$1: no such port; 1 to 65534"
  chosen=("$name")
}

# The first that is not running; one that runs says so by process.sh.
run_in_foreground() {
  local name=${chosen[0]} candidate
  for candidate in "${chosen[@]}"; do
    if is_free "$candidate"; then name=$candidate; break; fi
  done
  # So that a signal to this script is one to the process.
  replace='exec'
  start_process "$name" false run
}

# is_free NAME: nothing answers where it would.
is_free() {
  local address
  address=$(address_of "${host_of[$1]}" 2> /dev/null) || return 0
  ! http GET "http://$address:${port_of[$1]}/livez" > /dev/null 2>&1
}

case $# in 1 | 2) ;; *) usage ;; esac
command=$1 host=${2:-}
[[ $host =~ ^([A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]+)?)?$ ]] ||
  die_usage "\"$host\" is not HOST or HOST:PORT (a name or an IPv4 address)"
chosen=()
read_lists
case $command in
  start)
    choose "$host"
    each chosen start_process false
    ;;
  stop)
    choose "$host"
    each chosen stop_process
    ;;
  stop-all)
    [[ $host != *:* ]] || die_usage "stop-all takes a HOST without a port: it stops all of them"
    on_host "${host:-localhost}" process.sh stop-all jobmaster || die "host ${host:-localhost} failed"
    ;;
  start-foreground)
    choose "$host"
    run_in_foreground
    ;;
  *) usage ;;
esac
[ "${#failed[@]}" = 0 ] || die "failed: ${failed[*]}"
