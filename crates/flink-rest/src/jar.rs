//! What a JAR says about itself: its entry classes and whether it holds a class. A file that is no JAR has none.

use std::io::{self, BufReader, Read, Seek, SeekFrom};

use zip::ZipArchive;

/// A manifest larger than this is not read: it is a few hundred bytes in a sane JAR.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;
/// Bytes of an archive that are looked at. A directory of 100,000 files fits; what goes on for ever is no JAR.
const MAX_READ_BYTES: u64 = 16 << 20;
/// Entry classes of one JAR, and the bytes of one: they become a record, and a Java class file holds no longer name.
const MAX_ENTRY_CLASSES: usize = 64;
const MAX_CLASS_BYTES: usize = 4096;

/// What was found in an uploaded file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JarInfo {
    /// True if the file is a readable archive.
    pub is_archive: bool,
    /// The manifest's `program-class` (a comma list) or else its `Main-Class`.
    pub entry_classes: Vec<String>,
}

/// Looks into a file.
pub fn inspect(file: impl Read + Seek) -> JarInfo {
    let Ok(mut archive) = open(file) else { return JarInfo::default() };
    JarInfo { is_archive: true, entry_classes: entry_classes(&mut archive).unwrap_or_default() }
}

/// Whether a JAR holds a class, named with dots or slashes; `None` if the file is no readable archive.
pub fn holds_class(file: impl Read + Seek, class: &str) -> Option<bool> {
    let archive = open(file).ok()?;
    Some(archive.index_for_name(&class_file(class)).is_some())
}

/// Where a class lies in a JAR or a directory of classes.
pub fn class_file(class: &str) -> String {
    format!("{}.class", class.replace('.', "/"))
}

fn open<R: Read + Seek>(file: R) -> zip::result::ZipResult<ZipArchive<Bounded<R>>> {
    ZipArchive::new(Bounded { file: BufReader::new(file), left: MAX_READ_BYTES })
}

/// A file of which only so much is read.
struct Bounded<R: Read> {
    file: BufReader<R>,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !buffer.is_empty() {
            return Err(io::Error::other("the archive has too large a directory"));
        }
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read(&mut buffer[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}

impl<R: Read + Seek> Seek for Bounded<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

fn entry_classes<R: Read + Seek>(archive: &mut ZipArchive<R>) -> Option<Vec<String>> {
    let name =
        archive.file_names().find(|name| name.eq_ignore_ascii_case("META-INF/MANIFEST.MF"))?.to_owned();
    let mut manifest = Vec::new();
    archive.by_name(&name).ok()?.take(MAX_MANIFEST_BYTES).read_to_end(&mut manifest).ok()?;
    Some(entry_classes_of_manifest(&String::from_utf8_lossy(&manifest)))
}

/// The entry classes a manifest names.
pub fn entry_classes_of_manifest(manifest: &str) -> Vec<String> {
    let attributes = main_attributes(manifest);
    let value = |wanted: &str| {
        attributes.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.as_str())
    };
    let classes = value("program-class").or_else(|| value("Main-Class")).unwrap_or_default();
    let classes = classes.split(',').map(str::trim).filter(|class| !class.is_empty());
    let named = classes.filter(|class| class.len() <= MAX_CLASS_BYTES).take(MAX_ENTRY_CLASSES);
    named.map(str::to_owned).collect()
}

/// The main section: up to the first blank line; a line that starts with a space goes on with the one before.
fn main_attributes(manifest: &str) -> Vec<(String, String)> {
    let mut lines: Vec<String> = Vec::new();
    for line in manifest.lines().take_while(|line| !line.is_empty()) {
        match (line.strip_prefix(' '), lines.last_mut()) {
            (Some(rest), Some(last)) => last.push_str(rest),
            _ => lines.push(line.to_owned()),
        }
    }
    let pairs = lines.iter().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;

    fn jar(files: &[(&str, &str)]) -> Cursor<Vec<u8>> {
        let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, text) in files {
            writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            writer.write_all(text.as_bytes()).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn entry_classes_come_from_the_manifest() {
        let manifest = "Manifest-Version: 1.0\r\nMain-Class: a.very.long.name.th\r\n at.goes.on.Main\r\n\r\n\
                        Name: other\r\nMain-Class: not.this\r\n";
        let info = inspect(jar(&[("META-INF/MANIFEST.MF", manifest), ("a/B.class", "x")]));
        assert!(info.is_archive);
        assert_eq!(info.entry_classes, ["a.very.long.name.that.goes.on.Main"]);
        assert_eq!(entry_classes_of_manifest("main-class: M\nProgram-Class: A, B\n"), ["A", "B"]);
        assert!(entry_classes_of_manifest("Manifest-Version: 1.0\n").is_empty());
    }

    #[test]
    fn a_class_is_found_by_its_name_only() {
        let held = |class: &str| holds_class(jar(&[("a/B.class", "x"), ("a/B$C.class", "x")]), class);
        for class in ["a.B", "a/B", "a.B$C"] {
            assert_eq!(held(class), Some(true), "{class}");
        }
        for class in ["B", "a.b", "a.B.class", ""] {
            assert_eq!(held(class), Some(false), "{class}");
        }
        assert_eq!(holds_class(Cursor::new(b"not a jar".to_vec()), "a.B"), None);
    }

    #[test]
    fn an_archive_that_goes_on_for_ever_is_looked_at_for_a_bounded_time() {
        // A manifest that unpacks to a gigabyte of names.
        let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
        writer.start_file("META-INF/MANIFEST.MF", zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(b"Program-Class: ").unwrap();
        (0..64).for_each(|_| writer.write_all(&b"a,".repeat(1 << 20)).unwrap());
        let info = inspect(writer.finish().unwrap());
        assert_eq!(info.entry_classes, vec!["a".to_owned(); MAX_ENTRY_CLASSES]);
        let long = format!("Main-Class: {}", "a".repeat(MAX_CLASS_BYTES + 1));
        assert!(inspect(jar(&[("META-INF/MANIFEST.MF", &long)])).entry_classes.is_empty());

        // A directory that is larger than it may be.
        let name = "n".repeat(60_000);
        let entries = usize::try_from(MAX_READ_BYTES).unwrap() / name.len() + 1;
        let names: Vec<String> = (0..entries).map(|i| format!("{i}{name}")).collect();
        let mut files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
        files.push(("META-INF/MANIFEST.MF", "Main-Class: Main"));
        assert_eq!(inspect(jar(&files)), JarInfo::default());
        files.drain(..2);
        assert_eq!(inspect(jar(&files)).entry_classes, ["Main"]);
    }

    #[test]
    fn what_is_no_jar_has_no_entry() {
        assert_eq!(inspect(Cursor::new(b"not a jar".to_vec())), JarInfo::default());
        assert_eq!(inspect(Cursor::new(Vec::new())), JarInfo::default());
        let without_manifest = inspect(jar(&[("A.class", "x")]));
        assert!(without_manifest.is_archive && without_manifest.entry_classes.is_empty());
    }
}
