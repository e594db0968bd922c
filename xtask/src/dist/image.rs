//! Builds the container image of `packaging/Containerfile` with buildah, and runs trodden in a container.
//!
//! The minimal Debian system that the check has created is used as the base image: it gets the base image's name, so that nothing is
//! downloaded from an image registry. `BUILDAH_ISOLATION` makes buildah run the container without privileges. Trodden runs as the user that
//! the Containerfile names.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;
use trodden_corpus::{packages, steps};

const IMAGE_BUILDER: &str = "buildah";
/// The name of the base image; `packaging/Containerfile` refers to it.
const BASE_IMAGE: &str = "docker.io/library/debian:13-slim";
/// The Debian release that the base image contains.
pub const BASE_IMAGE_RELEASE: &str = "trixie";
const IMAGE_NAME: &str = "localhost/trodden";

/// Builds the image from `system`, the tar file of a minimal Debian system, and `package`, trodden's Debian package, and runs `trodden
/// doctor` in it. All files are written to `folder`, which is removed at the end. If buildah is not installed and cannot be installed, this
/// function only prints a message.
pub fn check(folder: &Path, system: &Path, package: &Path) -> Result<()> {
    steps::log_headline("Container image");
    let wanted = [IMAGE_BUILDER.to_owned()];
    if !steps::is_on_search_path(IMAGE_BUILDER) && !packages::are_packages_offered(&wanted) {
        println!("the container image is not built, since this system's package manager does not offer {IMAGE_BUILDER}");
        return Ok(());
    }
    packages::ensure_packages(&wanted)?;
    remove_folder(folder)?;
    let context = folder.join("context");
    fs::create_dir_all(&context).with_context(|| format!("cannot create the folder {}", context.display()))?;
    let file = package.file_name().unwrap_or_default();
    fs::copy(package, context.join(file)).with_context(|| format!("cannot copy {}", package.display()))?;
    let buildah = || {
        let mut command = Command::new(IMAGE_BUILDER);
        command.arg("--root").arg(folder.join("images")).arg("--runroot").arg(folder.join("run"));
        command.env("STORAGE_DRIVER", "vfs").env("BUILDAH_ISOLATION", "chroot");
        command
    };
    let base = steps::output(buildah().args(["from", "scratch"]))?;
    steps::output(buildah().args(["add", base.trim()]).arg(system).arg("/"))?;
    steps::output(buildah().args(["commit", "--rm", base.trim(), BASE_IMAGE]))?;
    let recipe = steps::checkout_root().join("packaging/Containerfile");
    steps::run(buildah().args(["build", "--pull=never", "--tag", IMAGE_NAME, "--file"]).arg(recipe).arg(&context))?;
    let tried = steps::output(buildah().args(["from", "--pull-never", IMAGE_NAME]))?;
    steps::run(buildah().args(["run", tried.trim(), "trodden", "doctor"]))?;
    remove_folder(folder)
}

fn remove_folder(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}
