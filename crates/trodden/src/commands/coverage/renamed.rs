//! Folders that debug information and LLVM's mapping name differently.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use trodden_analysis::changes::plain;
use trodden_report::View;

/// Folders that debug information and LLVM's mapping name differently: `-fcoverage-prefix-map` and `-fdebug-prefix-map` change one of
/// them only.
#[derive(Debug, Default)]
pub struct RenamedFolders(Vec<(String, String)>);

impl RenamedFolders {
    /// Finds them by functions of one linkage name, the folder of most functions first.
    pub fn new(data: &Value, view: &View) -> RenamedFolders {
        let code: BTreeMap<&str, &str> =
            view.functions.iter().filter_map(|f| Some((f.name.linkage.as_str(), f.file()?))).filter(|f| !f.0.is_empty()).collect();
        let mut votes: BTreeMap<(String, String), usize> = BTreeMap::new();
        for function in data["functions"].as_array().into_iter().flatten() {
            let (name, file) = (function["name"].as_str().unwrap_or_default(), function["filenames"][0].as_str().unwrap_or_default());
            let folders = code.get(name).and_then(|in_code| different_folders(&plain(file), &plain(in_code)));
            *folders.map_or(&mut 0, |folders| votes.entry(folders).or_default()) += 1;
        }
        let mut folders: Vec<_> = votes.into_iter().collect();
        folders.sort_by_key(|(_, votes)| std::cmp::Reverse(*votes));
        RenamedFolders(folders.into_iter().map(|f| f.0).collect())
    }

    /// Notes the names that the mapping and debug information have for one file.
    pub fn note(&mut self, file: &str, in_code: &str) {
        self.0.extend(different_folders(&plain(file), &plain(in_code)).filter(|folders| !self.0.contains(folders)));
    }

    /// A file of the mapping, as debug information names it.
    pub fn in_code(&self, file: &str, known: &BTreeSet<&str>) -> String {
        let file = plain(file);
        let renamed = || {
            let renamed = self.0.iter().filter_map(|(from, to)| Some(format!("{to}{}", file.strip_prefix(from.as_str())?)));
            renamed.map(|name| plain(&name)).find(|name| known.contains(name.as_str()))
        };
        if known.contains(file.as_str()) { file } else { renamed().unwrap_or(file) }
    }
}

/// What is left of two names without the part at their ends in which they agree; `None` if they are equal, or their files have
/// different names.
fn different_folders(one: &str, other: &str) -> Option<(String, String)> {
    let ends = one.rsplit('/').zip(other.rsplit('/')).take_while(|(a, b)| a == b).map(|(part, _)| part.len() + 1);
    let length = ends.sum::<usize>().checked_sub(1).filter(|_| one != other)?;
    // The end begins behind a slash, or is all of the name.
    let folder = |name: &str| name[..name.len() - length].to_owned();
    Some((folder(one), folder(other)))
}

/// Whether a file is not known, but one of its name in another folder.
pub fn has_other_folder(file: &str, known: &BTreeSet<&str>) -> bool {
    !known.contains(file) && known.iter().any(|other| different_folders(file, other).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_differ_before_what_names_share() {
        let found = |one, other| different_folders(one, other).map(|(a, b)| format!("{a}|{b}"));
        assert_eq!(found("src/a.c", "/home/me/src/a.c").as_deref(), Some("|/home/me/"));
        assert_eq!(found("/x/a.c", "/home/me/a.c").as_deref(), Some("/x/|/home/me/"));
        assert_eq!((found("/x/a.c", "/x/a.c"), found("/x/a.c", "/x/b.c"), found("xa.c", "a.c")), (None, None, None));
        let renamed = RenamedFolders(vec![("/x/".into(), "/home/me/".into())]);
        let known = BTreeSet::from(["/home/me/sub/a.c", "/x/b.c"]);
        assert_eq!(renamed.in_code("/x/./sub/a.c", &known), "/home/me/sub/a.c");
        assert_eq!((renamed.in_code("/x/b.c", &known), renamed.in_code("/x/c.c", &known)), ("/x/b.c".into(), "/x/c.c".into()));
    }
}
