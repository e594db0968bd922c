//! A cache of results that depend on a built program, but not on the state of the machine.
//!
//! A result's key consists of its name and the checksums of the files that it depends on, so it remains valid after a rebuild that produces
//! the same program.

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::steps;

pub struct ResultCache {
    file: PathBuf,
}

impl ResultCache {
    /// Creates a cache that is stored in `file`, which need not exist.
    pub fn in_file(file: &Path) -> ResultCache {
        ResultCache { file: file.to_owned() }
    }

    /// Returns the cached result for these files. If there is none, computes the result, and caches it if `is_final` accepts it.
    pub fn get_or_compute<T: Serialize + DeserializeOwned>(
        &self,
        what: &str,
        files: &[&Path],
        is_final: impl Fn(&T) -> bool,
        compute: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let sums = files.iter().map(|file| checksum(file)).collect::<Result<Vec<_>>>()?;
        let key = format!("{what} {}", sums.join(" "));
        if let Some(cached) = self.read()?.remove(&key).and_then(|value| serde_json::from_value(value).ok()) {
            return Ok(cached);
        }
        let found = compute()?;
        if is_final(&found) {
            // The file is read again, because computing takes minutes, and another process may have written the file in the meantime.
            let mut all = self.read()?;
            all.insert(key, serde_json::to_value(&found)?);
            self.write(&all)?;
        }
        Ok(found)
    }

    fn read(&self) -> Result<BTreeMap<String, serde_json::Value>> {
        match std::fs::read(&self.file) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| format!("{} is corrupt. Delete this file", self.file.display())),
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
    let output = steps::output(Command::new("sha256sum").arg(file))?;
    output.split_whitespace().next().map(str::to_owned).with_context(|| format!("sha256sum printed nothing for {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_result_is_recomputed_only_after_a_file_changed() {
        let folder = std::env::temp_dir().join(format!("trodden-lab-known-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (program, cache) = (folder.join("program"), ResultCache::in_file(&folder.join("known.json")));
        let ask = |what: &str, is_final: bool, answer: u64| cache.get_or_compute(what, &[&program], |_| is_final, || Ok(answer)).unwrap();
        std::fs::write(&program, "one").unwrap();
        assert_eq!([ask("a", false, 1), ask("a", true, 2), ask("a", true, 3), ask("b", true, 4)], [1, 2, 2, 4]);
        std::fs::write(&program, "two").unwrap();
        assert_eq!(ask("a", true, 5), 5);
        std::fs::write(&program, "one").unwrap();
        assert_eq!(ask("a", true, 6), 2);
        std::fs::remove_file(&program).unwrap();
        assert!(cache.get_or_compute("a", &[&program], |_| true, || Ok(7)).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
