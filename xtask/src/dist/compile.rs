//! Compiles what is packed: stripped, by the profile `dist` of the workspace, and without the paths of the machine that compiles.
//!
//! Compilers write paths of sources into programs, for messages of panics and assertions. They get them relative to the repository, to the
//! folder of fetched crates, and to the folder of cargo's output.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::steps;

/// The packages whose programs and libraries are packed.
pub const PACKAGES: [&str; 5] = ["trodden", "trodden-lab", "trodden-instrument", "trodden-qemu-plugin", "trodden-waits-recorder"];
/// The libraries among what they make.
pub const LIBRARIES: [&str; 3] = ["libtrodden_instrument.so", "libtrodden_qemu_plugin.so", "libtrodden_waits_recorder.so"];
/// The programs among what they make.
pub const PROGRAMS: [&str; 2] = ["trodden", "trodden-lab"];
/// What separates options in cargo's variable of options for rustc.
const SEPARATOR: &str = "\x1f";

/// The folder of what is compiled.
pub fn folder() -> PathBuf {
    steps::target().join("dist")
}

/// Compiles all, and makes sure that no path of this machine is in it.
///
/// # Errors
/// Cargo failed, or a file holds such a path.
pub fn run() -> Result<()> {
    let (places, names): (Vec<PathBuf>, Vec<&str>) = places()?.into_iter().unzip();
    let options = |option: &str, separator: &str| {
        let each = places.iter().zip(&names).map(|(place, name)| format!("{option}{}={name}", place.display()));
        each.collect::<Vec<_>>().join(separator)
    };
    let mut cargo = steps::cargo();
    // What is packed runs on any distribution: it has its own SQLite and zstd.
    cargo
        .args(["build", "--locked", "--profile", "dist", "--no-default-features", "--features", "trodden/bundled"])
        .args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    // Cargo strips only debug information of packages whose optimisation a profile sets apart.
    let paths = options("--remap-path-prefix=", SEPARATOR);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", format!("{paths}{SEPARATOR}-Cstrip=symbols"));
    steps::run(cargo.env("CFLAGS", options("-ffile-prefix-map=", " ")))?;
    let files = LIBRARIES.iter().chain(&PROGRAMS).map(|name| folder().join(name));
    files.into_iter().try_for_each(|file| check(&file, &places))
}

/// Places on this machine and what stands for them; of several that hold a path, the last counts.
fn places() -> Result<Vec<(PathBuf, &'static str)>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).context("no home folder: set CARGO_HOME")?;
    let sysroot = steps::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let library = PathBuf::from(sysroot.trim()).join("lib/rustlib/src/rust");
    let mut places = vec![(home.clone(), "cargo"), (library, "rust"), (steps::root(), ".")];
    // The folders below are named by the registry.
    let fetched = home.join("registry/src");
    let registries = std::fs::read_dir(&fetched).with_context(|| format!("cannot read {}: run `cargo fetch` first", fetched.display()))?;
    for registry in registries {
        places.push((registry?.path(), "crates"));
    }
    places.push((steps::target(), "target"));
    Ok(places)
}

fn check(file: &Path, places: &[PathBuf]) -> Result<()> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    for place in places {
        let place = format!("{}/", place.display());
        if let Some(at) = find(&bytes, place.as_bytes()) {
            let rest = String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 200)]).into_owned();
            let path = rest.split(|c: char| c.is_control()).next().unwrap_or_default();
            bail!("{} holds a path of this machine: {path}", file.display());
        }
    }
    Ok(())
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == first).map(|(at, _)| at);
    starts.into_iter().find(|at| bytes[*at..].starts_with(wanted))
}
