//! Figures that depend on the built program alone, not on the machine's mood: found out once and kept.
//!
//! A figure's key is what it is, with the checksums of the files that it depends on: a program that was built again and
//! came out the same keeps its figures, and one that came out otherwise has none.

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::steps;

/// Figures kept in a file.
pub struct Known {
    file: PathBuf,
}

impl Known {
    /// Those in a file, which need not be there yet.
    pub fn at(file: &Path) -> Known {
        Known { file: file.to_owned() }
    }

    /// What is known of these files, or what `find` finds out, which is kept if `lasts` says so.
    ///
    /// # Errors
    /// A file cannot be read, what is kept cannot be written, or nothing was found out.
    pub fn once<T: Serialize + DeserializeOwned>(
        &self,
        what: &str,
        files: &[&Path],
        lasts: impl Fn(&T) -> bool,
        find: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let sums = files.iter().map(|file| checksum(file)).collect::<Result<Vec<_>>>()?;
        let key = format!("{what} {}", sums.join(" "));
        if let Some(known) = self.read()?.remove(&key).and_then(|value| serde_json::from_value(value).ok()) {
            return Ok(known);
        }
        let found = find()?;
        if lasts(&found) {
            // Read again: finding out takes minutes, in which another run may have written.
            let mut all = self.read()?;
            all.insert(key, serde_json::to_value(&found)?);
            self.write(&all)?;
        }
        Ok(found)
    }

    fn read(&self) -> Result<BTreeMap<String, serde_json::Value>> {
        match std::fs::read(&self.file) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged: remove it", self.file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", self.file.display())),
        }
    }

    fn write(&self, all: &BTreeMap<String, serde_json::Value>) -> Result<()> {
        let new = self.file.with_extension("new");
        std::fs::write(&new, serde_json::to_string_pretty(all)? + "\n")
            .and_then(|()| std::fs::rename(&new, &self.file))
            .with_context(|| format!("cannot write {}", self.file.display()))
    }
}

fn checksum(file: &Path) -> Result<String> {
    let said = steps::output(Command::new("sha256sum").arg(file))?;
    said.split_whitespace().next().map(str::to_owned).with_context(|| format!("sha256sum says nothing of {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_not_found_out_again_until_a_file_changes() {
        let folder = std::env::temp_dir().join(format!("trodden-lab-known-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (program, known) = (folder.join("program"), Known::at(&folder.join("known.json")));
        let ask = |what: &str, lasts: bool, answer: u64| known.once(what, &[&program], |_| lasts, || Ok(answer)).unwrap();
        std::fs::write(&program, "one").unwrap();
        assert_eq!([ask("a", false, 1), ask("a", true, 2), ask("a", true, 3), ask("b", true, 4)], [1, 2, 2, 4]);
        std::fs::write(&program, "two").unwrap();
        assert_eq!(ask("a", true, 5), 5);
        std::fs::write(&program, "one").unwrap();
        assert_eq!(ask("a", true, 6), 2);
        std::fs::remove_file(&program).unwrap();
        assert!(known.once("a", &[&program], |_| true, || Ok(7)).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
