//! Gives each copy a private working folder, made from a pristine clone of the user's folder. The changes that the first copy makes are
//! copied back to the user's folder.
//!
//! Programs may use paths that leave the working folder (`../data.txt`). Each private folder therefore has the same path below a private
//! root as the original folder has below `/`. The folders along this path contain links to all other entries of the original folders, so
//! that `..` leads to the same files.

use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Clones the folder `original` to `pristine`, except for the entry that contains the job's own folder.
pub fn make_pristine_clone(original: &Path, pristine: &Path, job_folder: &Path) -> Result<()> {
    fs::create_dir(pristine).with_context(|| format!("cannot create the folder {}", pristine.display()))?;
    if !job_folder.starts_with(original) {
        return copy_folder(original, pristine);
    }
    for entry in fs::read_dir(original)? {
        let path = entry?.path();
        if !job_folder.starts_with(&path) {
            let status = Command::new("cp").args(["-a", "--reflink=auto"]).arg(&path).arg(pristine).status().context("cannot run cp")?;
            ensure!(status.success(), "cannot copy {}", path.display());
        }
    }
    Ok(())
}

/// Creates a private folder below `root` from the clone `pristine`, and links to the entries of the original's parent folders. Returns its
/// path.
pub fn make_private_folder(root: &Path, original: &Path, pristine: &Path) -> Result<PathBuf> {
    let (mut private, mut real) = (root.to_owned(), PathBuf::from("/"));
    for name in path_components(original) {
        link_all_entries_except(name, &real, &private).with_context(|| format!("cannot create symbolic links in {}", private.display()))?;
        private.push(name);
        real.push(name);
        fs::create_dir(&private).with_context(|| format!("cannot create the folder {}", private.display()))?;
    }
    copy_folder(pristine, &private)?;
    Ok(private)
}

/// Copies all changes in a private folder, and new entries in its parent folders, back to the original folders.
pub fn copy_changes_back(root: &Path, original: &Path, pristine: &Path) -> Result<()> {
    let (mut private, mut real) = (root.to_owned(), PathBuf::from("/"));
    for name in path_components(original) {
        for entry in fs::read_dir(&private)? {
            let entry = entry?;
            let target = real.join(entry.file_name());
            if entry.file_name() != name && fs::read_link(entry.path()).ok().as_ref() != Some(&target) {
                replace_folder_entry(&entry.path(), &target)?;
            }
        }
        private.push(name);
        real.push(name);
    }
    copy_changed_folder_entries(&private, pristine, original)
}

fn path_components(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

/// Creates links in `to` to all entries of `from` except `name`. Does nothing if `from` cannot be listed.
fn link_all_entries_except(name: &OsStr, from: &Path, to: &Path) -> std::io::Result<()> {
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    let others = entries.filter_map(Result::ok).filter(|entry| entry.file_name() != name);
    others.into_iter().try_for_each(|entry| symlink(entry.path(), to.join(entry.file_name())))
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").args(["-a", "--reflink=auto"]).arg(from.join(".")).arg(to).status().context("cannot run cp")?;
    ensure!(status.success(), "cannot copy {} to {}", from.display(), to.display());
    Ok(())
}

fn replace_folder_entry(from: &Path, to: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    copy.args(["-a", "--remove-destination", "--no-target-directory"]).arg(from).arg(to);
    ensure!(copy.status().context("cannot run cp")?.success(), "cannot copy the files that the program wrote to {}", to.display());
    Ok(())
}

fn copy_changed_folder_entries(made: &Path, before: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(made)? {
        let entry = entry?;
        let (old, target) = (before.join(entry.file_name()), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() && old.is_dir() && target.is_dir() {
            copy_changed_folder_entries(&entry.path(), &old, &target)?;
        } else if !is_same_entry(&entry.path(), &old)? {
            replace_folder_entry(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Returns true if both paths have the same type, permissions and content, or false if `other` does not exist.
fn is_same_entry(one: &Path, other: &Path) -> Result<bool> {
    let Ok(second) = other.symlink_metadata() else { return Ok(false) };
    let first = one.symlink_metadata()?;
    if first.file_type() != second.file_type() || first.permissions() != second.permissions() {
        return Ok(false);
    }
    if first.is_symlink() {
        return Ok(fs::read_link(one)? == fs::read_link(other)?);
    }
    // Modification times are not compared, because programs can set them.
    Ok(!first.is_file() || first.len() == second.len() && fs::read(one)? == fs::read(other)?)
}
