//! systemd accepts the units, and stops what runs jobs in a way that leaves the jobs to it.
//! Says so where there is no systemd-analyze.

use std::{path::Path, process::Command};

/// A SIGTERM of systemd's own would end a job's program before its JobMaster knows that it is to leave: the job would
/// have failed, where it was to move.
#[test]
fn only_the_process_itself_is_told_to_stop() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("deploy/systemd");
    for role in ["jobmaster", "dispatcher"] {
        let text = std::fs::read_to_string(units.join(format!("metastore-{role}.service"))).unwrap();
        let modes: Vec<&str> = text.lines().filter(|line| line.starts_with("KillMode=")).collect();
        assert_eq!(modes, ["KillMode=mixed"], "{role}");
        assert!(text.contains("\nDelegate=yes\n"), "{role} may make a control group for each job");
    }
}

#[test]
fn systemd_accepts_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("no systemd-analyze here: the units are not verified");
        return;
    }
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("deploy/systemd");
    let dir = tempfile::tempdir().unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify").arg("--man=no");
    for unit in std::fs::read_dir(units).unwrap() {
        let unit = unit.unwrap();
        // The program is not installed where the test runs; everything else is verified as it stands.
        let text = std::fs::read_to_string(unit.path()).unwrap();
        assert!(text.contains("ExecStart=/opt/metastore/bin/metastored "));
        let copy = dir.path().join(unit.file_name());
        std::fs::write(&copy, text.replace("/opt/metastore/bin/metastored", "/bin/true")).unwrap();
        verify.arg(copy);
    }
    let output = verify.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("metastore-"), "{said}");
}
