//! Parsers of times.

use std::time::Duration;

/// Parses a whole number of seconds.
pub fn seconds(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number of whole seconds"))
}

/// Parses the time limit of a search during a build, from 1 to 3600 whole seconds.
pub fn an_hour_at_most(text: &str) -> Result<u64, String> {
    seconds(text).ok().filter(|s| (1..=3600).contains(s)).ok_or_else(|| format!("`{text}` is no number of whole seconds from 1 to 3600"))
}

/// Parses a duration: a number with the unit `us`, `ms` or `s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let micros = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return Err("a number with a unit is needed: us, ms, or s (500us, 1ms, 2s)".into()),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{number}` is no number"))?;
    let nearest = (number * micros).round();
    // NaN is in no range.
    if (1.0..=86_400e6).contains(&nearest) {
        Ok(Duration::from_micros(nearest as u64))
    } else {
        Err("it must be between 1us and a day".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("0.25s"), Ok(Duration::from_millis(250)));
        for wrong in ["", "5", "ms", "1,5ms", "0ms", "0.0001us", "-1s", "99999999s", "1h", "1e9s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_are_whole() {
        assert_eq!((seconds("0"), an_hour_at_most("3600")), (Ok(0), Ok(3600)));
        for wrong in ["", "0.2", "-1", "1s"] {
            assert!(seconds(wrong).is_err_and(|e| e.contains("whole seconds")), "{wrong}");
        }
        for wrong in ["0", "3601", "0.2"] {
            assert!(an_hour_at_most(wrong).is_err_and(|e| e.contains("1 to 3600")), "{wrong}");
        }
    }
}
