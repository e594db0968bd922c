//! Objects of copies, in the unit cache: most units are the same in all copies but one or two, and in the copies of the next run.
//!
//! `ROOT/copies/ab/abcdef....o`: the name is a hash of all that the object follows from, which is the unit, the copy's
//! part of it, the plugin's parameters and the compiler.

use super::CopyContext;
use super::spec::write_whole;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_driver::DriverContext;
use trodden_driver::experiment;
use trodden_driver::rebuild::{DriverCompiler, codegen_of, on_all_processors};
use trodden_driver::store_size::COPIES;
use trodden_launch::LaunchStop;
use trodden_text::words::plural;
use trodden_unit::experiment::{InputFolder, InputKind, SettingsFile};
use trodden_unit::{Frame, FunctionParts, Identity, Settings};

/// Makes objects of copies, each once.
pub struct Objects<'a> {
    driver: &'a DriverContext,
    folder: PathBuf,
    compiler: DriverCompiler,
    /// What they all follow from.
    common: Identity,
    settings: &'a Settings,
    /// Those that are wanted and not there.
    open: BTreeMap<PathBuf, (&'a Frame, Option<Vec<u8>>)>,
    wanted: usize,
}

impl<'a> Objects<'a> {
    /// Objects made with these settings.
    ///
    /// # Errors
    /// Clang, the plugin or the store is missing.
    pub fn with(settings: &'a Settings, context: CopyContext<'a>) -> Result<Objects<'a>> {
        let driver = context.driver;
        let compiler = DriverCompiler::new(driver, OsString::new())?;
        let common = Identity::from_content(format!("{} {settings}", compiler.identity()?).as_bytes());
        Ok(Objects { driver, folder: driver.store()?.root().join(COPIES), compiler, common, settings, open: BTreeMap::new(), wanted: 0 })
    }

    /// Where the object of a unit in a copy with these parts will be; without parts, that of all of the unit.
    pub fn want(&mut self, frame: &'a Frame, parts: Option<&FunctionParts>) -> PathBuf {
        let parts = parts.map(FunctionParts::to_bytes);
        let own = parts.as_deref().map(Identity::from_content);
        let name = Identity::from_content(format!("{} {} {own:?}", self.common, frame.unit).as_bytes()).to_string();
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
    /// A unit's bitcode was not kept, or does not compile; or the store cannot be written; or a signal asks us to end.
    pub fn make(self, stop: &LaunchStop) -> Result<()> {
        log::info!(
            "compiling {} of {}: the others are as in another copy, or were compiled before",
            self.open.len(),
            plural(self.wanted as u128, "unit", "units")
        );
        let scratch = self.driver.folder("trodden-parts-")?;
        if let Some(known) = self.settings.known.as_ref().and_then(SettingsFile::stored) {
            InputFolder::at(scratch.path()).put(&self.driver.inputs()?.get(InputKind::Known, known)?)?;
        }
        let mut open: Vec<_> = self.open.iter().collect();
        // Large ones first, so that none is left over when all others are done.
        open.sort_by_cached_key(|(_, (frame, _))| std::cmp::Reverse(frame.to_bytes().len()));
        on_all_processors(self.driver, &open, "units", |(path, (frame, parts))| {
            stop.check()?;
            self.compile(frame, parts.as_deref(), path, scratch.path())
        })
    }

    fn compile(&self, frame: &Frame, parts: Option<&[u8]>, to: &Path, scratch: &Path) -> Result<()> {
        let map = frame.map()?;
        let stem = to.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let [input, output] = ["bc", "o"].map(|end| format!("{stem}.{end}"));
        fs::write(scratch.join(&input), frame.bitcode().with_context(|| format!("no copy of {}", map.source))?)?;
        let folder = InputFolder::at(scratch);
        let mut settings = self.settings.clone();
        if let Some(parts) = parts {
            settings.part = Some(SettingsFile::Stored(folder.put(parts)?));
            settings.origin = Some(frame.unit);
        }
        let request = settings.request(&folder)?.write(&folder)?;
        let codegen = codegen_of(&map).with_context(|| format!("unit of {}", map.source))?;
        let mut command = self.compiler.command(Path::new(&input), &codegen, Path::new(&output));
        command.current_dir(scratch);
        experiment::set(&mut command, &request);
        self.compiler.run(command, Path::new(&input)).with_context(|| format!("unit of {}", map.source))?;
        let made = fs::read(scratch.join(&output))?;
        write_whole(to, &made)?;
        // They may be large, and many.
        [input, output].iter().try_for_each(|name| fs::remove_file(scratch.join(name)))?;
        Ok(())
    }
}
