//! A sandbox for a link: a temporary copy of the files that the link reads. Also translates the link's arguments to this copy.

use crate::context::DriverContext;
use crate::link::is_system_file;
use crate::recipe::LinkRecipe;
use anyhow::Result;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use trodden_launch::temporary::TemporaryFolder;

pub struct LinkSandbox<'a> {
    pub context: &'a DriverContext,
    /// Root folder of the copy. It is removed when this value is dropped.
    pub folder: TemporaryFolder,
    /// The folder in which the original link ran.
    pub directory: PathBuf,
    files: HashSet<PathBuf>,
}

impl LinkSandbox<'_> {
    pub fn new<'a>(context: &'a DriverContext, recipe: &LinkRecipe) -> Result<LinkSandbox<'a>> {
        let folder = context.folder("trodden-instrument-")?;
        let directory = recipe.directory.to_path();
        let files = recipe.files.iter().map(|f| normalize(&f.path.to_path())).collect();
        Ok(LinkSandbox { context, folder, directory, files })
    }

    pub fn path_of_copy(&self, path: &Path) -> PathBuf {
        let relative: PathBuf = normalize(path).components().filter(|c| matches!(c, Component::Normal(_))).collect();
        self.folder.path().join("root").join(relative)
    }

    /// Creates all parent folders of a path, including those that are followed by `..`.
    pub fn create_parents(&self, path: &Path) -> Result<()> {
        let mut so_far = PathBuf::new();
        for part in path.parent().unwrap_or(path).components() {
            so_far.push(part);
            trodden_profile::temporary::create_folders(&self.path_of_copy(&so_far))?;
        }
        Ok(())
    }

    /// Returns the arguments of the new link, in which objects replace sources and absolute paths of copied files refer to the copies.
    pub fn command_line(&self, recipe: &LinkRecipe, objects: &[(usize, PathBuf)], output: &Path) -> Vec<OsString> {
        let arguments: Vec<OsString> = recipe.arguments.iter().map(|w| w.to_os()).collect();
        let mut out: Vec<OsString> = vec!["-Qunused-arguments".into(), "-o".into(), output.into()];
        let mut at = 0;
        while at < arguments.len() {
            let next = arguments.get(at + 1);
            if let Some((_, object)) = objects.iter().find(|(place, _)| *place == at) {
                out.push(object.into());
            } else if let Some(count) = count_dropped_arguments(&arguments[at]) {
                at += count - 1;
            } else if let (b"-L", Some(folder)) = (arguments[at].as_bytes(), next) {
                out.extend(self.translate_search_folder(folder));
                at += 1;
            } else {
                out.extend(self.translate_argument(&arguments[at]));
            }
            at += 1;
        }
        out
    }

    fn translate_argument(&self, argument: &OsStr) -> Vec<OsString> {
        if let Some(folder) = argument.as_bytes().strip_prefix(b"-L").filter(|f| !f.is_empty()) {
            return self.translate_search_folder(OsStr::from_bytes(folder));
        }
        if argument.as_bytes().starts_with(b"-Wl,") {
            let parts: Vec<Vec<u8>> =
                argument.as_bytes().split(|b| *b == b',').map(|p| self.translate_part(OsStr::from_bytes(p)).into_vec()).collect();
            return vec![OsString::from_vec(parts.join(&b","[..]))];
        }
        vec![self.translate_part(argument)]
    }

    /// Translates an argument or one part of it, which is a path, or an option with a path after `=`, `-T` or `-L`.
    fn translate_part(&self, part: &OsStr) -> OsString {
        let bytes = part.as_bytes();
        let value = bytes.iter().position(|b| *b == b'=').map(|at| at + 1);
        let starts = [Some(0), value, bytes.starts_with(b"-T").then_some(2), bytes.starts_with(b"-L").then_some(2)];
        for start in starts.into_iter().flatten() {
            let path = Path::new(OsStr::from_bytes(&bytes[start..]));
            let folder = start == 2 && bytes.starts_with(b"-L") && !is_system_file(self.context, path);
            if path.is_absolute() && (folder || self.files.contains(&normalize(path))) {
                return OsString::from_vec([&bytes[..start], self.path_of_copy(path).as_os_str().as_bytes()].concat());
            }
        }
        part.to_owned()
    }

    /// Translates a library search folder to linker options. An absolute path to a user's folder becomes two options, for the copy and for
    /// the original. Any other path stays as it is.
    fn translate_search_folder(&self, folder: &OsStr) -> Vec<OsString> {
        let path = Path::new(folder);
        let option = |path: &OsStr| OsString::from_vec([b"-L", path.as_bytes()].concat());
        if path.is_absolute() && !is_system_file(self.context, path) {
            return vec![option(self.path_of_copy(path).as_os_str()), option(folder)];
        }
        vec![option(folder)]
    }
}

/// If an argument is omitted from the new link, returns the number of arguments to skip, including itself. This applies to options for the
/// output, the language and dependency files.
fn count_dropped_arguments(argument: &OsStr) -> Option<usize> {
    match argument.as_bytes() {
        b"-o" | b"--output" | b"-x" | b"--language" | b"-MF" | b"-MT" | b"-MQ" | b"-MJ" => Some(2),
        b"-MD" | b"-MMD" | b"-MP" | b"-MG" | b"--" | b"-save-temps" => Some(1),
        bytes if bytes.starts_with(b"-o") || bytes.starts_with(b"-x") || bytes.starts_with(b"-MF") => Some(1),
        bytes if bytes.starts_with(b"-Wl,--dependency-file") || bytes.starts_with(b"-flto") => Some(1),
        _ => None,
    }
}

/// Removes `.` and resolves `..` in a path without accessing the file system.
fn normalize(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile_step::SourceLanguage;
    use crate::recipe::{FileInput, OsText, SCHEMA_VERSION};

    fn recipe(arguments: &[&str]) -> LinkRecipe {
        LinkRecipe {
            schema_version: SCHEMA_VERSION,
            driver: SourceLanguage::C,
            arguments: arguments.iter().map(|a| OsText::Text((*a).into())).collect(),
            directory: OsText::Text("/home/u/src".into()),
            environment: vec![],
            sources: vec![],
            files: vec![FileInput { path: OsText::Text("/home/u/lib/x.map".into()), content: String::new() }],
        }
    }

    #[test]
    fn only_absolute_names_of_copied_files_are_translated() {
        let recipe = recipe(&[
            "-O2",
            "a.o",
            "-o",
            "prog",
            "-L/home/u/lib",
            "-L",
            "/usr/lib/x",
            "-Wl,--version-script=/home/u/src/../lib/x.map,-z,now",
            "-lx",
        ]);
        let temporary = tempfile::tempdir().unwrap();
        let context = DriverContext::in_folder(temporary.path(), &[]);
        let sandbox = LinkSandbox::new(&context, &recipe).unwrap();
        let root = sandbox.folder.path().join("root").display().to_string();
        let arguments = sandbox.command_line(&recipe, &[], Path::new("/out"));
        let expected = [
            "-Qunused-arguments".to_owned(),
            "-o".into(),
            "/out".into(),
            "-O2".into(),
            "a.o".into(),
            format!("-L{root}/home/u/lib"),
            "-L/home/u/lib".into(),
            "-L/usr/lib/x".into(),
            format!("-Wl,--version-script={root}/home/u/lib/x.map,-z,now"),
            "-lx".into(),
        ];
        assert_eq!(arguments, expected.map(OsString::from));
    }

    #[test]
    fn sources_are_replaced_by_objects_and_language_options_are_removed() {
        let recipe = recipe(&["-x", "c", "-", "-MD", "-MF", "d", "-o", "p"]);
        let temporary = tempfile::tempdir().unwrap();
        let context = DriverContext::in_folder(temporary.path(), &[]);
        let sandbox = LinkSandbox::new(&context, &recipe).unwrap();
        let arguments = sandbox.command_line(&recipe, &[(2, "/t/u.o".into())], Path::new("/out"));
        assert_eq!(arguments, ["-Qunused-arguments", "-o", "/out", "/t/u.o"].map(OsString::from));
    }
}
