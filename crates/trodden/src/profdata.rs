//! `trodden export profdata`: a path profile as an edge profile that clang and rustc take (`-fprofile-use`, `-Cprofile-use`).
//!
//! The text is made here, its indexed form by LLVM's own tool, whose format is that of the compilers of the same LLVM.

use crate::notes::note;
use crate::toolchain::Tool;
use anyhow::{Context, Result, bail};
use std::fs;
use std::process::Command;
use trodden_profile::{EdgeCounts, Profile};
use trodden_report::proftext;

/// The profile as text.
///
/// # Errors
/// The program was built without markers.
pub fn text(profile: &Profile) -> Result<Vec<u8>> {
    let edges = EdgeCounts::of(profile)?;
    if let Some(first) = edges.without_markers.first() {
        let more = if edges.without_markers.len() > 1 { format!(" and {} more", edges.without_markers.len() - 1) } else { String::new() };
        note(format_args!("built without markers, and not in the edge profile: {first}{more}"));
    }
    Ok(proftext::proftext(&edges).into_bytes())
}

/// The profile in LLVM's indexed form.
///
/// # Errors
/// The program was built without markers, or `llvm-profdata` is missing or fails.
pub fn indexed(profile: &Profile) -> Result<Vec<u8>> {
    let tool = Tool::Profdata.find()?;
    let folder = tempfile::Builder::new().prefix("trodden-profdata-").tempdir().context("cannot make a temporary folder")?;
    let (from, to) = (folder.path().join("prog.proftext"), folder.path().join("prog.profdata"));
    fs::write(&from, text(profile)?).with_context(|| format!("cannot write {}", from.display()))?;
    let made = Command::new(&tool).arg("merge").arg(&from).arg("-o").arg(&to).output();
    let made = made.with_context(|| format!("cannot run {}", tool.display()))?;
    if !made.status.success() {
        bail!("{} refuses the profile: {}", tool.display(), String::from_utf8_lossy(&made.stderr).trim());
    }
    fs::read(&to).with_context(|| format!("cannot read {}", to.display()))
}
