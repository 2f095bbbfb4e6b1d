# Sourced by start-cluster.sh, stop-cluster.sh and jobmaster.sh: the lists in conf/, what is started where and with
# which addresses, and how a host is reached.
# shellcheck shell=bash

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

home=${METASTORE_HOME:-$root_dir}
[ -x "$home/bin/metastored" ] ||
  die "there is no $home/bin/metastored: set METASTORE_HOME to an unpacked archive (in a checkout: local-cluster.sh)"
export METASTORE_HOME=$home

readonly client_port=2379 rest_port=8081 node_port=8092
# By name: the host as it is written in the list, its port, and its place among those of the same host, from 0.
declare -A host_of=() port_of=() place_of=()
replicas=() dispatchers=() jobmasters=()
# HOST:PORT -> who listens there.
declare -A taken=()

# ---- the lists ----------------------------------------------------------------------------------------------------

# read_list ROLE FILE PORT ENTRIES: fills the array ENTRIES with names, and host_of, port_of and place_of.
read_list() {
  local role=$1 file=$home/conf/$2 first=$3 line number=0 host port place
  local -n entries=$4
  local -A on=()
  [ -r "$file" ] || die_usage "$file cannot be read: it lists hosts, one a line, as HOST or HOST:PORT"
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    line=${line%%#*}
    read -r line <<< "${line%$'\r'}"
    [ -n "$line" ] || continue
    [[ $line =~ ^([A-Za-z0-9][A-Za-z0-9._-]*)(:([0-9]+))?$ ]] ||
      die_usage "$file line $number: \"$line\" is not HOST or HOST:PORT (a name or an IPv4 address, one a line)"
    host=${BASH_REMATCH[1]} port=${BASH_REMATCH[3]}
    place=${on[$(same_host "$host")]:-0}
    on[$(same_host "$host")]=$((place + 1))
    entries+=("$role-$((${#entries[@]} + 1))")
    add_process "${entries[-1]}" "$host" "${port:-$((first + 10 * place))}" "$place" ||
      die_usage "$file line $number: $line: no such port; 1 to 65534"
  done < "$file"
}

# add_process NAME HOST PORT PLACE
add_process() {
  [ "${#3}" -le 5 ] && [ "$((10#$3))" -ge 1 ] && [ "$((10#$3))" -le 65534 ] || return 1
  host_of[$1]=$2 port_of[$1]=$((10#$3)) place_of[$1]=$4
}

read_lists() {
  read_list replica REPLICAS "$client_port" replicas
  read_list dispatcher DISPATCHERS "$rest_port" dispatchers
  read_list jobmaster JOB_MASTERS "$node_port" jobmasters
  [ "${#replicas[@]}" -gt 0 ] || die_usage "$home/conf/REPLICAS lists no host"
}

# claim NAME PORT: two processes cannot have one port of a host.
claim() {
  local at
  at=$(same_host "${host_of[$1]}"):$2
  [ -z "${taken[$at]:-}" ] || die_usage "$1 and ${taken[$at]} would both listen on port $2 of ${host_of[$1]}: see $home/conf"
  taken[$at]=$1
}

# claim_ports SINGLE_ENABLE: checks the ports of all that is started.
claim_ports() {
  local name
  for name in "${replicas[@]}"; do claim "$name" "${port_of[$name]}"; claim "$name" "$((port_of[$name] + 1))"; done
  for name in "${dispatchers[@]}"; do
    claim "$name" "${port_of[$name]}"
    [ "$1" = true ] || claim "$name" "$(node_port_of "$name")"
  done
  [ "$1" = true ] || return 0
  for name in "${jobmasters[@]}"; do claim "$name" "${port_of[$name]}"; done
}

# The port of the node API of a dispatcher that hosts JobMasters.
node_port_of() { printf '%s\n' "$((node_port + 10 * place_of[$1]))"; }

# ---- hosts --------------------------------------------------------------------------------------------------------

is_address() { [[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+$ ]]; }
# What needs no ssh.
is_local() { [ "$1" = localhost ] || [[ $1 =~ ^127\.[0-9]+\.[0-9]+\.[0-9]+$ ]]; }
same_host() { if [ "$1" = localhost ]; then printf '127.0.0.1\n'; else printf '%s\n' "${1,,}"; fi; }

# address_of HOST: where its processes listen: the address that this machine, and so others, know it by.
address_of() {
  local address
  if [ "$1" = localhost ] || is_address "$1"; then
    same_host "$1"
    return
  fi
  address=$(getent ahostsv4 "$1" | awk 'NR == 1 { print $1 }') || true
  [ -n "$address" ] || { say "the name $1 has no IPv4 address here"; return 1; }
  ! is_local "$address" || say "warning: $1 is $address here: other machines will not reach it under that address"
  printf '%s\n' "$address"
}

# Hosts that need no ssh either: jobmaster.sh found that they are this machine.
declare -A this_machine=()
# "exec" if the script is to be replaced by what it starts.
replace=

# on_host HOST COMMAND ARG...: runs one of the scripts of bin/ on a host.
on_host() {
  local host=$1 command=$2 words=() name terminal=-n
  shift 2
  if is_local "$host" || [ -n "${this_machine[$host]:-}" ]; then
    $replace "$home/bin/$command" "$@"
    return
  fi
  words=(env "METASTORE_HOME=$home")
  for name in METASTORE_DATA METASTORE_START_SECONDS METASTORE_STOP_SECONDS; do
    [ -z "${!name:-}" ] || words+=("$name=${!name}")
  done
  # What runs in the foreground is to end with the connection.
  [ -z "$replace" ] || terminal=-tt
  # What METASTORE_SSH_OPTS says goes first, and so wins. Nothing asks, and a host that is gone is noticed.
  # shellcheck disable=SC2086 # several options
  $replace ssh "$terminal" ${METASTORE_SSH_OPTS:-} -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 \
    -o ServerAliveCountMax=3 -- "$host" "$(printf '%q ' "${words[@]}" "$home/bin/$command" "$@")"
}

# warn_of_mixed_hosts NAME...: a loopback address is another machine for each host.
warn_of_mixed_hosts() {
  local name here='' elsewhere=''
  for name in "$@"; do
    if is_local "${host_of[$name]}"; then here=${host_of[$name]}; else elsewhere=${host_of[$name]}; fi
  done
  [ -z "$here" ] || [ -z "$elsewhere" ] ||
    say "warning: $elsewhere does not reach this machine as $here: write the name that others know it by in $home/conf"
}

# ---- processes ----------------------------------------------------------------------------------------------------

join() { local IFS=,; printf '%s\n' "$*"; }

# endpoint_of NAME [PORT]: under which others reach it.
endpoint_of() { printf '%s:%s\n' "$(same_host "${host_of[$1]}")" "${2:-${port_of[$1]}}"; }

# settings_of NAME ADDRESS SINGLE_ENABLE: fills $settings with the KEY=VALUE that the lists mean for it.
settings_of() {
  local name=$1 address=$2 port=${port_of[$1]} peer list=()
  case $name in
    replica-*)
      for peer in "${replicas[@]}"; do list+=("$peer=$(endpoint_of "$peer" "$((port_of[$peer] + 1))")"); done
      settings=("cluster.initial=$(join "${list[@]}")" "listen.client=$address:$port"
        "listen.peer=$address:$((port + 1))" "advertise.client=$(endpoint_of "$name")"
        "advertise.peer=$(endpoint_of "$name" "$((port + 1))")")
      return
      ;;
  esac
  for peer in "${replicas[@]}"; do list+=("$(endpoint_of "$peer")"); done
  settings=("store.endpoints=$(join "${list[@]}")")
  case $name in
    dispatcher-*)
      settings+=("listen.rest=$address:$port" "advertise.rest=$(endpoint_of "$name")"
        "jobmanager.jobmaster.single.enable=$3")
      port=$(node_port_of "$name")
      ;;
  esac
  settings+=("listen.node=$address:$port" "advertise.node=$(endpoint_of "$name" "$port")")
}

# start_process NAME SINGLE_ENABLE [start|run]: starts it on its host and waits until it serves.
start_process() {
  local name=$1 verb=${3:-start} address settings=() url=()
  address=$(address_of "${host_of[$name]}") || return 1
  settings_of "$name" "$address" "$2"
  [ "$verb" = run ] || url=("http://$address:${port_of[$name]}/readyz")
  on_host "${host_of[$name]}" process.sh "$verb" "${name%%-*}" "$name" "${url[@]}" "${settings[@]}"
}

stop_process() { on_host "${host_of[$1]}" process.sh stop "$1"; }

# each NAMES COMMAND ARG...: COMMAND NAME ARG... for each name of the array NAMES, all at once; what they print in
# order. Says which failed and on which host, and adds it to failed; the others go on.
failed=()
each() {
  local -n names_of_each=$1
  local name pids=() i out
  shift
  out=$(mktemp -d)
  for name in "${names_of_each[@]}"; do
    "$1" "$name" "${@:2}" > "$out/$name" 2> "$out/$name.error" &
    pids+=("$!")
  done
  for i in "${!pids[@]}"; do
    name=${names_of_each[i]}
    wait "${pids[i]}" || {
      failed+=("$name")
      say "$(basename "$0"): $name on host ${host_of[$name]} failed:"
    }
    cat "$out/$name"
    cat "$out/$name.error" >&2
  done
  rm -rf "$out"
}

# single_enable: the value of jobmanager.jobmaster.single.enable for this cluster.
single_enable() {
  local printed
  printed=$("$home/bin/metastored" dispatcher --config "$home/conf/dispatcher.toml" --print-config) || return 1
  sed -n 's/^jobmanager\.jobmaster\.single\.enable = \([a-z]*\).*/\1/p' <<< "$printed"
}
