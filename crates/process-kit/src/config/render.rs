//! The annotated files in `conf/`, written from the same rows that the loader reads.

use super::Row;

/// One file of `conf/`.
#[derive(Debug, Clone)]
pub struct ConfFile {
    /// First lines: what the file is for and how it is used.
    pub head: &'static str,
    /// Every key of the role.
    pub rows: Vec<Row>,
    /// Keys that are set in the file, with their value as TOML; all others stand there as comments.
    pub set: &'static [(&'static str, &'static str)],
}

/// Longest line of a file.
const WIDTH: usize = 110;

/// The text of the file.
pub fn render(file: &ConfFile) -> String {
    let mut out = String::new();
    for line in file.head.lines() {
        out.push_str(format!("# {line}").trim_end());
        out.push('\n');
    }
    for row in &file.rows {
        out.push('\n');
        for line in wrap(&row.text.join(" ")) {
            out.push_str(&format!("# {line}\n"));
        }
        let set = file.set.iter().find(|(key, _)| *key == row.key);
        out.push_str(&match (set, row.default.as_str()) {
            (Some((key, value)), _) => format!("{key} = {value}\n"),
            (None, "") => format!("#{} =\n", row.key),
            (None, default) => format!("#{} = {default}\n", row.key),
        });
    }
    out
}

fn wrap(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH - 2 {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
