//! Builds the container image of `packaging/Containerfile` with buildah, and runs trodden in it.
//!
//! The minimal system of the check stands in for the base image, under the name that the file refers to, so that no registry of images is
//! needed. The image runs without privileges of its own (`BUILDAH_ISOLATION`), as the user that the file names.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;
use trodden_corpus::{packages, steps};

const TOOL: &str = "buildah";
/// The base image in `packaging/Containerfile`.
const BASE: &str = "docker.io/library/debian:13-slim";
/// The Debian release of the base image.
pub const RELEASE: &str = "trixie";
const NAME: &str = "localhost/trodden";

/// Builds the image from a system in a tar file and trodden's Debian package, and runs `trodden doctor` in it. All files are in `folder`,
/// which is removed at the end. Does nothing but say so if buildah cannot be installed.
///
/// # Errors
/// A step fails, or trodden does not work in the image.
pub fn check(folder: &Path, system: &Path, package: &Path) -> Result<()> {
    steps::log_headline("Container image");
    let wanted = [TOOL.to_owned()];
    if !steps::is_on_search_path(TOOL) && !packages::are_offered(&wanted) {
        println!("the container image is not built, since this system's package manager does not offer {TOOL}");
        return Ok(());
    }
    packages::ensure_packages(&wanted)?;
    remove(folder)?;
    let context = folder.join("context");
    fs::create_dir_all(&context).with_context(|| format!("cannot create the folder {}", context.display()))?;
    let file = package.file_name().unwrap_or_default();
    fs::copy(package, context.join(file)).with_context(|| format!("cannot copy {}", package.display()))?;
    let buildah = || {
        let mut command = Command::new(TOOL);
        command.arg("--root").arg(folder.join("images")).arg("--runroot").arg(folder.join("run"));
        command.env("STORAGE_DRIVER", "vfs").env("BUILDAH_ISOLATION", "chroot");
        command
    };
    let base = steps::output(buildah().args(["from", "scratch"]))?;
    steps::output(buildah().args(["add", base.trim()]).arg(system).arg("/"))?;
    steps::output(buildah().args(["commit", "--rm", base.trim(), BASE]))?;
    let recipe = steps::checkout_root().join("packaging/Containerfile");
    steps::run(buildah().args(["build", "--pull=never", "--tag", NAME, "--file"]).arg(recipe).arg(&context))?;
    let tried = steps::output(buildah().args(["from", "--pull-never", NAME]))?;
    steps::run(buildah().args(["run", tried.trim(), "trodden", "doctor"]))?;
    remove(folder)
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}
