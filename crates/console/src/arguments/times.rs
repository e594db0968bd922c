//! Durations.

use std::time::Duration;
use trodden_wire::stream::MAX_WAIT_LIMIT_MS;

/// Parses a whole number of seconds.
pub fn parse_seconds(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number of seconds"))
}

/// Parses a whole number of seconds from 1 to 3600.
pub fn parse_seconds_up_to_an_hour(text: &str) -> Result<u64, String> {
    parse_seconds(text)
        .ok()
        .filter(|s| (1..=3600).contains(s))
        .ok_or_else(|| format!("`{text}` is not a whole number of seconds from 1 to 3600"))
}

/// Parses a duration between 1 µs and a day: a number with the unit `us`, `ms` or `s`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let micros = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return Err("expected a number with the unit us, ms or s, such as 500us, 1ms or 2s".into()),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{number}` is not a number"))?;
    let nearest = (number * micros).round();
    // The range check also rejects NaN.
    if (1.0..=86_400e6).contains(&nearest) {
        Ok(Duration::from_micros(nearest as u64))
    } else {
        Err("the time must be between 1us and a day".into())
    }
}

/// Parses 0, or a duration that is a whole number of milliseconds.
pub fn parse_max_wait(text: &str) -> Result<Duration, String> {
    let time = if text == "0" { Duration::ZERO } else { parse_duration(text)? };
    let is_whole = time.subsec_nanos() % 1_000_000 == 0;
    match is_whole && time <= Duration::from_millis(MAX_WAIT_LIMIT_MS) {
        true => Ok(time),
        false => Err(format!("the time must be 0, or whole milliseconds from 1ms to {}s", MAX_WAIT_LIMIT_MS / 1000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_units() {
        assert_eq!(parse_duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("0.25s"), Ok(Duration::from_millis(250)));
        for wrong in ["", "5", "ms", "1,5ms", "0ms", "0.0001us", "-1s", "99999999s", "1h", "1e9s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_are_whole_numbers() {
        assert_eq!((parse_seconds("0"), parse_seconds_up_to_an_hour("3600")), (Ok(0), Ok(3600)));
        for wrong in ["", "0.2", "-1", "1s"] {
            assert!(parse_seconds(wrong).is_err_and(|e| e.contains("whole number of seconds")), "{wrong}");
        }
        for wrong in ["0", "3601", "0.2"] {
            assert!(parse_seconds_up_to_an_hour(wrong).is_err_and(|e| e.contains("1 to 3600")), "{wrong}");
        }
    }

    #[test]
    fn max_wait_is_whole_milliseconds() {
        assert_eq!((parse_max_wait("0"), parse_max_wait("7ms")), (Ok(Duration::ZERO), Ok(Duration::from_millis(7))));
        assert!(parse_max_wait("10us").is_err() && parse_max_wait("5").is_err() && parse_max_wait("23h").is_err());
    }
}
