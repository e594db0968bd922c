//! Link recipes: everything needed to link an image again with other objects, even if its sources and its build folder are gone.
//!
//! ```text
//! ROOT/links/IMAGE/BUILD-ID.json      the recipe (BUILD-ID is `none` without one)
//! ROOT/objects/ab/abcdef...           contents of input files, by their hash
//! ```
//! A recipe contains the user's command line with response files expanded, the folder, the environment variables that affect linking, and
//! the input files by content, except files of the system and the toolchain.

use crate::assets::TEMPORARY_PREFIX;
use crate::compile_step::SourceLanguage;
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use trodden_profile::atomic_file;
use trodden_unit::{Identity, InstrumentedImage, UnitCache};

/// Version of the format.
pub const SCHEMA_VERSION: u32 = 1;

/// How an image was linked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// Version of the format, [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The compiler driver that linked (`clang` or `clang++`).
    pub driver: SourceLanguage,
    /// Its arguments.
    pub arguments: Vec<OsText>,
    /// The folder in which it ran.
    pub directory: OsText,
    /// Environment variables that affect linking.
    pub environment: Vec<(String, OsText)>,
    /// Sources that the same command compiled, with the units or objects to link instead.
    pub sources: Vec<SourceInput>,
    /// Input files.
    pub files: Vec<FileInput>,
}

/// A source on the command line of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceInput {
    /// Index in [`Recipe::arguments`].
    pub at: usize,
    /// The result of its compilation.
    #[serde(flatten)]
    pub made: BuildProduct,
}

/// The result of compiling a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuildProduct {
    /// An instrumented unit, by identity.
    Unit(String),
    /// An object without instrumentation, by the hash of its content.
    Object(String),
}

/// A file that the link read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInput {
    /// Its absolute path at the time of the link.
    pub path: OsText,
    /// Hash of its content.
    pub content: String,
}

/// An operating-system string, stored as text if it is valid UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OsText {
    /// Valid UTF-8.
    Text(String),
    /// Any other bytes.
    Bytes(Vec<u8>),
}

impl Default for OsText {
    fn default() -> OsText {
        OsText::Text(String::new())
    }
}

impl From<&OsStr> for OsText {
    fn from(text: &OsStr) -> OsText {
        match text.to_str() {
            Some(utf8) => OsText::Text(utf8.to_owned()),
            None => OsText::Bytes(text.as_bytes().to_vec()),
        }
    }
}

impl OsText {
    /// Converts it to an operating-system string.
    pub fn to_os(&self) -> OsString {
        match self {
            OsText::Text(text) => text.into(),
            OsText::Bytes(bytes) => OsString::from_vec(bytes.clone()),
        }
    }

    /// Converts it to a path.
    pub fn to_path(&self) -> PathBuf {
        self.to_os().into()
    }
}

/// Storage of recipes and of the contents of their files.
#[derive(Clone, Debug)]
pub struct RecipeStore {
    root: PathBuf,
}

impl RecipeStore {
    /// Opens the recipes in the folder of a unit cache.
    pub fn beside(store: &UnitCache) -> RecipeStore {
        RecipeStore { root: store.root().to_owned() }
    }

    /// Stores the recipe of an image.
    pub fn put(&self, image: &InstrumentedImage, recipe: &Recipe) -> Result<()> {
        let path = self.path(image);
        let text = serde_json::to_vec(recipe)?;
        atomic_file::write_unsynced(&path, TEMPORARY_PREFIX, &text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the recipe of an image.
    ///
    /// # Errors
    /// Fails if the recipe is missing or corrupt, or has a different version.
    pub fn get(&self, image: &InstrumentedImage) -> Result<Recipe> {
        let path = self.path(image);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
                "the unit cache {} does not know how image {} was linked. Link it again with `trodden cc` and without `keep=map`, or \
                 set TRODDEN_CACHE to the cache of the machine that built it",
                self.root.display(),
                image.identity
            ),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        let recipe: Recipe = serde_json::from_slice(&text)
            .with_context(|| format!("the link recipe {} is corrupt. Link the program again", path.display()))?;
        if recipe.schema_version != SCHEMA_VERSION {
            bail!(
                "the link recipe {} has version {}, but this version of trodden reads version {SCHEMA_VERSION}. Link the program again",
                path.display(),
                recipe.schema_version
            );
        }
        Ok(recipe)
    }

    fn path(&self, image: &InstrumentedImage) -> PathBuf {
        let build = image.build_id.as_deref().unwrap_or("none");
        self.root.join("links").join(image.identity.to_string()).join(format!("{build}.json"))
    }

    /// Stores a file's content, and returns its name.
    pub fn put_content(&self, bytes: &[u8]) -> Result<String> {
        let name = Identity::from_content(bytes).to_string();
        let path = self.content_path(&name);
        let there = path.metadata().is_ok_and(|m| m.len() == bytes.len() as u64);
        if !there {
            atomic_file::write_unsynced(&path, TEMPORARY_PREFIX, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(name)
    }

    /// Stores the content of a file that is only ever replaced as a whole, and returns its name. The file is shared by a hard link if it is
    /// on the same file system. [`RecipeStore::content`] detects whether the file has been modified in place nevertheless.
    pub fn put_file(&self, file: &Path, bytes: &[u8]) -> Result<String> {
        let name = Identity::from_content(bytes).to_string();
        let path = self.content_path(&name);
        let is_linked = path.parent().is_some_and(|folder| {
            trodden_profile::temporary::create_folders(folder).is_ok() && (path.exists() || fs::hard_link(file, &path).is_ok())
        });
        if is_linked && path.metadata().is_ok_and(|there| there.len() == bytes.len() as u64) { Ok(name) } else { self.put_content(bytes) }
    }

    /// Reads a stored content by name.
    pub fn content(&self, name: &str) -> Result<Vec<u8>> {
        let identity = Identity::parse(name)
            .ok_or_else(|| anyhow!("the link recipe is corrupt: `{name}` is not the name of a stored file. Link the program again"))?;
        let path = self.content_path(name);
        let bytes =
            fs::read(&path).with_context(|| format!("cannot read {}, an input of the link. Link the program again", path.display()))?;
        if Identity::from_content(&bytes) != identity {
            bail!("{} is corrupt. Delete this file, and link the program again", path.display());
        }
        Ok(bytes)
    }

    fn content_path(&self, name: &str) -> PathBuf {
        self.root.join("objects").join(&name[..2]).join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn stored_file_is_a_hard_link_and_its_modification_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let store = RecipeStore { root: folder.path().join("store") };
        let file = folder.path().join("libx.rlib");
        fs::write(&file, "content").unwrap();
        let name = store.put_file(&file, b"content").unwrap();
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        assert_eq!(inode(&store.content_path(&name)), inode(&file));
        assert_eq!(store.content(&name).unwrap(), b"content");
        // A second file with the same content changes nothing.
        let other = folder.path().join("liby.rlib");
        fs::write(&other, "content").unwrap();
        assert_eq!(store.put_file(&other, b"content").unwrap(), name);
        fs::write(&file, "Content").unwrap();
        assert!(store.content(&name).unwrap_err().to_string().contains("is corrupt"));
    }
}
