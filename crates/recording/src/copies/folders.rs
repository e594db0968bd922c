//! Private working folders for copies. Each is a clone of a pristine clone of the user's folder; the changes of the first copy are brought
//! back to the user's folder.
//!
//! Paths may lead out of the working folder (`../data.txt`). A private folder is therefore placed under a root at the same path as the
//! original, and each folder on the way there gets links to the siblings of the original, so that `..` leads to the same files.

use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Clones the folder `original` to `kept`, except for the entry that contains the job folder.
pub fn keep(original: &Path, kept: &Path, job_folder: &Path) -> Result<()> {
    fs::create_dir(kept).with_context(|| format!("cannot create the folder {}", kept.display()))?;
    if !job_folder.starts_with(original) {
        return copy_folder(original, kept);
    }
    for entry in fs::read_dir(original)? {
        let path = entry?.path();
        if !job_folder.starts_with(&path) {
            let status = Command::new("cp").args(["-a", "--reflink=auto"]).arg(&path).arg(kept).status().context("cannot run cp")?;
            ensure!(status.success(), "cannot copy {}", path.display());
        }
    }
    Ok(())
}

/// Makes a private folder under `root` from the clone `kept`, with links to its surroundings. Returns its path.
pub fn make_private(root: &Path, original: &Path, kept: &Path) -> Result<PathBuf> {
    let (mut here, mut there) = (root.to_owned(), PathBuf::from("/"));
    for name in steps(original) {
        link_all_but(name, &there, &here).with_context(|| format!("cannot create links in {}", here.display()))?;
        here.push(name);
        there.push(name);
        fs::create_dir(&here).with_context(|| format!("cannot create the folder {}", here.display()))?;
    }
    copy_folder(kept, &here)?;
    Ok(here)
}

/// Copies to the original what changed in a private folder, and what was created next to the folders on the way to it.
pub fn bring_back(root: &Path, original: &Path, kept: &Path) -> Result<()> {
    let (mut here, mut there) = (root.to_owned(), PathBuf::from("/"));
    for name in steps(original) {
        for entry in fs::read_dir(&here)? {
            let entry = entry?;
            let target = there.join(entry.file_name());
            if entry.file_name() != name && fs::read_link(entry.path()).ok().as_ref() != Some(&target) {
                copy_over(&entry.path(), &target)?;
            }
        }
        here.push(name);
        there.push(name);
    }
    bring_back_changes(&here, kept, original)
}

fn steps(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

/// Links to all entries of a folder but one. A folder that can be entered but not listed gets no links.
fn link_all_but(name: &OsStr, from: &Path, to: &Path) -> std::io::Result<()> {
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    let others = entries.filter_map(Result::ok).filter(|entry| entry.file_name() != name);
    others.into_iter().try_for_each(|entry| symlink(entry.path(), to.join(entry.file_name())))
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").args(["-a", "--reflink=auto"]).arg(from.join(".")).arg(to).status().context("cannot run cp")?;
    ensure!(status.success(), "cannot copy {} to {}", from.display(), to.display());
    Ok(())
}

fn copy_over(from: &Path, to: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    copy.args(["-a", "--remove-destination", "--no-target-directory"]).arg(from).arg(to);
    ensure!(copy.status().context("cannot run cp")?.success(), "cannot copy the program's output to {}", to.display());
    Ok(())
}

fn bring_back_changes(made: &Path, before: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(made)? {
        let entry = entry?;
        let (old, target) = (before.join(entry.file_name()), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() && old.is_dir() && target.is_dir() {
            bring_back_changes(&entry.path(), &old, &target)?;
        } else if !is_same(&entry.path(), &old)? {
            copy_over(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Whether two paths have the same content; false if the second does not exist.
fn is_same(one: &Path, other: &Path) -> Result<bool> {
    let Ok(there) = other.symlink_metadata() else { return Ok(false) };
    let here = one.symlink_metadata()?;
    if here.file_type() != there.file_type() || here.permissions() != there.permissions() {
        return Ok(false);
    }
    if here.is_symlink() {
        return Ok(fs::read_link(one)? == fs::read_link(other)?);
    }
    // Modification times are not compared, since a program may set them.
    Ok(!here.is_file() || here.len() == there.len() && fs::read(one)? == fs::read(other)?)
}
