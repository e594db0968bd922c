//! The environment of this process, as a context for the crate `trodden-driver`.

use crate::notes::ProgressMeter;
use std::env;
use std::sync::OnceLock;
use trodden_driver::DriverContext;

/// Returns the context. The first call reads it from the process.
pub fn driver_context() -> &'static DriverContext {
    static CONTEXT: OnceLock<DriverContext> = OnceLock::new();
    CONTEXT.get_or_init(|| DriverContext {
        variables: env::vars_os().collect(),
        program: env::current_exe(),
        directory: env::current_dir(),
        temporary: env::temp_dir(),
        progress: |total, what| {
            let progress = ProgressMeter::new(total, what);
            Box::new(move || progress.step())
        },
    })
}
