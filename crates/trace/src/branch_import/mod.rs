//! Profiles of uninstrumented programs from branches recorded by the hardware: the output of `perf script`, combined with the addresses
//! of blocks.
//!
//! [`crate::perf_script`] parses the lines, [`trodden_binary::ProbedImage`] has the programs' block addresses,
//! [`trodden_binary::AddressSpace`] locates the programs in memory, and [`walk`] turns branches into paths, which [`tally`] counts.
//! Windows of branch records yield estimates; a trace of all branches yields counts, which are exact unless something was lost.

mod frame;
mod programs;
mod tally;
mod walk;

use crate::perf_script::{self, ScriptLine, ScriptRecord, ScriptThread};
use crate::probe_graphs::ProbeGraphs;
pub use programs::programs_with_addresses;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use tally::{BranchPathTally, TallyPath};
use trodden_binary::{AddressSpace, BinaryError, ProbedFunction, ProbedImage};
use trodden_profile::{BranchSampling, ImageProfile, ObservedBranches, Profile, Run, Sampling, SamplingSource, UnitProfile};
use trodden_unit::UnitCache;
use walk::{AddressPlace, ImportState, ThreadWalk};

/// Error of [`import`].
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The output of `perf script` cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The path of the output.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line of the output is malformed.
    #[error("{path}: line {line}: {what}")]
    Text {
        /// The path of the output.
        path: PathBuf,
        /// Line number, starting at 1.
        line: u64,
        /// What is wrong with the line.
        what: String,
    },
    /// A program cannot be read, or has no block addresses.
    #[error(transparent)]
    Binary(#[from] BinaryError),
}

/// A profile computed from recorded branches, and the functions for which it is incomplete.
#[derive(Debug)]
pub struct BranchImport {
    /// The profile. Its `sampling` field is set.
    pub profile: Profile,
    /// Functions whose block addresses are unknown, each with the reason.
    pub functions_without_addresses: Vec<String>,
    /// Functions with block sequences that their graphs forbid or that fit several paths, each with the number of such sequences.
    pub uncertain: Vec<(String, u64)>,
}

/// Builds a profile from the output of `perf script`. `name` identifies the text in messages; `programs` are the executables and shared
/// libraries to consider, which must be those that ran.
///
/// # Errors
/// The text cannot be read, a program has no block addresses, a line is malformed, or no branch is in any of the programs.
pub fn import(
    text: impl BufRead,
    name: &Path,
    programs: &[PathBuf],
    store: Option<&UnitCache>,
    run: Run,
) -> Result<BranchImport, ImportError> {
    let images = programs.iter().map(|p| ProbedImage::read(p, store)).collect::<Result<Vec<_>, _>>()?;
    let state = ImportState { images: &images, graphs: ProbeGraphs::new(&images), tally: BranchPathTally::default() };
    let mut reader = BranchImporter {
        state,
        space: AddressSpace::new(&images),
        walks: HashMap::new(),
        source: None,
        counts: ImportedSampleCounts::default(),
    };
    let failed = |line: u64| move |what: String| ImportError::Text { path: name.to_owned(), line, what };
    for (number, line) in text.split(b'\n').enumerate() {
        let line = line.map_err(|source| ImportError::Read { path: name.to_owned(), source })?;
        let line = perf_script::parse_script_line(&String::from_utf8_lossy(&line)).map_err(failed(number as u64 + 1))?;
        reader.handle_script_line(line)?.map_err(failed(number as u64 + 1))?;
    }
    let BranchImporter { state, counts, source, .. } = reader.finish();
    let (tally, source) = (state.tally, source.unwrap_or(SamplingSource::BranchRecords));
    if counts.records > 0 && counts.in_programs == 0 {
        let what = format!(
            "none of the {} branches lies in it. Position-independent programs and shared libraries need `perf script --show-mmap-events`, \
                and the file must have the name under which it ran",
            counts.records
        );
        return Err(BinaryError::NoBlockAddresses { image: programs.first().cloned().unwrap_or_default(), what }.into());
    }
    let functions_without_addresses =
        images.iter().flat_map(|i| i.unplaced_functions.iter().map(|w| format!("{}: {w}", i.path.display()))).collect();
    let uncertain = tally.uncertain.iter().map(|(&(image, function), times)| (images[image].map(function).plain_name().to_owned(), *times));
    let uncertain = uncertain.collect();
    Ok(BranchImport { profile: profile(images, tally, counts, source, run), functions_without_addresses, uncertain })
}

#[derive(Clone, Copy, Debug, Default)]
struct ImportedSampleCounts {
    samples: u64,
    windows: u64,
    records: u64,
    in_programs: u64,
}

struct BranchImporter<'a> {
    state: ImportState<'a>,
    space: AddressSpace<'a, ProbedImage>,
    walks: HashMap<ScriptThread, ThreadWalk>,
    source: Option<SamplingSource>,
    counts: ImportedSampleCounts,
}

impl BranchImporter<'_> {
    /// Handles a line. The inner error is for a line that contradicts earlier ones.
    fn handle_script_line(&mut self, line: ScriptLine) -> Result<Result<(), String>, BinaryError> {
        match line {
            ScriptLine::Nothing => {}
            ScriptLine::Mapping(mapping) => self.space.map(&mapping)?,
            ScriptLine::Fork { process, parent } => self.space.fork(process, parent),
            ScriptLine::Exit(thread) => {
                if let Some(mut walk) = self.walks.remove(&thread) {
                    walk.end(&mut self.state);
                }
            }
            ScriptLine::Lost(thread) => {
                self.state.tally.losses.gaps += 1;
                for (_, walk) in self.walks.iter_mut().filter(|(t, _)| thread.is_none_or(|thread| **t == thread)) {
                    walk.cut_off(&mut self.state);
                    self.counts.windows += 1;
                }
            }
            ScriptLine::Window(thread, records) => {
                if *self.source.get_or_insert(SamplingSource::BranchRecords) != SamplingSource::BranchRecords {
                    return Ok(Err("a branch stack follows branches of a trace. Print them to separate files".into()));
                }
                self.handle_window(thread, &records)?;
            }
            ScriptLine::Branch(thread, record) => {
                if *self.source.get_or_insert(SamplingSource::BranchTrace) != SamplingSource::BranchTrace {
                    return Ok(Err("a branch of a trace follows branch stacks. Print them to separate files".into()));
                }
                let (from, to) = self.resolve_branch(thread, record);
                if !self.walks.contains_key(&thread) {
                    self.counts.windows += 1;
                    self.counts.samples += 1;
                }
                self.walks.entry(thread).or_insert_with(|| ThreadWalk::new(None)).handle_branch(&mut self.state, from, to)?;
            }
        }
        Ok(Ok(()))
    }

    fn handle_window(&mut self, thread: ScriptThread, records: &[ScriptRecord]) -> Result<(), BinaryError> {
        self.counts.samples += 1;
        self.counts.windows += u64::from(!records.is_empty());
        let mut walk = ThreadWalk::new(Some(records.len() as u64));
        for &record in records {
            let (from, to) = self.resolve_branch(thread, record);
            walk.handle_branch(&mut self.state, from, to)?;
        }
        walk.cut_off(&mut self.state);
        Ok(())
    }

    fn resolve_branch(&mut self, thread: ScriptThread, record: ScriptRecord) -> (AddressPlace, AddressPlace) {
        let (from, to) = (self.resolve_address(thread.process, record.from), self.resolve_address(thread.process, record.to));
        self.counts.records += 1;
        self.counts.in_programs += u64::from(matches!(from, AddressPlace::Code(..)) || matches!(to, AddressPlace::Code(..)));
        (from, to)
    }

    fn resolve_address(&self, process: u32, address: Option<u64>) -> AddressPlace {
        let Some(address) = address else { return AddressPlace::Outside };
        let images = self.state.images;
        let mut found = self.space.resolve(process, address);
        let code = found.find_map(|(image, in_file)| Some(AddressPlace::Code(image, images[image].range_at(in_file)?, in_file)));
        code.unwrap_or(AddressPlace::Elsewhere)
    }

    fn finish(mut self) -> Self {
        for (_, mut walk) in std::mem::take(&mut self.walks) {
            walk.cut_off(&mut self.state);
        }
        self
    }
}

fn profile(images: Vec<ProbedImage>, tally: BranchPathTally, counts: ImportedSampleCounts, source: SamplingSource, run: Run) -> Profile {
    let by_unit = group_by_unit(&images, tally.paths);
    let estimate = |seen: &TallyPath| match source {
        SamplingSource::BranchTrace => seen.times,
        _ => (seen.weight.round() as u64).max(1),
    };
    let observed = match source {
        SamplingSource::BranchTrace => Vec::new(),
        _ => by_unit.iter().map(|(place, paths)| observed_counts(*place, paths)).collect(),
    };
    let sampling = BranchSampling {
        source,
        samples: counts.samples,
        windows: counts.windows,
        records: counts.records,
        whole_paths: tally.whole_paths,
        losses: tally.losses,
        observed,
    };
    let executions = |place| by_unit.get(&place).into_iter().flatten().map(|(at, seen)| (*at, estimate(seen))).collect();
    Profile { run, images: image_profiles(&images, executions), sampling: Some(Sampling::Branches(sampling)) }
}

/// Groups path counts by image and unit, then by counter. Paths whose number is out of the function's range are dropped.
pub(crate) fn group_by_unit<T>(
    images: &[ProbedImage],
    paths: impl IntoIterator<Item = ((usize, ProbedFunction, i64), T)>,
) -> BTreeMap<(usize, usize), BTreeMap<u64, T>> {
    let mut by_unit: BTreeMap<(usize, usize), BTreeMap<u64, T>> = BTreeMap::new();
    for ((image, function, id), found) in paths {
        let (unit, _) = images[image].functions[function.0 as usize];
        let map = images[image].map(function);
        if let Some(id) = u64::try_from(id).ok().filter(|id| *id < map.counters) {
            by_unit.entry((image, unit)).or_default().insert(map.first_counter + id, found);
        }
    }
    by_unit
}

/// Builds each image's profile. `executions` returns the (counter, count) pairs of an (image, unit) pair, sorted by counter.
pub(crate) fn image_profiles(images: &[ProbedImage], executions: impl Fn((usize, usize)) -> Vec<(u64, u64)>) -> Vec<ImageProfile> {
    let units = |number: usize, image: &ProbedImage| {
        let units = image.units.iter().enumerate().map(|(place, (unit, map))| UnitProfile {
            unit: *unit,
            map: map.clone(),
            counts: trodden_profile::Counts::from_executions(executions((number, place))),
        });
        units.collect()
    };
    let images = images.iter().enumerate().map(|(number, image)| ImageProfile {
        identity: image.image.identity,
        path: image.path.display().to_string(),
        build_id: image.image.build_id.clone(),
        units: units(number, image),
    });
    images.collect()
}

/// Returns how often each path of a unit was seen, without weights.
fn observed_counts((image, unit): (usize, usize), paths: &BTreeMap<u64, TallyPath>) -> ObservedBranches {
    ObservedBranches { image: image as u32, unit: unit as u32, counts: paths.iter().map(|(at, seen)| (*at, seen.times)).collect() }
}
