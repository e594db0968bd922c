//! What has to be installed beside Rust, and installing it.
//!
//! A need is known by a file or program that it brings, so nothing is asked of the package manager on a machine that has all, and other
//! distributions work too where the same programs are installed by hand.

use crate::steps;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// A Debian package and what shows that it is there: a program's name, or a file's path.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    package: &'static str,
    shown_by: &'static str,
}

const fn need(package: &'static str, shown_by: &'static str) -> Need {
    Need { package, shown_by }
}

/// What trodden is built and used with.
const TOOLCHAIN: &[Need] = &[
    need("gcc", "gcc"),
    need("libc6-dev", "/usr/include/stdio.h"),
    need("binutils", "objcopy"),
    need("make", "make"),
    need("pkg-config", "pkg-config"),
    need("libsqlite3-dev", "/usr/include/sqlite3.h"),
    need("libzstd-dev", "/usr/include/zstd.h"),
    need("clang-22", "clang-22"),
    need("lld-22", "ld.lld-22"),
    need("llvm-22", "llvm-ar-22"),
];

/// Fetching and unpacking source packages.
const SOURCES: &[Need] = &[
    need("dpkg-dev", "dpkg-source"),
    need("patch", "patch"),
    need("xz-utils", "xz"),
    need("bzip2", "bzip2"),
    need("ca-certificates", "/etc/ssl/certs/ca-certificates.crt"),
];

/// What tests build and run programs with, beside the toolchain.
const TESTS: &[Need] = &[
    need("libclang-rt-22-dev", "/usr/lib/llvm-22/lib/clang/22/lib/linux/libclang_rt.profile-x86_64.a"),
    need("g++", "g++"),
    need("cmake", "cmake"),
    need("libtool", "libtoolize"),
    need("autoconf", "autoconf"),
    need("automake", "automake"),
    need("ccache", "ccache"),
    need("qemu-user", "qemu-x86_64"),
    need("openmpi-bin", "mpirun.openmpi"),
    need("libopenmpi-dev", "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h"),
    need("mpich", "mpirun.mpich"),
    need("libmpich-dev", "/usr/include/x86_64-linux-gnu/mpich/mpi.h"),
    need("gfortran", "gfortran"),
    need("babeltrace2", "babeltrace2"),
    need("unison", "unison"),
    need("chromium", "chromium"),
    need("chromium-driver", "chromedriver"),
    need("python3", "python3"),
    need("zstd", "zstd"),
];

/// What the benchmark takes, beside the toolchain.
const MEASURING: &[Need] = &[
    need("libclang-rt-22-dev", "/usr/lib/llvm-22/lib/clang/22/lib/linux/libclang_rt.profile-x86_64.a"),
    need("g++", "g++"),
    need("valgrind", "valgrind"),
];

/// What the benchmark of waits takes, beside the toolchain.
const WAITS: &[Need] = &[
    need("openmpi-bin", "mpirun.openmpi"),
    need("libopenmpi-dev", "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h"),
    need("otf2-tools", "otf2-print"),
    need("python3-venv", "python3"),
];

/// What checks of packages in bare systems take, beside the toolchain.
const SYSTEMS: &[Need] = &[need("mmdebstrap", "mmdebstrap")];

/// A use of the project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackagePurpose {
    /// `cargo xtask demo`
    Demo,
    /// `cargo xtask test`
    Test,
    /// `cargo xtask corpus`
    Corpus,
    /// `trodden-lab experiment bench`
    Bench,
    /// `trodden-lab experiment waits`
    Waits,
    /// `cargo xtask dist --check`
    Dist,
}

impl PackagePurpose {
    fn needs(self) -> Vec<Need> {
        let lists: &[&[Need]] = match self {
            PackagePurpose::Demo | PackagePurpose::Corpus => &[TOOLCHAIN, SOURCES],
            PackagePurpose::Test => &[TOOLCHAIN, SOURCES, TESTS],
            PackagePurpose::Bench => &[TOOLCHAIN, SOURCES, MEASURING],
            PackagePurpose::Waits => &[TOOLCHAIN, WAITS],
            PackagePurpose::Dist => &[TOOLCHAIN, SYSTEMS],
        };
        lists.concat()
    }
}

/// Installs what a purpose needs and the machine lacks; says what it installs before it does.
///
/// # Errors
/// Something is missing and cannot be installed; the message names it.
pub fn ensure(purpose: PackagePurpose) -> Result<()> {
    let missing: Vec<&str> = purpose.needs().iter().filter(|n| !is_there(n.shown_by)).map(|n| n.package).collect();
    install(&missing)
}

/// Installs Debian packages that are not installed.
///
/// # Errors
/// They cannot be installed; the message names them.
pub fn ensure_packages(packages: &[String]) -> Result<()> {
    if !steps::on_path("dpkg-query") {
        log::info!("This is no Debian system: programs of the corpus may need what these packages bring: {}", packages.join(" "));
        return Ok(());
    }
    let has = |package: &&String| {
        steps::output(Command::new("dpkg-query").args(["-W", "-f=${db:Status-Status}"]).arg(package)).is_ok_and(|s| s == "installed")
    };
    let missing: Vec<&str> = packages.iter().filter(|p| !has(p)).map(String::as_str).collect();
    install(&missing)
}

/// Whether the system's package lists have all of these packages.
pub fn are_offered(packages: &[String]) -> bool {
    let offers = |package: &String| {
        let shown = Command::new("apt-cache").args(["policy", package]).output();
        shown.is_ok_and(|out| candidate(&String::from_utf8_lossy(&out.stdout)).is_some())
    };
    !packages.is_empty() && packages.iter().all(offers)
}

/// The version that would be installed, in what `apt-cache policy` says.
fn candidate(policy: &str) -> Option<&str> {
    policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: ")).filter(|version| *version != "(none)")
}

fn install(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if !steps::on_path("apt-get") {
        bail!(
            "missing, by the names of Debian's packages: {list}. There is no apt-get here to install them: install them by your system's \
                own means"
        );
    }
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root && !steps::on_path("sudo") {
        bail!("missing packages: {list}. Neither root nor sudo: run `apt-get install {list}` as root, then this command again");
    }
    steps::headline(&format!("Installing {} Debian package{}: {list}", packages.len(), if packages.len() == 1 { "" } else { "s" }));
    // Lists that are there may do, and a machine without them, or with old ones, gets them.
    if steps::run(apt(is_root, "install").args(packages)).is_err() {
        steps::run(&mut apt(is_root, "update"))?;
        if let Err(error) = steps::run(apt(is_root, "install").args(packages)) {
            bail!(
                "{error}: see apt-get's message above. LLVM 22 is in Debian 12 and later (main and security); elsewhere take LLVM's own \
                    archive of packages"
            );
        }
    }
    Ok(())
}

fn apt(is_root: bool, what: &str) -> Command {
    let mut command = Command::new(if is_root { "env" } else { "sudo" });
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600", what]);
    if what == "install" {
        command.arg("--no-install-recommends");
    }
    command
}

fn is_there(shown_by: &str) -> bool {
    if shown_by.starts_with('/') { Path::new(shown_by).exists() } else { steps::on_path(shown_by) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_without_a_candidate_are_not_offered() {
        assert_eq!(candidate("a:\n  Installed: (none)\n  Candidate: 4.04c-4\n  Version table:\n"), Some("4.04c-4"));
        assert_eq!(candidate("a:\n  Installed: (none)\n  Candidate: (none)\n"), None);
        assert_eq!(candidate(""), None);
    }
}
