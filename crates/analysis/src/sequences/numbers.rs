//! Results cut to a number, and shares.

/// The first of many, all if `top` is 0.
pub fn first<T>(mut results: Vec<T>, top: usize) -> Vec<T> {
    if top > 0 {
        results.truncate(top);
    }
    results
}

/// A share in percent.
pub fn percent(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 }
}
