//! Reads a program built by trodden's drivers, and reconstructs its link from the recipe that the drivers keep in the unit cache.
//!
//! The link's inputs also come from the cache, so the build folder need not exist any more.

use crate::error::OracleError;
use crate::subject::{LinkArgument, LinkCommand, OracleSubject};
use object::read::archive::ArchiveFile;
use serde_json::Value;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use trodden_unit::{Identity, InstrumentedImage};

/// Reads a program and the recipe of its link. `store` is the unit cache; `folder` receives the oracle's files.
///
/// # Errors
/// The program is not instrumented, or the cache does not contain its link recipe.
pub fn read(program: &Path, store: &Path, folder: &Path) -> Result<OracleSubject, OracleError> {
    let image = InstrumentedImage::read(&fs::read(program).map_err(OracleError::file(program))?)?;
    let build = image.build_id.as_deref().unwrap_or("none");
    let path = store.join("links").join(image.identity.to_string()).join(format!("{build}.json"));
    let text = fs::read(&path).map_err(OracleError::file(&path))?;
    let recipe: Value = serde_json::from_slice(&text).map_err(|e| OracleError::Unusable { path: path.clone(), what: e.to_string() })?;
    let link = RecipeReader { value: &recipe, store, folder }.read_link()?;
    OracleSubject::read(program, link, folder)
}

struct RecipeReader<'a> {
    value: &'a Value,
    store: &'a Path,
    folder: &'a Path,
}

impl RecipeReader<'_> {
    fn read_link(&self) -> Result<LinkCommand, OracleError> {
        let directory = PathBuf::from(parse_os_string(&self.value["directory"]));
        let inputs = self.link_arguments_by_path()?;
        let sources: HashMap<u64, &Value> =
            array_elements(&self.value["sources"]).map(|s| (s["at"].as_u64().unwrap_or(u64::MAX), s)).collect();
        let mut folders: Vec<PathBuf> = Vec::new();
        let mut linked = Vec::new();
        let mut arguments = array_elements(&self.value["arguments"]).map(parse_os_string).enumerate();
        while let Some((at, argument)) = arguments.next() {
            let text = argument.to_string_lossy().into_owned();
            if let Some(source) = sources.get(&(at as u64)) {
                linked.push(self.source_argument(source)?);
            } else if matches!(text.as_str(), "-o" | "-x" | "-MF" | "-MT" | "-MQ") {
                arguments.next();
            } else if text.starts_with("-flto") || text.starts_with("-fpass-plugin") {
            } else if let Some(input) = inputs.get(&normalize_path(&directory.join(&argument))) {
                linked.push(input.clone());
            } else if let Some(found) = text.strip_prefix("-l").and_then(|name| find_library(&folders, name, &inputs)) {
                linked.push(found);
            } else {
                if let Some(folder) = text.strip_prefix("-L") {
                    folders.push(normalize_path(&directory.join(folder)));
                }
                linked.push(LinkArgument::Plain(argument));
            }
        }
        let driver = if self.value["driver"] == "clang++" { "clang++" } else { "clang" };
        let directory = if directory.is_dir() { directory } else { self.folder.to_owned() };
        Ok(LinkCommand { driver, directory, arguments: linked })
    }

    /// Returns the link arguments that replace the input files, by path.
    fn link_arguments_by_path(&self) -> Result<HashMap<PathBuf, LinkArgument>, OracleError> {
        let mut inputs = HashMap::new();
        for (number, file) in array_elements(&self.value["files"]).enumerate() {
            let path = PathBuf::from(parse_os_string(&file["path"]));
            let content = self.content_path(&file["content"]);
            let bytes = fs::read(&content).map_err(OracleError::file(&content))?;
            let name = path.file_name().unwrap_or_default().to_owned();
            let copy = self.folder.join(format!("input-{number}")).join(name);
            inputs.insert(normalize_path(&path), link_argument_for(&bytes, &copy)?);
        }
        Ok(inputs)
    }

    fn content_path(&self, name: &Value) -> PathBuf {
        let name = name.as_str().unwrap_or_default();
        self.store.join("objects").join(name.get(..2).unwrap_or_default()).join(name)
    }

    fn source_argument(&self, source: &Value) -> Result<LinkArgument, OracleError> {
        if let Some(unit) = source["unit"].as_str().and_then(Identity::parse) {
            return Ok(LinkArgument::Unit(unit));
        }
        let content = self.content_path(&source["object"]);
        let copy = self.folder.join(format!("source-{}.o", source["at"]));
        fs::copy(&content, &copy).map_err(OracleError::file(&content))?;
        Ok(LinkArgument::Plain(copy.into()))
    }
}

/// Returns the link argument that replaces an input file: the file's units or, if it has none, a copy of the file.
fn link_argument_for(bytes: &[u8], copy: &Path) -> Result<LinkArgument, OracleError> {
    let mut units = InstrumentedImage::read(bytes)
        .map(|image| image.frames.into_iter().map(|f| LinkArgument::Unit(f.unit)).collect())
        .unwrap_or_else(|_| vec![]);
    match units.len() {
        1 => return Ok(units.remove(0)),
        // An object made by `ld -r` has several units.
        n if n > 1 => return Ok(LinkArgument::Whole(units)),
        _ => {}
    }
    let Ok(archive) = ArchiveFile::parse(bytes) else { return copy_input(bytes, copy) };
    let mut members = Vec::new();
    for (number, member) in archive.members().enumerate() {
        let unusable = |e: object::Error| OracleError::Unusable { path: copy.to_owned(), what: e.to_string() };
        // The member is copied, since the reader of ELF files needs aligned data.
        let data = member.and_then(|m| m.data(bytes)).map_err(unusable)?.to_vec();
        members.push(link_argument_for(&data, &copy.with_extension(format!("{number}.o")))?);
    }
    if members.iter().all(|m| matches!(m, LinkArgument::Plain(_))) {
        return copy_input(bytes, copy);
    }
    Ok(LinkArgument::Archive(members))
}

fn copy_input(bytes: &[u8], copy: &Path) -> Result<LinkArgument, OracleError> {
    let folder = copy.parent().unwrap_or(copy);
    fs::create_dir_all(folder).map_err(OracleError::file(folder))?;
    fs::write(copy, bytes).map_err(OracleError::file(copy))?;
    Ok(LinkArgument::Plain(copy.into()))
}

fn find_library(folders: &[PathBuf], name: &str, inputs: &HashMap<PathBuf, LinkArgument>) -> Option<LinkArgument> {
    folders.iter().find_map(|folder| inputs.get(&folder.join(format!("lib{name}.a"))).cloned())
}

fn array_elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Converts an argument in the recipe: a string, or an array of bytes if the argument is not UTF-8.
fn parse_os_string(value: &Value) -> OsString {
    match value.as_str() {
        Some(text) => text.into(),
        None => OsString::from_vec(array_elements(value).map(|b| b.as_u64().unwrap_or(0) as u8).collect()),
    }
}

/// Removes `.` and resolves `..` in a path without accessing the file system.
fn normalize_path(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(out.pop()),
            std::path::Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}
