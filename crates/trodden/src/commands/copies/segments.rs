//! `trodden record --copies K --segments SET`: copies that count a part of the interprocedural segments each.
//!
//! P3 (Afraz, Saha and Kanade, ESEC/FSE 2015) divides paths within functions, and names paths across them as future work. Here the segments
//! that end in one function are counted by one copy: it needs the contexts of that function, and what leads to those, and no other code.
//!
//! The profile has the image of each copy with what it counted. No segment is counted twice, so the counts of all are exact together.

use super::shared::{self, Divided, Partition, divide};
use crate::cli::Record;
use crate::context::context;
use crate::notes::note;
use crate::surroundings::folders;
use anyhow::{Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use trodden_analysis::segments::asked;
use trodden_profile::segments::are_counted;
use trodden_profile::{ImageProfile, Profile};
use trodden_report::words::plural;
use trodden_unit::experiment::SettingsFile;
use trodden_unit::{SegmentSet, Settings};

/// Records a run by copies that share the counting of segments; gives the program's exit status, or 1 if the copies were not the same
/// execution.
///
/// # Errors
/// The copies cannot be made or run.
pub fn run(record: &Record, wanted: &str) -> Result<ExitCode> {
    let options = &record.copies;
    let set = asked(options.depth as usize, &[], wanted, &folders())?;
    shared::run(record, |_| Ok(SegmentPartition::new(set, options.copies.unwrap_or(1))))
}

/// Which copy counts the segments that end in which function.
struct SegmentPartition {
    set: SegmentSet,
    /// For each copy the numbers of its functions in the set.
    copies: Vec<BTreeSet<u32>>,
    /// Unit and name of the functions that all copies count.
    checked: BTreeSet<(String, String)>,
}

impl SegmentPartition {
    fn new(set: SegmentSet, copies: usize) -> SegmentPartition {
        let functions = set.functions().iter().zip(0..).filter(|(function, _)| !function.contexts.is_empty());
        let functions: Vec<(u64, u32)> = functions.map(|(function, number)| (function.executions, number)).collect();
        let count = functions.len() as u128;
        let Divided { copies, checked, most, all } = divide(functions, copies);
        note(format_args!(
            "{} of segments of {} shared by {} copies, of which one counts {most} at most",
            plural(all.into(), "execution", "executions"),
            plural(count, "function", "functions"),
            copies.len()
        ));
        let name = |number: &u32| {
            let function = &set.functions()[*number as usize];
            (function.unit.clone(), function.name.clone())
        };
        let checked = checked.iter().map(name).collect();
        SegmentPartition { set, copies, checked }
    }
}

impl Partition for SegmentPartition {
    const STREAMS: bool = false;

    fn settings(&self) -> Result<Vec<Settings>> {
        let of = |functions: &BTreeSet<u32>| {
            let part = self.set.part(|number| functions.contains(&number));
            let segments = Some(SettingsFile::Stored(context().inputs()?.put(&part.to_bytes())?));
            Ok(Settings { segments, ..Settings::default() })
        };
        self.copies.iter().map(of).collect()
    }

    fn merge(&self, profiles: Vec<Profile>, _: &Path) -> Result<(Vec<ImageProfile>, Vec<String>)> {
        let (images, differences) = merge(profiles, &self.checked);
        ensure!(images.iter().any(are_counted), "no copy counted a segment: what ran has none of the functions of the set");
        Ok((images, differences))
    }

    fn keep(&self, _: &Record, _: Option<u64>, _: &Path) -> Result<()> {
        Ok(())
    }
}

/// The images of all copies, each with what only it counts; what all count is left to the first. Says where that differs.
fn merge(profiles: Vec<Profile>, checked: &BTreeSet<(String, String)>) -> (Vec<ImageProfile>, Vec<String>) {
    let (mut images, mut differences) = (Vec::new(), Vec::new());
    let mut first: BTreeMap<(String, String, u64), u64> = BTreeMap::new();
    for (copy, profile) in profiles.into_iter().enumerate() {
        let mut own: BTreeMap<(String, String, u64), u64> = BTreeMap::new();
        for mut image in profile.images {
            if !are_counted(&image) {
                if copy == 0 {
                    images.push(image);
                }
                continue;
            }
            for unit in &mut image.units {
                let of_unit = unit.map.functions.iter().filter(|f| checked.contains(&(unit.map.source.clone(), f.name.clone())));
                for words in of_unit.filter_map(|f| Some((f.name.clone(), f.segment_words()?.range()))) {
                    let (name, range) = words;
                    for (word, count) in unit.counts.within(range.clone()) {
                        *own.entry((unit.map.source.clone(), name.clone(), word - range.start)).or_default() += count;
                    }
                    if copy > 0 {
                        unit.counts.executions.retain(|(word, _)| !range.contains(word));
                    }
                }
            }
            images.push(image);
        }
        if copy == 0 {
            first = own;
        } else if own != first {
            let at = own.iter().chain(&first).map(|(key, _)| key).find(|key| own.get(*key) != first.get(*key));
            differences
                .extend(at.map(|(_, name, _)| format!("copy {copy} counted the segments that end in `{name}` otherwise than copy 0")));
        }
    }
    (images, differences)
}
