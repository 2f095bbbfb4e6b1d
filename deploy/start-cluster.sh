#!/usr/bin/env bash
# Starts the processes that conf/REPLICAS, conf/DISPATCHERS and conf/JOB_MASTERS list, each on its host.
#
#   start-cluster.sh
#
# $METASTORE_HOME is the unpacked archive, here and on every host; this script's own if unset. localhost and 127.0.0.0/8
# are this machine, others are reached by ssh $METASTORE_SSH_OPTS HOST. Returns when all serve: process ids are in
# run/, logs in log/, data in data/ (or $METASTORE_DATA) on each host. What runs already is left alone. What fails is
# named with its host, exit 1, and the rest stays. Addresses other than loopback need security.insecure = true in
# conf/*.toml of that host, which says what that means.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lists.sh"

[ $# = 0 ] || { sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
read_lists
single=$(single_enable) || die "conf/dispatcher.toml is not right"
if [ "$single" != true ]; then
  echo "jobmanager.jobmaster.single.enable = false: the dispatchers host the JobMasters, conf/JOB_MASTERS is not used"
  jobmasters=()
fi
claim_ports "$single"
warn_of_mixed_hosts "${replicas[@]}" "${dispatchers[@]}" "${jobmasters[@]}"
each replicas start_process "$single"
[ "${#failed[@]}" -lt "${#replicas[@]}" ] || die "no replica serves: nothing else is started"
each dispatchers start_process "$single"
each jobmasters start_process "$single"
[ "${#failed[@]}" = 0 ] || die "failed: ${failed[*]}"
