//! Selects builds if a profile contains several builds of the same program, as the profile of a test suite may.
//!
//! When cargo builds a program again, with or without coverage, it overwrites the program, but keeps all builds in the folder `deps` under
//! different names. If the file of a build was deleted, its coverage mapping is lost. Its counts are then omitted, provided that the
//! profile also has other builds of the program.

use crate::mapping::build_id;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::Profile;

/// Folder in which cargo keeps all builds of a program. It is beside the latest build.
const CARGO_DEPS_FOLDER: &str = "deps";

/// Sets the path of each image to the file that has its build ID, because the file may have been renamed. If a program has several builds,
/// removes the images whose file no longer exists.
pub fn select_builds(profile: &mut Profile) {
    let mut builds = BTreeMap::<String, usize>::new();
    profile.images.iter().for_each(|image| *builds.entry(image.path.clone()).or_default() += 1);
    let mut lost = BTreeSet::new();
    profile.images.retain_mut(|image| {
        if image.build_id.is_none() {
            return true;
        }
        let is_build = |file: &PathBuf| build_id(file).is_ok_and(|id| id == image.build_id);
        let Some(file) = list_candidate_files(Path::new(&image.path)).into_iter().find(is_build) else {
            let is_only = builds[&image.path] == 1;
            lost.extend((!is_only).then(|| image.path.clone()));
            return is_only;
        };
        image.path = file.display().to_string();
        true
    });
    for path in lost {
        log::warn!("{path} was rebuilt after it ran, so the counts of the earlier build are ignored");
    }
}

/// Returns the path of the program itself and the files in which cargo may have kept its earlier builds.
fn list_candidate_files(path: &Path) -> Vec<PathBuf> {
    let mut all = vec![path.to_owned()];
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return all };
    let begin = format!("{}_", name.to_string_lossy().replace('-', "_"));
    let entries = fs::read_dir(folder.join(CARGO_DEPS_FOLDER)).into_iter().flatten().flatten();
    let is_build = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.replace('-', "_").starts_with(&begin) && file.extension().is_none()
    };
    all.extend(entries.map(|entry| entry.path()).filter(is_build));
    all
}
