//! Finds shared libraries by name, among those that the dynamic linker would load for a program, or those that a process has mapped.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_binary::Binary;

use trodden_trace::{Library, ProcessMapping, mappings};

/// Finds libraries by name or path.
///
/// # Errors
/// The program or process has no library with that name, or the library's file cannot be read.
pub fn find_libraries(names: &[String], program: &Path, process: Option<i32>) -> Result<Vec<Library>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for name in names {
        let path = match name.contains('/') {
            true => PathBuf::from(name),
            false => find_library(process, program, name)?,
        };
        let path = path.canonicalize().with_context(|| format!("cannot read the library {}", path.display()))?;
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let read = |(number, path): (usize, &PathBuf)| Ok(Library::read(path, number)?);
    (1..).zip(&paths).map(read).collect()
}

/// Finds a library by its file name, such as `libz.so.1`, or by its stem, such as `libz`.
fn find_library(process: Option<i32>, program: &Path, name: &str) -> Result<PathBuf> {
    let loaded = match process {
        Some(process) => libraries_of_process(process)?,
        None => libraries_of_program(program)?,
    };
    let fits = |file: &str| file == name || file.strip_prefix(name).is_some_and(|rest| rest.starts_with(".so") || rest.starts_with('-'));
    let found = loaded.iter().find(|(called, path)| fits(called) || path.file_name().is_some_and(|n| fits(&n.to_string_lossy())));
    match found {
        Some((_, path)) => Ok(path.clone()),
        None => {
            let names: Vec<&str> = loaded.iter().map(|l| l.0.as_str()).collect();
            let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let lacks = match process {
                Some(process) => format!("process {process} has not mapped a library `{name}`"),
                None => format!("{} does not load a library `{name}` at startup", program.display()),
            };
            bail!("{lacks} (its libraries: {has}). If the library is loaded later, pass its path")
        }
    }
}

fn libraries_of_program(program: &Path) -> Result<Vec<(String, PathBuf)>> {
    let binary = Binary::read(program)?;
    let (_, loader) = binary.section(".interp").with_context(|| {
        format!(
            "{} specifies no dynamic loader, so libraries cannot be found by name. Pass the library's path to --library",
            program.display()
        )
    })?;
    let loader = String::from_utf8_lossy(loader.strip_suffix(&[0]).unwrap_or(loader)).into_owned();
    let output =
        Command::new(&loader).arg("--list").arg(program).output().with_context(|| format!("cannot run the dynamic loader {loader}"))?;
    let failed = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cannot list the program's libraries: `{loader} --list {}` failed: {}",
        program.display(),
        failed.trim()
    );
    let text = String::from_utf8_lossy(&output.stdout);
    // NAME => FILE (ADDRESS)
    let library = |line: &str| {
        let (name, file) = line.trim().split_once(" => ")?;
        Some((name.to_owned(), PathBuf::from(file.rsplit_once(" (")?.0)))
    };
    Ok(text.lines().filter_map(library).collect())
}

fn libraries_of_process(process: i32) -> Result<Vec<(String, PathBuf)>> {
    let mappings = mappings(process).with_context(|| format!("process {process} does not exist"))?;
    let mut files: Vec<PathBuf> = mappings.into_iter().filter(ProcessMapping::is_file).map(|m| m.name.into()).collect();
    files.dedup();
    let name = |path: PathBuf| Some((path.file_name()?.to_string_lossy().into_owned(), path));
    Ok(files.into_iter().filter_map(name).collect())
}
