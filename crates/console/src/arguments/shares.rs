//! Percentages.

/// Parses a percentage between 0 and 100.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a percentage between 0 and 100".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_between_0_and_100() {
        assert_eq!((parse_percent("0"), parse_percent("0.05"), parse_percent("100")), (Ok(0.0), Ok(0.05), Ok(100.0)));
        assert!(["-1", "100.1", "NaN", "inf", "", "5%"].iter().all(|text| parse_percent(text).is_err()));
    }
}
