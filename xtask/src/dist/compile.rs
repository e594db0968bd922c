//! Compiles the programs to pack with the cargo profile `dist`. The programs are stripped and contain no paths of the build machine.
//!
//! Compilers write the paths of source files into programs, for the messages of panics and assertions. Compiler options replace this
//! machine's folders in these paths by short names.
//!
//! If zig is installed, its C compiler links the programs for glibc [`GLIBC_VERSION`], so that they also run on older systems. Otherwise,
//! the programs need this machine's version of glibc or a newer one, and a message says so.

use super::tree;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::steps;

/// The cargo packages of the programs and libraries to pack.
pub const SHIPPED_CRATES: [&str; 5] = ["trodden", "trodden-lab", "trodden-instrument", "trodden-qemu-plugin", "trodden-waits-recorder"];
pub const SHIPPED_LIBRARIES: [&str; 3] = ["libtrodden_instrument.so", "libtrodden_qemu_plugin.so", "libtrodden_waits_recorder.so"];
pub const SHIPPED_PROGRAMS: [&str; 2] = ["trodden", "trodden-lab"];
/// The oldest glibc version with which programs linked by zig run: that of RHEL 8.
const GLIBC_VERSION: &str = "2.28";
/// Build flags that leave out the parts of SQLite that trodden does not use, such as full-text search and spatial indexes. They are a third
/// of SQLite.
const SQLITE_FLAGS: [&str; 10] = [
    "-USQLITE_ENABLE_API_ARMOR",
    "-USQLITE_ENABLE_COLUMN_METADATA",
    "-USQLITE_ENABLE_DBSTAT_VTAB",
    "-USQLITE_ENABLE_FTS3",
    "-USQLITE_ENABLE_FTS5",
    "-USQLITE_ENABLE_LOAD_EXTENSION",
    "-USQLITE_ENABLE_RTREE",
    "-USQLITE_ENABLE_STAT4",
    "-DSQLITE_OMIT_JSON",
    "-DSQLITE_OMIT_LOAD_EXTENSION",
];
/// The character between two options in `CARGO_ENCODED_RUSTFLAGS`.
const RUSTFLAGS_SEPARATOR: &str = "\x1f";

pub fn compiled_folder() -> PathBuf {
    steps::target_folder().join("dist")
}

/// Compiles all programs and libraries, and checks that each has a build ID and contains no path of this machine.
pub fn run() -> Result<()> {
    let (machine_folders, names): (Vec<PathBuf>, Vec<&str>) = list_path_replacements()?.into_iter().unzip();
    let options = |option: &str, separator: &str| {
        let each = machine_folders.iter().zip(&names).map(|(place, name)| format!("{option}{}={name}", place.display()));
        each.collect::<Vec<_>>().join(separator)
    };
    let mut cargo = steps::cargo_command();
    // The feature `bundled` links SQLite and zstd statically, so that the programs do not depend on a distribution's versions of them.
    cargo
        .args(["build", "--locked", "--profile", "dist", "--no-default-features", "--features", "trodden/bundled"])
        .args(SHIPPED_CRATES.iter().flat_map(|package| ["--package", package]));
    // The symbols are stripped by this option because the cargo profile would strip only debug information from packages whose optimisation
    // level it sets. The build ID needs an option because zig's linker does not write one by default.
    let paths = options("--remap-path-prefix=", RUSTFLAGS_SEPARATOR);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", [&*paths, "-Cstrip=symbols", "-Clink-arg=-Wl,--build-id=sha1"].join(RUSTFLAGS_SEPARATOR));
    match find_zig() {
        Some(zig) => {
            let compiler = write_zig_compiler(zig)?;
            cargo.env("CC", &compiler).env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER", &compiler);
        }
        None => println!("zig is not installed (pip install ziglang): the programs will need this machine's C library or a newer one"),
    }
    cargo.env("CFLAGS", options("-ffile-prefix-map=", " ")).env("LIBSQLITE3_FLAGS", SQLITE_FLAGS.join(" "));
    steps::run(&mut cargo)?;
    let files = SHIPPED_LIBRARIES.iter().chain(&SHIPPED_PROGRAMS).map(|name| compiled_folder().join(name));
    files.into_iter().try_for_each(|file| check_compiled_file(&file, &machine_folders))
}

/// Returns the command that starts zig: either the program `zig` or the Python package `ziglang`. Returns `None` if neither is installed.
fn find_zig() -> Option<&'static str> {
    if steps::is_on_search_path("zig") {
        return Some("zig");
    }
    let module = Command::new("python3").args(["-m", "ziglang", "version"]).output();
    module.is_ok_and(|output| output.status.success()).then_some("python3 -m ziglang")
}

/// Writes a shell script that works as a C compiler and linker: it calls zig for glibc [`GLIBC_VERSION`]. Returns the script's path.
fn write_zig_compiler(zig: &str) -> Result<PathBuf> {
    let script = steps::target_folder().join("dist-work/zig-cc");
    // The script drops `--target`, because zig does not know Rust's names for targets. It disables zig's default checks for undefined
    // behaviour, because they would need a runtime library.
    let text = format!(
        "#!/bin/sh\nfor argument do\n  shift\n  case $argument in --target=*) ;; *) set -- \"$@\" \"$argument\" ;; esac\ndone\n\
            exec {zig} cc -target x86_64-linux-gnu.{GLIBC_VERSION} -fno-sanitize=undefined \"$@\"\n"
    );
    tree::write_file(&script, text.as_bytes(), 0o755)?;
    Ok(script)
}

/// Returns the folders of this machine that can occur in programs, each with the name that replaces it. If a path is inside several of
/// these folders, compilers use the last of them.
fn list_path_replacements() -> Result<Vec<(PathBuf, &'static str)>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home =
        home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).context("cannot find cargo's home folder: set CARGO_HOME")?;
    let sysroot = steps::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let library = PathBuf::from(sysroot.trim()).join("lib/rustlib/src/rust");
    let mut replacements = vec![(home.clone(), "cargo"), (library, "rust"), (steps::checkout_root(), ".")];
    // Cargo keeps the sources from each registry in a separate subfolder of this folder.
    let fetched = home.join("registry/src");
    let registries = std::fs::read_dir(&fetched).with_context(|| format!("cannot read {}. Run `cargo fetch` first", fetched.display()))?;
    for registry in registries {
        replacements.push((registry?.path(), "crates"));
    }
    replacements.push((steps::target_folder(), "target"));
    Ok(replacements)
}

fn check_compiled_file(file: &Path, machine_folders: &[PathBuf]) -> Result<()> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    for place in machine_folders {
        let place = format!("{}/", place.display());
        if let Some(at) = find_bytes(&bytes, place.as_bytes()) {
            let rest = String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 200)]).into_owned();
            let path = rest.split(|c: char| c.is_control()).next().unwrap_or_default();
            bail!("{} contains the path {path} of this machine", file.display());
        }
    }
    let notes = steps::output(Command::new("readelf").arg("--notes").arg(file).env("LC_ALL", "C"))?;
    ensure!(notes.contains("Build ID: "), "{} has no build ID", file.display());
    Ok(())
}

fn find_bytes(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == first).map(|(at, _)| at);
    starts.into_iter().find(|at| bytes[*at..].starts_with(wanted))
}
