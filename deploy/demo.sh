#!/usr/bin/env bash
# The main job from end to end, in plain words: three replicas, two dispatchers and two JobMaster processes on free
# loopback ports; a Java job submitted twice under one triggerId; the leader killed meanwhile; one job, finished.
#
#   demo.sh [--keep] [--no-install] [--release]
#
# --keep leaves the cluster up, --no-install never installs a Java, --release runs optimized binaries.
# Needs Rust (in a checkout) and Java 11 or newer, which it finds or installs before anything is built.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly trigger=demo-1
keep='' install=yes release=()
for flag in "$@"; do
  case $flag in
    --keep) keep=yes ;;
    --no-install) install=no ;;
    --release) release=(--release) ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done

step() { printf '\n== %s\n' "$*"; }
tell() { printf '   %s\n' "$*"; }
local_cluster() { "$deploy_dir/local-cluster.sh" "$@" --dir "$dir"; }
ctl() { "$bin/metactl" --endpoints "$@"; }

# post_run DISPATCHER: the POST that the demo repeats. A 503 says that the store did not answer in time, so nobody
# knows whether the run was accepted; under its triggerId it is safe to ask again.
post_run() {
  local code tries
  for tries in 1 2 3; do
    code=0
    http POST "$1/run-async" "$dir/run.json" || code=$?
    [ "$code" = 4 ] && [ "$tries" != 3 ] || return "$code"
    say "asking again, with the same triggerId"
  done
}

upload() {
  local boundary=metastore-demo-boundary
  {
    printf -- '--%s\r\nContent-Disposition: form-data; name="jarfile"; filename="hello.jar"\r\n' "$boundary"
    printf 'Content-Type: application/java-archive\r\n\r\n'
    cat "$root_dir/examples/hello.jar"
    printf '\r\n--%s--\r\n' "$boundary"
  } > "$dir/upload"
  http POST "$1/jars/upload" "$dir/upload" "multipart/form-data; boundary=$boundary" > "$dir/uploaded" ||
    die "the upload failed"
  sed -n 's/.*"filename" *: *"\([^"]*\)".*/\1/p' "$dir/uploaded" | sed 's|.*/||'
}

job_state() { ctl "${replicas[0]}" -o json job status "$job" | sed -n 's/.*"state" *: *"\([A-Z]*\)".*/\1/p' | head -n 1; }
job_ended() { [[ $(job_state) =~ ^(FINISHED|FAILED|CANCELED|CANCELLED)$ ]]; }
job_id() { sed -n 's/.*"jobid" *: *"\([0-9a-f]*\)".*/\1/p'; }
run_completed() { grep -q '"jobid"\|"failure-cause"' <<< "$(http GET "${dispatchers[1]}/run-async/$trigger")"; }

clean_up() {
  local status=$?
  [ -e "$dir/cluster" ] || { rm -rf "$dir"; return; }
  if [ "$status" != 0 ]; then
    say "The demo failed; logs and data are kept in $dir"
    local_cluster stop > /dev/null 2>&1 || true
  elif [ -n "$keep" ]; then
    tell "The cluster stays up: endpoints $endpoints, dispatchers ${dispatchers[*]}"
    tell "Stop it with: $deploy_dir/local-cluster.sh stop --dir $dir"
  else
    local_cluster stop > /dev/null && rm -rf "$dir"
  fi
}

java=$(find_java "$([ "$install" = yes ] || echo no-install)") || exit $?
dir=$(mktemp -d "${TMPDIR:-/tmp}/metastore-demo.XXXXXX")
trap clean_up EXIT
trap 'exit 130' INT TERM

step "Java $(java_version "$java") at $java"
step "Building, and starting three replicas, two dispatchers and two JobMaster processes (data in $dir)"
local_cluster start --replicas 3 --dispatchers 2 --jobmasters 2 "${release[@]}" \
  --set "engine.process.java=$java" > "$dir/up" || exit 1
bin=$(sed -n 's/^bin=//p' "$dir/cluster")
endpoints=$(sed -n 's/^endpoints=//p' "$dir/up")
IFS=, read -r -a replicas <<< "$endpoints"
IFS=, read -r -a dispatchers <<< "$(sed -n 's/^dispatchers=//p' "$dir/up")"
tell "replicas    ${replicas[*]}"
tell "dispatchers ${dispatchers[*]}"

step "Uploading examples/hello.jar: POST ${dispatchers[0]}/jars/upload"
jar=$(upload "${dispatchers[0]}")
[ -n "$jar" ] || die "no jar id in the answer: $(cat "$dir/uploaded")"
tell "jar id $jar"

printf '{"jarId":"%s","triggerId":"%s","parallelism":1,"programArgsList":["6","500"]}' "$jar" "$trigger" > "$dir/run.json"
step "Asking for a run, triggerId $trigger: POST ${dispatchers[0]}/run-async"
first=$(post_run "${dispatchers[0]}") || die "the run was not accepted"
tell "answer $first"

step "kill -9 of the store's leader while the job is being started"
killed=$(local_cluster kill leader | sed -n 's/^endpoint //p')
tell "killed the replica at $killed"

step "The same POST through the other dispatcher: ${dispatchers[1]}/run-async"
second=$(post_run "${dispatchers[1]}") || die "the second POST was not answered"
tell "answer $second"
[ "$first" = "$second" ] || die "the two answers differ"

step "Waiting for the run to complete"
wait_for 60 run_completed || die "the run does not complete: $(http GET "${dispatchers[1]}/run-async/$trigger" 2>&1)"
status=$(http GET "${dispatchers[1]}/run-async/$trigger")
job=$(job_id <<< "$status")
[ -n "$job" ] || die "the run made no job: $status"
tell "job $job"

for i in "${!replicas[@]}"; do
  [ "${replicas[i]}" != "$killed" ] || { step "Starting the killed replica again"; local_cluster start "replica-$((i + 1))"; }
done

step "Waiting for the job to end"
wait_for 60 job_ended || die "the job does not end: $(job_state)"

step "The run as each replica and each dispatcher sees it"
for at in "${replicas[@]}"; do
  tell "replica $at:"
  ctl "$at" run status "$trigger" | sed 's/^/     /'
done
for at in "${dispatchers[@]}"; do
  tell "dispatcher $at:"
  http GET "$at/run-async/$trigger" | sed 's/^/     /'
  printf '\n'
done

step "One job, for two POSTs"
http GET "${dispatchers[0]}/jobs" > "$dir/jobs"
tell "$(cat "$dir/jobs")"
[ "$(grep -o '"id"' "$dir/jobs" | wc -l)" = 1 ] || die "there should be exactly one job"

step "The job's output"
ctl "${replicas[0]}" job logs "$job" | tee "$dir/output" | sed 's/^/   | /'
grep -q "Hello from job $job" "$dir/output" || die "the output does not name the job"

step "The job's state: $(job_state)"
[ "$(job_state)" = FINISHED ] || die "the job should have FINISHED"
