//! Trodden's own files: objects for the linker, which are embedded in this program, and libraries, which are installed beside the program.
//!
//! Linkers need files, so each object is written to the unit cache once, under the hash of its content. Different versions of trodden
//! therefore never read each other's objects, and processes that write the same file concurrently write the same content. Empty files
//! beside the objects, `*.clang`, record which clang has loaded the plugin.

use crate::context::DriverContext;
use crate::other_programs::{option_with_value, run};
use crate::stand_ins;
use crate::toolchain::{CLANG_VARIABLE, LlvmTool, LlvmToolchain, install};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_profile::atomic_file;
use trodden_unit::experiment::{EXPERIMENT_VARIABLE, spelling::SETTINGS_VARIABLE};
use trodden_unit::{Identity, UnitCache, cache::CACHE_VARIABLE};

const RUNTIME_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trodden_rt.o"));
const START_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trodden_start.o"));
/// The entry point in the start object. It sets up thread-local storage, then jumps to the program's `_start`.
pub const START_SYMBOL: &str = "__trodden_start";
/// Section of the start object that contains the address of `_start`, or 0 if the program has no `_start`. It is not loaded into memory.
pub const START_SECTION: &str = ".trodden.start";
/// Prefix for the names of files in the cache that are still being written.
pub const TEMPORARY_PREFIX: &str = ".new-";

/// Returns the path of the runtime object in the unit cache. Writes the object if necessary.
pub fn runtime_object(store: &UnitCache) -> Result<PathBuf> {
    write_object(store, RUNTIME_OBJECT)
}

/// Returns the path of the object with [`START_SYMBOL`] in the unit cache. Writes the object if necessary.
pub fn start_object(store: &UnitCache) -> Result<PathBuf> {
    write_object(store, START_OBJECT)
}

fn write_object(store: &UnitCache, content: &[u8]) -> Result<PathBuf> {
    let path = store.root().join("runtime").join(format!("{}.o", Identity::from_content(content)));
    if fs::read(&path).is_ok_and(|bytes| bytes == content) {
        return Ok(path);
    }
    atomic_file::write_unsynced(&path, TEMPORARY_PREFIX, content).with_context(|| {
        format!("cannot write trodden's runtime object file {}. Set {CACHE_VARIABLE} to a writable folder", path.display())
    })?;
    Ok(path)
}

/// A shared library that is installed beside this program.
#[derive(Debug)]
pub struct TroddenLibrary {
    /// What the library is called in messages.
    pub kind: &'static str,
    /// Name of the library's file.
    pub file: &'static str,
    /// The cargo package that builds the library.
    pub package: &'static str,
    /// Environment variable with the path of a library file to use instead of the installed one.
    pub variable: &'static str,
}

/// The clang plugin, which instruments code.
pub const COMPILER_PLUGIN_LIBRARY: TroddenLibrary =
    TroddenLibrary { kind: "plugin", file: "libtrodden_instrument.so", package: "trodden-instrument", variable: "TRODDEN_PLUGIN" };

impl TroddenLibrary {
    /// Finds the library's file. Fails if it does not exist, with a message that names the paths that were tried.
    pub fn find(&self, context: &DriverContext) -> Result<PathBuf> {
        match self.from_variable(context)? {
            Some(named) => Ok(named),
            None => self.require_installed(context),
        }
    }

    /// Finds the library's file and returns an absolute path that can be used in `LD_PRELOAD`.
    pub fn find_preloadable(&self, context: &DriverContext) -> Result<PathBuf> {
        match self.from_variable(context)? {
            Some(named) => Ok(named),
            None => link_for_preload(context, &fs::canonicalize(self.require_installed(context)?)?),
        }
    }

    /// Returns the file that [`TroddenLibrary::variable`] names, or `None` if the variable is not set.
    pub fn from_variable(&self, context: &DriverContext) -> Result<Option<PathBuf>> {
        let Some(named) = context.value(self.variable) else { return Ok(None) };
        let path = std::path::absolute(PathBuf::from(named))?;
        ensure!(path.is_file(), "{} does not exist. Set {} to the path of {}", path.display(), self.variable, self.file);
        Ok(Some(path))
    }

    /// Searches the folder of this program and the folder `../lib/trodden`. If neither has the library, returns the two paths that were
    /// tried.
    pub fn find_installed(&self, context: &DriverContext) -> Result<Result<PathBuf, [PathBuf; 2]>> {
        let own = context.executable_folder()?;
        let paths = [own.join(self.file), own.join("../lib/trodden").join(self.file)];
        Ok(paths.iter().find(|path| path.is_file()).cloned().ok_or(paths))
    }

    fn require_installed(&self, context: &DriverContext) -> Result<PathBuf> {
        self.find_installed(context)?.map_err(|paths| {
            let [one, other] = paths.each_ref().map(|path| path.display());
            let TroddenLibrary { kind, file, package, variable } = self;
            anyhow!(
                "cannot find the {kind} {file}: neither {one} nor {other} exists. Build it with `cargo build --release -p {package}`, or \
                    set {variable} to its path"
            )
        })
    }
}

/// Returns the clang option that loads the plugin.
pub fn plugin_option(context: &DriverContext, llvm: &LlvmToolchain) -> Result<OsString> {
    Ok(option_with_value("-fpass-plugin=", check_plugin(context, llvm)?))
}

/// Checks that clang can load the plugin and that the plugin accepts clang, and returns the plugin's path. An unsuitable clang, such as a
/// statically linked one, is thus noticed before anything is compiled. The unit cache remembers which clang was accepted.
pub fn check_plugin(context: &DriverContext, llvm: &LlvmToolchain) -> Result<PathBuf> {
    let plugin = COMPILER_PLUGIN_LIBRARY.find(context)?;
    let accepted = context.store()?.root().join("runtime").join(plugin_check_file_name(llvm, &plugin)?);
    if !accepted.exists() {
        try_compiler_plugin(context, llvm, &plugin)?;
        // A failure only means that the check is repeated. The plugin itself reports later that the cache is not writable.
        _ = atomic_file::write_unsynced(&accepted, TEMPORARY_PREFIX, b"");
    }
    Ok(plugin)
}

/// Loads the plugin into clang by compiling an empty file. Unlike [`check_plugin`], does not rely on results in the unit cache.
pub fn try_compiler_plugin(context: &DriverContext, llvm: &LlvmToolchain, plugin: &Path) -> Result<()> {
    let mut command = Command::new(llvm.clang());
    command.args(["-x", "c", "-c", "/dev/null", "-o", "/dev/null"]).arg(option_with_value("-fpass-plugin=", plugin));
    command.env(CACHE_VARIABLE, context.store()?.root()).env_remove(EXPERIMENT_VARIABLE).env_remove(SETTINGS_VARIABLE);
    run(&mut command).map(drop).with_context(|| {
        format!(
            "{} (clang {}) cannot load the compiler plugin {}. Install your distribution's clang with {}, and set {CLANG_VARIABLE} to its \
             path",
            llvm.clang().display(),
            llvm.major,
            plugin.display(),
            install(LlvmTool::Clang)
        )
    })
}

/// Returns the name of the file that records that a clang was accepted. The name is a hash of clang's version and of the identities of
/// clang and plugin. The LLVM library need not be part of the hash: packages replace it together with clang, and a clang with a different
/// library fails by itself.
fn plugin_check_file_name(llvm: &LlvmToolchain, plugin: &Path) -> Result<String> {
    let all = [llvm.major.to_string(), llvm.clang().display().to_string(), file_identity(llvm.clang())?, file_identity(plugin)?];
    Ok(format!("{}.clang", Identity::from_content(all.join("\n").as_bytes())))
}

/// Returns a file's path, size and modification time, at least one of which changes when the file is replaced. It serves as the identity of
/// files that are too large to hash.
pub fn file_identity(file: &Path) -> Result<String> {
    let path = fs::canonicalize(file).with_context(|| format!("cannot find {}", file.display()))?;
    let properties = fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(format!("{} {} {:?}", path.display(), properties.len(), properties.modified()?))
}

/// Returns a path for `LD_PRELOAD`, in which blanks and colons separate libraries. If the library's path contains such characters, returns
/// the path of a symbolic link in the unit cache.
fn link_for_preload(context: &DriverContext, library: &Path) -> Result<PathBuf> {
    let has_separator = |path: &Path| path.as_os_str().as_encoded_bytes().iter().any(|byte| b" \t\n:".contains(byte));
    if !has_separator(library) {
        return Ok(library.to_owned());
    }
    let folder = context.store()?.root().join("runtime");
    let own = folder.join(format!("{}.so", Identity::from_content(library.as_os_str().as_encoded_bytes())));
    if has_separator(&own) {
        bail!(
            "cannot preload trodden's libraries {} or {}, because their paths contain blanks or colons. Set {CACHE_VARIABLE} to a folder \
             whose path has neither",
            library.display(),
            own.display()
        );
    }
    trodden_profile::temporary::create_folders(&folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    replace_link(library, &own)?;
    Ok(own)
}

/// Creates the link `cargo-trodden` to this program and returns its path. Called by this name, this program acts as cargo's subcommand, as
/// rustc's wrapper and as rustc's linker.
pub fn create_cargo_driver(context: &DriverContext, store: &UnitCache) -> Result<PathBuf> {
    Ok(create_driver_links(context, store)?.join("cargo-trodden"))
}

/// Name of a link to this program. Called by this name, this program wraps rustdoc.
pub const RUSTDOC_DRIVER: &str = "trodden-rustdoc";

/// Name of a link to this program. Called by this name, this program runs programs for cargo.
pub const CARGO_RUNNER: &str = "trodden-cargo-runner";

/// Creates a folder with the links `cargo-trodden`, [`RUSTDOC_DRIVER`] and [`CARGO_RUNNER`], and returns its path. Each build configuration
/// has its own folder, because a changed wrapper path makes cargo query the compiler's version again and rebuild what the previous wrapper
/// built.
pub fn create_cargo_wrappers(context: &DriverContext, store: &UnitCache, configuration: Identity) -> Result<PathBuf> {
    let own = create_driver_links(context, store)?;
    let folder = own.join("ways").join(&configuration.to_string()[..16]);
    trodden_profile::temporary::create_folders(&folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    ["cargo-trodden", RUSTDOC_DRIVER, CARGO_RUNNER].iter().try_for_each(|name| replace_link(context.executable()?, &folder.join(name)))?;
    Ok(folder)
}

/// Names by which this program acts as a compiler driver.
const DRIVER_NAMES: &[&str] = &["trodden-cc", "trodden-c++", "cargo-trodden"];

/// Creates a folder of links to this program under its driver names, for build systems in which the compiler must be a single word. Returns
/// the folder, which is in the unit cache. Its subfolder `path` has links under common compiler names. Each installed copy of this program
/// has its own folder.
pub fn create_driver_links(context: &DriverContext, store: &UnitCache) -> Result<PathBuf> {
    let own = context.executable()?;
    let folder = store.root().join("drivers").join(&Identity::from_content(own.as_os_str().as_encoded_bytes()).to_string()[..16]);
    link_drivers(context, &folder)?;
    trodden_profile::temporary::create_folders(&folder.join("path"))?;
    stand_ins::stand_in_names(context).iter().try_for_each(|name| replace_link(own, &folder.join("path").join(name)))?;
    Ok(folder)
}

/// Creates links to this program, under its driver names, in a folder.
pub fn link_drivers(context: &DriverContext, folder: &Path) -> Result<()> {
    let program = context.executable()?;
    trodden_profile::temporary::create_folders(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    DRIVER_NAMES.iter().try_for_each(|name| replace_link(program, &folder.join(name)))?;
    // CMake takes `trodden-` for the prefix of a cross toolchain, and searches for tools with this prefix beside the compiler.
    let Ok(llvm) = LlvmToolchain::find(context) else { return Ok(()) };
    for tool in [LlvmTool::Ar, LlvmTool::Ranlib, LlvmTool::Nm] {
        if let Ok(path) = llvm.tool(context, tool) {
            replace_link(&path, &folder.join(format!("trodden-{}", tool.name())))?;
        }
    }
    Ok(())
}

/// Creates or replaces a symbolic link. Does nothing if the link exists already or would point to itself.
fn replace_link(to: &Path, link: &Path) -> Result<()> {
    if to == link || fs::read_link(link).is_ok_and(|found| found == to) {
        return Ok(());
    }
    // A signal cannot end the program while the registry of temporary files is locked, so the temporary link is not left behind.
    let _names = trodden_profile::temporary::lock_registry();
    let mut temporary = link.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    std::os::unix::fs::symlink(to, &temporary)
        .and_then(|()| fs::rename(&temporary, link))
        .with_context(|| format!("cannot create the link {}", link.display()))
}
