//! Moments as people read them. Records hold milliseconds since 1970; nothing here knows what time it is.

/// Milliseconds since 1970 as RFC 3339 in UTC, to the second.
pub fn rfc3339(ms: u64) -> String {
    let s = ms / 1000;
    let (days, second) = (s / 86_400, s % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Milliseconds since 1970 of an RFC 3339 text; `None` if it is none, or of a time before 1970.
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let zone_at = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(zone_at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let is_date = (1..=12).contains(&month) && day >= 1 && year >= 1970;
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_of(year, month, day);
    if civil(days) != (year, month, day) {
        return None;
    }
    let seconds = (days * 86_400 + hour * 3600 + minute * 60 + second) as i64 - offset(zone)?;
    Some(u64::try_from(seconds).ok()? * 1000 + milliseconds(fraction)?)
}

/// Seconds that a zone's clocks are ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let [hours, minutes] = numbers(zone.get(1..)?, ':', [2, 2])?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60) as i64)
}

fn milliseconds(fraction: &str) -> Option<u64> {
    let digits = fraction.bytes().all(|byte| byte.is_ascii_digit()) && !fraction.is_empty();
    let padded = format!("{fraction}00");
    digits.then(|| padded.get(..3)?.parse().ok()).flatten()
}

/// Exactly `N` numbers of these widths.
fn numbers<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[u64; N]> {
    let mut found = [0; N];
    let mut parts = text.split(separator);
    for (number, width) in found.iter_mut().zip(widths) {
        let part = parts.next().filter(|part| part.len() == width)?;
        *number = part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(found)
}

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar counted from March.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

/// The inverse of [`civil`], from 1970 on.
fn days_of(year: u64, month: u64, day: u64) -> u64 {
    let (shifted, year) = if month > 2 { (month - 3, year) } else { (month + 9, year - 1) };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * shifted + 2) / 5 + day - 1;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_and_read_back() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_000, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_764_447_383_999, "2025-11-29T20:16:23Z"),
        ] {
            assert_eq!(rfc3339(ms), text);
            assert_eq!(parse_rfc3339(text), Some(ms / 1000 * 1000));
        }
        for days in (0..60_000).step_by(7) {
            let ms = days * 86_400_000;
            assert_eq!(parse_rfc3339(&rfc3339(ms)), Some(ms));
        }
    }

    #[test]
    fn fractions_and_zones_count_and_nonsense_is_refused() {
        assert_eq!(parse_rfc3339("1970-01-01t00:00:01.5z"), Some(1_500));
        assert_eq!(parse_rfc3339("1970-01-01 02:00:00.0019+02:00"), Some(1));
        assert_eq!(parse_rfc3339("1969-12-31T23:00:00-01:00"), None, "before 1970 by its own clock");
        assert_eq!(parse_rfc3339("1970-01-01T00:00:00+01:00"), None, "before 1970");
        for bad in [
            "",
            "now",
            "2025-11-29",
            "2025-11-29T20:16:23",
            "2025-02-30T00:00:00Z",
            "2025-13-01T00:00:00Z",
            "2025-11-29T24:00:00Z",
            "2025-1-29T20:16:23Z",
            "2025-11-29T20:16:23.Z",
            "2025-11-29T20:16:23+0100",
            "+025-11-29T20:16:23Z",
        ] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }
}
