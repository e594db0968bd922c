//! Prints notes, warnings and errors on standard error. Data goes to standard output only.
//!
//! Build systems parse the output of compilers. Therefore a compiler driver prints a note at most once per process, and prints the same
//! text for the same options, because libtool compares the texts. Notes also avoid the words that make CMake conclude that an option is
//! unsupported. `TRODDEN_QUIET` silences notes.

use std::env;
use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use trodden_text::escape;
use trodden_text::words;
pub use trodden_text::words::list_names;

/// The environment variable that silences notes.
pub const QUIET_VARIABLE: &str = "TRODDEN_QUIET";

/// Prints a note, unless notes are silenced.
pub fn note(text: impl Display) {
    if !is_quiet() {
        write_message(format_args!("trodden: {text}\n"));
    }
}

/// Prints a warning that the result may be wrong or incomplete, even if notes are silenced.
pub fn warn(text: impl Display) {
    write_message(format_args!("trodden: warning: {text}\n"));
}

/// Prints the messages that libraries send to `log`: `info!` as notes, `warn!` as warnings and `error!` as failures. Lower levels are
/// dropped.
pub fn install_logger() {
    if log::set_logger(&LibraryLogger).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

/// Prints messages from trodden's libraries and drops those from other libraries.
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
            // Progress messages of experiments have no prefix.
            log::Level::Info if message.target().starts_with("trodden_corpus") => write_message(format_args!("{}\n", message.args())),
            log::Level::Info => note(message.args()),
            log::Level::Debug | log::Level::Trace => {}
        }
    }

    fn flush(&self) {}
}

/// Prints the reason for which a command failed.
pub fn fail(text: impl Display) {
    write_message(format_args!("trodden: {text}\n"));
}

/// Joins the messages of an error and its causes, without repetitions.
pub fn reasons(error: &anyhow::Error) -> String {
    words::reasons(error.chain().map(ToString::to_string))
}

/// Prints to standard error. Ignores write errors: work continues if the reader has closed the pipe (`2>&1 | head`).
///
/// Lines after the first are indented. Without indentation, a line break in a name would make the rest of the name look like a separate
/// message.
fn write_message(text: fmt::Arguments) {
    let text = text.to_string();
    let text = escape::escape_lines(text.trim_end_matches('\n')).replace('\n', "\n  ");
    let _ = writeln!(io::stderr(), "{text}");
}

/// A progress line on standard error. Nothing is printed if that is not a terminal. Threads may share the value.
pub struct ProgressMeter {
    items: &'static str,
    total: usize,
    done: AtomicUsize,
    is_shown: bool,
}

impl ProgressMeter {
    /// Starts a progress line. `items` names the counted items in the plural, such as "runs".
    pub fn new(total: usize, items: &'static str) -> ProgressMeter {
        ProgressMeter { items, total, done: AtomicUsize::new(0), is_shown: total > 1 && !is_quiet() && io::stderr().is_terminal() }
    }

    /// Records that one item is finished, and updates the line.
    pub fn step(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        // At most about a hundred updates are printed, because writing to a terminal is slow.
        if self.is_shown && (done.is_multiple_of(self.total.div_ceil(100)) || done == self.total) {
            let end = if done == self.total { "\n" } else { "" };
            let _ = write!(io::stderr(), "\r{done} of {} {}{end}", self.total, self.items);
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
    fn repeated_causes_are_reported_once() {
        let source = || io::Error::other("no such file");
        let unread = || ProfileError::Io { path: "a.profile".into(), action: "read", source: source() };
        let causes = |error: anyhow::Error| reasons(&error);
        assert_eq!(causes(unread().into()), "cannot read a.profile: no such file");
        let again = Err::<(), _>(unread()).context("a.profile").context("run 3").unwrap_err();
        assert_eq!(causes(again), "run 3: cannot read a.profile: no such file");
        assert_eq!(causes(anyhow!(source()).context("cannot write b")), "cannot write b: no such file");
    }
}
