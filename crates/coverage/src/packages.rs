//! Finds the Rust package and the workspace to which a source file belongs, from the manifests in the folders above the file.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CargoPackage {
    pub name: String,
    /// The workspace's folder, or the package's folder if the package is in no workspace.
    pub workspace: PathBuf,
}

/// Finds the packages of source files. Each manifest is read only once.
#[derive(Default)]
pub struct PackageFinder {
    by_folder: HashMap<PathBuf, Option<CargoPackage>>,
    manifests: HashMap<PathBuf, Option<toml::Table>>,
}

impl PackageFinder {
    /// Returns the package of a source file; `None` if it is in no package, or if the manifest no longer exists.
    pub fn find_package_of_file(&mut self, file: &Path) -> Option<CargoPackage> {
        let folder = file.parent()?;
        if let Some(known) = self.by_folder.get(folder) {
            return known.clone();
        }
        let package = self.find_above(folder);
        self.by_folder.insert(folder.to_owned(), package.clone());
        package
    }

    fn find_above(&mut self, folder: &Path) -> Option<CargoPackage> {
        let own =
            folder.ancestors().find(|above| self.read_package_manifest(above).is_some_and(|manifest| manifest.contains_key("package")))?;
        let package = &self.read_package_manifest(own)?["package"];
        let name = package.get("name")?.as_str()?.to_owned();
        if let Some(named) = package.get("workspace").and_then(toml::Value::as_str) {
            return Some(CargoPackage { name, workspace: trodden_analysis::changes::normalize(&own.join(named).to_string_lossy()).into() });
        }
        let workspace =
            own.ancestors().find(|above| self.read_package_manifest(above).is_some_and(|manifest| manifest.contains_key("workspace")));
        Some(CargoPackage { name, workspace: workspace.unwrap_or(own).to_owned() })
    }

    /// Returns the manifest in a folder; `None` if there is none or it cannot be parsed.
    fn read_package_manifest(&mut self, folder: &Path) -> Option<&toml::Table> {
        let read = || fs::read_to_string(folder.join("Cargo.toml")).ok()?.parse().ok();
        self.manifests.entry(folder.to_owned()).or_insert_with(read).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_found_above_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("Cargo.toml", "[workspace]\nmembers = [\"one\"]\n");
        write("one/Cargo.toml", "[package]\nname = \"first\"\n");
        write("two/Cargo.toml", "[package]\nname = \"second\"\n[workspace]\n");
        write("two/three/Cargo.toml", "[package]\nname = \"third\"\nworkspace = \"../../elsewhere\"\n");
        let mut packages = PackageFinder::default();
        let mut find = |name: &str| {
            let package = packages.find_package_of_file(&folder.path().join(name))?;
            Some((package.name, package.workspace.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned()))
        };
        let of = |name: &str, workspace: &str| Some((name.to_owned(), workspace.to_owned()));
        assert_eq!(find("one/src/lib.rs"), of("first", ""));
        assert_eq!(find("one/native/x.c"), of("first", ""));
        assert_eq!(find("two/src/deep/lib.rs"), of("second", "two"));
        assert_eq!(find("two/three/lib.rs"), of("third", "elsewhere"));
        assert_eq!(find("x.c"), None);
    }
}
