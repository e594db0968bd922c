//! Compiles objects for copies and keeps them in the unit cache, because most units are the same in almost all copies, and in the copies of
//! later runs.
//!
//! An object is stored as `ROOT/copies/ab/abcdef....o`. Its name is a hash of everything that determines the object: the unit, the copy's
//! part of the unit, the plugin's parameters and the compiler.

use super::CopyContext;
use super::spec::write_atomically;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_driver::DriverContext;
use trodden_driver::experiment;
use trodden_driver::rebuild::{BitcodeCompiler, codegen_options, for_each_in_parallel};
use trodden_driver::store_size::COPIES_FOLDER;
use trodden_driver::toolchain::LlvmToolchain;
use trodden_launch::StopFlag;
use trodden_text::words::plural;
use trodden_unit::experiment::{InputFolder, InputPurpose, SettingsFile};
use trodden_unit::{Frame, FunctionParts, Identity, Settings};

pub struct CopyObjects<'a> {
    driver: &'a DriverContext,
    folder: PathBuf,
    compiler: BitcodeCompiler,
    /// Hash of the compiler's identity and the settings, which influence all objects.
    common: Identity,
    settings: &'a Settings,
    /// Requested objects that are missing in the cache, by their path.
    missing: BTreeMap<PathBuf, (&'a Frame, Option<Vec<u8>>)>,
    requested: usize,
}

impl<'a> CopyObjects<'a> {
    /// Creates a compiler for objects with these settings. Fails if the plugin or the unit cache is missing.
    pub fn new(settings: &'a Settings, llvm: &LlvmToolchain, context: CopyContext<'a>) -> Result<CopyObjects<'a>> {
        let driver = context.driver;
        let compiler = BitcodeCompiler::with(driver, llvm, OsString::new())?;
        let common = Identity::from_content(format!("{} {settings}", compiler.identity()?).as_bytes());
        Ok(CopyObjects {
            driver,
            folder: driver.store()?.root().join(COPIES_FOLDER),
            compiler,
            common,
            settings,
            missing: BTreeMap::new(),
            requested: 0,
        })
    }

    /// Requests the object in which a unit counts the given parts of its functions, or everything if `parts` is `None`. Returns the path at
    /// which the object will be.
    pub fn request_object(&mut self, frame: &'a Frame, parts: Option<&FunctionParts>) -> PathBuf {
        let parts = parts.map(FunctionParts::to_bytes);
        let own = parts.as_deref().map(Identity::from_content);
        let name = Identity::from_content(format!("{} {} {own:?}", self.common, frame.unit).as_bytes()).to_string();
        let path = self.folder.join(&name[..2]).join(format!("{name}.o"));
        self.requested += 1;
        if !path.exists() {
            self.missing.insert(path.clone(), (frame, parts));
        }
        path
    }

    /// Compiles the requested objects that are missing in the cache. Fails if a unit has no bitcode or does not compile, the cache cannot
    /// be written, or a signal interrupts the compilation.
    pub fn compile_missing_objects(self, stop: &StopFlag) -> Result<()> {
        log::info!(
            "compiling {} of {}; the others are shared between copies of the program or were compiled before",
            self.missing.len(),
            plural(self.requested as u128, "unit", "units")
        );
        let scratch = self.driver.folder("trodden-parts-")?;
        if let Some(known) = self.settings.known.as_ref().and_then(SettingsFile::stored) {
            InputFolder::new(scratch.path()).put(&self.driver.inputs()?.get(InputPurpose::Known, known)?)?;
        }
        let mut missing: Vec<_> = self.missing.iter().collect();
        // Large units are compiled first, because a large unit at the end would be compiled alone.
        missing.sort_by_cached_key(|(_, (frame, _))| std::cmp::Reverse(frame.to_bytes().len()));
        for_each_in_parallel(self.driver, &missing, "units", |(path, (frame, parts))| {
            stop.check()?;
            self.compile(frame, parts.as_deref(), path, scratch.path())
        })
    }

    fn compile(&self, frame: &Frame, parts: Option<&[u8]>, to: &Path, scratch: &Path) -> Result<()> {
        let map = frame.map()?;
        let stem = to.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let [input, output] = ["bc", "o"].map(|end| format!("{stem}.{end}"));
        fs::write(
            scratch.join(&input),
            frame.bitcode().with_context(|| {
                format!("the LLVM bitcode of {} was not stored. Build the program without the setting `keep=map`", map.source)
            })?,
        )?;
        let folder = InputFolder::new(scratch);
        let mut settings = self.settings.clone();
        if let Some(parts) = parts {
            settings.part = Some(SettingsFile::Stored(folder.put(parts)?));
            settings.origin = Some(frame.unit);
        }
        let request = settings.request(&folder)?.write(&folder)?;
        let codegen = codegen_options(&map).with_context(|| format!("cannot compile the code of {}", map.source))?;
        let mut command = self.compiler.command(Path::new(&input), &codegen, Path::new(&output));
        command.current_dir(scratch);
        experiment::pass_request_to_command(&mut command, &request);
        self.compiler.run(command, Path::new(&input)).with_context(|| format!("cannot compile the code of {}", map.source))?;
        let made = fs::read(scratch.join(&output))?;
        write_atomically(to, &made)?;
        // Intermediate files are removed at once, because they may be large and numerous.
        [input, output].iter().try_for_each(|name| fs::remove_file(scratch.join(name)))?;
        Ok(())
    }
}
