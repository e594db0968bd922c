//! `trodden drivers`: creates links to the compiler drivers.

use crate::context::driver_context;
use crate::notes::note;
use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;
use trodden_driver::assets;

pub fn run(folder: Option<PathBuf>) -> Result<ExitCode> {
    let folder = match folder {
        Some(folder) => std::path::absolute(folder)?,
        None => driver_context().executable_folder()?.to_owned(),
    };
    assets::link_drivers(driver_context(), &folder)?;
    note(format_args!("trodden-cc, trodden-c++ and cargo-trodden are in {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}
