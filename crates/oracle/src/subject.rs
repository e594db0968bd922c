//! A program that is checked: its units with maps and bitcode, and how it is linked, so that it can be rebuilt of other objects.

use crate::error::Error;
use crate::probes::{FunctionProbes, NodeNumbers, ProbePurpose, insert_probes};
use crate::tools::{RECORDER, Toolkit, run};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use trodden_profile::collect::counters;
use trodden_unit::experiment::{InputFolder, Keep, PluginRequest, UnitAction};
use trodden_unit::{Identity, Image, UnitCache, UnitMap};

/// A program.
#[derive(Debug)]
pub struct Subject {
    /// The instrumented program.
    pub program: PathBuf,
    /// Its units, in link order.
    pub units: Vec<SubjectUnit>,
    /// How it is linked.
    pub link: Link,
    /// Where the oracle keeps its files.
    pub folder: PathBuf,
    /// Files of earlier profiles that the build was given.
    pub inputs: InputFolder,
}

/// A unit of a program.
#[derive(Debug)]
pub struct SubjectUnit {
    /// Its identity.
    pub identity: Identity,
    /// Its map.
    pub map: UnitMap,
    /// Its bitcode, before instrumentation.
    pub bitcode: PathBuf,
}

/// A link.
#[derive(Clone, Debug)]
pub struct Link {
    /// `clang` or `clang++`.
    pub driver: &'static str,
    /// Folder in which it runs.
    pub directory: PathBuf,
    /// Its arguments.
    pub arguments: Vec<LinkArgument>,
}

/// An argument of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkArgument {
    /// As it is.
    Plain(OsString),
    /// The object of a unit.
    Unit(Identity),
    /// An archive: its members are files or units.
    Archive(Vec<LinkArgument>),
    /// Units that are linked together, whether needed or not.
    Whole(Vec<LinkArgument>),
}

/// A run of a program.
#[derive(Debug)]
pub struct SubjectRun {
    /// The file to run it as: all variants run under the same name, since programs look at theirs.
    pub place: PathBuf,
    /// Words after the program's name.
    pub arguments: Vec<OsString>,
    /// Standard input; nothing if none.
    pub input: Option<PathBuf>,
    /// Where it runs.
    pub directory: PathBuf,
    /// Seconds after which it is killed.
    pub limit_s: u32,
}

/// What a run showed.
#[derive(Debug, PartialEq, Eq)]
pub struct SubjectOutcome {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub output: Vec<u8>,
}

/// A program with probes.
#[derive(Debug)]
pub struct ProbedProgram {
    /// The program.
    pub program: PathBuf,
    /// For each unit, for each function of its map: its numbers.
    pub functions: Vec<Vec<FunctionProbes>>,
    /// How many numbers there are.
    pub slots: u32,
}

impl Subject {
    /// Reads the units of an instrumented program.
    ///
    /// # Errors
    /// It is not instrumented, or its bitcode was not kept.
    pub fn read(program: &Path, link: Link, folder: &Path) -> Result<Subject, Error> {
        let image = Image::read(&fs::read(program).map_err(Error::file(program))?)?;
        let frames: HashMap<Identity, _> = image.frames.iter().map(|f| (f.unit, f)).collect();
        let mut units = Vec::new();
        for placed in &image.units {
            let frame = frames.get(&placed.unit).ok_or_else(|| Error::Damaged {
                path: program.to_owned(),
                what: format!("it lacks the frame of unit {}: link it without stripping", placed.unit),
            })?;
            let bitcode = folder.join(format!("{}.bc", placed.unit));
            fs::write(&bitcode, frame.bitcode()?).map_err(Error::file(&bitcode))?;
            units.push(SubjectUnit { identity: placed.unit, map: frame.map()?, bitcode });
        }
        let inputs = UnitCache::at(folder.join("store")).inputs();
        Ok(Subject { program: program.to_owned(), units, link, folder: folder.to_owned(), inputs })
    }

    /// The same program, built by a store of units with the files of earlier profiles that its build was given.
    #[must_use]
    pub fn of_store(self, store: &UnitCache) -> Subject {
        Subject { inputs: store.inputs(), ..self }
    }

    /// Makes the program with probes: in the place of trodden's probes, or beside them, so that both count in one run.
    ///
    /// # Errors
    /// A tool fails, or a unit's text does not match its map.
    pub fn with_probes(&self, tools: &Toolkit, purpose: ProbePurpose, log_bytes: u64, beside: bool) -> Result<ProbedProgram, Error> {
        let name = if purpose == ProbePurpose::Log { "log" } else { "counts" };
        let mut numbers = NodeNumbers::default();
        let (mut functions, mut objects) = (Vec::new(), HashMap::new());
        for unit in &self.units {
            let (text, probed) = insert_probes(&tools.text(&unit.bitcode)?, &unit.map, purpose, &mut numbers)?;
            let (module, object) = (self.file(unit, name, "ll"), self.file(unit, name, "o"));
            fs::write(&module, text).map_err(Error::file(&module))?;
            self.object(tools, unit, &module, &object, beside)?;
            fs::remove_file(&module).map_err(Error::file(&module))?;
            functions.push(probed);
            objects.insert(unit.identity, object);
        }
        let recorder = self.recorder(tools, purpose, numbers.count(), log_bytes)?;
        let program = self.folder.join(name);
        let mut more = vec![recorder.into()];
        more.extend(beside.then(|| tools.runtime.clone().into()));
        self.link.make(tools, &objects, &more, &program)?;
        let count = numbers.count();
        Ok(ProbedProgram { program, functions, slots: count })
    }

    /// Makes an object of a variant of a unit.
    ///
    /// # Errors
    /// Clang refuses it.
    pub fn object(&self, tools: &Toolkit, unit: &SubjectUnit, module: &Path, object: &Path, probes: bool) -> Result<(), Error> {
        let store = self.folder.join("store");
        let request = match probes {
            true => Some(self.request(unit, &UnitCache::at(&store).inputs())?),
            false => None,
        };
        tools.object(module, &unit.map.codegen, object, request.as_deref().map(|request| (store.as_path(), request)))
    }

    /// The request by which a unit was built, and the files that it names, in a folder of the oracle's own.
    fn request(&self, unit: &SubjectUnit, folder: &InputFolder) -> Result<PathBuf, Error> {
        for (kind, identity) in unit.map.experiment.inputs() {
            folder.put(&self.inputs.get(kind, identity)?)?;
        }
        Ok(PluginRequest::new(unit.map.experiment.clone(), UnitAction::Instrument, Keep::Bitcode).write(folder)?)
    }

    /// The same program instrumented again after its units were changed; the units are in the same order.
    ///
    /// # Errors
    /// It is not the same program.
    pub fn again(&self, program: &Path) -> Result<Subject, Error> {
        let new = Subject { inputs: self.inputs.clone(), ..Subject::read(program, self.link.clone(), &self.folder)? };
        let names = |s: &Subject| s.units.iter().map(|u| u.map.source.clone()).collect::<Vec<_>>();
        match new.units.len() == self.units.len() {
            true => Ok(new),
            false => Err(Error::Damaged {
                path: program.to_owned(),
                what: format!("it has the units {:?}, the program that is checked {:?}", names(&new), names(self)),
            }),
        }
    }

    /// Name of a file made of a unit.
    pub fn file(&self, unit: &SubjectUnit, purpose: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{purpose}.{extension}", unit.identity))
    }

    fn recorder(&self, tools: &Toolkit, purpose: ProbePurpose, slots: u32, log_bytes: u64) -> Result<PathBuf, Error> {
        let (source, object) = (self.folder.join("probes.c"), self.folder.join(format!("probes-{purpose:?}.o")));
        fs::write(&source, RECORDER).map_err(Error::file(&source))?;
        let size = match purpose {
            ProbePurpose::Counts => format!("-DSLOTS={slots}ul"),
            ProbePurpose::Log => format!("-DLOG_BYTES={log_bytes}ul"),
        };
        run(tools.command("clang").args(["-O2", "-fPIC", "-w", "-c", &size]).arg(&source).arg("-o").arg(&object))?;
        Ok(object)
    }

    /// Runs the instrumented program, with more variables set, and reads what it counted, for each unit.
    ///
    /// # Errors
    /// It cannot be run, or its raw file not be read.
    pub fn count_paths(&self, run: &SubjectRun, more: &[(&str, &Path)]) -> Result<(SubjectOutcome, Vec<HashMap<u64, u64>>), Error> {
        let folder = self.folder.join("raw");
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(Error::file(&folder))?;
        }
        fs::create_dir(&folder).map_err(Error::file(&folder))?;
        let pattern = folder.join("%m.raw");
        let outcome = run.make(&self.program, &[&[("TRODDEN_OUTPUT", pattern.as_path())], more].concat())?;
        let mut counts = vec![HashMap::new(); self.units.len()];
        for file in fs::read_dir(&folder).map_err(Error::file(&folder))? {
            let path = file.map_err(Error::file(&folder))?.path();
            let maps: Vec<&UnitMap> = self.units.iter().map(|u| &u.map).collect();
            for (counted, decoded) in counts.iter_mut().zip(counters(&path, &maps)?) {
                counted.extend(decoded?.counts.executions);
            }
        }
        Ok((outcome, counts))
    }
}

impl Link {
    /// Links a program of other objects.
    ///
    /// # Errors
    /// The link fails.
    pub fn make(&self, tools: &Toolkit, objects: &HashMap<Identity, PathBuf>, more: &[OsString], output: &Path) -> Result<(), Error> {
        let mut command = tools.command(self.driver);
        command.current_dir(&self.directory).args(["-Qunused-arguments", "-o"]).arg(output).args(more);
        for (i, argument) in self.arguments.iter().enumerate() {
            match argument {
                LinkArgument::Archive(members) => {
                    command.arg(archive(tools, members, objects, &output.with_extension(format!("{i}.a")))?);
                }
                argument => add(&mut command, argument, objects),
            }
        }
        run(&mut command).map(drop)
    }
}

/// Adds files and objects of units. A unit that the program does not consist of (an archive's member that nothing needed) is left out.
fn add(command: &mut Command, argument: &LinkArgument, objects: &HashMap<Identity, PathBuf>) {
    match argument {
        LinkArgument::Plain(argument) => drop(command.arg(argument)),
        LinkArgument::Unit(unit) => drop(command.args(objects.get(unit))),
        LinkArgument::Archive(arguments) | LinkArgument::Whole(arguments) => arguments.iter().for_each(|w| add(command, w, objects)),
    }
}

fn archive(tools: &Toolkit, members: &[LinkArgument], objects: &HashMap<Identity, PathBuf>, output: &Path) -> Result<PathBuf, Error> {
    let mut command = tools.command("llvm-ar");
    command.arg("qc").arg(output);
    members.iter().for_each(|m| add(&mut command, m, objects));
    let _ = fs::remove_file(output);
    run(&mut command)?;
    Ok(output.to_owned())
}

impl SubjectRun {
    /// Runs a program with variables set.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn make(&self, program: &Path, variables: &[(&str, &Path)]) -> Result<SubjectOutcome, Error> {
        self.put_in_place(program)?;
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", &self.limit_s.to_string()]).arg(&self.place).args(&self.arguments).current_dir(&self.directory);
        let input = match &self.input {
            Some(path) => Stdio::from(fs::File::open(path).map_err(Error::file(path))?),
            None => Stdio::null(),
        };
        command.env_remove("TRODDEN_OUTPUT").envs(variables.iter().copied()).stdin(input).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let output = command.output().map_err(|source| Error::Tool { tool: program.display().to_string(), source })?;
        Ok(SubjectOutcome { status: output.status, output: output.stdout })
    }

    /// Copies the program to where it runs, by another process: a file that this one had open for writing cannot be
    /// executed (`ETXTBSY`) as long as a child that another thread started meanwhile still has its descriptor.
    fn put_in_place(&self, program: &Path) -> Result<(), Error> {
        if let Some(folder) = self.place.parent() {
            fs::create_dir_all(folder).map_err(Error::file(folder))?;
        }
        if self.place.exists() {
            fs::remove_file(&self.place).map_err(Error::file(&self.place))?;
        }
        run(Command::new("cp").arg("--").args([program, &self.place])).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_unit::experiment::InputError;
    use trodden_unit::{CountedEvent, KnownPaths, Settings};

    #[test]
    fn programs_run_where_they_were_just_put_while_other_threads_start_some() {
        let place = tempfile::tempdir().unwrap();
        let run = |name: &str| SubjectRun {
            place: place.path().join(name),
            arguments: Vec::new(),
            input: None,
            directory: place.path().to_owned(),
            limit_s: 60,
        };
        let is_done = std::sync::atomic::AtomicBool::new(false);
        let statuses = std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                        Command::new("/bin/true").status().unwrap();
                    }
                });
            }
            let statuses: Vec<_> =
                (0..150).map(|at| run(&at.to_string()).make(Path::new("/bin/true"), &[]).map(|o| o.status.code())).collect();
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            statuses
        });
        statuses.into_iter().for_each(|status| assert_eq!(status.unwrap(), Some(0)));
    }

    #[test]
    fn files_that_a_build_was_given_are_found_by_their_content() {
        let place = tempfile::tempdir().unwrap();
        let (store, oracle) = (UnitCache::at(place.path().join("store")), place.path().join("oracle"));
        let file = place.path().join("known");
        fs::write(&file, KnownPaths::default().to_bytes()).unwrap();
        let settings: Settings = format!("known={}", file.display()).parse().unwrap();
        let experiment = settings.request(&store.inputs()).unwrap().experiment;
        let map = UnitMap {
            source: "a.c".into(),
            producer: String::new(),
            target: String::new(),
            experiment: experiment.clone(),
            counted: CountedEvent::Paths,
            codegen: vec![],
            files: vec![],
            scopes: vec![],
            functions: vec![],
            skipped: vec![],
            instead: vec![],
            counters: 0,
            edge_profile: None,
            calls: vec![],
            aliases: vec![],
            line_graphs: Default::default(),
        };
        let unit = SubjectUnit { identity: Identity([1; 16]), map, bitcode: PathBuf::new() };
        let link = Link { driver: "clang", directory: PathBuf::new(), arguments: Vec::new() };
        let inputs = InputFolder::at(place.path().join("nothing"));
        let subject = Subject { program: PathBuf::new(), units: Vec::new(), link, folder: oracle.clone(), inputs };
        let missing = subject.request(&unit, &InputFolder::at(&oracle));
        assert!(matches!(missing, Err(Error::Input(InputError::Missing { .. }))), "{missing:?}");
        let file = subject.of_store(&store).request(&unit, &InputFolder::at(&oracle)).unwrap();
        let (read, folder) = PluginRequest::read(&file).unwrap();
        assert_eq!((&read.experiment, folder.path(experiment.known().unwrap()).is_file()), (&experiment, true));
    }
}
