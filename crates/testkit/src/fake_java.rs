//! A shell script that stands in for `java` where a test needs jobs but no JVM.
//!
//! It is called as the engine calls java: `-cp CLASSPATH CLASS ARG...`, and looks only at CLASS:
//! `Hello` prints a line and ends, `Forever` prints a line and runs until it is killed, `Once FILE` appends its job
//! id and attempt to FILE and ends, `OnceForever FILE` appends and runs on, `Slow FILE SECONDS` appends, works so long,
//! then says that it made its job and ends, `Throw` fails at once. `Locked DIR SECONDS`
//! appends to DIR/starts, holds a lock of its job as long as it lives, and says in DIR/overlaps if another holds it; of
//! `LockedBySession DIR SECONDS` a grandchild in a session of its own holds the lock.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SCRIPT: &str = r#"#!/bin/sh
# Stands in for java: see testkit::fake_java.
[ "$1" = -version ] && { echo 'openjdk version "17.0.0"' >&2; exit 0; }
while [ $# -gt 0 ]; do case $1 in -cp) shift 2;; -*) shift;; *) break;; esac; done
class=$1; shift
echo "$class job=$JOB_ID epoch=$JOB_EPOCH attempt=$JOB_ATTEMPT args=$*"
case $class in
  Hello) exit 0;;
  Once) echo "$JOB_ID $JOB_ATTEMPT" >> "$1"; exit 0;;
  OnceForever) echo "$JOB_ID $JOB_ATTEMPT" >> "$1"; exec sleep 86400;;
  Slow) echo "$JOB_ID $JOB_ATTEMPT" >> "$1"; sleep "$2"; : > "$JOB_CREATED_FILE"; exit 0;;
  Locked)
    echo "$JOB_ID $JOB_ATTEMPT" >> "$1/starts"
    exec 9> "$1/$JOB_ID.lock"
    flock -n 9 || echo "$JOB_ID $JOB_ATTEMPT" >> "$1/overlaps"
    exec sleep "$2";;
  LockedBySession)
    echo "$JOB_ID $JOB_ATTEMPT" >> "$1/starts"
    exec 9> "$1/$JOB_ID.lock"
    flock -n 9 || echo "$JOB_ID $JOB_ATTEMPT" >> "$1/overlaps"
    setsid sleep "$2" &
    exec sleep "$2" 9>&-;;
  Forever) exec sleep 86400;;
  Throw) echo "Exception in thread \"main\" java.lang.IllegalStateException: boom" >&2; exit 1;;
  *) echo "Error: Could not find or load main class $class" >&2; exit 1;;
esac
"#;

/// Writes the script into `directory`; its path, to be set as `engine.process.java`.
pub fn write(directory: &Path) -> PathBuf {
    let path = directory.join("fake-java");
    std::fs::write(&path, SCRIPT).expect("the directory can be written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode can be set");
    path
}
