//! What trodden brings along: objects for the linker (inside this program) and the plugin (a file beside it).
//!
//! The linker wants files, so each object is written to the store once, under its content's hash: another version of trodden never
//! reads it by mistake, and processes that write it at the same time write the same.

use crate::driver::other_programs::joined;
use crate::driver::stand_ins;
use crate::driver::toolchain::{Tool, is_program};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::whole_file;
use trodden_unit::{Identity, UnitStore, store::STORE_VARIABLE};

/// The runtime, as one relocatable object.
const RUNTIME: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trodden_rt.o"));
/// The entry of programs without libc's start-up, as another.
const START: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trodden_start.o"));
/// The entry that sets up thread-local storage and goes on to `_start`.
pub const START_SYMBOL: &str = "__trodden_start";
/// Section of an image (not loaded) with the address of `_start`, 0 if there is none.
pub const START_SECTION: &str = ".trodden.start";
/// The plugin's file name.
const PLUGIN: &str = "libtrodden_instrument.so";
/// How the names of files begin that are being written to the store.
pub const BEGUN: &str = ".new-";
/// Variable that names another plugin file.
pub const PLUGIN_VARIABLE: &str = "TRODDEN_PLUGIN";

/// The root of the store that the environment names.
///
/// # Errors
/// It names none, and there is no home folder.
pub fn store() -> Result<UnitStore> {
    let root = UnitStore::root_from(|name| env::var_os(name));
    let root = root.ok_or_else(|| anyhow!("no folder for the unit store: set {STORE_VARIABLE} (or HOME)"))?;
    // Absolute: the compiler and the assembler may run elsewhere.
    Ok(UnitStore::at(std::path::absolute(root)?))
}

/// The runtime object as a file for the linker.
///
/// # Errors
/// The store cannot be written.
pub fn runtime_object(store: &UnitStore) -> Result<PathBuf> {
    object(store, RUNTIME)
}

/// The object with [`START_SYMBOL`] as a file for the linker.
///
/// # Errors
/// The store cannot be written.
pub fn start_object(store: &UnitStore) -> Result<PathBuf> {
    object(store, START)
}

fn object(store: &UnitStore, content: &[u8]) -> Result<PathBuf> {
    let path = store.root().join("runtime").join(format!("{}.o", Identity::from_content(content)));
    if fs::read(&path).is_ok_and(|bytes| bytes == content) {
        return Ok(path);
    }
    whole_file::write_again(&path, BEGUN, content).with_context(|| {
        format!("cannot write the runtime object {}: set {STORE_VARIABLE} to a folder that can be written", path.display())
    })?;
    Ok(path)
}

/// The plugin's file.
///
/// # Errors
/// It is not there; the message says where it was looked for.
pub fn plugin() -> Result<PathBuf> {
    match named_library(PLUGIN_VARIABLE, PLUGIN)? {
        Some(named) => Ok(named),
        None => installed("plugin", PLUGIN, "trodden-instrument", PLUGIN_VARIABLE),
    }
}

/// The option by which clang loads it.
///
/// # Errors
/// As above.
pub fn plugin_option() -> Result<OsString> {
    Ok(joined("-fpass-plugin=", plugin()?))
}

/// The file that a variable names in the place of one of our libraries, if it is set.
///
/// # Errors
/// There is no such file.
pub fn named_library(variable: &str, library: &str) -> Result<Option<PathBuf>> {
    let Some(named) = env::var_os(variable).filter(|v| !v.is_empty()) else { return Ok(None) };
    let path = std::path::absolute(PathBuf::from(named))?;
    ensure!(path.is_file(), "{} does not exist: {variable} must name the file {library}", path.display());
    Ok(Some(path))
}

/// One of our libraries, beside this program or in `../lib/trodden`; else the places where it would be.
///
/// # Errors
/// This program's own file is not known.
pub fn installed_library(library: &str) -> Result<Result<PathBuf, [PathBuf; 2]>> {
    let own = own_folder()?;
    let places = [own.join(library), own.join("../lib/trodden").join(library)];
    Ok(places.iter().find(|p| p.is_file()).cloned().ok_or(places))
}

/// One of our libraries where it should be; `package` makes it, and `variable` names another file.
fn installed(what: &str, library: &str, package: &str, variable: &str) -> Result<PathBuf> {
    installed_library(library)?.map_err(|places| {
        let [one, other] = places.each_ref().map(|place| place.display());
        anyhow!(
            "the {what} {library} is neither in {one} nor in {other}: build it with `cargo build --release -p {package}`, or name it by \
                {variable}"
        )
    })
}

/// File name of the library that records waits.
pub const WAITS_RECORDER: &str = trodden_waits_file::symbols::RECORDER;
/// Variable that names another file of it.
const WAITS_RECORDER_VARIABLE: &str = "TRODDEN_WAITS_RECORDER";

/// The library that records waits, absolute.
///
/// # Errors
/// It is not there; the message says where it was looked for.
pub fn waits_recorder() -> Result<PathBuf> {
    match named_library(WAITS_RECORDER_VARIABLE, WAITS_RECORDER)? {
        Some(named) => Ok(named),
        None => preloadable(&fs::canonicalize(installed("recorder", WAITS_RECORDER, "trodden-waits-recorder", WAITS_RECORDER_VARIABLE)?)?),
    }
}

/// The library under a name that `LD_PRELOAD` can hold, which separates libraries by blanks and colons: its own, or that of a link in the
/// unit store.
///
/// # Errors
/// The store's folder has such a name, too, or cannot be written.
fn preloadable(library: &Path) -> Result<PathBuf> {
    let separates = |path: &Path| path.as_os_str().as_encoded_bytes().iter().any(|byte| b" \t\n:".contains(byte));
    if !separates(library) {
        return Ok(library.to_owned());
    }
    let folder = store()?.root().join("runtime");
    let own = folder.join(format!("{}.so", Identity::from_content(library.as_os_str().as_encoded_bytes())));
    if separates(&own) {
        bail!(
            "neither {} nor {} can be preloaded, for the blanks or colons in their names: set {STORE_VARIABLE} to a folder without",
            library.display(),
            own.display()
        );
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    link(library, &own)?;
    Ok(own)
}

/// The folder of the running program, links followed.
///
/// # Errors
/// The system does not say.
pub fn own_folder() -> Result<PathBuf> {
    let own = own_program()?;
    Ok(own.parent().unwrap_or(Path::new("/")).to_owned())
}

/// The running program, links followed.
///
/// # Errors
/// The system does not say.
pub fn own_program() -> Result<PathBuf> {
    env::current_exe().context("cannot find the running program's own file (is /proc mounted?)")
}

/// The program under the name by which it is rustc's wrapper and linker for cargo, and the subcommand of cargo.
///
/// # Errors
/// The store cannot be written.
pub fn for_cargo(store: &UnitStore) -> Result<PathBuf> {
    Ok(drivers(store)?.join("cargo-trodden"))
}

/// The same under a path of its own for each way to build: cargo asks a wrapper of another path for its version again, and rebuilds what
/// another version of the compiler built.
///
/// # Errors
/// The store cannot be written.
pub fn wrapper_for(store: &UnitStore, way: Identity) -> Result<PathBuf> {
    let own = drivers(store)?;
    let folder = own.join("ways").join(&way.to_string()[..16]);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let wrapper = folder.join("cargo-trodden");
    link(&own_program()?, &wrapper)?;
    Ok(wrapper)
}

/// Names under which the program is a driver.
const DRIVERS: &[&str] = &["trodden-cc", "trodden-c++", "cargo-trodden"];

/// A folder of links to the running program under its other names, for build systems that want a compiler in one word;
/// in its subfolder `path`, links named like usual compilers. It is in the store, one per place of the program.
///
/// # Errors
/// The store cannot be written.
pub fn drivers(store: &UnitStore) -> Result<PathBuf> {
    let own = own_program()?;
    let folder = store.root().join("drivers").join(&Identity::from_content(own.as_os_str().as_encoded_bytes()).to_string()[..16]);
    link_drivers(&own, &folder)?;
    fs::create_dir_all(folder.join("path"))?;
    stand_ins::names().iter().try_for_each(|name| link(&own, &folder.join("path").join(name)))?;
    Ok(folder)
}

/// Makes links to the program under its other names in a folder.
///
/// # Errors
/// The folder cannot be written.
pub fn link_drivers(program: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    DRIVERS.iter().try_for_each(|name| link(program, &folder.join(name)))?;
    // CMake takes `trodden-` for the prefix of a toolchain and looks for its tools beside the compiler.
    let clang = Tool::Clang.find().and_then(|c| Ok(fs::canonicalize(c)?));
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
