//! The Debian packages that the project needs besides Rust, and their installation.
//!
//! A package counts as installed if a program or file that it provides exists. Therefore, the package manager is called only if a package
//! is missing, and other distributions work if the same programs are installed manually.

use crate::steps;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// A Debian package, and the name of a program or the absolute path of a file that the package provides.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    package: &'static str,
    provided: &'static str,
}

const fn need(package: &'static str, provided: &'static str) -> Need {
    Need { package, provided }
}

/// Packages for building and using trodden.
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

/// Packages for fetching and unpacking source packages.
const SOURCES: &[Need] = &[
    need("dpkg-dev", "dpkg-source"),
    need("patch", "patch"),
    need("xz-utils", "xz"),
    need("bzip2", "bzip2"),
    need("ca-certificates", "/etc/ssl/certs/ca-certificates.crt"),
];

/// Packages that the tests need besides the toolchain.
const TESTS: &[Need] = &[
    need("libclang-rt-22-dev", "/usr/lib/llvm-22/lib/clang/22/lib/linux/libclang_rt.profile-x86_64.a"),
    need("clang-19", "clang-19"),
    need("lld-19", "ld.lld-19"),
    need("llvm-19", "llvm-profdata-19"),
    need("libclang-rt-19-dev", "/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.profile-x86_64.a"),
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

/// Packages that the benchmark needs besides the toolchain.
const MEASURING: &[Need] = &[
    need("libclang-rt-22-dev", "/usr/lib/llvm-22/lib/clang/22/lib/linux/libclang_rt.profile-x86_64.a"),
    need("g++", "g++"),
    need("valgrind", "valgrind"),
];

/// Packages that the benchmark of waiting times needs besides the toolchain.
const WAITS: &[Need] = &[
    need("openmpi-bin", "mpirun.openmpi"),
    need("libopenmpi-dev", "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h"),
    need("otf2-tools", "otf2-print"),
    need("python3-venv", "python3"),
];

/// Packages that checking trodden's own packages in minimal systems needs besides the toolchain.
const SYSTEMS: &[Need] = &[need("mmdebstrap", "mmdebstrap"), need("zstd", "zstd"), need("rpm", "rpmbuild")];

/// A task that packages are installed for.
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

/// Installs the missing packages for a purpose, after logging their names.
///
/// # Errors
/// A package is missing and cannot be installed; the message names all missing packages.
pub fn ensure(purpose: PackagePurpose) -> Result<()> {
    let missing: Vec<&str> = purpose.needs().iter().filter(|n| !is_present(n.provided)).map(|n| n.package).collect();
    install(&missing)
}

/// Installs Debian packages that are not installed yet. On other systems, only logs their names.
///
/// # Errors
/// A package cannot be installed; the message names all missing packages.
pub fn ensure_packages(packages: &[String]) -> Result<()> {
    if !steps::on_path("dpkg-query") {
        log::info!(
            "this is not a Debian system. To build all programs of the corpus, install the equivalents of these Debian packages: {}",
            packages.join(" ")
        );
        return Ok(());
    }
    let has = |package: &&String| {
        steps::output(Command::new("dpkg-query").args(["-W", "-f=${db:Status-Status}"]).arg(package)).is_ok_and(|s| s == "installed")
    };
    let missing: Vec<&str> = packages.iter().filter(|p| !has(p)).map(String::as_str).collect();
    install(&missing)
}

/// Returns true if `packages` is not empty and the system's package lists offer all of them.
pub fn are_offered(packages: &[String]) -> bool {
    let offers = |package: &String| {
        let shown = Command::new("apt-cache").args(["policy", package]).output();
        shown.is_ok_and(|out| candidate_version(&String::from_utf8_lossy(&out.stdout)).is_some())
    };
    !packages.is_empty() && packages.iter().all(offers)
}

/// The version that would be installed, from the output of `apt-cache policy`.
fn candidate_version(policy: &str) -> Option<&str> {
    policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: ")).filter(|version| *version != "(none)")
}

fn install(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if !steps::on_path("apt-get") {
        bail!(
            "this system lacks the contents of these Debian packages: {list}. Install the equivalent packages with your system's \
             package manager"
        );
    }
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root && !steps::on_path("sudo") {
        bail!("these packages are not installed: {list}. Run `apt-get install {list}` as root, and repeat this command");
    }
    steps::headline(&format!("Installing {} Debian package{}: {list}", packages.len(), if packages.len() == 1 { "" } else { "s" }));
    // Update the package lists only if installation with the present lists fails.
    if steps::run(apt_command(is_root, "install").args(packages)).is_err() {
        steps::run(&mut apt_command(is_root, "update"))?;
        if let Err(error) = steps::run(apt_command(is_root, "install").args(packages)) {
            bail!(
                "{error}; apt-get's message is above. Debian 12 and later provide LLVM 22 (main and security). On other systems, \
                 install it from LLVM's own package archive"
            );
        }
    }
    Ok(())
}

fn apt_command(is_root: bool, what: &str) -> Command {
    let mut command = Command::new(if is_root { "env" } else { "sudo" });
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600", what]);
    if what == "install" {
        command.arg("--no-install-recommends");
    }
    command
}

fn is_present(provided: &str) -> bool {
    if provided.starts_with('/') { Path::new(provided).exists() } else { steps::on_path(provided) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_without_a_candidate_are_not_offered() {
        assert_eq!(candidate_version("a:\n  Installed: (none)\n  Candidate: 4.04c-4\n  Version table:\n"), Some("4.04c-4"));
        assert_eq!(candidate_version("a:\n  Installed: (none)\n  Candidate: (none)\n"), None);
        assert_eq!(candidate_version(""), None);
    }
}
