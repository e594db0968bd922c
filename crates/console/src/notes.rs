//! Notes, warnings and errors on standard error. Data never goes there, and notes never go to standard output.
//!
//! Build systems parse the output of compilers. So the drivers print a note once per process and the same text for the same options
//! (libtool compares them), avoid the words by which CMake recognises a failed option, and can be silenced with `TRODDEN_QUIET`.

use std::env;
use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use trodden_text::escape;
use trodden_text::words;
pub use trodden_text::words::list_names;

/// The environment variable that silences notes.
pub const QUIET_VARIABLE: &str = "TRODDEN_QUIET";

/// Prints a note.
pub fn note(text: impl Display) {
    if !is_quiet() {
        write_message(format_args!("trodden: {text}\n"));
    }
}

/// Prints a warning about something that may spoil the result, even if notes are silenced.
pub fn warn(text: impl Display) {
    write_message(format_args!("trodden: warning: {text}\n"));
}

/// Shows what libraries report through `log`: `info!` as notes, `warn!` as warnings, `error!` as failures. Lower levels are not shown.
pub fn show_log() {
    if log::set_logger(&LibraryLogger).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

/// Shows the messages of trodden's own libraries, but not those of others.
struct LibraryLogger;

impl log::Log for LibraryLogger {
    fn enabled(&self, message: &log::Metadata) -> bool {
        message.target().starts_with("trodden")
    }

    fn log(&self, message: &log::Record) {
        match message.level() {
            _ if !self.enabled(message.metadata()) => {}
            log::Level::Error => fail(message.args()),
            log::Level::Warn => warn(message.args()),
            // The steps of experiments, without a prefix.
            log::Level::Info if message.target().starts_with("trodden_corpus") => write_message(format_args!("{}\n", message.args())),
            log::Level::Info => note(message.args()),
            log::Level::Debug | log::Level::Trace => {}
        }
    }

    fn flush(&self) {}
}

/// Prints the reason why the command failed.
pub fn fail(text: impl Display) {
    write_message(format_args!("trodden: {text}\n"));
}

/// The chain of reasons of an error, each reason once.
pub fn reasons(error: &anyhow::Error) -> String {
    words::reasons(error.chain().map(ToString::to_string))
}

/// Prints to standard error. Errors are ignored, so that the work continues if the reader is gone (`2>&1 | head`).
///
/// Lines after the first are indented, so that the rest of a name with a line break does not look like a message of its own.
fn write_message(text: fmt::Arguments) {
    let text = text.to_string();
    let text = escape::escape_lines(text.trim_end_matches('\n')).replace('\n', "\n  ");
    let _ = writeln!(io::stderr(), "{text}");
}

/// A progress line on a terminal; nothing elsewhere. May be shared by threads.
pub struct Progress {
    what: &'static str,
    all: usize,
    done: AtomicUsize,
    shows: bool,
}

impl Progress {
    /// Starts a progress line for `all` items, whose name in the plural is `what`.
    pub fn new(all: usize, what: &'static str) -> Progress {
        Progress { what, all, done: AtomicUsize::new(0), shows: all > 1 && !is_quiet() && io::stderr().is_terminal() }
    }

    /// Counts one more finished item.
    pub fn step(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        // At most a hundred updates, so that the work does not wait for the terminal.
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
