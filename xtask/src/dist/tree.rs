//! Writes the folder of files that packages and archives contain.

use super::{compile, notices};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use trodden_corpus::steps;

/// Names of links to `trodden`. When `trodden` is called by one of these names, it acts as a different command.
const LINK_NAMES: [&str; 3] = ["trodden-cc", "trodden-c++", "cargo-trodden"];
/// For each shell, the path below `share` at which Debian installs the completions of commands.
const COMPLETION_FOLDERS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/trodden"),
    ("zsh", "zsh/vendor-completions/_trodden"),
    ("fish", "fish/vendor_completions.d/trodden.fish"),
];
/// The folder below `share` for licences and documentation.
const DOCUMENTS_FOLDER: &str = "doc/trodden";

pub fn create_tree(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let compiled = compile::compiled_folder();
    for name in compile::SHIPPED_PROGRAMS {
        copy_with_mode(&compiled.join(name), &folder.join("bin").join(name), 0o755)?;
    }
    for name in LINK_NAMES {
        symlink("trodden", folder.join("bin").join(name)).with_context(|| format!("cannot create the link {name}"))?;
    }
    for name in compile::SHIPPED_LIBRARIES {
        copy_with_mode(&compiled.join(name), &folder.join("lib/trodden").join(name), 0o644)?;
    }
    let share = folder.join("share");
    write_manual_pages(&compiled, &share.join("man/man1"))?;
    for (shell, path) in COMPLETION_FOLDERS {
        let script = steps::output(Command::new(compiled.join("trodden-lab")).args(["completions", shell]))?;
        write_file(&share.join(path), script.as_bytes(), 0o644)?;
    }
    write_documents(&share.join(DOCUMENTS_FOLDER))
}

fn write_manual_pages(compiled: &Path, folder: &Path) -> Result<()> {
    steps::output(Command::new(compiled.join("trodden-lab")).arg("man").arg(folder))?;
    let mut pages: Vec<_> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    pages.sort();
    for name in compile::SHIPPED_PROGRAMS {
        if !pages.contains(&folder.join(format!("{name}.1"))) {
            bail!("`trodden-lab man` wrote no page {name}.1 to {}", folder.display());
        }
    }
    steps::output(Command::new("gzip").args(["-9n"]).args(&pages))?;
    symlink("trodden.1.gz", folder.join("cargo-trodden.1.gz")).context("cannot create the link cargo-trodden.1.gz")?;
    Ok(())
}

fn write_documents(folder: &Path) -> Result<()> {
    let text = |name: &str| fs::read_to_string(steps::checkout_root().join(name)).with_context(|| format!("cannot read {name}"));
    let rule = "-".repeat(78);
    let licences = format!(
        "trodden is licensed under either of the two licences below, at your option.\nLicences of third-party code: {}.\n\n{rule}\n\n{}\n\
            {rule}\n\n{}",
        "THIRD-PARTY.gz in this folder",
        text("LICENSE-MIT")?,
        text("LICENSE-APACHE")?
    );
    write_file(&folder.join("copyright"), licences.as_bytes(), 0o644)?;
    write_file(&folder.join("changelog"), text("CHANGELOG.md")?.as_bytes(), 0o644)?;
    write_file(&folder.join("THIRD-PARTY"), notices::render_notices()?.as_bytes(), 0o644)?;
    steps::output(Command::new("gzip").args(["-9n", "changelog", "THIRD-PARTY"]).current_dir(folder))?;
    Ok(())
}

fn copy_with_mode(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("cannot read {}: run `cargo xtask dist` without --compiled", from.display()))?;
    write_file(to, &bytes, mode)
}

pub fn write_file(to: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let write = || {
        fs::create_dir_all(to.parent().unwrap_or(Path::new(".")))?;
        fs::write(to, bytes)?;
        fs::set_permissions(to, fs::Permissions::from_mode(mode))
    };
    write().with_context(|| format!("cannot write {}", to.display()))
}
