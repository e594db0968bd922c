//! The process of the command, as the crate `trodden-driver` takes it.

use crate::notes::Progress;
use std::env;
use std::sync::OnceLock;
use trodden_driver::DriverContext;

/// The process, looked at once.
pub fn context() -> &'static DriverContext {
    static CONTEXT: OnceLock<DriverContext> = OnceLock::new();
    CONTEXT.get_or_init(|| DriverContext {
        variables: env::vars_os().collect(),
        program: env::current_exe(),
        directory: env::current_dir(),
        temporary: env::temp_dir(),
        progress: |all, what| {
            let progress = Progress::new(all, what);
            Box::new(move || progress.step())
        },
    })
}
