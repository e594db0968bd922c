//! Temporary folders of the command.

use std::env;
use trodden_launch::LaunchError;
use trodden_launch::temporary::{TemporaryFolder, create_folder_in};

/// Creates a temporary folder in `TMPDIR` that only the user can access.
pub fn create_temporary_folder(prefix: &str) -> Result<TemporaryFolder, LaunchError> {
    create_folder_in(&env::temp_dir(), prefix)
}
