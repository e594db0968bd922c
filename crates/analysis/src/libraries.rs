//! The shared libraries that a program needs, and whether they are instrumented.
//!
//! The list comes from the dynamic loader itself (`ld.so --list`), which knows run paths, the cache and the environment. The loader does
//! not run any code of the program.

use object::{Object, ObjectSection};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_unit::InstrumentedImage;

const SYSTEM_LOADER_PATH: &str = "/lib64/ld-linux-x86-64.so.2";

/// A shared library that a program needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeededLibrary {
    /// The library's name.
    pub name: String,
    /// The library's file, or `None` if the loader does not find it.
    pub path: Option<PathBuf>,
    /// Number of instrumented units.
    pub units: usize,
}

/// Returns the libraries of a program, in load order. Fails if the program is not an ELF file, if its loader is not trusted, or if the
/// loader fails; the error is then the loader's own message.
pub fn needed_libraries(program: &Path, bytes: &[u8]) -> Result<Vec<NeededLibrary>, String> {
    let file = object::File::parse(bytes).map_err(|e| e.to_string())?;
    if file.section_by_name(".dynamic").is_none() {
        return Ok(Vec::new());
    }
    let interpreter =
        file.section_by_name(".interp").and_then(|s| s.data().ok().map(|d| String::from_utf8_lossy(d).trim_end_matches('\0').to_owned()));
    let loader = interpreter.unwrap_or_else(|| SYSTEM_LOADER_PATH.to_owned());
    if !is_system_loader(&loader) {
        return Err(format!("its loader `{}` is not a known dynamic loader of the system, so it is not run", loader.escape_debug()));
    }
    let program = std::path::absolute(program).map_err(|e| e.to_string())?;
    let output = Command::new(&loader).arg("--list").arg(&program).output().map_err(|e| format!("{loader}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() && !text.contains("not found") {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        // Static position-independent executables have a dynamic section, but need no libraries.
        return if stderr.is_empty() || text.contains("statically linked") { Ok(Vec::new()) } else { Err(stderr) };
    }
    Ok(parse_list(&text).into_iter().map(|(name, path)| read_library(name, path)).collect())
}

/// Returns true for a known loader in a system folder. The check is necessary because a program could name any file as its loader.
fn is_system_loader(path: &str) -> bool {
    const SYSTEM_LIBRARY_FOLDERS: &[&str] = &["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/nix/store/", "/gnu/store/"];
    const LOADER_NAMES: &[&str] = &["ld-linux-x86-64.so.2", "ld-musl-x86_64.so.1"];
    let is_below = SYSTEM_LIBRARY_FOLDERS.iter().any(|folder| path.starts_with(folder)) && !path.contains("/..");
    is_below && path.rsplit('/').next().is_some_and(|name| LOADER_NAMES.contains(&name))
}

/// Parses the loader's list. The vDSO has no file and is omitted.
fn parse_list(text: &str) -> Vec<(String, Option<PathBuf>)> {
    let mut out = Vec::new();
    for line in text.lines().map(str::trim) {
        match line.split_once(" => ") {
            Some((name, "not found")) => out.push((name.to_owned(), None)),
            Some((name, rest)) => {
                let path = rest.rsplit_once(" (0x").map_or(rest, |(path, _)| path);
                out.push((name.to_owned(), Some(PathBuf::from(path))));
            }
            None => {}
        }
    }
    out
}

fn read_library(name: String, path: Option<PathBuf>) -> NeededLibrary {
    let bytes = path.as_ref().and_then(|p| fs::read(p).ok());
    let units = bytes.and_then(|b| InstrumentedImage::read(&b).ok()).map_or(0, |i| i.units.len());
    NeededLibrary { name, path, units }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_list_is_parsed() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibx.so => ./lib x/libx.so (0x00007f)\n\tliby.so.1 => not found\n\tlibc.so.6 => \
            /lib/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = [("libx.so", Some("./lib x/libx.so")), ("liby.so.1", None), ("libc.so.6", Some("/lib/libc.so.6"))];
        assert_eq!(parse_list(text), expected.map(|(n, p)| (n.to_owned(), p.map(PathBuf::from))));
    }
}
