//! Makes the Debian package, the archive and the rpm package.
//!
//! The packages depend on the shared libraries that the programs need, and on a C compiler. The Debian package is made with `dpkg-deb`
//! instead of `cargo-deb`: the other two formats need the tree of files anyway, so only a control file is left to write.

use super::{VERSION, compile, tree};
use anyhow::{Context, Result, bail};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::steps;

/// Packages without which trodden cannot compile and link programs.
const REQUIRED_PACKAGES: &str = "clang-22 | clang-21 | clang-20 | clang-19, binutils, libc6-dev";
/// Packages for `--lto` builds, coverage reports, and reports from edge profiles.
const RECOMMENDED_PACKAGES: &str = "lld-22 | lld-19, llvm-22 | llvm-19";
/// Packages for `trodden simulate`, for trace collectors, and for recording waiting times.
const SUGGESTED_PACKAGES: &str = "qemu-user, linux-perf, gdb, openmpi-bin | mpich";
const DESCRIPTION: &str = "shows which execution paths native programs take
 trodden counts every path of a C, C++ or Rust program exactly, traces
 unmodified programs block by block, models a hardware path profiler,
 and explains the waiting time of processes and threads.
 .
 C and C++ programs are compiled by clang 19 to 22, Rust programs by a
 rustc whose LLVM is not newer than clang's.";
/// Shared libraries that the programs may need, each with the Debian package that contains it.
const LIBRARIES: [(&str, &str); 8] = [
    ("libc.so.6", "libc6"),
    ("libm.so.6", "libc6"),
    ("libpthread.so.0", "libc6"),
    ("libdl.so.2", "libc6"),
    ("librt.so.1", "libc6"),
    ("libutil.so.1", "libc6"),
    ("ld-linux-x86-64.so.2", "libc6"),
    ("libgcc_s.so.1", "libgcc-s1"),
];

/// Makes the Debian package and returns its path. All files in it get the time `seconds` (since 1970). Fails if the tree cannot be created,
/// a program needs an unknown library, or dpkg-deb fails.
pub fn make_debian_package(work: &Path, output: &Path, seconds: &str) -> Result<PathBuf> {
    let root = work.join("package");
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    tree::create_tree(&root.join("usr"))?;
    let size = steps::output(Command::new("du").args(["-sk", "usr"]).current_dir(&root))?;
    let size = size.split_whitespace().next().unwrap_or_default();
    tree::write_file(&root.join("DEBIAN/control"), render_control_file(size)?.as_bytes(), 0o644)?;
    let sums =
        steps::output(Command::new("sh").args(["-c", "find usr -type f | LC_ALL=C sort | xargs -d '\\n' md5sum"]).current_dir(&root))?;
    tree::write_file(&root.join("DEBIAN/md5sums"), sums.as_bytes(), 0o644)?;
    let file = output.join(format!("trodden_{VERSION}_amd64.deb"));
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "--build"]).arg(&root).arg(&file);
    steps::run(pack.env("SOURCE_DATE_EPOCH", seconds))?;
    Ok(file)
}

/// Makes the archive and returns its path. All files in it get the time `seconds` (since 1970).
pub fn make_archive(work: &Path, output: &Path, seconds: &str) -> Result<PathBuf> {
    let name = format!("trodden-{VERSION}-x86_64-linux");
    tree::create_tree(&work.join(&name))?;
    let file = output.join(format!("{name}.tar.zst"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go=rX,u+rw", "--format=gnu"]);
    tar.arg(format!("--mtime=@{seconds}")).args(["--use-compress-program", "zstd -19 --quiet", "--create", "--file"]).arg(&file);
    steps::run(tar.arg("--directory").arg(work).arg(&name))?;
    Ok(file)
}

/// Makes the rpm package with rpmbuild and returns its path, or `None` if rpmbuild is not installed.
pub fn make_rpm_package(work: &Path, output: &Path, seconds: &str) -> Result<Option<PathBuf>> {
    if !steps::is_on_search_path("rpmbuild") {
        return Ok(None);
    }
    let (root, build) = (work.join("rpm-root"), work.join("rpmbuild"));
    tree::create_tree(&root.join("usr"))?;
    let mut make = Command::new("rpmbuild");
    make.args(["-bb", "--nodeps", "--target", "x86_64", "--define"]).arg(format!("_topdir {}", build.display()));
    make.arg("--define").arg(format!("trodden_version {VERSION}")).arg("--define").arg(format!("trodden_root {}", root.display()));
    make.arg(steps::checkout_root().join("packaging/trodden.spec"));
    steps::run(make.env("SOURCE_DATE_EPOCH", seconds))?;
    let name = format!("trodden-{VERSION}-1.x86_64.rpm");
    let file = output.join(&name);
    fs::copy(build.join("RPMS/x86_64").join(&name), &file).with_context(|| format!("cannot copy {name}"))?;
    Ok(Some(file))
}

fn render_control_file(size: &str) -> Result<String> {
    let mut depends = library_packages()?;
    let c_library = required_glibc()?;
    depends.iter_mut().filter(|name| *name == "libc6").for_each(|name| _ = write!(name, " (>= {c_library})"));
    Ok(format!(
        "Package: trodden\nVersion: {VERSION}\nArchitecture: amd64\nMaintainer: {}\nInstalled-Size: {size}\nDepends: {}, \
            {REQUIRED_PACKAGES}\nRecommends: {RECOMMENDED_PACKAGES}\nSuggests: {SUGGESTED_PACKAGES}\nSection: devel\nPriority: optional\n\
            Description: {DESCRIPTION}\n",
        maintainer(),
        depends.join(", ")
    ))
}

/// Returns the package maintainer, as given by the environment variables that Debian's tools use.
fn maintainer() -> String {
    let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (of("DEBFULLNAME"), of("DEBEMAIL")) {
        (Some(name), Some(address)) => format!("{name} <{address}>"),
        _ => "The trodden developers".to_owned(),
    }
}

fn run_readelf(option: &str) -> Result<String> {
    let files = compile::LIBRARIES.iter().chain(&compile::PROGRAMS).map(|name| compile::folder().join(name));
    steps::output(Command::new("readelf").args(["--wide", option]).args(files).env("LC_ALL", "C"))
}

/// Returns the packages that contain the shared libraries needed by the programs.
fn library_packages() -> Result<Vec<String>> {
    let text = run_readelf("--dynamic")?;
    let mut packages = Vec::new();
    for line in text.lines().filter(|line| line.contains("(NEEDED)")) {
        let name = line.split(['[', ']']).nth(1).unwrap_or_default();
        let Some((_, package)) = LIBRARIES.iter().find(|(library, _)| *library == name) else {
            bail!("a program needs the library {name}, whose package is unknown. Add the package to {}", file!())
        };
        packages.push((*package).to_owned());
    }
    packages.sort();
    packages.dedup();
    Ok(packages)
}

/// Returns the newest glibc version that a symbol of the programs requires.
fn required_glibc() -> Result<String> {
    let text = run_readelf("--version-info")?;
    let versions = text.split("GLIBC_").skip(1).filter_map(|rest| {
        let version = rest.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?;
        version.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>()
    });
    let newest = versions.max().context("no program requires a version of the C library")?;
    Ok(newest.iter().map(u32::to_string).collect::<Vec<_>>().join("."))
}
