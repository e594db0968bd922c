//! Formats numbers, times, names, errors and commands as text.

use std::borrow::{Borrow, Cow};

/// Formats a count with thousands separators: `1,234,567`.
pub fn count(number: u128) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count in at most five characters: `7`, `12.3k`, `4.56M`.
pub fn format_brief_count(number: u64) -> String {
    const UNIT_SUFFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let (mut value, mut unit) = (number as f64, 0);
    while value >= 999.5 && unit + 1 < UNIT_SUFFIXES.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => number.to_string(),
        _ if value < 9.995 => format!("{value:.2}{}", UNIT_SUFFIXES[unit]),
        _ if value < 99.95 => format!("{value:.1}{}", UNIT_SUFFIXES[unit]),
        _ => format!("{value:.0}{}", UNIT_SUFFIXES[unit]),
    }
}

/// Formats a share (0 to 1) as a percentage: `34.2%`. A small positive share becomes `<0.1%`.
pub fn percent(share: f64) -> String {
    match share {
        s if s <= 0.0 => "0%".into(),
        s if s < 0.0005 => "<0.1%".into(),
        s if s >= 0.99995 => "100%".into(),
        s => format!("{:.1}%", s * 100.0),
    }
}

/// Formats a number with the noun in the right form: `1 path`, `2 paths`.
pub fn plural(number: u128, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Lists the first `limit` names, and how many more there are: `a, b and 3 more`.
pub fn list_names<S: Borrow<str>>(names: &[S], limit: usize) -> String {
    let first = names[..limit.min(names.len())].join(", ");
    if names.len() > limit { format!("{first} and {} more", names.len() - limit) } else { first }
}

/// Joins the messages of an error and its causes, outermost first. Some errors repeat the text of their cause, so a message is dropped if
/// it is contained in an earlier one or in its own cause.
pub fn reasons(chain: impl Iterator<Item = String>) -> String {
    let mut causes: Vec<String> = Vec::new();
    for cause in chain {
        if causes.iter().any(|before| before.contains(&cause)) {
            continue;
        }
        if causes.last().is_some_and(|before| contains_words(&cause, before)) {
            causes.pop();
        }
        causes.push(cause);
    }
    causes.join(": ")
}

/// Returns true if `text` contains `part` with word boundaries on both sides. Boundaries prevent `a/b` from matching `a/b/c`.
fn contains_words(text: &str, part: &str) -> bool {
    let is_boundary = |neighbour: Option<char>| !neighbour.is_some_and(|c| c.is_alphanumeric() || c == '/');
    text.match_indices(part)
        .any(|(at, _)| is_boundary(text[..at].chars().next_back()) && is_boundary(text[at + part.len()..].chars().next()))
}

/// Formats a duration: `840 ms`, `1.23 s`, `3 min 5 s`.
pub fn duration(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        s if s < 0.0009995 => format!("{:.0} us", s * 1e6),
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s if s < 59.995 => format!("{s:.2} s"),
        s => {
            let whole = s.round() as u64;
            match whole / 3600 {
                0 => format!("{} min {} s", whole / 60, whole % 60),
                hours => format!("{hours} h {} min", whole / 60 % 60),
            }
        }
    }
}

/// Formats a time in nanoseconds since 1970: `2026-11-21 09:45:03 UTC`.
pub fn format_utc_time(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Years start on 1 March here, which makes the leap day the last day of a year. The calendar repeats every 400 years.
    let shifted = days + 719_468;
    let (cycle, day_of_cycle) = (shifted / 146_097, shifted % 146_097);
    let year_of_cycle = (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = cycle * 400 + year_of_cycle + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// Formats a command for a shell, with quotes where necessary.
pub fn command(words: &[String]) -> String {
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}

/// Formats a word for a shell, with quotes if necessary.
pub fn quote_for_shell(word: &str) -> Cow<'_, str> {
    shlex::try_quote(word).unwrap_or(Cow::Borrowed(word))
}

/// Returns the last component of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted() {
        assert_eq!([count(0), count(999), count(1000), count(1234567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [
                format_brief_count(999),
                format_brief_count(1000),
                format_brief_count(12_345),
                format_brief_count(999_600),
                format_brief_count(u64::MAX)
            ],
            ["999", "1.00k", "12.3k", "1.00M", "18.4E"]
        );
        assert_eq!([percent(0.0), percent(1e-9), percent(0.3421), percent(1.0)], ["0%", "<0.1%", "34.2%", "100%"]);
    }

    #[test]
    fn commands_are_quoted_for_the_shell() {
        let words = ["./grex", "x y", "it's", "--all"].map(str::to_owned);
        assert_eq!(command(&words), "./grex 'x y' \"it's\" --all");
        assert_eq!((&*quote_for_shell("my suite"), &*quote_for_shell("tests/1")), ("'my suite'", "tests/1"));
    }

    #[test]
    fn times_are_formatted() {
        assert_eq!([duration(3_000), duration(840_000_000), duration(61_000_000_000)], ["3 us", "840 ms", "1 min 1 s"]);
        assert_eq!(format_utc_time(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(format_utc_time(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(format_utc_time(1_795_254_303_000_000_000), "2026-11-21 09:45:03 UTC");
    }
}
