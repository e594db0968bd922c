//! What libraries are told of this process's environment: they do not read it themselves.

use crate::driver::assets;
use std::env;
use trodden_stored::Folders;

/// The folders that the environment names.
pub fn folders() -> Folders {
    Folders { units: assets::store().ok(), temporary: env::temp_dir(), current: env::current_dir().unwrap_or_default() }
}
