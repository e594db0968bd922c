//! `trodden residual`: which paths does the field take that the tests have not? Profiles are filtered by
//! `trodden_analysis::untested`, and written by the crate `trodden-report`.
//!
//! What a build knew is named by its units' experiments: the file of that identity lies in the store (`inputs/`), where
//! `--residual` put it.

mod across;
mod cost;
mod schemes;

use crate::cli::{Color, Residual, ResidualFormat};
use crate::commands::coverage::files::Files;
use crate::commands::remarks;
use crate::driver::assets;
use crate::driver::experiment;
use crate::notes::{reasons, warn};
use crate::output::{self, json_text};
use crate::profiles;
use crate::sources;
use across::{SegmentProfiles, UntestedSegments};
use anyhow::{Context, Result, bail};
use schemes::Schemes;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_analysis::untested::{self, Sightings};
use trodden_profile::{Builds, Merger, Profile, ProfileError, RawProfile, Run, collect, is_raw_file, raw_files};
use trodden_recording::one_run;
use trodden_report::residual::{ResidualReport as Untested, RunLabel, UntestedInput, UntestedSelection, hot_json, hot_text};
use trodden_report::words::plural;
use trodden_report::{SourceCache, View, lcov, sarif};
use trodden_unit::experiment::{InputError, InputKind};
use trodden_unit::{Identity, Image, KnownPaths, UnitMap};
use trodden_wire::{COUNTERS_SECTION, KNOWN_MAGIC, checksum};

/// Folder in the run store into which programs built with `--residual` write by themselves.
pub const FIELD_FOLDER: &str = "field";
/// Exit status when there is something new.
const NEW: u8 = 1;
/// Paths shown on a terminal.
const SHOWN: usize = 10;

/// Shows untested paths.
///
/// # Errors
/// There are no such profiles, or nothing says what is known.
pub fn run(job: &Residual, color: Color) -> Result<ExitCode> {
    match &job.schemes {
        Some(program) => schemes::run(job, program, color),
        None => report(job, color, None),
    }
}

/// The same, with what was compared before.
fn report(job: &Residual, color: Color, schemes: Option<&Schemes>) -> Result<ExitCode> {
    let inputs = inputs(&job.profiles)?;
    let mut known = KnownInput::default();
    job.known.iter().try_for_each(|wanted| known.add_named(wanted))?;
    let (mut sightings, mut runs) = (Sightings::default(), Vec::new());
    let (mut field, mut across) = (Merger::new(Builds::Separate), SegmentProfiles::new());
    for input in inputs {
        let Some((label, mut profile)) = input.read_or_warn()? else { continue };
        across.take(&label.words, &mut profile)?;
        known.add_of_builds(&profile)?;
        if job.hot.is_none() {
            sightings.add(runs.len(), &mut profile, &known.paths)?;
        }
        field.add(&label.words, profile)?;
        runs.push(label);
    }
    let profile = field.finish().context("no profile can be read")?;
    let across = across.finish();
    if across.is_none() || !profile.images.is_empty() {
        known.check(&profile)?;
    }
    let maps: Vec<&UnitMap> = profile.images.iter().flat_map(|i| &i.units).map(|u| &*u.map).collect();
    if !known.paths.is_empty() {
        report_known(&known.paths, &maps, "all their paths count as untested");
    }
    let view = View::from_untested(&profile);
    if let Some(top) = job.hot {
        return hot(job, color, &view, &known.paths, top as usize);
    }
    let most = job.top.unwrap_or(if is_text(job) { SHOWN } else { 0 });
    let top = trodden_report::select::limit(most);
    let function = job.function.as_deref();
    let wanted = UntestedSelection { function, top, least_count: job.min_count, old_edges_only: job.known_edges, order: job.by };
    let field = UntestedInput { view: &view, sightings: &sightings, known: &known.paths, runs: &runs };
    let untested = Untested::new(field, &wanted)?;
    let provider = sources::sources(&job.source, &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let across = across.as_ref().map(|observed| UntestedSegments::new(observed, job, most)).transpose()?;
    let both = ResidualAnswer { paths: &untested, across: across.as_ref(), schemes, is_alone: profile.images.is_empty() };
    output::write_or_print(job.output.as_deref(), &form(job, color, &both, &sources, &profile.run.directory)?)?;
    remarks::remarks(&view, &sources);
    let is_empty = untested.is_empty() && across.is_none_or(|segments| segments.is_empty());
    Ok(if job.fail_if_new && !is_empty { ExitCode::from(NEW) } else { ExitCode::SUCCESS })
}

fn is_text(job: &Residual) -> bool {
    !job.json && job.format == ResidualFormat::Text
}

/// What is reported.
struct ResidualAnswer<'r, 'v, 'a> {
    paths: &'r Untested<'v, 'a>,
    across: Option<&'r UntestedSegments<'r>>,
    schemes: Option<&'r Schemes>,
    /// No program counted paths: there are segments only.
    is_alone: bool,
}

fn form(job: &Residual, color: Color, both: &ResidualAnswer, sources: &SourceCache, directory: &str) -> Result<Vec<u8>> {
    let ResidualAnswer { paths: untested, across, schemes, is_alone } = both;
    match if job.json { ResidualFormat::Json } else { job.format } {
        ResidualFormat::Text => {
            let options = output::text_options(color, job.steps);
            let mut text = if *is_alone { String::new() } else { untested.text(sources, &options, job.edges) };
            text.insert_str(0, &schemes.map_or(String::new(), |compared| compared.text()));
            text += &across.map_or(String::new(), |segments| segments.text(sources, color, job.steps));
            Ok(crate::output::printable_text(text.trim_start_matches('\n')).into_bytes())
        }
        ResidualFormat::Json => {
            let mut report = untested.json(sources);
            across.iter().for_each(|segments| segments.add_to_json(&mut report));
            if let Some(compared) = schemes {
                report["schemes"] = compared.json();
                report["costs"] = compared.costs();
            }
            json_text(&report)
        }
        ResidualFormat::Sarif => {
            let mut log = sarif::untested(untested, sources);
            across.iter().for_each(|segments| segments.add_to_sarif(&mut log, sources));
            json_text(&log)
        }
        ResidualFormat::Lcov => {
            let (files, found) = (Files::new(&[], &[], None)?, sources::locate(&job.source, directory));
            let text = lcov::executed_only(&untested.functions(), "untested", &|path| files.name(path, found(path)));
            remarks::left_out(&files);
            Ok(text.into_bytes())
        }
    }
}

/// Do hot paths stay hot?
fn hot(job: &Residual, color: Color, view: &View, known: &KnownPaths, top: usize) -> Result<ExitCode> {
    if view.profile.images.iter().flat_map(|i| &i.units).any(|u| u.map.has_times()) {
        bail!(
            "a program built with --residual does not count what is known: for --hot, record the field with a program that counts all \
                paths (or samples them: --sample)"
        );
    }
    let (paths, share) = untested::hot(view.profile, known, top)?;
    if paths.is_empty() {
        bail!("no known path is one of these programs: were the tests recorded with the same build?");
    }
    let bytes = match (job.json || job.format == ResidualFormat::Json, is_text(job)) {
        (true, _) => json_text(&hot_json(view, &paths, share))?,
        (_, true) => hot_text(view, &paths, share, &output::text_options(color, job.steps)).into_bytes(),
        _ => bail!("--hot is for text and JSON"),
    };
    output::write_or_print(job.output.as_deref(), &bytes)?;
    Ok(ExitCode::SUCCESS)
}

/// A profile, or what becomes one.
pub enum ProfileInput {
    /// A stored profile, with its number in the run store.
    Stored(PathBuf, Option<u64>),
    /// What a program wrote.
    Raw(PathBuf),
}

impl ProfileInput {
    /// Reads it. Of raw files, which gather over time, one that makes no sense any more is left out with a warning.
    ///
    /// # Errors
    /// A stored profile cannot be read.
    pub fn read_or_warn(&self) -> Result<Option<(RunLabel, Profile)>> {
        match self.read() {
            Err(error) if matches!(self, ProfileInput::Raw(_)) => {
                warn(format_args!("{}; it is left out", reasons(&error)));
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    fn read(&self) -> Result<(RunLabel, Profile)> {
        match self {
            ProfileInput::Stored(file, number) => {
                let profile = profiles::load_file(file)?;
                let command = profile.run.command.join(" ");
                let words = if command.is_empty() { file.display().to_string() } else { command };
                Ok((RunLabel { number: *number, words }, profile))
            }
            ProfileInput::Raw(file) => {
                let raw = RawProfile::read(file)?;
                let words = raw_words(file, &raw);
                let run = Run { started_ns: raw.created_ns, ..one_run() };
                let collected = collect([file], run, assets::store().ok().as_ref());
                collected.problems.iter().for_each(warn);
                anyhow::ensure!(!collected.profile.images.is_empty(), "{}: none of its images can be decoded", file.display());
                Ok((RunLabel { number: None, words }, collected.profile))
            }
        }
    }
}

/// What wrote a raw file, as far as that is known: it says which process made it, and any number may have gone on in
/// it, unless its name is that of the one process (`%p`).
fn raw_words(file: &Path, raw: &RawProfile) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let pid = raw.pid.to_string();
    // Digits within an image's identity (`%m`) are no process.
    let of_one = name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == pid);
    match of_one {
        true => format!("{} (pid {pid}), {}", raw.image_path.display(), file.display()),
        false => format!("a process of {}, {}", raw.image_path.display(), file.display()),
    }
}

/// The profiles that are meant.
///
/// # Errors
/// There is none of such a name, or, where none is named, none of a residual build.
pub fn inputs(wanted: &[String]) -> Result<Vec<ProfileInput>> {
    if wanted.is_empty() {
        return of_residual_builds();
    }
    let mut out = Vec::new();
    for name in wanted {
        let path = Path::new(name);
        if path.is_file() {
            out.push(if is_raw_file(path) { ProfileInput::Raw(path.to_owned()) } else { ProfileInput::Stored(path.to_owned(), None) });
            continue;
        }
        let raws = if path.is_dir() { raw_files(path)? } else { Vec::new() };
        let entries = profiles::find_store(Path::new(".")).and_then(|store| store.select(name));
        match entries {
            // A suite may well have the name of a folder.
            Ok(entries) => out.extend(entries.into_iter().map(|e| ProfileInput::Stored(e.profile, Some(e.number)))),
            Err(_) if !raws.is_empty() => out.extend(raws.into_iter().map(ProfileInput::Raw)),
            Err(_) if path.is_dir() => bail!("{name} is a folder without raw files (*.raw), and no run or suite has that name"),
            Err(ProfileError::NoStore { .. }) => bail!("there is neither a file nor a folder {name}, nor a run store here"),
            Err(ProfileError::NoRun { store, known, .. }) => {
                bail!("there is neither a file nor a folder {name}, nor a run or suite of that name in {}: {known}", store.display())
            }
            Err(error) => return Err(error.into()),
        }
    }
    // Named twice, it is one all the same.
    let mut seen = BTreeSet::new();
    out.retain(|input| {
        let (ProfileInput::Stored(file, _) | ProfileInput::Raw(file)) = input;
        seen.insert(fs::canonicalize(file).unwrap_or_else(|_| file.clone()))
    });
    Ok(out)
}

/// What residual builds wrote into the run store by themselves, and the runs of such builds.
fn of_residual_builds() -> Result<Vec<ProfileInput>> {
    let store = profiles::find_store(Path::new("."))?;
    let mut out: Vec<ProfileInput> = raw_files(&store.folder().join(FIELD_FOLDER))?.into_iter().map(ProfileInput::Raw).collect();
    // Runs of one build are all alike in this: one of them is looked at.
    let (mut residual, mut others) = (BTreeSet::new(), BTreeSet::new());
    for entry in store.list()? {
        let unknown = |i: &trodden_profile::store::RunImage| !residual.contains(&i.identity) && !others.contains(&i.identity);
        if entry.images.iter().any(unknown) {
            for image in store.load(&entry)?.images {
                let is = image.units.iter().any(|u| u.map.has_times() && !u.map.experiment.is_watched()) || across::knows_tests(&image);
                if is {
                    residual.insert(image.identity)
                } else {
                    others.insert(image.identity)
                };
            }
        }
        if entry.images.iter().any(|i| residual.contains(&i.identity)) {
            out.push(ProfileInput::Stored(entry.profile, Some(entry.number)));
        }
    }
    if out.is_empty() {
        bail!(
            "no program built with --residual wrote anything here: run one (`trodden instrument PROG --residual TESTS -o PROG.field`), \
                or name a profile, and the tests by --known"
        );
    }
    Ok(out)
}

/// What is known.
#[derive(Default)]
pub struct KnownInput {
    /// All of it.
    pub paths: KnownPaths,
    /// Identities of the sets that builds knew, which were added.
    added: BTreeSet<Identity>,
    /// Those that are nowhere to be found.
    missing: BTreeSet<Identity>,
}

impl KnownInput {
    /// Adds what the user names.
    ///
    /// # Errors
    /// There is no such profile, or its paths are cut otherwise.
    pub fn add_named(&mut self, wanted: &str) -> Result<()> {
        let known = experiment::known_paths(OsStr::new(wanted)).with_context(|| format!("--known {wanted}"))?;
        Ok(self.paths.unite(known)?)
    }

    /// Adds what the builds of a profile knew.
    ///
    /// # Errors
    /// A set is damaged, or of paths that are cut otherwise.
    pub fn add_of_builds(&mut self, profile: &Profile) -> Result<()> {
        let units = profile.images.iter().flat_map(|i| &i.units);
        let named: BTreeSet<Identity> = units.filter_map(|u| u.map.experiment.known_set()).collect();
        let folder = experiment::inputs()?;
        for identity in named.difference(&self.added.clone()).copied() {
            match folder.get(InputKind::Known, identity) {
                Ok(bytes) => {
                    let known = KnownPaths::from_bytes(&bytes).with_context(|| folder.path(identity).display().to_string())?;
                    self.paths.unite(known)?;
                }
                Err(InputError::Missing { .. }) => drop(self.missing.insert(identity)),
                Err(error) => return Err(error.into()),
            }
            self.added.insert(identity);
        }
        Ok(())
    }

    /// Warns of what is missing.
    ///
    /// # Errors
    /// Nothing is known at all.
    pub fn check(&self, profile: &Profile) -> Result<()> {
        let all_residual = profile.images.iter().flat_map(|i| &i.units).all(|u| u.map.has_times());
        if self.paths.is_empty() && self.missing.is_empty() && !all_residual {
            bail!("nothing says what is known: name the tests by --known, or record a program built with --residual");
        }
        for identity in &self.missing {
            warn(format_args!(
                "the set of known paths {identity} is not in the unit store {}: edges that tests take count as untested; name the tests \
                    by --known, or set TRODDEN_STORE",
                assets::store()?.root().display()
            ));
        }
        Ok(())
    }
}

/// Says so where tests are of another program, or of another state of it: what they know is of no use then.
pub fn report_known(known: &KnownPaths, maps: &[&UnitMap], then: &str) {
    let (mut same, mut changed) = (false, BTreeSet::new());
    for map in maps {
        for function in map.functions.iter().filter(|f| known.names(&map.source, &f.name)) {
            match untested::known_of(known, map, function) {
                Some(_) => same = true,
                None => drop(changed.insert((&map.source, function.plain_name()))),
            }
        }
    }
    if !changed.is_empty() {
        let names = changed.iter().take(5).map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
        let more = if changed.len() > 5 { ", ..." } else { "" };
        let functions = plural(changed.len() as u128, "function is another", "functions are others");
        warn(format_args!("{functions} than when the tests were recorded, and {then} ({names}{more}): record the tests again"));
    } else if !same {
        warn(format_args!("the tests know no function of this program, and {then}: were they recorded with it?"));
    }
}

/// A file for `TRODDEN_KNOWN`: the known paths as counters of a program.
///
/// # Errors
/// The program is not instrumented, its maps are not found, or it was not built with `--residual`.
pub fn known_to(program: &Path, known: &KnownPaths) -> Result<Vec<u8>> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let image = Image::read(&bytes).with_context(|| program.display().to_string())?;
    let counters = counters_of(&bytes)?;
    let mut bits = vec![0u8; counters.div_ceil(8) as usize];
    let store = assets::store().ok();
    let mut residual = false;
    for placed in &image.units {
        let frame = image.frame(placed.unit, store.as_ref()).with_context(|| program.display().to_string())?;
        let frame = frame.with_context(|| format!("{}: no map of unit {}: set TRODDEN_STORE", program.display(), placed.unit))?;
        let map = frame.map().with_context(|| program.display().to_string())?;
        residual |= map.has_times();
        for function in map.functions.iter().filter(|_| map.has_times()) {
            for (id, _) in untested::known_of(known, &map, function).map_or(&[][..], |k| &k.known) {
                let at = placed.first + function.first_counter + id;
                if let Some(byte) = bits.get_mut((at / 8) as usize) {
                    *byte |= 1 << (at % 8);
                }
            }
        }
    }
    anyhow::ensure!(residual, "{} was not built with --residual: it counts all paths", program.display());
    Ok([&KNOWN_MAGIC[..], &image.identity.0, &counters.to_le_bytes(), &checksum(&bits).to_le_bytes(), &bits].concat())
}

/// Counters of a program's template.
fn counters_of(bytes: &[u8]) -> Result<u64> {
    use object::{Object, ObjectSection};
    let section = object::File::parse(bytes)?.section_by_name(COUNTERS_SECTION).map(|s| s.size());
    Ok(section.unwrap_or(0) / 8)
}
