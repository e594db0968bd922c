//! Execution counts of source lines as `llvm-cov` computes them: a line's count is the maximum over the regions that start on the line or
//! extend into it.

use crate::CoverageMapping;
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use trodden_analysis::changes::{ChangedLines, normalize};
use trodden_report::ProfileView;
use trodden_report::view::MappedLines;

/// Execution counts by file and line. Lines without code are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineExecutions(pub BTreeMap<String, BTreeMap<u32, u64>>);

impl LineExecutions {
    /// Runs `llvm-cov` to count the lines of the selected files.
    pub fn from_mapping(mapping: &CoverageMapping) -> Result<LineExecutions> {
        let text = mapping.llvm_cov("export", &["-format=lcov".into(), "-skip-functions".into(), "-skip-branches".into()])?;
        LineExecutions::parse_tracefile(&String::from_utf8_lossy(&text))
    }

    /// Parses an LCOV tracefile (`geninfo(1)`). In it, `SF` starts a file, and `DA` gives a line and its count.
    fn parse_tracefile(text: &str) -> Result<LineExecutions> {
        let (mut lines, mut file) = (LineExecutions::default(), None);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("SF:") {
                file = Some(lines.0.entry(name.to_owned()).or_default());
            } else if let Some(data) = line.strip_prefix("DA:") {
                let mut numbers = data.split(',').map(str::parse::<u64>);
                let (Some(Ok(number)), Some(Ok(count)), Some(file)) = (numbers.next(), numbers.next(), file.as_mut()) else {
                    bail!("cannot parse a line that llvm-cov exported: {line}");
                };
                let known = file.entry(u32::try_from(number).unwrap_or(u32::MAX)).or_insert(0u64);
                *known = known.saturating_add(count);
            }
        }
        Ok(lines)
    }

    /// Returns the executed lines, each with its file.
    pub fn executed(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().flat_map(|(file, lines)| lines.iter().filter(|(_, n)| **n > 0).map(move |(line, _)| (file.as_str(), *line)))
    }

    /// Removes all lines except those that were changed.
    pub fn keep_changed_lines(&mut self, changes: &ChangedLines) {
        for (file, lines) in &mut self.0 {
            lines.retain(|line, _| changes.touches_line(file, *line));
        }
        self.0.retain(|_, lines| !lines.is_empty());
    }
}

/// Returns the line counts of those programs that have a coverage mapping. Files have their names in debug information.
pub fn mapped_lines(view: &ProfileView, mapping: &CoverageMapping) -> Result<MappedLines> {
    let lines = LineExecutions::from_mapping(mapping)?.0;
    let in_code: BTreeSet<String> =
        view.profile.images.iter().flat_map(|i| &i.units).flat_map(|u| &u.map.files).map(|f| normalize(f)).collect();
    let renamed = mapping.names.renamed_files(in_code.iter().map(String::as_str));
    let mut by_name = MappedLines::new();
    for (file, counts) in lines {
        let file = normalize(&file);
        let name = if in_code.contains(&file) { file } else { renamed.get(&file).map_or(file, |name| (*name).to_owned()) };
        let of_file = by_name.entry(name).or_default();
        // The mapping may contain a file under several names.
        counts.into_iter().for_each(|(line, count)| *of_file.entry(line).or_insert(0u64) += count);
    }
    Ok(by_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_a_tracefile() {
        let lines = LineExecutions::parse_tracefile(
            "SF:/x/a.c\nFN:1,main\nDA:1,5\nDA:2,0\nLF:2\nend_of_record\nSF:/x/b.c\nDA:7,18446744073709551615\nend_of_record\n",
        )
        .unwrap();
        assert_eq!(lines.executed().collect::<Vec<_>>(), [("/x/a.c", 1), ("/x/b.c", 7)]);
        assert_eq!(lines.0["/x/a.c"], BTreeMap::from([(1, 5), (2, 0)]));
        assert!(LineExecutions::parse_tracefile("DA:1,2\n").is_err() && LineExecutions::parse_tracefile("SF:a\nDA:x\n").is_err());
    }
}
