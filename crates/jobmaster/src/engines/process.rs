//! Engine `process`: `java -cp <jar>:<packages> <class> <args>`.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flink_rest::jar;
use icp_store::PackageStore;
use records::JobId;
use records::record::{Exit, Job, PackageRef, RestoreMode};

use super::failure;
use crate::guard::logs;
use crate::guard::spec::{ATTEMPT_VERSION, AttemptDir, Cause, ExitRecord, Spec};
use crate::guard::tree::{JOB_MARK, MARK};
use crate::limits::{ALIVE_AFTER, CAUSE_BYTES, CAUSE_LINES, CREATED_LOOK, CREATED_LOOK_MAX};
use crate::options::{CreatedBy, NodeOptions};

/// Key of a job's own configuration that overrides the node's.
const CREATED_KEY: &str = "engine.process.created";

/// A job to be started here.
pub struct Start<'a> {
    /// Options of this node.
    pub options: &'a NodeOptions,
    /// Its packages.
    pub store: &'a PackageStore,
    /// The job.
    pub id: &'a JobId,
    /// Its record.
    pub job: &'a Job,
    /// Number of the attempt.
    pub attempt: u32,
    /// The owner's epoch.
    pub epoch: i64,
    /// Where the attempt is.
    pub dir: &'a AttemptDir,
}

impl Start<'_> {
    /// What the guard is to start. Reads the disk.
    pub fn spec(&self) -> Result<Spec, Exit> {
        let program =
            find_program(&self.options.host.java).map_err(|why| failure("NO_JAVA", self.no_java(&why)))?;
        let jar = self.jar()?;
        let class = match &self.job.spec.entry_class {
            Some(class) => class.clone(),
            None => main_class(&jar)?,
        };
        let class_path = self.class_path(&jar)?;
        find_class(&class, &class_path)?;
        let class_path: Vec<_> = class_path.iter().map(|entry| entry.to_string_lossy()).collect();
        let mut args = vec!["-cp".to_owned(), class_path.join(":"), class];
        args.extend(self.job.spec.args.iter().cloned());
        let created_file = match self.created_by()? {
            CreatedBy::Signal => Some(self.created_file()),
            CreatedBy::Started => None,
        };
        Ok(Spec {
            v: ATTEMPT_VERSION,
            job: self.id.to_string(),
            attempt: self.attempt,
            epoch: self.epoch,
            program: program.to_string_lossy().into_owned(),
            args,
            env: self.environment(),
            current_dir: self.dir.current_dir(),
            stream_limit_bytes: self.options.host.output_max_bytes.0,
            limits: self.options.limits(),
            isolation: self.options.isolation,
            created_file,
        })
    }

    fn no_java(&self, why: &str) -> String {
        format!(
            "no Java on node {}: {why}. Set JAVA_HOME or engine.process.java there, or install a runtime (Debian: \
             apt-get install default-jre-headless)",
            self.options.name
        )
    }

    fn created_by(&self) -> Result<CreatedBy, Exit> {
        let text = self.job.spec.configuration.get(CREATED_KEY).unwrap_or(&self.options.host.created);
        text.parse().map_err(|why: String| failure("BAD_CONFIGURATION", why))
    }

    fn created_file(&self) -> PathBuf {
        self.dir.path().join("created")
    }

    fn package_dir(&self, package: &PackageRef) -> Result<PathBuf, Exit> {
        let (name, version) = (&package.unit.name, &package.unit.version);
        self.store.layout().package(name, version).map_err(|e| failure("PACKAGE_ERROR", e.to_string()))
    }

    fn jar(&self) -> Result<PathBuf, Exit> {
        let jar = self.package_dir(&self.job.spec.program)?.join(&self.job.spec.jar_file);
        if jar.is_file() {
            return Ok(jar);
        }
        let text = format!("package {} has no file {}", self.job.spec.program.unit, self.job.spec.jar_file);
        Err(failure("PACKAGE_ERROR", text))
    }

    /// The JAR, then each package: its JARs, and its directory for classes and resources.
    fn class_path(&self, jar: &Path) -> Result<Vec<PathBuf>, Exit> {
        let mut entries = vec![jar.to_path_buf()];
        for package in &self.job.spec.class_path {
            let (name, version) = (&package.unit.name, &package.unit.version);
            let files = self.store.class_path(name, version, &package.op);
            let files = files.map_err(|e| failure("PACKAGE_ERROR", e.to_string()))?;
            let is_jar = |path: &PathBuf| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("jar"));
            entries.extend(files.into_iter().filter(is_jar));
            entries.push(self.package_dir(package)?);
        }
        Ok(entries)
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let spec = &self.job.spec;
        let restore_mode = spec.restore_mode.map(|mode| match mode {
            RestoreMode::Claim => "CLAIM",
            RestoreMode::NoClaim => "NO_CLAIM",
            RestoreMode::Legacy => "LEGACY",
        });
        let all = [
            (MARK, Some(self.dir.mark())),
            // The operation is drawn at random: another cluster on this host may have a job of the same id.
            (JOB_MARK, Some(format!("{}/{}/", self.id, spec.program.op))),
            ("JOB_ID", Some(self.id.to_string())),
            ("JOB_EPOCH", Some(self.epoch.to_string())),
            ("JOB_ATTEMPT", Some(self.attempt.to_string())),
            ("JOB_PARALLELISM", Some(spec.parallelism.to_string())),
            ("JOB_SAVEPOINT_PATH", spec.savepoint_path.clone()),
            ("JOB_RESTORE_MODE", restore_mode.map(Into::into)),
            ("JOB_ALLOW_NON_RESTORED_STATE", Some(spec.allow_non_restored_state.to_string())),
            ("JOB_CREATED_FILE", Some(self.created_file().to_string_lossy().into_owned())),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// Finds a program: a path as it is, `java` in JAVA_HOME, anything else on PATH.
pub fn find_program(program: &str) -> Result<PathBuf, String> {
    if program.contains('/') {
        return executable(PathBuf::from(program)).ok_or_else(|| format!("{program} is not there"));
    }
    let java_home = std::env::var_os("JAVA_HOME").filter(|home| program == "java" && !home.is_empty());
    if let Some(home) = java_home {
        let inside = Path::new(&home).join("bin/java");
        let missing = format!("JAVA_HOME is set, but {} is not there", inside.display());
        return executable(inside).ok_or(missing);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find_map(|dir| executable(dir.join(program)))
        .ok_or_else(|| format!("`{program}` is not on PATH and JAVA_HOME is not set"))
}

fn executable(path: PathBuf) -> Option<PathBuf> {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0).then_some(path)
}

/// The class that the JAR itself names.
fn main_class(jar: &Path) -> Result<String, Exit> {
    let name = jar.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let file =
        File::open(jar).map_err(|e| failure("PACKAGE_ERROR", format!("{name} cannot be read: {e}")))?;
    let info = jar::inspect(file);
    info.entry_classes.first().cloned().ok_or_else(|| {
        let text =
            format!("{name} names no class to start: its manifest has no Main-Class, so give an entryClass");
        failure("NO_ENTRY_CLASS", text)
    })
}

/// Says that a class is nowhere before a JVM says so after a second, by when it would count as a job that ran. An
/// entry that is neither an archive nor a directory leaves the question to the JVM.
fn find_class(class: &str, class_path: &[PathBuf]) -> Result<(), Exit> {
    for entry in class_path {
        let held = match entry.is_dir() {
            true => Some(entry.join(jar::class_file(class)).is_file()),
            false => File::open(entry).ok().and_then(|file| jar::holds_class(file, class)),
        };
        if held != Some(false) {
            return Ok(());
        }
    }
    let names = class_path.iter().filter_map(|entry| Some(entry.file_name()?.to_string_lossy()));
    let searched = names.collect::<Vec<_>>().join(", ");
    let text = format!(
        "class {class} is not in {searched}; give entryClass its full name, package included, or add the package \
         that holds it"
    );
    Err(failure("NO_ENTRY_CLASS", text))
}

/// Pause before the next look for the created file, of a main() that has not made it for so long.
pub fn look_pause(waited: Duration) -> Duration {
    (waited / 20).clamp(CREATED_LOOK, CREATED_LOOK_MAX)
}

/// True if main() had made it a job when it ended: what a node that comes back has to go by.
pub fn was_created(spec: &Spec, exit: &ExitRecord) -> bool {
    match &spec.created_file {
        Some(file) => file.exists(),
        None => {
            let lived_ms = exit.ended_at_ms.saturating_sub(exit.started_at_ms);
            exit.is_success() || u128::from(lived_ms) >= ALIVE_AFTER.as_millis()
        }
    }
}

/// A finished process as its job's record says it. `Ok` is the end of a job that ended well.
pub fn judge(dir: &AttemptDir, spec: &Spec, exit: &ExitRecord, created: bool) -> Result<Exit, Exit> {
    let mut end = Exit { code: exit.code, signal: exit.signal, class: None, text: String::new() };
    if let Some(error) = &exit.error {
        return Err(failure("MAIN_FAILED", error.clone()));
    }
    if exit.is_success() {
        if created || spec.created_file.is_none() {
            return Ok(end);
        }
        end.class = Some("NO_JOB".into());
        end.text = "No jobs included in application.".into();
        return Err(end);
    }
    end.class = Some("MAIN_FAILED".into());
    end.text = cause_text(dir);
    Err(end)
}

/// The last lines of stderr, after a hint where we know one.
fn cause_text(dir: &AttemptDir) -> String {
    let lines = logs::last_lines(dir.path(), "stderr", CAUSE_LINES);
    let cut = lines.len().saturating_sub(CAUSE_BYTES);
    let start = (cut..=lines.len()).find(|at| lines.is_char_boundary(*at)).unwrap_or(lines.len());
    let lines = &lines[start..];
    let flink_is_missing =
        ["NoClassDefFoundError: org/apache/flink", "ClassNotFoundException: org.apache.flink"];
    if flink_is_missing.iter().any(|sign| lines.contains(sign)) {
        return format!("this JAR needs a Flink cluster: set engine = flink\n{lines}");
    }
    lines.to_owned()
}

/// True for an end that says nothing about the program: the node lost its right to run it.
pub fn lost_its_container(exit: Option<&ExitRecord>) -> bool {
    exit.is_none_or(|exit| matches!(exit.cause, Cause::Deadline | Cause::ParentGone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_or_the_sentence_says_where_it_was_looked_for() {
        assert_eq!(find_program("/bin/sh").unwrap(), Path::new("/bin/sh"));
        assert!(find_program("sh").unwrap().ends_with("sh"));
        assert!(find_program("/no/such/program").unwrap_err().contains("/no/such/program"));
        assert!(find_program("no-such-program").unwrap_err().contains("PATH"));
    }

    #[test]
    fn a_class_that_is_nowhere_is_told_before_the_start() {
        let tmp = tempfile::tempdir().unwrap();
        let empty_archive = [b"PK\x05\x06".as_slice(), &[0; 18]].concat();
        let (jar, classes) = (tmp.path().join("app.jar"), tmp.path().join("classes"));
        std::fs::write(&jar, empty_archive).unwrap();
        std::fs::create_dir_all(classes.join("a")).unwrap();
        std::fs::write(classes.join("a/B.class"), "x").unwrap();
        let path = [jar.clone(), classes];
        assert!(find_class("a.B", &path).is_ok());
        let exit = find_class("a.C", &path).unwrap_err();
        assert_eq!(exit.class.as_deref(), Some("NO_ENTRY_CLASS"));
        for word in ["a.C", "app.jar", "classes", "entryClass"] {
            assert!(exit.text.contains(word), "{word} is missing in {}", exit.text);
        }
        std::fs::write(&jar, "no archive").unwrap();
        assert!(find_class("a.C", &path).is_ok(), "the JVM knows better");
    }

    /// Every look costs a call to the file system, of each job that has not said so yet.
    #[test]
    fn a_main_that_never_makes_it_a_job_is_looked_at_less_and_less_often() {
        let (mut waited, mut looks) = (Duration::ZERO, 0);
        while waited < Duration::from_secs(3600) {
            let pause = look_pause(waited);
            assert!(pause <= CREATED_LOOK.max(waited / 20), "late after {waited:?}");
            waited += pause;
            looks += 1;
        }
        assert!(looks < 3700, "{looks} looks in an hour");
        assert_eq!(look_pause(Duration::ZERO), CREATED_LOOK);
    }

    #[test]
    fn a_missing_flink_gets_a_hint() {
        let tmp = tempfile::tempdir().unwrap();
        let line = "Exception in thread \"main\" java.lang.NoClassDefFoundError: org/apache/flink/api/Foo\n";
        std::fs::write(tmp.path().join("stderr"), line).unwrap();
        let text = cause_text(&AttemptDir::at(tmp.path()));
        assert!(text.starts_with("this JAR needs a Flink cluster: set engine = flink\n"), "{text}");
        assert!(text.contains("NoClassDefFoundError"));
    }
}
