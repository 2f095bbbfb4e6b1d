#!/usr/bin/env bash
# Stops what start-cluster.sh started, each process on its host: JobMasters and dispatchers first, which hand over what
# they hold, then the replicas.
#
#   stop-cluster.sh
#
# A process that does not end within METASTORE_STOP_SECONDS (30) is killed. What fails is named with its host, exit 1.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lists.sh"

[ $# = 0 ] || { sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
read_lists
single=$(single_enable) || die "conf/dispatcher.toml is not right"
if [ "$single" = true ]; then
  each jobmasters stop_process
else
  echo "conf/JOB_MASTERS is not used; jobmaster.sh stop-all stops JobMaster processes that were started by hand"
fi
each dispatchers stop_process
each replicas stop_process
[ "${#failed[@]}" = 0 ] || die "failed: ${failed[*]}"
