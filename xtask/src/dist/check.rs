//! Installs and runs the Debian package and the archive in minimal Debian systems and in a container, and checks that all crates can be
//! published.
//!
//! `mmdebstrap` creates a system that has only the essential packages. This system is saved as a tar file, so that later checks need not
//! create it again. Inside the system, root runs `xtask/dist.sh`, which installs, moves and removes trodden, and an ordinary user runs
//! `xtask/dist-user.sh`, which builds and records programs.

use super::{BuiltPackages, DistOptions, image};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::Corpus;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;

/// Scripts that are run inside the minimal system.
const CHECK_SCRIPT_FILES: [&str; 2] = ["xtask/dist.sh", "xtask/dist-user.sh"];
/// The Debian source package of the program that the check builds and records.
const SUBJECT_PACKAGE: &str = "bzip2";

struct DebianMirrors {
    main: String,
    security: String,
}

/// Installs the Debian packages that the check needs. This function is called before the lengthy compilation, so that its errors are
/// reported early. Fails if the user is not root, or if a package cannot be installed.
pub fn install_requirements() -> Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "--check creates Debian systems, which only root can do. Run it as root");
    packages::ensure_packages_for(PackagePurpose::Dist)
}

/// Checks the package and the archive in each of the Debian releases, then the container image, and finally the crates.
pub fn run(options: &DistOptions, made: &BuiltPackages) -> Result<()> {
    let mirrors = choose_mirrors(options)?;
    let folder = steps::target_folder().join("dist-systems");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let subject = Corpus::in_folder(&steps::target_folder().join("demo")).fetch_source(SUBJECT_PACKAGE)?;
    for release in &options.releases {
        steps::log_headline(&format!("Debian {release}: package and archive"));
        let system = create_system(&folder, release, &mirrors)?;
        copy_inputs(&system.join("dist"), made, &subject)?;
        // Programs in the system resolve host names as on this machine.
        fs::copy("/etc/resolv.conf", system.join("etc/resolv.conf")).context("cannot copy /etc/resolv.conf")?;
        let mut inside = Command::new("unshare");
        inside.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]).arg("--root").arg(&system);
        steps::run(inside.args(["--wd", "/", "sh", "/dist/dist.sh"]).env_clear().env("PATH", ROOT_SEARCH_PATH).env("LC_ALL", "C.UTF-8"))?;
        fs::remove_dir_all(&system).with_context(|| format!("cannot remove {}", system.display()))?;
    }
    if options.releases.iter().any(|release| release == image::BASE_IMAGE_RELEASE) {
        image::check(&folder.join("image"), &saved_system_file(&folder, image::BASE_IMAGE_RELEASE), &made.package)?;
    }
    // This takes longest.
    steps::log_headline("Crates: compiled from what would be published");
    steps::run(steps::cargo_command().args(["package", "--locked", "--workspace"]))
}

/// Returns the path of the tar file in which the minimal system of a Debian release is saved for later checks.
fn saved_system_file(folder: &Path, release: &str) -> PathBuf {
    folder.join(format!("{release}.tar"))
}

const ROOT_SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the Debian mirrors from the options. Mirrors without an option default to those of this machine's apt.
fn choose_mirrors(options: &DistOptions) -> Result<DebianMirrors> {
    if let (Some(main), Some(security)) = (&options.mirror, &options.security_mirror) {
        return Ok(DebianMirrors { main: main.clone(), security: security.clone() });
    }
    let mut ask = Command::new("apt-get");
    let text = steps::output(ask.args(["indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"]))?;
    let sources: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    let of = |named: &Option<String>, option: &str, suits: &dyn Fn(&str) -> bool| {
        let found = sources.iter().find(|(_, name)| suits(name)).map(|(uri, _)| (*uri).to_owned());
        named.clone().or(found).with_context(|| format!("this machine's apt has no suitable Debian mirror. Pass {option} URL"))
    };
    Ok(DebianMirrors {
        main: of(&options.mirror, "--mirror", &|name| !name.contains('-') && !name.is_empty())?,
        security: of(&options.security_mirror, "--security-mirror", &|name| name.ends_with("-security"))?,
    })
}

fn create_system(folder: &Path, release: &str, mirrors: &DebianMirrors) -> Result<PathBuf> {
    ensure!(
        release.bytes().all(|b| b.is_ascii_lowercase()),
        "`{release}` is not the name of a Debian release: use a name such as `bookworm`"
    );
    let (kept, system) = (saved_system_file(folder, release), folder.join(release));
    if !kept.exists() {
        let new = folder.join(format!("{release}.new.tar"));
        let mut make = Command::new("mmdebstrap");
        make.args(["--variant=minbase", "--mode=root", "--dpkgopt=force-unsafe-io", release]).arg(&new);
        make.arg(format!("deb {} {release} main", mirrors.main)).arg(format!("deb {} {release}-security main", mirrors.security));
        steps::run(&mut make)?;
        fs::rename(&new, &kept).with_context(|| format!("cannot rename {}", new.display()))?;
    }
    if system.exists() {
        fs::remove_dir_all(&system).with_context(|| format!("cannot remove {}", system.display()))?;
    }
    fs::create_dir_all(&system).with_context(|| format!("cannot create the folder {}", system.display()))?;
    let mut unpack = Command::new("tar");
    steps::run(
        unpack.args(["--extract", "--preserve-permissions", "--numeric-owner", "--file"]).arg(&kept).arg("--directory").arg(&system),
    )?;
    Ok(system)
}

fn copy_inputs(to: &Path, made: &BuiltPackages, subject: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create the folder {}", to.display()))?;
    let scripts = CHECK_SCRIPT_FILES.map(|script| steps::checkout_root().join(script));
    for file in scripts.iter().chain([&made.package, &made.archive]) {
        let Some(name) = file.file_name() else { bail!("{} is not the path of a file", file.display()) };
        fs::copy(file, to.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
    }
    steps::output(Command::new("cp").arg("-r").arg(subject).arg(to.join(SUBJECT_PACKAGE)))?;
    steps::output(Command::new("chmod").args(["-R", "go=rX"]).arg(to)).map(drop)
}
