//! Link recipes. A recipe contains everything needed to link an image again with different objects, even if its sources and build folder
//! are gone.
//!
//! ```text
//! ROOT/links/IMAGE/BUILD-ID.json      the recipe (BUILD-ID is `none` if the image has no build ID)
//! ROOT/objects/ab/abcdef...           contents of input files, by hash
//! ```
//! A recipe contains the user's command line with response files expanded, the working folder, the environment variables that influence
//! linking, and the input files by content. Files of the system and the toolchain are left out.

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

/// Version of the recipe format.
pub const SCHEMA_VERSION: u32 = 1;

/// A link recipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRecipe {
    /// Version of the format; see [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The compiler driver that performed the link.
    pub driver: SourceLanguage,
    /// The driver's arguments.
    pub arguments: Vec<OsText>,
    /// The folder in which the compiler driver ran.
    pub directory: OsText,
    /// Environment variables that influence linking.
    pub environment: Vec<(String, OsText)>,
    /// Sources that the link command also compiled. The link of a variant uses their units or objects instead.
    pub sources: Vec<SourceInput>,
    /// The files that the link read, except those of the system and the toolchain.
    pub files: Vec<FileInput>,
}

/// A source file on the command line of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceInput {
    /// Index of the source in [`LinkRecipe::arguments`].
    pub at: usize,
    /// What the source was compiled to.
    #[serde(flatten)]
    pub made: BuildProduct,
}

/// The result of compiling a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuildProduct {
    /// An instrumented unit, identified by its hexadecimal identity.
    Unit(String),
    /// An object without instrumentation, identified by the hash of its content.
    Object(String),
}

/// A file that the link read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInput {
    /// Absolute path at the time of the link.
    pub path: OsText,
    /// Hash of the file's content.
    pub content: String,
}

/// A string of the operating system. It is stored as text if it is valid UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OsText {
    /// A string that is valid UTF-8.
    Text(String),
    /// The bytes of any other string.
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
    /// Returns the string as an `OsString`.
    pub fn to_os(&self) -> OsString {
        match self {
            OsText::Text(text) => text.into(),
            OsText::Bytes(bytes) => OsString::from_vec(bytes.clone()),
        }
    }

    /// Returns the string as a path.
    pub fn to_path(&self) -> PathBuf {
        self.to_os().into()
    }
}

/// Stores the link recipes of images, and the contents of the files that recipes refer to.
#[derive(Clone, Debug)]
pub struct RecipeStore {
    root: PathBuf,
}

impl RecipeStore {
    /// Opens the recipe store in the folder of a unit cache.
    pub fn in_cache(store: &UnitCache) -> RecipeStore {
        RecipeStore { root: store.root().to_owned() }
    }

    /// Stores a recipe for an image.
    pub fn put(&self, image: &InstrumentedImage, recipe: &LinkRecipe) -> Result<()> {
        let path = self.path(image);
        let text = serde_json::to_vec(recipe)?;
        atomic_file::write_unsynced(&path, TEMPORARY_PREFIX, &text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads the recipe of an image. Fails if the recipe is missing or corrupt, or if its format has a different version.
    pub fn load_recipe(&self, image: &InstrumentedImage) -> Result<LinkRecipe> {
        let path = self.path(image);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
                "the unit cache (folder {}) does not contain the link command of image {}. Link it again with `trodden cc`, without the \
                 setting `keep=map`, or set TRODDEN_CACHE to the unit cache of the machine that built it",
                self.root.display(),
                image.identity
            ),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        let recipe: LinkRecipe = serde_json::from_slice(&text)
            .with_context(|| format!("the link recipe {} (the stored link command) is corrupt. Link the program again", path.display()))?;
        if recipe.schema_version != SCHEMA_VERSION {
            bail!(
                "the link recipe {} (the stored link command) has version {}, but this version of trodden reads version {SCHEMA_VERSION}. \
                 Link the program again",
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

    /// Stores the bytes of a file, and returns the name under which they are stored.
    pub fn store_content(&self, bytes: &[u8]) -> Result<String> {
        let name = Identity::from_content(bytes).to_string();
        let path = self.content_path(&name);
        let there = path.metadata().is_ok_and(|m| m.len() == bytes.len() as u64);
        if !there {
            atomic_file::write_unsynced(&path, TEMPORARY_PREFIX, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(name)
    }

    /// Stores the content of a file that is never modified in place, only replaced. If possible, the stored file is a hard link to `file`.
    /// Returns the name under which the content is stored. [`RecipeStore::content`] detects if the file was modified nevertheless.
    pub fn put_file(&self, file: &Path, bytes: &[u8]) -> Result<String> {
        let name = Identity::from_content(bytes).to_string();
        let path = self.content_path(&name);
        let is_linked = path.parent().is_some_and(|folder| {
            trodden_profile::temporary::create_folders(folder).is_ok() && (path.exists() || fs::hard_link(file, &path).is_ok())
        });
        if is_linked && path.metadata().is_ok_and(|there| there.len() == bytes.len() as u64) { Ok(name) } else { self.store_content(bytes) }
    }

    /// Reads the content that is stored under this name. Fails if it is missing or was modified.
    pub fn content(&self, name: &str) -> Result<Vec<u8>> {
        let identity = Identity::parse(name).ok_or_else(|| {
            anyhow!(
                "the link recipe (the stored link command) is corrupt: `{name}` is not the name of a stored file. Link the program again"
            )
        })?;
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
        // Storing a second file with the same content has no effect.
        let other = folder.path().join("liby.rlib");
        fs::write(&other, "content").unwrap();
        assert_eq!(store.put_file(&other, b"content").unwrap(), name);
        fs::write(&file, "Content").unwrap();
        assert!(store.content(&name).unwrap_err().to_string().contains("is corrupt"));
    }
}
