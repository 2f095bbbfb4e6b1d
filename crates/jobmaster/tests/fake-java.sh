#!/bin/sh
# Stands in for java in tests: called as `fake-java.sh -cp CLASS_PATH CLASS ARG...`; the class says what to do.
class_path=$2
class=$3
shift 3
echo "class_path=$class_path"
echo "class=$class args=$*"
env | grep '^JOB_' | sort
case $class in
  finish) echo hello ;;
  exit) sleep "${2:-0}"; exit "$1" ;;
  throw)
    i=0
    while [ $i -lt 50 ]; do echo "at line $i" >&2; i=$((i + 1)); done
    exit 3
    ;;
  noflink) echo 'java.lang.NoClassDefFoundError: org/apache/flink/api/common/JobExecutionResult' >&2; exit 1 ;;
  signal) : > "$JOB_CREATED_FILE"; exit "$1" ;;
  nosignal) exit 0 ;;
  until) while [ ! -e "$1" ]; do sleep 0.05; done ;;
  once) [ -e "$1" ] && exit 0; : > "$1"; sleep 1.3; exit 4 ;;
  forever) trap 'echo terminated; exit 143' TERM; while :; do sleep 0.05; done ;;
  # Fills the disk of its working directory, to the last byte.
  fill) echo 1 >> "$1"; cat /dev/zero > filler; while echo . >> filler; do :; done; exit 0 ;;
  # What it starts leaves its session, its parent and its marks.
  sheds)
    env -i setsid -f /bin/sh -c 'echo $$ > "$0.new"; mv "$0.new" "$0"; exec sleep 1000' "$1"
    while :; do sleep 0.05; done
    ;;
  # One at a time: it says if another one holds the lock. What it starts has a session of its own and holds it, too.
  locked|leaves)
    exec 9>> "$1"
    flock -n 9 || echo "attempt ${JOB_ATTEMPT:-?}" >> "$1.overlaps"
    echo started >> "$1.starts"
    setsid -f sleep 1000
    [ "$class" = leaves ] && sleep 1.3 && exit 4
    while :; do sleep 0.05; done
    ;;
  stubborn) trap '' TERM; (setsid sleep 1000 &); while :; do sleep 0.05; done ;;
  *) echo "no class $class" >&2; exit 1 ;;
esac
