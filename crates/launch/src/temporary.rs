//! Temporary files and folders are removed however the command ends, except by `kill -9`: also on errors and signals.

use crate::Error;
use crate::signals::ignored_signals;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};
use trodden_profile::private;
pub use trodden_profile::temporary::TemporaryFolder;
use trodden_profile::temporary::names;

/// Whether signals have another meaning for this command than to end it.
static SIGNALS_ARE_TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes a signal that would end the command; returns whether it does.
static TAKER: OnceLock<fn(i32) -> bool> = OnceLock::new();

/// Creates a folder, which only its user can read, in another one.
///
/// # Errors
/// It cannot be created.
pub fn folder_in(base: &Path, prefix: &str) -> Result<TemporaryFolder, Error> {
    TemporaryFolder::create_in(base, prefix, 0o700).map_err(|source| Error::TemporaryFolder { base: base.to_owned(), source })
}

/// Creates a folder in another one, for all users who may use that one.
///
/// # Errors
/// It cannot be created.
pub fn folder_of_users(base: &Path, prefix: &str) -> Result<TemporaryFolder, Error> {
    private::temporary_folder_in(base, prefix).map_err(|source| Error::NotWritable { folder: base.to_owned(), source })
}

/// From now on signals do not end this command by themselves: it hands them on, or has an end of its own for them.
pub fn take_signals() {
    SIGNALS_ARE_TAKEN.store(true, Ordering::SeqCst);
}

/// From now on signals that would end the command are offered to a function first, which returns whether it takes them.
pub fn offer_signals(taker: fn(i32) -> bool) {
    let is_first = TAKER.set(taker).is_ok();
    assert!(is_first, "a command has one taker of signals");
}

/// Whether [`take_signals`] was called.
pub fn signals_are_taken() -> bool {
    SIGNALS_ARE_TAKEN.load(Ordering::SeqCst)
}

/// Removes all temporary files and folders. None can be created as long as the result lives.
pub fn remove_all() -> impl Sized {
    let names = names();
    names.remove_all();
    names
}

/// Begins to look out for signals, once; those that are ignored stay ignored.
pub fn remove_on_signals() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let ignored = ignored_signals();
        let ends = [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|signal| !ignored.contains(signal));
        // Where that cannot be, signals end the command as ever.
        let Ok(mut signals) = Signals::new(ends) else { return };
        std::thread::spawn(move || {
            for signal in signals.forever() {
                if signals_are_taken() {
                    continue;
                }
                if !TAKER.get().is_some_and(|taker| taker(signal)) {
                    let _removed = remove_all();
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
            }
        });
    });
}
