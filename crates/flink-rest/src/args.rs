//! Program arguments in one string, split as Flink splits them.

/// Splits a command line: words at white space, `"..."` and `'...'` keep theirs, every quote is dropped.
pub fn split_command_line(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = if first == '"' || first == '\'' {
            match closing_quote(rest, first) {
                Some(end) => end,
                None => {
                    // An open quote is no quote.
                    rest = &rest[1..];
                    continue;
                }
            }
        } else {
            rest.find(char::is_whitespace).unwrap_or(rest.len())
        };
        words.push(rest[..end].trim().replace(['"', '\''], ""));
        rest = rest[end..].trim_start();
    }
    words
}

/// Index behind the quote that closes the one `text` starts with; at least one character lies between.
fn closing_quote(text: &str, quote: char) -> Option<usize> {
    let after_first = text.char_indices().nth(2)?.0;
    text[after_first..].find(quote).map(|at| after_first + at + 1)
}

/// Splits a comma-separated list; there is no quoting.
pub fn split_comma_list(text: &str) -> Vec<String> {
    if text.is_empty() { Vec::new() } else { text.split(',').map(str::to_owned).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_keeps_quoted_white_space() {
        for (given, wanted) in [
            ("", vec![]),
            ("  ", vec![]),
            ("11 --x \"y z\"", vec!["11", "--x", "y z"]),
            ("'a b'  c", vec!["a b", "c"]),
            ("--name=\"x\"", vec!["--name=x"]),
            ("\"open end", vec!["open", "end"]),
            ("a\tb\nc", vec!["a", "b", "c"]),
            ("\u{f6} \"\u{fc} \u{df}\"", vec!["\u{f6}", "\u{fc} \u{df}"]),
        ] {
            assert_eq!(split_command_line(given), wanted, "{given:?}");
        }
    }

    #[test]
    fn commas_have_no_quoting() {
        assert_eq!(split_comma_list("5,\"a,b\",c d"), ["5", "\"a", "b\"", "c d"]);
        assert!(split_comma_list("").is_empty());
    }
}
