//! `trodden cache`: shows and prunes the unit cache, which has the maps, bitcode and link recipes of builds.

use crate::cli::CacheArguments;
use crate::context::driver_context;
use anyhow::Result;
use std::io::Write;
use std::process::ExitCode;
use trodden_driver::store_size::{CacheSize, measure_folders};

pub fn run(job: &CacheArguments) -> Result<ExitCode> {
    let store = driver_context().store()?;
    let mut out = crate::output::text_writer();
    writeln!(out, "{}", store.root().display())?;
    for part in measure_folders(&store, job.prune) {
        let part = part?;
        if let Some(removed) = part.removed {
            writeln!(out, "  {:8} {} removed", part.folder, format_size(removed))?;
        }
        writeln!(out, "  {:8} {}  ({})", part.folder, format_size(part.kept), part.description)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn format_size(size: CacheSize) -> String {
    format!("{:>8} files, {:>9.1} MB", size.files, size.bytes as f64 / 1e6)
}
