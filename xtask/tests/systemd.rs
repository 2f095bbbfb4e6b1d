//! systemd accepts the units. Says so where there is no systemd-analyze.

use std::{path::Path, process::Command};

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
