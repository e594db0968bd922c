//! What libraries that record are told of this process.

use crate::driver::assets;
use crate::driver::cc::CARGO_FOLDER_VARIABLE;
use crate::driver::rust::ROLE_VARIABLE;
use std::env;
use trodden_recording::{Surroundings, TEST_VARIABLE};

/// The folders, stores and variables of this process.
pub fn surroundings() -> Surroundings {
    // `cargo trodden run` calls us: what it passed to rustc is not the program's business.
    let is_called_by_cargo = env::var_os(ROLE_VARIABLE).is_some();
    Surroundings {
        directory: env::current_dir().unwrap_or_default(),
        temporary: env::temp_dir(),
        units: assets::store().ok(),
        withheld: if is_called_by_cargo { vec![ROLE_VARIABLE, CARGO_FOLDER_VARIABLE, "RUSTC_WRAPPER"] } else { Vec::new() },
        test: env::var(TEST_VARIABLE).ok().filter(|name| !name.is_empty()),
    }
}
