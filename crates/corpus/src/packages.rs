//! Installs the Debian packages that the project needs besides Rust.
//!
//! A package is regarded as installed if one particular program or file of it exists. Therefore, the package manager is called only if
//! something is missing, and other distributions work if the same programs have been installed by hand.

use crate::steps;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// A Debian package that may be needed. It is regarded as installed if `provided` exists, which is a program on the search path or an
/// absolute path.
#[derive(Clone, Copy, Debug)]
pub struct RequiredPackage {
    package: &'static str,
    provided: &'static str,
}

const fn describe_required_package(package: &'static str, provided: &'static str) -> RequiredPackage {
    RequiredPackage { package, provided }
}

/// Packages that are needed to build and use trodden.
const TOOLCHAIN_PACKAGES: &[RequiredPackage] = &[
    describe_required_package("gcc", "gcc"),
    describe_required_package("libc6-dev", "/usr/include/stdio.h"),
    describe_required_package("binutils", "objcopy"),
    describe_required_package("make", "make"),
    describe_required_package("pkg-config", "pkg-config"),
    describe_required_package("libsqlite3-dev", "/usr/include/sqlite3.h"),
    describe_required_package("libzstd-dev", "/usr/include/zstd.h"),
    describe_required_package("clang-22", "clang-22"),
    describe_required_package("lld-22", "ld.lld-22"),
    describe_required_package("llvm-22", "llvm-ar-22"),
];

/// Packages that are needed to fetch and unpack Debian source packages.
const FETCHING_PACKAGES: &[RequiredPackage] = &[
    describe_required_package("dpkg-dev", "dpkg-source"),
    describe_required_package("patch", "patch"),
    describe_required_package("xz-utils", "xz"),
    describe_required_package("bzip2", "bzip2"),
    describe_required_package("ca-certificates", "/etc/ssl/certs/ca-certificates.crt"),
];

/// Packages that the tests need in addition to [`TOOLCHAIN_PACKAGES`].
const TEST_PACKAGES: &[RequiredPackage] = &[
    describe_required_package("libclang-rt-22-dev", "/usr/lib/llvm-22/lib/clang/22/lib/linux/libclang_rt.profile-x86_64.a"),
    describe_required_package("clang-19", "clang-19"),
    describe_required_package("lld-19", "ld.lld-19"),
    describe_required_package("llvm-19", "llvm-profdata-19"),
    describe_required_package("libclang-rt-19-dev", "/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.profile-x86_64.a"),
    describe_required_package("g++", "g++"),
    describe_required_package("cmake", "cmake"),
    describe_required_package("libtool", "libtoolize"),
    describe_required_package("autoconf", "autoconf"),
    describe_required_package("automake", "automake"),
    describe_required_package("ccache", "ccache"),
    describe_required_package("qemu-user", "qemu-x86_64"),
    describe_required_package("openmpi-bin", "mpirun.openmpi"),
    describe_required_package("libopenmpi-dev", "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h"),
    describe_required_package("mpich", "mpirun.mpich"),
    describe_required_package("libmpich-dev", "/usr/include/x86_64-linux-gnu/mpich/mpi.h"),
    describe_required_package("gfortran", "gfortran"),
    describe_required_package("babeltrace2", "babeltrace2"),
    describe_required_package("unison", "unison"),
    describe_required_package("debuginfod", "debuginfod-find"),
    describe_required_package("dwz", "dwz"),
    describe_required_package("chromium", "chromium"),
    describe_required_package("chromium-driver", "chromedriver"),
    describe_required_package("python3", "python3"),
    describe_required_package("python3-jsonschema", "/usr/lib/python3/dist-packages/jsonschema/__init__.py"),
    describe_required_package("zstd", "zstd"),
];

/// Packages that experiments with corpus programs need in addition to [`TOOLCHAIN_PACKAGES`] and [`FETCHING_PACKAGES`].
const BENCHMARK_PACKAGES: &[RequiredPackage] = &[
    describe_required_package("libclang-rt-22-dev", "/usr/lib/llvm-22/lib/clang/22/lib/linux/libclang_rt.profile-x86_64.a"),
    describe_required_package("g++", "g++"),
    describe_required_package("valgrind", "valgrind"),
];

/// Packages that `trodden-lab experiment waits` needs in addition to [`TOOLCHAIN_PACKAGES`].
const WAIT_BENCHMARK_PACKAGES: &[RequiredPackage] = &[
    describe_required_package("openmpi-bin", "mpirun.openmpi"),
    describe_required_package("libopenmpi-dev", "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h"),
    describe_required_package("otf2-tools", "otf2-print"),
    describe_required_package("python3-venv", "python3"),
];

/// Packages that `cargo xtask dist --check` needs in addition to [`TOOLCHAIN_PACKAGES`]. It creates minimal Debian systems and an rpm
/// package.
const PACKAGE_CHECK_PACKAGES: &[RequiredPackage] = &[
    describe_required_package("mmdebstrap", "mmdebstrap"),
    describe_required_package("zstd", "zstd"),
    describe_required_package("rpm", "rpmbuild"),
];

/// A command for which Debian packages must be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackagePurpose {
    /// For `cargo xtask demo` and `cargo xtask dist`.
    Demo,
    /// For `cargo xtask test`.
    Test,
    /// For `cargo xtask corpus` and `trodden-lab experiment copies`.
    Corpus,
    /// For `trodden-lab experiment bench` and other experiments with corpus programs, and for `cargo xtask oracle`.
    Bench,
    /// For `trodden-lab experiment waits`.
    Waits,
    /// For `cargo xtask dist --check`.
    Dist,
}

impl PackagePurpose {
    fn required_packages(self) -> Vec<RequiredPackage> {
        let lists: &[&[RequiredPackage]] = match self {
            PackagePurpose::Demo | PackagePurpose::Corpus => &[TOOLCHAIN_PACKAGES, FETCHING_PACKAGES],
            PackagePurpose::Test => &[TOOLCHAIN_PACKAGES, FETCHING_PACKAGES, TEST_PACKAGES],
            PackagePurpose::Bench => &[TOOLCHAIN_PACKAGES, FETCHING_PACKAGES, BENCHMARK_PACKAGES],
            PackagePurpose::Waits => &[TOOLCHAIN_PACKAGES, WAIT_BENCHMARK_PACKAGES],
            PackagePurpose::Dist => &[TOOLCHAIN_PACKAGES, PACKAGE_CHECK_PACKAGES],
        };
        lists.concat()
    }
}

/// Installs the packages that a command needs, unless they are installed. First logs their names. Fails if a package cannot be installed;
/// the error names all missing packages.
pub fn ensure_packages_for(purpose: PackagePurpose) -> Result<()> {
    let missing: Vec<&str> = purpose.required_packages().iter().filter(|n| !is_provided(n.provided)).map(|n| n.package).collect();
    install_packages(&missing)
}

/// Installs those of the given Debian packages that are missing. On other systems than Debian, only logs all names. Fails if a package
/// cannot be installed; the error names all missing packages.
pub fn ensure_packages(packages: &[String]) -> Result<()> {
    if !steps::is_on_search_path("dpkg-query") {
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
    install_packages(&missing)
}

/// Returns true if `packages` is not empty and apt could install all of them.
pub fn are_packages_offered(packages: &[String]) -> bool {
    let offers = |package: &String| {
        let shown = Command::new("apt-cache").args(["policy", package]).output();
        shown.is_ok_and(|out| parse_candidate_version(&String::from_utf8_lossy(&out.stdout)).is_some())
    };
    !packages.is_empty() && packages.iter().all(offers)
}

/// Returns the version that apt would install. `policy` is the output of `apt-cache policy` for the package.
fn parse_candidate_version(policy: &str) -> Option<&str> {
    policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: ")).filter(|version| *version != "(none)")
}

fn install_packages(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if !steps::is_on_search_path("apt-get") {
        bail!(
            "this system lacks the software in these Debian packages: {list}. Install the equivalent packages with your system's package \
             manager"
        );
    }
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root && !steps::is_on_search_path("sudo") {
        bail!("these packages are not installed: {list}. Run `apt-get install {list}` as root, and repeat this command");
    }
    steps::log_headline(&format!("Installing {} Debian package{}: {list}", packages.len(), if packages.len() == 1 { "" } else { "s" }));
    // Packages are first installed from the present package lists, because it takes time to update these.
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

fn is_provided(provided: &str) -> bool {
    if provided.starts_with('/') { Path::new(provided).exists() } else { steps::is_on_search_path(provided) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_without_a_candidate_are_not_offered() {
        assert_eq!(parse_candidate_version("a:\n  Installed: (none)\n  Candidate: 4.04c-4\n  Version table:\n"), Some("4.04c-4"));
        assert_eq!(parse_candidate_version("a:\n  Installed: (none)\n  Candidate: (none)\n"), None);
        assert_eq!(parse_candidate_version(""), None);
    }
}
