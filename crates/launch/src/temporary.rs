//! Temporary files and folders. They are removed when the command ends, even if an error or a signal other than SIGKILL ends it.

use crate::LaunchError;
use crate::signals::ignored_signals;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};
use trodden_profile::private;
pub use trodden_profile::temporary::TemporaryFolder;
use trodden_profile::temporary::lock_registry;

static REMOVAL_IS_DISABLED: AtomicBool = AtomicBool::new(false);

/// The function that is called with each signal that would end the command. If it returns true, the command continues.
static SIGNAL_HANDLER: OnceLock<fn(i32) -> bool> = OnceLock::new();

/// Creates a temporary folder in `base` that only its owner can access.
pub fn create_folder_in(base: &Path, prefix: &str) -> Result<TemporaryFolder, LaunchError> {
    TemporaryFolder::create_in(base, prefix, 0o700).map_err(|source| LaunchError::TemporaryFolder { base: base.to_owned(), source })
}

/// Creates a temporary folder in `base` that has the permissions of `base`.
pub fn create_shared_folder_in(base: &Path, prefix: &str) -> Result<TemporaryFolder, LaunchError> {
    private::temporary_folder_in(base, prefix).map_err(|source| LaunchError::NotWritable { folder: base.to_owned(), source })
}

/// Makes signals neither remove temporary files nor end this command from now on. The caller must forward the signals or poll for them.
pub fn disable_removal_on_signals() {
    REMOVAL_IS_DISABLED.store(true, Ordering::SeqCst);
}

/// Registers a function that is called with each signal before the signal ends the command. If the function returns true, the command
/// continues.
pub fn set_signal_handler(handler: fn(i32) -> bool) {
    let is_first = SIGNAL_HANDLER.set(handler).is_ok();
    assert!(is_first, "only one function can be registered for signals");
}

/// Returns true if [`disable_removal_on_signals`] was called.
pub fn is_removal_disabled() -> bool {
    REMOVAL_IS_DISABLED.load(Ordering::SeqCst)
}

/// Removes all temporary files and folders. No new ones can be created while the returned value exists.
pub fn remove_all_temporary_folders() -> impl Sized {
    let names = lock_registry();
    names.remove_all();
    names
}

/// Makes signals remove all temporary files and then end the command from now on. Ignored signals stay ignored. Further calls have no
/// effect.
pub fn remove_folders_on_signals() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let ignored = ignored_signals();
        let ends = [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|signal| !ignored.contains(signal));
        // If the handlers cannot be installed, signals keep their default action.
        let Ok(mut signals) = Signals::new(ends) else { return };
        std::thread::spawn(move || {
            for signal in signals.forever() {
                if is_removal_disabled() {
                    continue;
                }
                if !SIGNAL_HANDLER.get().is_some_and(|handler| handler(signal)) {
                    let _removed = remove_all_temporary_folders();
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
            }
        });
    });
}
