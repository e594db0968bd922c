//! Where the command's own temporary files lie.

use std::env;
use trodden_launch::Error;
use trodden_launch::temporary::{TemporaryFolder, folder_in};

/// Creates a folder among temporary files (`TMPDIR`), which only its user can read.
///
/// # Errors
/// It cannot be created.
pub fn folder(prefix: &str) -> Result<TemporaryFolder, Error> {
    folder_in(&env::temp_dir(), prefix)
}
