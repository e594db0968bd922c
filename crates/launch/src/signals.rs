//! Determines which signals this process ignores.

use std::fs;

/// Returns the signals that this process ignores, for example because it was started by `nohup`. The caller must not install handlers for
/// these signals, because child processes would then no longer ignore them.
pub fn ignored_signals() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|signal| mask & (1 << (signal - 1)) != 0).collect()
}
