//! Restart strategies as users write them: Flink's keys, values and durations.

use std::collections::BTreeMap;

use crate::record::{Backoff, RestartStrategy};
use crate::refusal::Refusal;

/// The key that names the strategy.
pub const STRATEGY_TYPE: &str = "restart-strategy.type";
/// What it was called in older versions of Flink.
const OLD_STRATEGY_TYPE: &str = "restart-strategy";
const ATTEMPTS: &str = "restart-strategy.fixed-delay.attempts";
const DELAY: &str = "restart-strategy.fixed-delay.delay";
const INITIAL: &str = "restart-strategy.exponential-delay.initial-backoff";
const MAX: &str = "restart-strategy.exponential-delay.max-backoff";
const MULTIPLIER: &str = "restart-strategy.exponential-delay.backoff-multiplier";
const RESET: &str = "restart-strategy.exponential-delay.reset-backoff-threshold";
const JITTER: &str = "restart-strategy.exponential-delay.jitter-factor";
const IN_A_ROW: &str = "restart-strategy.exponential-delay.attempts-before-reset-backoff";

/// The longest pause or threshold: more is a mistake in the unit.
const LONGEST_MS: u64 = 365 * 24 * 3600 * 1000;
/// A pause of at least a millisecond grows from one to the longest in so few steps that a larger factor means nothing.
const LARGEST_MULTIPLIER: f64 = 1000.0;

/// The strategy that a job's own configuration asks for, with `defaults` for what it leaves open and Flink's own
/// defaults for what they do. A value that cannot be is refused with its key and what would fit.
pub fn restart_strategy(
    configuration: &BTreeMap<String, String>,
    defaults: &BTreeMap<String, String>,
) -> Result<RestartStrategy, Refusal> {
    let settings = Settings { configuration, defaults };
    let Some((key, name)) = settings.strategy() else { return Ok(RestartStrategy::default()) };
    match name.to_ascii_lowercase().as_str() {
        "on-container-loss" => Ok(RestartStrategy::OnContainerLoss),
        "none" | "off" | "disable" => Ok(RestartStrategy::None),
        "fixed-delay" | "fixeddelay" => settings.fixed_delay(),
        "exponential-delay" | "exponentialdelay" => settings.exponential_delay(),
        _ => {
            let wants = "none, fixed-delay, exponential-delay or on-container-loss";
            Err(unfit(key, name, wants))
        }
    }
}

struct Settings<'a> {
    configuration: &'a BTreeMap<String, String>,
    defaults: &'a BTreeMap<String, String>,
}

impl<'a> Settings<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        self.configuration.get(key).or_else(|| self.defaults.get(key)).map(|text| text.trim())
    }

    /// The job's own word comes before any default, under whichever key.
    fn strategy(&self) -> Option<(&'static str, &'a str)> {
        let named = |settings: &'a BTreeMap<String, String>| {
            let keys = [STRATEGY_TYPE, OLD_STRATEGY_TYPE];
            keys.into_iter().find_map(|key| Some((key, settings.get(key)?.trim())))
        };
        named(self.configuration).or_else(|| named(self.defaults))
    }

    fn fixed_delay(&self) -> Result<RestartStrategy, Refusal> {
        let attempts = self.whole(ATTEMPTS)?.unwrap_or(1);
        Ok(RestartStrategy::FixedDelay { attempts, delay_ms: self.duration(DELAY, 0, 1000)? })
    }

    fn exponential_delay(&self) -> Result<RestartStrategy, Refusal> {
        let initial_ms = self.duration(INITIAL, 1, 1000)?;
        let max_ms = self.duration(MAX, 1, 60_000)?;
        if max_ms < initial_ms {
            let wants = format!("at least {INITIAL}, which is {initial_ms} ms");
            return Err(unfit(MAX, self.get(MAX).unwrap_or("1 min"), &wants));
        }
        let backoff = Backoff {
            initial_ms,
            max_ms,
            multiplier_permille: self.permille(MULTIPLIER, 1.0, LARGEST_MULTIPLIER, 1.5)?,
            reset_ms: self.duration(RESET, 1, 3_600_000)?,
            jitter_permille: self.permille(JITTER, 0.0, 1.0, 0.1)?,
            attempts: match self.get(IN_A_ROW) {
                Some("infinite") => None,
                _ => self.whole(IN_A_ROW)?,
            },
        };
        Ok(RestartStrategy::ExponentialDelay(backoff))
    }

    fn whole(&self, key: &str) -> Result<Option<u32>, Refusal> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| i32::try_from(*number).is_ok());
        number.map(Some).ok_or_else(|| unfit(key, text, "a whole number from 0 to 2147483647"))
    }

    fn permille(&self, key: &str, least: f64, most: f64, default: f64) -> Result<u32, Refusal> {
        let text = self.get(key);
        let number = text.map_or(Some(default), |text| text.parse().ok());
        let fits = number.filter(|number| (least..=most).contains(number));
        let number = fits.ok_or_else(|| {
            unfit(key, text.unwrap_or_default(), &format!("a number from {least} to {most}"))
        })?;
        Ok((number * 1000.0).round() as u32)
    }

    fn duration(&self, key: &str, least_ms: u64, default_ms: u64) -> Result<u64, Refusal> {
        let Some(text) = self.get(key) else { return Ok(default_ms) };
        let millis = duration_ms(text).filter(|millis| (least_ms..=LONGEST_MS).contains(millis));
        millis.ok_or_else(|| {
            let wants = format!(
                "a duration of {least_ms} ms to 365 d such as 10 s, 500 ms or 1 min (d, h, min, s, ms; a number \
                 alone is milliseconds)"
            );
            unfit(key, text, &wants)
        })
    }
}

fn unfit(key: &str, text: &str, wants: &str) -> Refusal {
    Refusal::bad_request(format!("{key} = \"{text}\": wants {wants}"))
}

/// A duration as Flink writes it, in milliseconds.
fn duration_ms(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let millis = match unit.trim().to_lowercase().as_str() {
        "" | "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1,
        "s" | "sec" | "secs" | "second" | "seconds" => 1000,
        "m" | "min" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        "\u{b5}s" | "micro" | "micros" | "microsecond" | "microseconds" => return Some(number / 1000),
        "ns" | "nano" | "nanos" | "nanosecond" | "nanoseconds" => return Some(number / 1_000_000),
        _ => return None,
    };
    number.checked_mul(millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Class;

    fn map(settings: &[(&str, &str)]) -> BTreeMap<String, String> {
        settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn of(job: &[(&str, &str)], defaults: &[(&str, &str)]) -> Result<RestartStrategy, Refusal> {
        restart_strategy(&map(job), &map(defaults))
    }

    #[test]
    fn flinks_names_and_defaults() {
        assert_eq!(of(&[], &[]).unwrap(), RestartStrategy::OnContainerLoss);
        for name in ["none", "off", "disable", "None"] {
            assert_eq!(of(&[(STRATEGY_TYPE, name)], &[]).unwrap(), RestartStrategy::None);
        }
        let fixed = RestartStrategy::FixedDelay { attempts: 1, delay_ms: 1000 };
        assert_eq!(of(&[(OLD_STRATEGY_TYPE, "fixeddelay")], &[]).unwrap(), fixed);
        let growing = Backoff {
            initial_ms: 1000,
            max_ms: 60_000,
            multiplier_permille: 1500,
            reset_ms: 3_600_000,
            jitter_permille: 100,
            attempts: None,
        };
        let growing = RestartStrategy::ExponentialDelay(growing);
        assert_eq!(of(&[(STRATEGY_TYPE, "exponential-delay")], &[]).unwrap(), growing);
    }

    #[test]
    fn a_job_overrides_the_defaults_key_by_key() {
        let defaults = [(STRATEGY_TYPE, "fixed-delay"), (ATTEMPTS, "5"), (DELAY, "2 min")];
        let fixed = |attempts, delay_ms| RestartStrategy::FixedDelay { attempts, delay_ms };
        assert_eq!(of(&[], &defaults).unwrap(), fixed(5, 120_000));
        assert_eq!(of(&[(ATTEMPTS, "0")], &defaults).unwrap(), fixed(0, 120_000));
        assert_eq!(of(&[(OLD_STRATEGY_TYPE, "none")], &defaults).unwrap(), RestartStrategy::None);
        let job = [
            (STRATEGY_TYPE, "exponential-delay"),
            (INITIAL, "10ms"),
            (MAX, "1 h"),
            (MULTIPLIER, "2.5"),
            (RESET, "1 d"),
            (JITTER, "0"),
            (IN_A_ROW, "4"),
        ];
        let growing = Backoff {
            initial_ms: 10,
            max_ms: 3_600_000,
            multiplier_permille: 2500,
            reset_ms: 86_400_000,
            jitter_permille: 0,
            attempts: Some(4),
        };
        assert_eq!(of(&job, &defaults).unwrap(), RestartStrategy::ExponentialDelay(growing));
        assert_eq!(of(&[], &job).unwrap(), RestartStrategy::ExponentialDelay(growing));
    }

    #[test]
    fn a_value_that_cannot_be_is_named_with_what_would_fit() {
        let fixed = (STRATEGY_TYPE, "fixed-delay");
        let growing = (STRATEGY_TYPE, "exponential-delay");
        for (settings, says) in [
            ([(STRATEGY_TYPE, "failure-rate"), fixed], "wants none, fixed-delay, exponential-delay"),
            ([(STRATEGY_TYPE, "fixed-dealy"), fixed], "restart-strategy.type = \"fixed-dealy\""),
            ([fixed, (ATTEMPTS, "-1")], "fixed-delay.attempts = \"-1\": wants a whole number"),
            ([fixed, (ATTEMPTS, "2147483648")], "2147483647"),
            ([fixed, (DELAY, "1 fortnight")], "such as 10 s"),
            ([fixed, (DELAY, "99999999999999999 d")], "365 d"),
            ([growing, (INITIAL, "0")], "a duration of 1 ms"),
            ([growing, (MAX, "10 ms")], "initial-backoff, which is 1000 ms"),
            ([growing, (INITIAL, "2 min")], "max-backoff = \"1 min\""),
            ([growing, (MULTIPLIER, "0.9")], "a number from 1 to 1000"),
            ([growing, (MULTIPLIER, "NaN")], "a number from 1 to 1000"),
            ([growing, (JITTER, "1.1")], "a number from 0 to 1"),
            ([growing, (IN_A_ROW, "many")], "a whole number"),
        ] {
            // The first of two equal keys counts.
            let settings: Vec<_> = settings.into_iter().rev().collect();
            let refusal = of(&settings, &[]).unwrap_err();
            assert_eq!(refusal.class, Class::BadRequest);
            assert!(refusal.text.contains(says), "{} has no {says}", refusal.text);
        }
    }

    #[test]
    fn durations_are_flinks() {
        for (text, millis) in [
            ("10", 10),
            ("10ms", 10),
            (" 3 s ", 3000),
            ("2 Seconds", 2000),
            ("1m", 60_000),
            ("1 MIN", 60_000),
            ("2 hours", 7_200_000),
            ("1d", 86_400_000),
            ("2500 \u{b5}s", 2),
            ("3000000 nanos", 3),
        ] {
            assert_eq!(duration_ms(text), Some(millis), "{text}");
        }
        for text in ["", "s", "-1 s", "1.5 s", "1 s 2", "18446744073709551615 d"] {
            assert_eq!(duration_ms(text), None, "{text}");
        }
    }
}
