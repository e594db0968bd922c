//! Working folders of copies' own: each is a copy of the user's, made of one that is kept as it was, and what the first
//! copy makes is brought back.
//!
//! Paths may leave the working folder (`../data.txt`). So a copy's folder has the path of the original once more below
//! a folder of its own, and on each step of that way there are links to what is beside the original: `..` leads to the
//! same files as there.

use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Keeps a folder as it is, in another that may lie within it.
pub fn keep(original: &Path, kept: &Path, within: &Path) -> Result<()> {
    fs::create_dir(kept).with_context(|| format!("cannot make {}", kept.display()))?;
    if !within.starts_with(original) {
        return copy_folder(original, kept);
    }
    for entry in fs::read_dir(original)? {
        let path = entry?.path();
        if !within.starts_with(&path) {
            let status = Command::new("cp").args(["-a", "--reflink=auto"]).arg(&path).arg(kept).status().context("cannot run cp")?;
            ensure!(status.success(), "{} cannot be copied", path.display());
        }
    }
    Ok(())
}

/// Makes a copy of a folder below `root`, with its surroundings; gives where it is. It was kept in `kept`.
pub fn make_own(root: &Path, original: &Path, kept: &Path) -> Result<PathBuf> {
    let (mut here, mut there) = (root.to_owned(), PathBuf::from("/"));
    for name in steps(original) {
        link_all_but(name, &there, &here).with_context(|| format!("cannot make links in {}", here.display()))?;
        here.push(name);
        there.push(name);
        fs::create_dir(&here).with_context(|| format!("cannot make {}", here.display()))?;
    }
    copy_folder(kept, &here)?;
    Ok(here)
}

/// Brings back what a copy made or changed in its folder, and what it made beside the folders on the way.
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

/// Links to all that a folder holds, but for one. One that may be gone through, but not be listed, gets none.
fn link_all_but(name: &OsStr, from: &Path, to: &Path) -> std::io::Result<()> {
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    let others = entries.filter_map(Result::ok).filter(|entry| entry.file_name() != name);
    others.into_iter().try_for_each(|entry| symlink(entry.path(), to.join(entry.file_name())))
}

/// Copies what a folder holds into another.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").args(["-a", "--reflink=auto"]).arg(from.join(".")).arg(to).status().context("cannot run cp")?;
    ensure!(status.success(), "{} cannot be copied to {}", from.display(), to.display());
    Ok(())
}

fn copy_over(from: &Path, to: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    copy.args(["-a", "--remove-destination", "--no-target-directory"]).arg(from).arg(to);
    ensure!(copy.status().context("cannot run cp")?.success(), "what the program made cannot be copied to {}", to.display());
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

/// Whether two places hold the same; false if there is nothing at the second.
fn is_same(one: &Path, other: &Path) -> Result<bool> {
    let Ok(there) = other.symlink_metadata() else { return Ok(false) };
    let here = one.symlink_metadata()?;
    if here.file_type() != there.file_type() || here.permissions() != there.permissions() {
        return Ok(false);
    }
    if here.is_symlink() {
        return Ok(fs::read_link(one)? == fs::read_link(other)?);
    }
    // Times do not say: a program may set them.
    Ok(!here.is_file() || here.len() == there.len() && fs::read(one)? == fs::read(other)?)
}
