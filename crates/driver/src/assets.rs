//! What trodden brings along: objects for the linker (inside this program) and the plugin (a file beside it).
//!
//! The linker wants files, so each object is written to the store once, under its content's hash: another version of trodden never
//! reads it by mistake, and processes that write it at the same time write the same.

use crate::context::DriverContext;
use crate::other_programs::joined;
use crate::stand_ins;
use crate::toolchain::{Tool, is_program};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::whole_file;
use trodden_unit::{Identity, UnitCache, cache::CACHE_VARIABLE};

/// The runtime, as one relocatable object.
const RUNTIME: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trodden_rt.o"));
/// The entry of programs without libc's start-up, as another.
const START: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trodden_start.o"));
/// The entry that sets up thread-local storage and goes on to `_start`.
pub const START_SYMBOL: &str = "__trodden_start";
/// Section of an image (not loaded) with the address of `_start`, 0 if there is none.
pub const START_SECTION: &str = ".trodden.start";
/// How the names of files begin that are being written to the store.
pub const BEGUN: &str = ".new-";

/// The runtime object as a file for the linker.
///
/// # Errors
/// The store cannot be written.
pub fn runtime_object(store: &UnitCache) -> Result<PathBuf> {
    object(store, RUNTIME)
}

/// The object with [`START_SYMBOL`] as a file for the linker.
///
/// # Errors
/// The store cannot be written.
pub fn start_object(store: &UnitCache) -> Result<PathBuf> {
    object(store, START)
}

fn object(store: &UnitCache, content: &[u8]) -> Result<PathBuf> {
    let path = store.root().join("runtime").join(format!("{}.o", Identity::from_content(content)));
    if fs::read(&path).is_ok_and(|bytes| bytes == content) {
        return Ok(path);
    }
    whole_file::write_again(&path, BEGUN, content).with_context(|| {
        format!("cannot write the runtime object {}: set {CACHE_VARIABLE} to a folder that can be written", path.display())
    })?;
    Ok(path)
}

/// A library that lies beside the program.
#[derive(Debug)]
pub struct OwnLibrary {
    /// What it is.
    pub what: &'static str,
    /// Its file name.
    pub file: &'static str,
    /// The package that makes it.
    pub package: &'static str,
    /// Variable that names another file of it.
    pub variable: &'static str,
}

/// The plugin for clang.
pub const PLUGIN: OwnLibrary =
    OwnLibrary { what: "plugin", file: "libtrodden_instrument.so", package: "trodden-instrument", variable: "TRODDEN_PLUGIN" };

impl OwnLibrary {
    /// Finds it.
    ///
    /// # Errors
    /// It is not there; the message says where it was looked for.
    pub fn find(&self, context: &DriverContext) -> Result<PathBuf> {
        match self.named(context)? {
            Some(named) => Ok(named),
            None => self.installed(context),
        }
    }

    /// Finds it under a name that `LD_PRELOAD` can hold, absolute.
    ///
    /// # Errors
    /// It is not there, or no such name can be made.
    pub fn find_preloadable(&self, context: &DriverContext) -> Result<PathBuf> {
        match self.named(context)? {
            Some(named) => Ok(named),
            None => preloadable(context, &fs::canonicalize(self.installed(context)?)?),
        }
    }

    /// The file that the variable names, if it is set.
    ///
    /// # Errors
    /// There is no such file.
    pub fn named(&self, context: &DriverContext) -> Result<Option<PathBuf>> {
        let Some(named) = context.value(self.variable) else { return Ok(None) };
        let path = std::path::absolute(PathBuf::from(named))?;
        ensure!(path.is_file(), "{} does not exist: {} must name the file {}", path.display(), self.variable, self.file);
        Ok(Some(path))
    }

    /// The file beside this program or in `../lib/trodden`; else the places where it would be.
    ///
    /// # Errors
    /// This program's own file is not known.
    pub fn beside(&self, context: &DriverContext) -> Result<Result<PathBuf, [PathBuf; 2]>> {
        let own = context.own_folder()?;
        let places = [own.join(self.file), own.join("../lib/trodden").join(self.file)];
        Ok(places.iter().find(|p| p.is_file()).cloned().ok_or(places))
    }

    fn installed(&self, context: &DriverContext) -> Result<PathBuf> {
        self.beside(context)?.map_err(|places| {
            let [one, other] = places.each_ref().map(|place| place.display());
            let OwnLibrary { what, file, package, variable } = self;
            anyhow!(
                "the {what} {file} is neither in {one} nor in {other}: build it with `cargo build --release -p {package}`, or name it by \
                    {variable}"
            )
        })
    }
}

/// The option by which clang loads the plugin.
///
/// # Errors
/// The plugin is not there.
pub fn plugin_option(context: &DriverContext) -> Result<OsString> {
    Ok(joined("-fpass-plugin=", PLUGIN.find(context)?))
}

/// A library under a name that `LD_PRELOAD` can hold, which separates libraries by blanks and colons: its own, or that of a link in the
/// unit cache.
///
/// # Errors
/// The store's folder has such a name, too, or cannot be written.
fn preloadable(context: &DriverContext, library: &Path) -> Result<PathBuf> {
    let separates = |path: &Path| path.as_os_str().as_encoded_bytes().iter().any(|byte| b" \t\n:".contains(byte));
    if !separates(library) {
        return Ok(library.to_owned());
    }
    let folder = context.store()?.root().join("runtime");
    let own = folder.join(format!("{}.so", Identity::from_content(library.as_os_str().as_encoded_bytes())));
    if separates(&own) {
        bail!(
            "neither {} nor {} can be preloaded, for the blanks or colons in their names: set {CACHE_VARIABLE} to a folder without",
            library.display(),
            own.display()
        );
    }
    trodden_profile::temporary::create_folders(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    link(library, &own)?;
    Ok(own)
}

/// The program under the name by which it is rustc's wrapper and linker for cargo, and the subcommand of cargo.
///
/// # Errors
/// The store cannot be written.
pub fn for_cargo(context: &DriverContext, store: &UnitCache) -> Result<PathBuf> {
    Ok(drivers(context, store)?.join("cargo-trodden"))
}

/// The same under a path of its own for each way to build: cargo asks a wrapper of another path for its version again, and rebuilds what
/// another version of the compiler built.
///
/// # Errors
/// The store cannot be written.
pub fn wrapper_for(context: &DriverContext, store: &UnitCache, way: Identity) -> Result<PathBuf> {
    let own = drivers(context, store)?;
    let folder = own.join("ways").join(&way.to_string()[..16]);
    trodden_profile::temporary::create_folders(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let wrapper = folder.join("cargo-trodden");
    link(context.own_program()?, &wrapper)?;
    Ok(wrapper)
}

/// Names under which the program is a driver.
const DRIVERS: &[&str] = &["trodden-cc", "trodden-c++", "cargo-trodden"];

/// A folder of links to the running program under its other names, for build systems that want a compiler in one word;
/// in its subfolder `path`, links named like usual compilers. It is in the store, one per place of the program.
///
/// # Errors
/// The store cannot be written.
pub fn drivers(context: &DriverContext, store: &UnitCache) -> Result<PathBuf> {
    let own = context.own_program()?;
    let folder = store.root().join("drivers").join(&Identity::from_content(own.as_os_str().as_encoded_bytes()).to_string()[..16]);
    link_drivers(context, &folder)?;
    trodden_profile::temporary::create_folders(&folder.join("path"))?;
    stand_ins::names(context).iter().try_for_each(|name| link(own, &folder.join("path").join(name)))?;
    Ok(folder)
}

/// Makes links to the program under its other names in a folder.
///
/// # Errors
/// The folder cannot be written.
pub fn link_drivers(context: &DriverContext, folder: &Path) -> Result<()> {
    let program = context.own_program()?;
    trodden_profile::temporary::create_folders(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    DRIVERS.iter().try_for_each(|name| link(program, &folder.join(name)))?;
    // CMake takes `trodden-` for the prefix of a toolchain and looks for its tools beside the compiler.
    let clang = Tool::Clang.find(context).and_then(|c| Ok(fs::canonicalize(c)?));
    for tool in ["llvm-ar", "llvm-ranlib", "llvm-nm"] {
        if let Some(path) = clang.as_ref().ok().map(|c| c.with_file_name(tool)).filter(|p| is_program(p)) {
            link(&path, &folder.join(format!("trodden-{tool}")))?;
        }
    }
    Ok(())
}

/// Makes a link in the place of what has its name, unless it is there or would lead to itself.
fn link(to: &Path, link: &Path) -> Result<()> {
    if to == link || fs::read_link(link).is_ok_and(|found| found == to) {
        return Ok(());
    }
    // A signal leaves no link under the other name.
    let _names = trodden_profile::temporary::names();
    let mut temporary = link.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    std::os::unix::fs::symlink(to, &temporary)
        .and_then(|()| fs::rename(&temporary, link))
        .with_context(|| format!("cannot make the link {}", link.display()))
}
