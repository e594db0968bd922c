//! The program under test: its units with maps and bitcode, and its link, so that it can be rebuilt from other objects and run.

use crate::error::OracleError;
use crate::probes::{FunctionProbes, NodeNumbers, ProbePurpose, insert_probes};
use crate::tools::{OracleTools, RECORDER_SOURCE, run};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use trodden_profile::collect::decode_counters;
use trodden_unit::experiment::{InputFolder, Keep, PluginRequest, UnitAction};
use trodden_unit::{Identity, InstrumentedImage, UnitCache, UnitMap};

/// The program under test.
#[derive(Debug)]
pub struct OracleSubject {
    /// The instrumented program.
    pub program: PathBuf,
    /// The program's units, in link order.
    pub units: Vec<SubjectUnit>,
    /// The command that links the program.
    pub link: LinkCommand,
    /// The folder for the oracle's files.
    pub folder: PathBuf,
    /// Files derived from earlier profiles, which the build used.
    pub inputs: InputFolder,
}

/// A compilation unit of the program.
#[derive(Debug)]
pub struct SubjectUnit {
    /// The unit's identity.
    pub identity: Identity,
    /// The unit's map.
    pub map: UnitMap,
    /// The unit's bitcode, before instrumentation.
    pub bitcode: PathBuf,
}

/// A command that links a program.
#[derive(Clone, Debug)]
pub struct LinkCommand {
    /// `clang` or `clang++`.
    pub driver: &'static str,
    /// The folder in which the driver runs.
    pub directory: PathBuf,
    /// The driver's arguments.
    pub arguments: Vec<LinkArgument>,
}

/// An argument of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkArgument {
    /// An argument that is passed on unchanged.
    Plain(OsString),
    /// The object of a unit.
    Unit(Identity),
    /// An archive whose members are files and units.
    Archive(Vec<LinkArgument>),
    /// The units of one relocatable object. All of them are linked.
    Whole(Vec<LinkArgument>),
}

/// How to run a program.
#[derive(Debug)]
pub struct SubjectRun {
    /// The path to which every variant is copied before it runs, since programs can depend on their own path.
    pub place: PathBuf,
    /// Command-line arguments.
    pub arguments: Vec<OsString>,
    /// File for standard input; `None` for empty input.
    pub input: Option<PathBuf>,
    /// The working folder.
    pub directory: PathBuf,
    /// Seconds after which the program is killed.
    pub limit_s: u32,
}

/// The observable outcome of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct SubjectOutcome {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub output: Vec<u8>,
}

/// A program with the oracle's probes.
#[derive(Debug)]
pub struct ProbedProgram {
    /// The executable.
    pub program: PathBuf,
    /// The probes of each function, indexed by unit and by function in the unit's map.
    pub functions: Vec<Vec<FunctionProbes>>,
    /// Number of assigned probe numbers.
    pub slots: u32,
}

impl OracleSubject {
    /// Reads the units of an instrumented program.
    ///
    /// # Errors
    /// The program is not instrumented, or its bitcode was not kept.
    pub fn read(program: &Path, link: LinkCommand, folder: &Path) -> Result<OracleSubject, OracleError> {
        let image = InstrumentedImage::read(&fs::read(program).map_err(OracleError::file(program))?)?;
        let frames: HashMap<Identity, _> = image.frames.iter().map(|f| (f.unit, f)).collect();
        let mut units = Vec::new();
        for placed in &image.units {
            let frame = frames.get(&placed.unit).ok_or_else(|| OracleError::Unusable {
                path: program.to_owned(),
                what: format!("the frame of unit {} is missing. Link the program without stripping it", placed.unit),
            })?;
            let bitcode = folder.join(format!("{}.bc", placed.unit));
            fs::write(&bitcode, frame.bitcode()?).map_err(OracleError::file(&bitcode))?;
            units.push(SubjectUnit { identity: placed.unit, map: frame.map()?, bitcode });
        }
        let inputs = UnitCache::new(folder.join("store")).inputs();
        Ok(OracleSubject { program: program.to_owned(), units, link, folder: folder.to_owned(), inputs })
    }

    /// Returns the program under test with a unit store as the source of its build inputs.
    #[must_use]
    pub fn with_inputs_of(self, store: &UnitCache) -> OracleSubject {
        OracleSubject { inputs: store.inputs(), ..self }
    }

    /// Builds the program with the oracle's probes. If `combined`, trodden's probes are in the same program, so that both count in one run.
    ///
    /// # Errors
    /// A tool fails, or a unit's text does not match its map.
    pub fn with_probes(
        &self,
        tools: &OracleTools,
        purpose: ProbePurpose,
        log_bytes: u64,
        combined: bool,
    ) -> Result<ProbedProgram, OracleError> {
        let name = if purpose == ProbePurpose::Log { "log" } else { "counts" };
        let mut numbers = NodeNumbers::default();
        let (mut functions, mut objects) = (Vec::new(), HashMap::new());
        for unit in &self.units {
            let (text, probed) = insert_probes(&tools.disassemble(&unit.bitcode)?, &unit.map, purpose, &mut numbers)?;
            let (module, object) = (self.derived_file(unit, name, "ll"), self.derived_file(unit, name, "o"));
            fs::write(&module, text).map_err(OracleError::file(&module))?;
            self.compile_unit(tools, unit, &module, &object, combined)?;
            fs::remove_file(&module).map_err(OracleError::file(&module))?;
            functions.push(probed);
            objects.insert(unit.identity, object);
        }
        let recorder = self.compile_recorder(tools, purpose, numbers.count(), log_bytes)?;
        let program = self.folder.join(name);
        let mut more = vec![recorder.into()];
        more.extend(combined.then(|| tools.runtime.clone().into()));
        self.link.build(tools, &objects, &more, &program)?;
        let count = numbers.count();
        Ok(ProbedProgram { program, functions, slots: count })
    }

    /// Compiles a module derived from a unit, with trodden's probes if `probes` is true.
    ///
    /// # Errors
    /// clang fails, or an input of the build cannot be read.
    pub fn compile_unit(
        &self,
        tools: &OracleTools,
        unit: &SubjectUnit,
        module: &Path,
        object: &Path,
        probes: bool,
    ) -> Result<(), OracleError> {
        let store = self.folder.join("store");
        let request = match probes {
            true => Some(self.write_request(unit, &UnitCache::new(&store).inputs())?),
            false => None,
        };
        tools.compile_module(module, &unit.map.codegen, object, request.as_deref().map(|request| (store.as_path(), request)))
    }

    /// Writes the request by which a unit was built, and the files that the request names, to `folder`. Returns the request's file.
    fn write_request(&self, unit: &SubjectUnit, folder: &InputFolder) -> Result<PathBuf, OracleError> {
        for (kind, identity) in unit.map.experiment.inputs() {
            folder.put(&self.inputs.get(kind, identity)?)?;
        }
        Ok(PluginRequest::new(unit.map.experiment.clone(), UnitAction::Instrument, Keep::Bitcode).write(folder)?)
    }

    /// Reads a variant of this program that was instrumented again after its units were changed. The units must have the same order.
    ///
    /// # Errors
    /// The program has a different number of units.
    pub fn reread_program(&self, program: &Path) -> Result<OracleSubject, OracleError> {
        let new = OracleSubject { inputs: self.inputs.clone(), ..OracleSubject::read(program, self.link.clone(), &self.folder)? };
        let names = |s: &OracleSubject| s.units.iter().map(|u| u.map.source.clone()).collect::<Vec<_>>();
        match new.units.len() == self.units.len() {
            true => Ok(new),
            false => Err(OracleError::Unusable {
                path: program.to_owned(),
                what: format!("its units are {:?}, but the program under test has the units {:?}", names(&new), names(self)),
            }),
        }
    }

    /// Returns the path of a file derived from a unit.
    pub fn derived_file(&self, unit: &SubjectUnit, purpose: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{purpose}.{extension}", unit.identity))
    }

    fn compile_recorder(&self, tools: &OracleTools, purpose: ProbePurpose, slots: u32, log_bytes: u64) -> Result<PathBuf, OracleError> {
        let (source, object) = (self.folder.join("probes.c"), self.folder.join(format!("probes-{purpose:?}.o")));
        fs::write(&source, RECORDER_SOURCE).map_err(OracleError::file(&source))?;
        let size = match purpose {
            ProbePurpose::Counts => format!("-DSLOTS={slots}ul"),
            ProbePurpose::Log => format!("-DLOG_BYTES={log_bytes}ul"),
        };
        run(tools.command("clang").args(["-O2", "-fPIC", "-w", "-c", &size]).arg(&source).arg("-o").arg(&object))?;
        Ok(object)
    }

    /// Runs the instrumented program with additional environment variables and returns the counts of each unit.
    ///
    /// # Errors
    /// The program cannot be run, or its raw file cannot be read.
    pub fn count_paths(&self, run: &SubjectRun, more: &[(&str, &Path)]) -> Result<(SubjectOutcome, Vec<HashMap<u64, u64>>), OracleError> {
        let folder = self.folder.join("raw");
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(OracleError::file(&folder))?;
        }
        fs::create_dir(&folder).map_err(OracleError::file(&folder))?;
        let pattern = folder.join("%m.raw");
        let outcome = run.execute(&self.program, &[&[("TRODDEN_OUTPUT", pattern.as_path())], more].concat())?;
        let mut counts = vec![HashMap::new(); self.units.len()];
        for file in fs::read_dir(&folder).map_err(OracleError::file(&folder))? {
            let path = file.map_err(OracleError::file(&folder))?.path();
            let maps: Vec<&UnitMap> = self.units.iter().map(|u| &u.map).collect();
            for (counted, decoded) in counts.iter_mut().zip(decode_counters(&path, &maps)?) {
                counted.extend(decoded?.counts.executions);
            }
        }
        Ok((outcome, counts))
    }
}

impl LinkCommand {
    /// Links the program from these objects of its units, with the additional arguments `more`.
    ///
    /// # Errors
    /// The link fails.
    pub fn build(
        &self,
        tools: &OracleTools,
        objects: &HashMap<Identity, PathBuf>,
        more: &[OsString],
        output: &Path,
    ) -> Result<(), OracleError> {
        let mut command = tools.command(self.driver);
        command.current_dir(&self.directory).args(["-Qunused-arguments", "-o"]).arg(output).args(more);
        for (i, argument) in self.arguments.iter().enumerate() {
            match argument {
                LinkArgument::Archive(members) => {
                    command.arg(build_archive(tools, members, objects, &output.with_extension(format!("{i}.a")))?);
                }
                argument => add_link_argument(&mut command, argument, objects),
            }
        }
        run(&mut command).map(drop)
    }
}

fn add_link_argument(command: &mut Command, argument: &LinkArgument, objects: &HashMap<Identity, PathBuf>) {
    match argument {
        LinkArgument::Plain(argument) => drop(command.arg(argument)),
        LinkArgument::Unit(unit) => drop(command.args(objects.get(unit))),
        LinkArgument::Archive(arguments) | LinkArgument::Whole(arguments) => {
            arguments.iter().for_each(|w| add_link_argument(command, w, objects))
        }
    }
}

fn build_archive(
    tools: &OracleTools,
    members: &[LinkArgument],
    objects: &HashMap<Identity, PathBuf>,
    output: &Path,
) -> Result<PathBuf, OracleError> {
    let mut command = tools.command("llvm-ar");
    command.arg("qc").arg(output);
    members.iter().for_each(|m| add_link_argument(&mut command, m, objects));
    let _ = fs::remove_file(output);
    run(&mut command)?;
    Ok(output.to_owned())
}

impl SubjectRun {
    /// Runs a program with additional environment variables.
    ///
    /// # Errors
    /// The program cannot be copied to [`SubjectRun::place`] or started.
    pub fn execute(&self, program: &Path, variables: &[(&str, &Path)]) -> Result<SubjectOutcome, OracleError> {
        self.copy_to_place(program)?;
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", &self.limit_s.to_string()]).arg(&self.place).args(&self.arguments).current_dir(&self.directory);
        let input = match &self.input {
            Some(path) => Stdio::from(fs::File::open(path).map_err(OracleError::file(path))?),
            None => Stdio::null(),
        };
        command.env_remove("TRODDEN_OUTPUT").envs(variables.iter().copied()).stdin(input).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let output = command.output().map_err(|source| OracleError::Tool { tool: program.display().to_string(), source })?;
        Ok(SubjectOutcome { status: output.status, output: output.stdout })
    }

    /// Copies the program to where it runs, using `cp`. If this process wrote the file itself, a child started by another thread could
    /// inherit the descriptor. Executing the file would then fail with `ETXTBSY` until that child closes the descriptor.
    fn copy_to_place(&self, program: &Path) -> Result<(), OracleError> {
        if let Some(folder) = self.place.parent() {
            fs::create_dir_all(folder).map_err(OracleError::file(folder))?;
        }
        if self.place.exists() {
            fs::remove_file(&self.place).map_err(OracleError::file(&self.place))?;
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
    fn copied_programs_run_while_other_threads_start_processes() {
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
                (0..150).map(|at| run(&at.to_string()).execute(Path::new("/bin/true"), &[]).map(|o| o.status.code())).collect();
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            statuses
        });
        statuses.into_iter().for_each(|status| assert_eq!(status.unwrap(), Some(0)));
    }

    #[test]
    fn inputs_of_a_build_are_found_in_its_store() {
        let place = tempfile::tempdir().unwrap();
        let (store, oracle) = (UnitCache::new(place.path().join("store")), place.path().join("oracle"));
        let file = place.path().join("known");
        fs::write(&file, KnownPaths::default().to_bytes()).unwrap();
        let settings: Settings = format!("known={}", file.display()).parse().unwrap();
        let experiment = settings.request(&store.inputs()).unwrap().experiment;
        let map = UnitMap {
            source: "a.c".into(),
            producer: String::new(),
            llvm: 22,
            target: String::new(),
            experiment: experiment.clone(),
            counted: CountedEvent::Paths,
            codegen: vec![],
            files: vec![],
            scopes: vec![],
            functions: vec![],
            skipped: vec![],
            fully_counted: vec![],
            counters: 0,
            edge_profile: None,
            calls: vec![],
            aliases: vec![],
            line_graphs: Default::default(),
        };
        let unit = SubjectUnit { identity: Identity([1; 16]), map, bitcode: PathBuf::new() };
        let link = LinkCommand { driver: "clang", directory: PathBuf::new(), arguments: Vec::new() };
        let inputs = InputFolder::new(place.path().join("nothing"));
        let subject = OracleSubject { program: PathBuf::new(), units: Vec::new(), link, folder: oracle.clone(), inputs };
        let missing = subject.write_request(&unit, &InputFolder::new(&oracle));
        assert!(matches!(missing, Err(OracleError::Input(InputError::Missing { .. }))), "{missing:?}");
        let file = subject.with_inputs_of(&store).write_request(&unit, &InputFolder::new(&oracle)).unwrap();
        let (read, folder) = PluginRequest::read(&file).unwrap();
        assert_eq!((&read.experiment, folder.path(experiment.known().unwrap()).is_file()), (&experiment, true));
    }
}
