//! Finds the programs with block addresses among the files that ran.

use super::ImportError;
use crate::perf_script::{self, ScriptLine};
use std::collections::BTreeSet;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use trodden_binary::{BinaryError, ProbedImage};
use trodden_unit::UnitCache;

/// Finds the programs and libraries built with `--addresses` among the mapped files in the output of `perf script`. `name` identifies the
/// text in messages.
///
/// # Errors
/// The text cannot be read, or no mapped file has block addresses; the error then says why the first one has none.
pub fn programs_with_addresses(text: impl BufRead, name: &Path, store: Option<&UnitCache>) -> Result<Vec<PathBuf>, ImportError> {
    let (mut seen, mut found, mut reason) = (BTreeSet::new(), Vec::new(), None);
    for line in text.split(b'\n') {
        let line = line.map_err(|source| ImportError::Read { path: name.to_owned(), source })?;
        // Ignore other lines, and samples without branch fields.
        let Ok(ScriptLine::Mapping(mapping)) = perf_script::parse_script_line(&String::from_utf8_lossy(&line)) else { continue };
        let path = PathBuf::from(&mapping.path);
        if !path.is_file() || !seen.insert(path.clone()) {
            continue;
        }
        match ProbedImage::read(&path, store) {
            Ok(_) => found.push(path),
            Err(error) => reason = reason.or(Some(error)),
        }
    }
    if found.is_empty() {
        let none = || BinaryError::NoBlockAddresses { image: name.to_owned(), what: "none of the mapped files exists any more".into() };
        return Err(reason.unwrap_or_else(none).into());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_is_reported_with_the_reason() {
        let none = programs_with_addresses(&b"1/1\n"[..], Path::new("text"), None).unwrap_err().to_string();
        assert!(none.contains("none of the mapped files"), "{none}");
        let mapping = "a 1 PERF_RECORD_MMAP2 1/1: [0x400000(0x1000) @ 0 00:00 0 0]: r-xp";
        let mapped = format!("{mapping} {}/Cargo.toml\n", env!("CARGO_MANIFEST_DIR"));
        let other = programs_with_addresses(mapped.as_bytes(), Path::new("text"), None).unwrap_err().to_string();
        assert!(other.contains("Cargo.toml"), "{other}");
    }
}
