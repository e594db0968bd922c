//! Matches the names of source files in debug information with those in LLVM's mapping.
//!
//! The folders in the two names may differ, because `-fcoverage-prefix-map` and `-fdebug-prefix-map` each change only one of them. Files
//! are matched by the functions that they contain, and separately for each program, because a profile's programs may have been compiled
//! with different options.

use crate::demangled::linkage_name;
use crate::sections::{ImageCoverageMapping, hash_name};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_analysis::changes::normalize;
use trodden_profile::{ImageProfile, Profile};
use trodden_report::{Function, ProfileView};

/// For each image of a profile, matches the names of its source files. The entry is `None` if the image has no coverage mapping.
#[derive(Debug, Default)]
pub struct FileNames(Vec<Option<ImageFiles>>);

impl FileNames {
    /// Matches the file names of the given images. Fails if a mapping is corrupt.
    pub fn new<'m>(
        view: &ProfileView,
        images: impl IntoIterator<Item = (&'m ImageProfile, &'m ImageCoverageMapping)>,
    ) -> Result<FileNames> {
        let mut all = FileNames::default();
        all.0.resize_with(view.profile.images.len(), || None);
        for (image, mapping) in images {
            let number = image_index(view.profile, image);
            let files = ImageFiles::new(mapping, image, view.functions.iter().filter(|f| std::ptr::eq(f.image, image)))?;
            number.into_iter().for_each(|number| all.0[number] = Some(files.clone()));
        }
        Ok(all)
    }

    /// Translates the file name `in_code`, from debug information, to the file's name in the image's coverage mapping; `None` if the
    /// mapping does not contain the file.
    pub fn name_in_mapping(&self, profile: &Profile, image: &ImageProfile, in_code: &str) -> Option<String> {
        self.0.get(image_index(profile, image)?)?.as_ref()?.name_in_mapping(in_code)
    }

    /// Returns the files whose two names differ, as a map from the name in the coverage mapping to the name in debug information. `in_code`
    /// lists the names in debug information.
    pub fn renamed_files<'f>(&self, in_code: impl IntoIterator<Item = &'f str> + Clone) -> BTreeMap<String, &'f str> {
        let mut renamed = BTreeMap::new();
        for files in self.0.iter().flatten() {
            for name in in_code.clone() {
                renamed.extend(files.name_in_mapping(name).filter(|file| file != name).map(|file| (file, name)));
            }
        }
        renamed
    }
}

fn image_index(profile: &Profile, image: &ImageProfile) -> Option<usize> {
    profile.images.iter().position(|other| std::ptr::eq(other, image))
}

#[derive(Clone, Debug, Default)]
struct ImageFiles {
    files: BTreeSet<String>,
    /// Corresponding folders, as pairs (name in the mapping, name in debug information). The pair that matches most functions comes first.
    folders: Vec<(String, String)>,
}

impl ImageFiles {
    /// Matches file names by functions: the two names of a file are those in which the mapping and debug information place the same
    /// functions.
    fn new<'f, 'a: 'f>(
        mapping: &ImageCoverageMapping,
        image: &ImageProfile,
        functions: impl Iterator<Item = &'f Function<'a>>,
    ) -> Result<ImageFiles> {
        let mut code: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for function in functions.filter(|f| !f.name.linkage.is_empty()) {
            code.entry(&function.name.linkage).or_default().extend(function.file().map(normalize));
        }
        let edges = image.units.iter().filter_map(|unit| unit.map.edge_profile.as_ref());
        let names: HashMap<u64, &str> =
            edges.flat_map(|edges| &edges.names).map(|name| (hash_name(name.as_bytes()), linkage_name(name))).collect();
        let (mut files, mut first_files) = (BTreeSet::new(), Vec::new());
        for record in mapping.records()? {
            let own: Vec<String> = mapping.files_of(&record, &record.regions()?).iter().map(|file| normalize(file)).collect();
            first_files.extend(names.get(&record.name_hash()).zip(own.first().cloned()));
            files.extend(own);
        }
        let mut votes: BTreeMap<(String, String), usize> = BTreeMap::new();
        for (name, file) in first_files {
            // A file that has the same name in both must not influence the translation of folders.
            for in_code in code.get(name).into_iter().flatten().filter(|in_code| !files.contains(*in_code)) {
                *find_differing_folders(&file, in_code).map_or(&mut 0, |folders| votes.entry(folders).or_default()) += 1;
            }
        }
        let mut folders: Vec<_> = votes.into_iter().collect();
        folders.sort_by_key(|(_, votes)| std::cmp::Reverse(*votes));
        Ok(ImageFiles { files, folders: folders.into_iter().map(|f| f.0).collect() })
    }

    fn name_in_mapping(&self, in_code: &str) -> Option<String> {
        let in_code = normalize(in_code);
        let renamed = |(folder, other): &(String, String)| Some(normalize(&format!("{folder}{}", in_code.strip_prefix(other.as_str())?)));
        let renamed = self.folders.iter().filter_map(renamed).find(|file| self.files.contains(file));
        if self.files.contains(&in_code) { Some(in_code) } else { renamed }
    }
}

/// Returns the parts of two paths before their longest common suffix of path components. Returns `None` if the paths are equal, or if their
/// last components differ.
fn find_differing_folders(one: &str, other: &str) -> Option<(String, String)> {
    let ends = one.rsplit('/').zip(other.rsplit('/')).take_while(|(a, b)| a == b).map(|(part, _)| part.len() + 1);
    let length = ends.sum::<usize>().checked_sub(1).filter(|_| one != other)?;
    // The suffix starts after a slash or comprises the complete path.
    let folder = |name: &str| name[..name.len() - length].to_owned();
    Some((folder(one), folder(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_folders_are_the_prefixes_before_the_common_suffix() {
        let found = |one, other| find_differing_folders(one, other).map(|(a, b)| format!("{a}|{b}"));
        assert_eq!(found("src/a.c", "/home/me/src/a.c").as_deref(), Some("|/home/me/"));
        assert_eq!(found("/x/a.c", "/home/me/a.c").as_deref(), Some("/x/|/home/me/"));
        assert_eq!((found("/x/a.c", "/x/a.c"), found("/x/a.c", "/x/b.c"), found("xa.c", "a.c")), (None, None, None));
        let files = ["/x/sub/a.c", "/home/me/b.c"].map(str::to_owned).into();
        let names = ImageFiles { files, folders: vec![("/x/".into(), "/home/me/".into())] };
        assert_eq!(names.name_in_mapping("/home/me/./sub/a.c").as_deref(), Some("/x/sub/a.c"));
        assert_eq!((names.name_in_mapping("/home/me/b.c").as_deref(), names.name_in_mapping("/home/me/c.c")), (Some("/home/me/b.c"), None));
    }
}
