//! What the command says on standard error. Data never goes there, notes never go to standard output.
//!
//! Build systems read what a compiler prints: notes of the drivers come once per process, are the same for the same
//! options (libtool compares them), avoid the words by which CMake recognises a failed option, and are silenced by
//! `TRODDEN_QUIET`.

use std::env;
use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use trodden_text::escape;
use trodden_text::words;
pub use trodden_text::words::listed;

/// Variable that silences notes.
pub const QUIET_VARIABLE: &str = "TRODDEN_QUIET";

/// Prints a note.
pub fn note(text: impl Display) {
    if !is_quiet() {
        say(format_args!("trodden: {text}\n"));
    }
}

/// Prints what may spoil the user's result, even if notes are silenced.
pub fn warn(text: impl Display) {
    say(format_args!("trodden: warning: {text}\n"));
}

/// Shows what libraries report through `log`: `info!` as notes, `warn!` as warnings, `error!` as reasons of failures. Lower levels are not
/// shown.
pub fn show_log() {
    if log::set_logger(&LibraryMessages).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

/// Messages of trodden's own libraries; those of others are not for the user.
struct LibraryMessages;

impl log::Log for LibraryMessages {
    fn enabled(&self, message: &log::Metadata) -> bool {
        message.target().starts_with("trodden")
    }

    fn log(&self, message: &log::Record) {
        match message.level() {
            _ if !self.enabled(message.metadata()) => {}
            log::Level::Error => fail(message.args()),
            log::Level::Warn => warn(message.args()),
            // What experiments do, step by step.
            log::Level::Info if message.target().starts_with("trodden_corpus") => say(format_args!("{}\n", message.args())),
            log::Level::Info => note(message.args()),
            log::Level::Debug | log::Level::Trace => {}
        }
    }

    fn flush(&self) {}
}

/// Prints why the command failed.
pub fn fail(text: impl Display) {
    say(format_args!("trodden: {text}\n"));
}

/// Why something failed: each reason once.
pub fn reasons(error: &anyhow::Error) -> String {
    words::reasons(error.chain().map(ToString::to_string))
}

/// The reader may be gone (`2>&1 | head`): then nothing is said, and the work goes on.
///
/// Lines after the first are indented: a line break in a name cannot make what comes after it look like a message of its own.
fn say(text: fmt::Arguments) {
    let text = text.to_string();
    let text = escape::lines(text.trim_end_matches('\n')).replace('\n', "\n  ");
    let _ = writeln!(io::stderr(), "{text}");
}

/// How far a long piece of work is: one line on a terminal, nothing elsewhere. May be shared by threads.
pub struct Progress {
    what: &'static str,
    all: usize,
    done: AtomicUsize,
    shows: bool,
}

impl Progress {
    /// Work on `all` things (`what`: their name in the plural).
    pub fn new(all: usize, what: &'static str) -> Progress {
        Progress { what, all, done: AtomicUsize::new(0), shows: all > 1 && !is_quiet() && io::stderr().is_terminal() }
    }

    /// One more is done.
    pub fn step(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        // A hundred times at most: the terminal is not what the work should wait for.
        if self.shows && (done.is_multiple_of(self.all.div_ceil(100)) || done == self.all) {
            let end = if done == self.all { "\n" } else { "" };
            let _ = write!(io::stderr(), "\r{done} of {} {}{end}", self.all, self.what);
        }
    }
}

fn is_quiet() -> bool {
    env::var_os(QUIET_VARIABLE).is_some_and(|v| !v.is_empty() && v != "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};
    use trodden_profile::ProfileError;

    #[test]
    fn each_reason_is_reported_once() {
        let source = || io::Error::other("no such file");
        let unread = || ProfileError::Io { path: "a.profile".into(), action: "read", source: source() };
        let causes = |error: anyhow::Error| reasons(&error);
        assert_eq!(causes(unread().into()), "a.profile: cannot read: no such file");
        let again = Err::<(), _>(unread()).context("a.profile").context("run 3").unwrap_err();
        assert_eq!(causes(again), "run 3: a.profile: cannot read: no such file");
        assert_eq!(causes(anyhow!(source()).context("cannot write b")), "cannot write b: no such file");
    }
}
