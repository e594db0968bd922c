//! Helpers that truncate lists of results and compute percentages.

/// Truncates results to `top`, unless `top` is 0.
pub fn take_top<T>(mut results: Vec<T>, top: usize) -> Vec<T> {
    if top > 0 {
        results.truncate(top);
    }
    results
}

/// Returns `part` as a percentage of `of`, or 0 if `of` is 0.
pub fn percent(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 }
}
