//! Objects of copies, in the unit store: most units are the same in all copies but one or two, and in the copies of the next run.
//!
//! `ROOT/copies/ab/abcdef....o`: the name is a hash of all that the object follows from, which is the unit, the copy's
//! part of it, the plugin's parameters and the compiler.

use crate::assets;
use crate::cc::PARAMETERS_VARIABLE;
use crate::notes::note;
use crate::rebuild::{Compiler, codegen_of, on_all_processors};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_launch::Stop;
use trodden_unit::{Frame, Identity, ORIGIN_WORD, PARTS_WORD, Parts};

/// Their folder in the store.
pub const FOLDER: &str = "copies";

/// The file of known paths, beside what is compiled.
const KNOWN: &str = "known";

/// Makes objects of copies, each once.
pub struct Objects<'a> {
    folder: PathBuf,
    compiler: Compiler,
    /// What they all follow from.
    common: Identity,
    words: &'a str,
    /// The known paths of copies that count unknown ones only.
    known: Option<Vec<u8>>,
    /// Those that are wanted and not there.
    open: BTreeMap<PathBuf, (&'a Frame, Option<Vec<u8>>)>,
    wanted: usize,
}

impl<'a> Objects<'a> {
    /// Objects made with these words of the plugin, and a file of known paths for those that count unknown ones only.
    ///
    /// # Errors
    /// Clang, the plugin or the store is missing.
    pub fn with(words: &'a str, known: Option<&Path>) -> Result<Objects<'a>> {
        let compiler = Compiler::new(OsString::new())?;
        let known = known.map(|file| fs::read(file).with_context(|| format!("cannot read {}", file.display()))).transpose()?;
        let set = known.as_deref().map(Identity::of);
        let common = Identity::of(format!("{} {words} {set:?}", compiler.identity()?).as_bytes());
        Ok(Objects { folder: assets::store()?.root().join(FOLDER), compiler, common, words, known, open: BTreeMap::new(), wanted: 0 })
    }

    /// Where the object of a unit in a copy with these parts will be; without parts, that of all of the unit.
    pub fn want(&mut self, frame: &'a Frame, parts: Option<&Parts>) -> PathBuf {
        let parts = parts.map(Parts::to_bytes);
        let own = parts.as_deref().map(Identity::of);
        let name = Identity::of(format!("{} {} {own:?}", self.common, frame.unit).as_bytes()).to_string();
        let path = self.folder.join(&name[..2]).join(format!("{name}.o"));
        self.wanted += 1;
        if !path.exists() {
            self.open.insert(path.clone(), (frame, parts));
        }
        path
    }

    /// Makes those that are not there.
    ///
    /// # Errors
    /// A unit's bitcode was not kept, or does not compile; or the store cannot be written; or somebody wants us to end.
    pub fn make(self, stop: &Stop) -> Result<()> {
        note(format_args!(
            "compiling {} of {} units: the others are as in another copy, or were compiled before",
            self.open.len(),
            self.wanted
        ));
        let scratch = tempfile::Builder::new().prefix("trodden-parts-").tempdir().context("cannot make a temporary folder")?;
        if let Some(known) = &self.known {
            fs::write(scratch.path().join(KNOWN), known)?;
        }
        let mut open: Vec<_> = self.open.iter().collect();
        // Large ones first, so that none is left over when all others are done.
        open.sort_by_cached_key(|(_, (frame, _))| std::cmp::Reverse(frame.to_bytes().len()));
        on_all_processors(&open, "units", |(path, (frame, parts))| {
            stop.check()?;
            self.compile(frame, parts.as_deref(), path, scratch.path())
        })
    }

    fn compile(&self, frame: &Frame, parts: Option<&[u8]>, to: &Path, scratch: &Path) -> Result<()> {
        let map = frame.map()?;
        let stem = to.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let [input, output, plan] = ["bc", "o", "parts"].map(|end| format!("{stem}.{end}"));
        fs::write(scratch.join(&input), frame.bitcode().with_context(|| format!("no copy of {}", map.source))?)?;
        let mut words = self.words.to_owned();
        if self.known.is_some() {
            words += &format!(" known={KNOWN}");
        }
        if let Some(parts) = parts {
            fs::write(scratch.join(&plan), parts)?;
            words += &format!(" {PARTS_WORD}{plan} {ORIGIN_WORD}{}", frame.unit);
        }
        let codegen = codegen_of(&map).with_context(|| format!("unit of {}", map.source))?;
        let mut command = self.compiler.command(Path::new(&input), &codegen, Path::new(&output));
        // The words of the variable cannot hold blanks, which folders may have: so names are relative.
        command.current_dir(scratch).env(PARAMETERS_VARIABLE, words);
        self.compiler.run(command, Path::new(&input)).with_context(|| format!("unit of {}", map.source))?;
        let made = fs::read(scratch.join(&output))?;
        assets::write_whole(to, &made).with_context(|| format!("cannot write {}", to.display()))?;
        // They may be large, and many.
        [input, output].iter().try_for_each(|name| fs::remove_file(scratch.join(name)))?;
        Ok(())
    }
}
