//! The text of a transaction, as etcdctl reads it: compares, success requests and failure requests, each a line,
//! the three parts parted by an empty line.

use meta_types::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyRange, Op, PutRequest, RangeRequest, Txn,
};

/// Reads a transaction. The error names the line.
pub fn parse(text: &str) -> Result<Txn, String> {
    let mut txn = Txn::default();
    let mut part = 0;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            part += 1;
            continue;
        }
        let parsed = match part {
            0 => compare(line).map(|compare| txn.compare.push(compare)),
            1 => operation(line).map(|op| txn.success.push(op)),
            2 => operation(line).map(|op| txn.failure.push(op)),
            _ => Err("only three parts: compares, success requests, failure requests".to_owned()),
        };
        parsed.map_err(|why| format!("line {}: {why}: {line}", number + 1))?;
    }
    Ok(txn)
}

/// `mod("a") > "0"`.
fn compare(line: &str) -> Result<Compare, String> {
    const WANTS: &str = "wants ver|create|mod|val|lease(\"KEY\") =|!=|<|> \"VALUE\"";
    let (target, rest) = line.split_once('(').ok_or(WANTS)?;
    let (key, rest) = split_at_parenthesis(rest).ok_or(WANTS)?;
    let rest = rest.trim();
    let end = rest.find(|c: char| !"=!<>".contains(c)).ok_or(WANTS)?;
    let (relation, value) = rest.split_at(end);
    let result = match relation {
        "=" => CompareResult::Equal,
        "!=" => CompareResult::NotEqual,
        "<" => CompareResult::Less,
        ">" => CompareResult::Greater,
        _ => return Err(WANTS.to_owned()),
    };
    let (key, value) = (one_word(key)?, one_word(value)?);
    let number = || value.parse::<i64>().map_err(|_| format!("{value} is no number"));
    let target = match target.trim() {
        "ver" | "version" => CompareTarget::Version(number()?),
        "c" | "create" => CompareTarget::CreateRevision(number()?),
        "m" | "mod" => CompareTarget::ModRevision(number()?),
        "val" | "value" => CompareTarget::Value(value.into()),
        "lease" => CompareTarget::Lease(lease_id(&value)?),
        _ => return Err(WANTS.to_owned()),
    };
    Ok(Compare { range: KeyRange::one(key), result, target })
}

/// Before and behind the first `)` that is not in quotes.
fn split_at_parenthesis(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, ')') => return Some((&text[..at], &text[at + 1..])),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    None
}

/// `put KEY VALUE`, `get KEY [END] [--prefix]`, `del KEY [END] [--prefix]`.
fn operation(line: &str) -> Result<Op, String> {
    let words = words(line)?;
    let (flags, words): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| word.starts_with("--"));
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let range = |key: &str, end: Option<&str>| {
        flags.iter().try_fold(
            KeyRange::between(key.to_owned(), end.unwrap_or("").to_owned()),
            |range, flag| match flag.as_str() {
                "--prefix" => Ok(KeyRange::prefix(range.key)),
                "--from-key" => Ok(KeyRange::between(range.key, "\0")),
                _ => Err(format!("unknown flag {flag}")),
            },
        )
    };
    match words.as_slice() {
        ["put", key, value] => put(key, value, &flags),
        ["get", key] => Ok(Op::Range(RangeRequest { range: range(key, None)?, ..RangeRequest::default() })),
        ["get", key, end] => {
            Ok(Op::Range(RangeRequest { range: range(key, Some(end))?, ..RangeRequest::default() }))
        }
        ["del", key] => Ok(Op::DeleteRange(DeleteRangeRequest { range: range(key, None)?, prev_kv: false })),
        ["del", key, end] => {
            Ok(Op::DeleteRange(DeleteRangeRequest { range: range(key, Some(end))?, prev_kv: false }))
        }
        _ => Err("wants put KEY VALUE, get KEY or del KEY".to_owned()),
    }
}

fn put(key: &str, value: &str, flags: &[String]) -> Result<Op, String> {
    let mut put =
        PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), ..PutRequest::default() };
    for flag in flags {
        let lease = flag.strip_prefix("--lease=").ok_or_else(|| format!("unknown flag {flag}"))?;
        put.lease = lease_id(lease)?;
    }
    Ok(Op::Put(put))
}

/// A lease id in hexadecimal, as etcdctl prints it.
pub fn lease_id(text: &str) -> Result<i64, String> {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16)
        .ok()
        .and_then(|id| i64::try_from(id).ok())
        .ok_or_else(|| format!("\"{text}\" is no lease id (hexadecimal)"))
}

fn one_word(text: &str) -> Result<String, String> {
    match words(text)?.as_slice() {
        [word] => Ok(word.clone()),
        _ => Err("wants one word or one quoted text".to_owned()),
    }
}

/// Words parted by blanks; quotes keep blanks, a backslash in double quotes keeps the next character.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '"' | '\'' => quoted(c, &mut characters, word.get_or_insert_default())?,
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

fn quoted(quote: char, characters: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), String> {
    while let Some(c) = characters.next() {
        match c {
            c if c == quote => return Ok(()),
            '\\' if quote == '"' => match characters.next() {
                Some('n') => word.push('\n'),
                Some('t') => word.push('\t'),
                Some(next) => word.push(next),
                None => break,
            },
            c => word.push(c),
        }
    }
    Err(format!("the quote {quote} is not closed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcdctls_example_is_read() {
        let txn =
            parse("mod(\"a\") > \"0\"\n\nput a 2\nput \"k 1\" 'v \"1\"'\n\nput a 3\ndel x --prefix\n\n")
                .unwrap();
        assert_eq!(txn.compare.len(), 1);
        assert_eq!(txn.compare[0].result, CompareResult::Greater);
        assert_eq!(txn.compare[0].target, CompareTarget::ModRevision(0));
        assert_eq!(txn.success[1], Op::put("k 1", "v \"1\""));
        assert_eq!(
            txn.failure[1],
            Op::DeleteRange(DeleteRangeRequest { range: KeyRange::prefix("x"), prev_kv: false })
        );
    }

    #[test]
    fn compares_of_every_kind() {
        let text = "ver(k) = 1\ncreate(\"k\") != \"0\"\nval(\"k\") = \"v)\"\nlease(k) < 1f\n";
        let txn = parse(text).unwrap();
        assert_eq!(txn.compare[2].target, CompareTarget::Value("v)".into()));
        assert_eq!(txn.compare[3].target, CompareTarget::Lease(31));
    }

    #[test]
    fn what_makes_no_sense_names_its_line() {
        for (text, line) in [
            ("mod(a) ~ 1", "line 1"),
            ("mod(a) > x", "line 1"),
            ("\nput a", "line 2"),
            ("\n\n\nput a b", "line 4"),
            ("\nput \"a b", "line 2"),
            ("\nget a --nosuch", "line 2"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(line), "{text:?}: {error}");
        }
    }
}
