//! Files that are part of trodden: objects for the linker, which are embedded in this program, and libraries that are installed beside it.
//!
//! The linker needs files, so each object is written to the unit cache once, named by the hash of its content. Therefore versions of
//! trodden never read each other's objects, and processes that write the same file concurrently write the same content. Empty files beside
//! them, `*.clang`, remember which clang loads the plugin.

use crate::context::DriverContext;
use crate::other_programs::{option_with_value, run};
use crate::stand_ins;
use crate::toolchain::{CLANG_VARIABLE, Llvm, Tool, install};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_profile::atomic_file;
use trodden_unit::experiment::{EXPERIMENT_VARIABLE, spelling::SETTINGS_VARIABLE};
use trodden_unit::{Identity, UnitCache, cache::CACHE_VARIABLE};

/// The runtime, as one relocatable object.
const RUNTIME: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trodden_rt.o"));
/// The entry point for programs without libc's start files, as one relocatable object.
const START: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trodden_start.o"));
/// Entry point that sets up thread-local storage and jumps to `_start`.
pub const START_SYMBOL: &str = "__trodden_start";
/// Section of an image (not loaded) with the address of `_start`, or 0 if there is none.
pub const START_SECTION: &str = ".trodden.start";
/// Prefix of files that are being written to the store.
pub const TEMPORARY_PREFIX: &str = ".new-";

/// Returns a file with the runtime object.
pub fn runtime_object(store: &UnitCache) -> Result<PathBuf> {
    write_object(store, RUNTIME)
}

/// Returns a file with the object that defines [`START_SYMBOL`].
pub fn start_object(store: &UnitCache) -> Result<PathBuf> {
    write_object(store, START)
}

/// Writes an object to the unit cache unless it is there, and returns its file.
fn write_object(store: &UnitCache, content: &[u8]) -> Result<PathBuf> {
    let path = store.root().join("runtime").join(format!("{}.o", Identity::from_content(content)));
    if fs::read(&path).is_ok_and(|bytes| bytes == content) {
        return Ok(path);
    }
    atomic_file::write_unsynced(&path, TEMPORARY_PREFIX, content)
        .with_context(|| format!("cannot write the runtime object {}. Set {CACHE_VARIABLE} to a writable folder", path.display()))?;
    Ok(path)
}

/// A library of trodden, which is installed beside the program.
#[derive(Debug)]
pub struct OwnLibrary {
    /// Noun for the library in messages.
    pub kind: &'static str,
    /// File name.
    pub file: &'static str,
    /// Cargo package that builds it.
    pub package: &'static str,
    /// Environment variable that names another file to use.
    pub variable: &'static str,
}

/// The plugin for clang.
pub const PLUGIN: OwnLibrary =
    OwnLibrary { kind: "plugin", file: "libtrodden_instrument.so", package: "trodden-instrument", variable: "TRODDEN_PLUGIN" };

impl OwnLibrary {
    /// Finds the library.
    ///
    /// # Errors
    /// Fails if the library does not exist; the message names the paths that were tried.
    pub fn find(&self, context: &DriverContext) -> Result<PathBuf> {
        match self.from_variable(context)? {
            Some(named) => Ok(named),
            None => self.require_installed(context),
        }
    }

    /// Finds the library under an absolute path that `LD_PRELOAD` can hold.
    ///
    /// # Errors
    /// Fails if the library does not exist, or if no such path can be created.
    pub fn find_preloadable(&self, context: &DriverContext) -> Result<PathBuf> {
        match self.from_variable(context)? {
            Some(named) => Ok(named),
            None => link_for_preload(context, &fs::canonicalize(self.require_installed(context)?)?),
        }
    }

    /// Returns the file that the variable names, if it is set.
    pub fn from_variable(&self, context: &DriverContext) -> Result<Option<PathBuf>> {
        let Some(named) = context.value(self.variable) else { return Ok(None) };
        let path = std::path::absolute(PathBuf::from(named))?;
        ensure!(path.is_file(), "{} does not exist. Set {} to the path of {}", path.display(), self.variable, self.file);
        Ok(Some(path))
    }

    /// Returns the file beside this program or in `../lib/trodden`, or else the two paths that were tried.
    pub fn find_installed(&self, context: &DriverContext) -> Result<Result<PathBuf, [PathBuf; 2]>> {
        let own = context.executable_folder()?;
        let paths = [own.join(self.file), own.join("../lib/trodden").join(self.file)];
        Ok(paths.iter().find(|path| path.is_file()).cloned().ok_or(paths))
    }

    fn require_installed(&self, context: &DriverContext) -> Result<PathBuf> {
        self.find_installed(context)?.map_err(|paths| {
            let [one, other] = paths.each_ref().map(|path| path.display());
            let OwnLibrary { kind, file, package, variable } = self;
            anyhow!(
                "cannot find the {kind} {file}: neither {one} nor {other} exists. Build it with `cargo build --release -p {package}`, or \
                    set {variable} to its path"
            )
        })
    }
}

/// Returns the option that makes clang load the plugin.
///
/// # Errors
/// Fails like [`check_plugin`].
pub fn plugin_option(context: &DriverContext, llvm: &Llvm) -> Result<OsString> {
    Ok(option_with_value("-fpass-plugin=", check_plugin(context, llvm)?))
}

/// Checks that clang loads the plugin, and that the plugin accepts it, and returns the plugin. So a clang without a function or a call
/// that the plugin needs, such as one that is linked statically, is found before anything is compiled. The unit cache remembers which
/// clang was accepted.
///
/// # Errors
/// Fails with clang's or the plugin's message.
pub fn check_plugin(context: &DriverContext, llvm: &Llvm) -> Result<PathBuf> {
    let plugin = PLUGIN.find(context)?;
    let accepted = context.store()?.root().join("runtime").join(accepted_name(llvm, &plugin)?);
    if !accepted.exists() {
        try_plugin(context, llvm, &plugin)?;
        // If the cache cannot be written, the plugin will say so.
        _ = atomic_file::write_unsynced(&accepted, TEMPORARY_PREFIX, b"");
    }
    Ok(plugin)
}

/// Compiles an empty file with the plugin, whether or not that has been tried before.
///
/// # Errors
/// Fails if clang does not load the plugin, or the plugin does not accept clang.
pub fn try_plugin(context: &DriverContext, llvm: &Llvm, plugin: &Path) -> Result<()> {
    let mut command = Command::new(llvm.clang());
    command.args(["-x", "c", "-c", "/dev/null", "-o", "/dev/null"]).arg(option_with_value("-fpass-plugin=", plugin));
    command.env(CACHE_VARIABLE, context.store()?.root()).env_remove(EXPERIMENT_VARIABLE).env_remove(SETTINGS_VARIABLE);
    run(&mut command).map(drop).with_context(|| {
        format!(
            "{} (clang {}) does not load {}. Install your distribution's clang with {}, and set {CLANG_VARIABLE} to its path",
            llvm.clang().display(),
            llvm.major,
            plugin.display(),
            install(Tool::Clang)
        )
    })
}

/// Returns the name of the file that exists if clang has loaded the plugin: a hash of clang's version and of both files' identities. LLVM's
/// library is not part of it, because packages replace it together with clang; if it does not fit any more, clang itself fails.
fn accepted_name(llvm: &Llvm, plugin: &Path) -> Result<String> {
    let all = [llvm.major.to_string(), llvm.clang().display().to_string(), file_identity(llvm.clang())?, file_identity(plugin)?];
    Ok(format!("{}.clang", Identity::from_content(all.join("\n").as_bytes())))
}

/// Returns the path, size and modification time of a file, which differ if the file is replaced. For files that are too large to hash.
pub fn file_identity(file: &Path) -> Result<String> {
    let path = fs::canonicalize(file).with_context(|| format!("cannot find {}", file.display()))?;
    let properties = fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(format!("{} {} {:?}", path.display(), properties.len(), properties.modified()?))
}

/// Returns a path without blanks and colons, which separate the libraries in `LD_PRELOAD`: the library's own path, or a symbolic link to
/// the library in the unit cache.
///
/// # Errors
/// Fails if the path of the unit cache contains a separator as well, or the cache cannot be written.
fn link_for_preload(context: &DriverContext, library: &Path) -> Result<PathBuf> {
    let has_separator = |path: &Path| path.as_os_str().as_encoded_bytes().iter().any(|byte| b" \t\n:".contains(byte));
    if !has_separator(library) {
        return Ok(library.to_owned());
    }
    let folder = context.store()?.root().join("runtime");
    let own = folder.join(format!("{}.so", Identity::from_content(library.as_os_str().as_encoded_bytes())));
    if has_separator(&own) {
        bail!(
            "cannot preload {} or {}, because their paths contain blanks or colons. Set {CACHE_VARIABLE} to a folder whose path has \
             neither",
            library.display(),
            own.display()
        );
    }
    trodden_profile::temporary::create_folders(&folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    link(library, &own)?;
    Ok(own)
}

/// Returns the link under whose name this program is cargo's subcommand, wrapper of rustc and linker.
pub fn cargo_driver(context: &DriverContext, store: &UnitCache) -> Result<PathBuf> {
    Ok(drivers(context, store)?.join("cargo-trodden"))
}

/// Name of the link under which this program is the wrapper of rustdoc.
pub const RUSTDOC_DRIVER: &str = "trodden-rustdoc";

/// Name of the link under which this program is cargo's runner for programs.
pub const CARGO_RUNNER: &str = "trodden-cargo-runner";

/// Returns a folder with the links `cargo-trodden`, [`RUSTDOC_DRIVER`] and [`CARGO_RUNNER`]. Its path differs between build
/// configurations: if the path of its wrapper changes, cargo queries the version again, and rebuilds what the previous wrapper built.
pub fn cargo_wrappers(context: &DriverContext, store: &UnitCache, configuration: Identity) -> Result<PathBuf> {
    let own = drivers(context, store)?;
    let folder = own.join("ways").join(&configuration.to_string()[..16]);
    trodden_profile::temporary::create_folders(&folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    ["cargo-trodden", RUSTDOC_DRIVER, CARGO_RUNNER].iter().try_for_each(|name| link(context.executable()?, &folder.join(name)))?;
    Ok(folder)
}

/// Names under which this program acts as a driver.
const DRIVERS: &[&str] = &["trodden-cc", "trodden-c++", "cargo-trodden"];

/// Returns a folder of links to the running program under its driver names, for build systems that need a compiler in one word. Its
/// subfolder `path` has links under the names of common compilers. The folder is in the store, one per location of the program.
pub fn drivers(context: &DriverContext, store: &UnitCache) -> Result<PathBuf> {
    let own = context.executable()?;
    let folder = store.root().join("drivers").join(&Identity::from_content(own.as_os_str().as_encoded_bytes()).to_string()[..16]);
    link_drivers(context, &folder)?;
    trodden_profile::temporary::create_folders(&folder.join("path"))?;
    stand_ins::names(context).iter().try_for_each(|name| link(own, &folder.join("path").join(name)))?;
    Ok(folder)
}

/// Creates links to the running program under its driver names in a folder.
pub fn link_drivers(context: &DriverContext, folder: &Path) -> Result<()> {
    let program = context.executable()?;
    trodden_profile::temporary::create_folders(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    DRIVERS.iter().try_for_each(|name| link(program, &folder.join(name)))?;
    // CMake takes `trodden-` for a toolchain prefix, and looks for tools with that prefix beside the compiler.
    let Ok(llvm) = Llvm::find(context) else { return Ok(()) };
    for tool in [Tool::Ar, Tool::Ranlib, Tool::Nm] {
        if let Ok(path) = llvm.tool(context, tool) {
            link(&path, &folder.join(format!("trodden-{}", tool.name())))?;
        }
    }
    Ok(())
}

/// Creates or replaces a link, unless it exists already or would point to itself.
fn link(to: &Path, link: &Path) -> Result<()> {
    if to == link || fs::read_link(link).is_ok_and(|found| found == to) {
        return Ok(());
    }
    // Ensures that a signal does not leave the temporary link behind.
    let _names = trodden_profile::temporary::lock_registry();
    let mut temporary = link.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    std::os::unix::fs::symlink(to, &temporary)
        .and_then(|()| fs::rename(&temporary, link))
        .with_context(|| format!("cannot create the link {}", link.display()))
}
