//! Makes the Debian package (with cargo-deb), the rpm package (with rpmbuild) and the archive.

use super::{PACKAGE_VERSION, tree};
use anyhow::{Context, Result};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::steps;

/// Debian packages without which trodden cannot compile and link programs. cargo-deb replaces `$auto` by the packages of the shared
/// libraries that the packed programs need.
const REQUIRED_PACKAGES: &str = "$auto, clang-22 | clang-21 | clang-20 | clang-19, binutils, libc6-dev";
/// Debian packages for builds with `--lto`, coverage reports, and reports from edge profiles.
const RECOMMENDED_PACKAGES: &str = "lld-22 | lld-19, llvm-22 | llvm-19";
/// Debian packages for `trodden simulate`, recording traces, and recording waiting times.
const SUGGESTED_PACKAGES: &str = "qemu-user, linux-perf, gdb, openmpi-bin | mpich";
const PACKAGE_SUMMARY: &str = "shows which execution paths native programs take";
const DESCRIPTION: &str = "trodden counts every path of a C, C++ or Rust program exactly, traces
unmodified programs block by block, models a hardware path profiler,
and explains the waiting time of processes and threads.

C and C++ programs are compiled by clang 19 to 22, Rust programs by a
rustc whose LLVM is not newer than clang's.";

/// Makes the Debian package and returns its path. All files in it get the modification time `seconds` (since 1970). Fails if the files to
/// pack cannot be written, or if cargo-deb fails.
pub fn make_debian_package(work: &Path, output: &Path, seconds: &str) -> Result<PathBuf> {
    install_cargo_deb()?;
    let folder = work.join("package");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    tree::create_tree(&folder.join("usr"))?;
    // cargo-deb makes a Debian package from a cargo package. This cargo package has no code, only files to pack.
    tree::write_file(&folder.join("src/lib.rs"), b"", 0o644)?;
    tree::write_file(&folder.join("Cargo.toml"), render_manifest(&folder)?.as_bytes(), 0o644)?;
    let file = output.join(format!("trodden_{PACKAGE_VERSION}_amd64.deb"));
    let mut pack = steps::cargo_command();
    pack.args(["deb", "--no-build", "--no-strip", "--offline", "--manifest-path"]).arg(folder.join("Cargo.toml"));
    steps::run(pack.arg("--output").arg(&file).env("SOURCE_DATE_EPOCH", seconds))?;
    Ok(file)
}

fn install_cargo_deb() -> Result<()> {
    let is_installed = Command::new("cargo").args(["deb", "--version"]).output().is_ok_and(|output| output.status.success());
    if is_installed { Ok(()) } else { steps::run(steps::cargo_command().args(["install", "--locked", "cargo-deb"])) }
}

/// Returns the manifest of a cargo package. cargo-deb makes it a Debian package that contains the files in `folder`/usr.
fn render_manifest(folder: &Path) -> Result<String> {
    let mut assets = String::new();
    add_assets(folder, Path::new("usr"), &mut assets)?;
    // The format `{:?}` quotes these ASCII strings in the same way as TOML.
    Ok(format!(
        "[package]\nname = \"trodden\"\nversion = {PACKAGE_VERSION:?}\nedition = \"2024\"\nlicense = \"MIT OR Apache-2.0\"\n\
            description = {PACKAGE_SUMMARY:?}\n\n[workspace]\n\n[package.metadata.deb]\nmaintainer = {:?}\nrevision = \"\"\n\
            section = \"devel\"\npriority = \"optional\"\ndepends = {REQUIRED_PACKAGES:?}\nrecommends = {RECOMMENDED_PACKAGES:?}\n\
            suggests = {SUGGESTED_PACKAGES:?}\nextended-description = {DESCRIPTION:?}\npreserve-symlinks = true\nassets = [\n{assets}]\n",
        find_maintainer()
    ))
}

/// Appends a line to `assets` for each file below `folder`/`path`: its source, its destination, and its permissions.
fn add_assets(folder: &Path, path: &Path, assets: &mut String) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder.join(path))?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = path.join(entry.file_name());
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            add_assets(folder, &path, assets)?;
            continue;
        }
        let name = path.to_str().with_context(|| format!("the file name {} is not UTF-8", path.display()))?;
        // cargo-deb ignores the permissions of a link.
        let mode = if metadata.is_symlink() { 0o777 } else { metadata.permissions().mode() & 0o777 };
        let _ = writeln!(assets, "    [{name:?}, {name:?}, \"{mode:o}\"],");
    }
    Ok(())
}

/// Makes the relocatable archive and returns its path. All files in it get the modification time `seconds` (since 1970).
pub fn make_archive(work: &Path, output: &Path, seconds: &str) -> Result<PathBuf> {
    let name = format!("trodden-{PACKAGE_VERSION}-x86_64-linux");
    tree::create_tree(&work.join(&name))?;
    let file = output.join(format!("{name}.tar.zst"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go=rX,u+rw", "--format=gnu"]);
    tar.arg(format!("--mtime=@{seconds}")).args(["--use-compress-program", "zstd -19 --quiet", "--create", "--file"]).arg(&file);
    steps::run(tar.arg("--directory").arg(work).arg(&name))?;
    Ok(file)
}

/// Makes the rpm package and returns its path. Returns `None` if rpmbuild is not installed.
pub fn make_rpm_package(work: &Path, output: &Path, seconds: &str) -> Result<Option<PathBuf>> {
    if !steps::is_on_search_path("rpmbuild") {
        return Ok(None);
    }
    let (root, build) = (work.join("rpm-root"), work.join("rpmbuild"));
    tree::create_tree(&root.join("usr"))?;
    let mut make = Command::new("rpmbuild");
    make.args(["-bb", "--nodeps", "--target", "x86_64", "--define"]).arg(format!("_topdir {}", build.display()));
    make.arg("--define").arg(format!("trodden_version {PACKAGE_VERSION}")).arg("--define").arg(format!("trodden_root {}", root.display()));
    make.arg(steps::checkout_root().join("packaging/trodden.spec"));
    steps::run(make.env("SOURCE_DATE_EPOCH", seconds))?;
    let name = format!("trodden-{PACKAGE_VERSION}-1.x86_64.rpm");
    let file = output.join(&name);
    fs::copy(build.join("RPMS/x86_64").join(&name), &file).with_context(|| format!("cannot copy {name}"))?;
    Ok(Some(file))
}

/// Returns the package's maintainer, who is named by the same environment variables as for Debian's tools.
fn find_maintainer() -> String {
    let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (of("DEBFULLNAME"), of("DEBEMAIL")) {
        (Some(name), Some(address)) => format!("{name} <{address}>"),
        _ => "The trodden developers".to_owned(),
    }
}
