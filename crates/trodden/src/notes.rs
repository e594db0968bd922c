//! What the command says on standard error. Data never goes there, notes never go to standard output.
//!
//! Build systems read what a compiler prints: notes of the drivers come once per process, are the same for the same options (libtool compares
//! them), avoid the words by which CMake recognises a failed option, and are silenced by `TRODDEN_QUIET`.

use std::env;
use std::fmt::Display;

/// Variable that silences notes.
pub const QUIET_VARIABLE: &str = "TRODDEN_QUIET";

/// Prints a note.
pub fn note(text: impl Display) {
    if !is_quiet() {
        eprintln!("trodden: {text}");
    }
}

/// Prints what may spoil the user's result, even if notes are silenced.
pub fn warn(text: impl Display) {
    eprintln!("trodden: warning: {text}");
}

fn is_quiet() -> bool {
    env::var_os(QUIET_VARIABLE).is_some_and(|v| !v.is_empty() && v != "0")
}
