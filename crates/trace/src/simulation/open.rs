//! Opens a source of branches: a file, or a program under QEMU's user mode with trodden's plugin.

use crate::sources::{Batch, BranchSource, Bt9Source, Cbp2025Source, ChampSimSource, Level, PerfScriptSource, QemuSource, RecordedSource};
use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::stat::Mode;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use trodden_container::FileKind;
use trodden_profile::temporary::TemporaryFolder;
use trodden_stored::decompress;

/// QEMU's user mode for programs of this machine.
pub const QEMU: &str = "qemu-x86_64";

/// A source, and what has to be waited for at its end.
pub struct OpenedSource {
    /// The source.
    pub source: Box<dyn BranchSource>,
    /// The command or file.
    pub origin: String,
    running: Option<Running>,
}

struct Running {
    waiter: JoinHandle<std::io::Result<ExitStatus>>,
    _folder: TemporaryFolder,
}

impl OpenedSource {
    /// Waits for the program; how it ended, or `None` of a file.
    ///
    /// # Errors
    /// QEMU's end is not known.
    pub fn end(&mut self) -> Result<Option<ExitStatus>> {
        let Some(running) = self.running.take() else { return Ok(None) };
        let status = running.waiter.join().map_err(|_| anyhow!("waiting for {QEMU} failed"))??;
        Ok(Some(status))
    }
}

/// The format of a file of branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceFormat {
    /// What its beginning says.
    Auto,
    /// A recording of `trodden simulate --record`.
    Recorded,
    /// A text trace of CBP-5.
    Bt9,
    /// A trace of CBP2025.
    Cbp2025,
    /// A trace of ChampSim.
    Champsim,
    /// The text of `perf script`: branch stacks, or branches of Intel PT.
    PerfScript,
}

impl SourceFormat {
    /// All formats by their names in options and files of experiments.
    pub const NAMED: [(SourceFormat, &'static str); 6] = [
        (Self::Auto, "auto"),
        (Self::Recorded, "recorded"),
        (Self::Bt9, "bt9"),
        (Self::Cbp2025, "cbp2025"),
        (Self::Champsim, "champsim"),
        (Self::PerfScript, "perf-script"),
    ];

    /// Whether another simulator wrote it: the laboratory reads it.
    fn is_of_another_simulator(self) -> bool {
        matches!(self, Self::Bt9 | Self::Cbp2025 | Self::Champsim)
    }

    /// The format of a name, if there is one.
    pub fn named(name: &str) -> Option<SourceFormat> {
        Self::NAMED.into_iter().find(|(_, known)| *known == name).map(|(format, _)| format)
    }
}

/// The first line of what QEMU says of its version.
///
/// # Errors
/// It is not installed.
pub fn qemu_version() -> Result<String> {
    let version = Command::new(QEMU).arg("--version").output().map_err(|_| anyhow!("{QEMU} is not installed"))?.stdout;
    Ok(String::from_utf8_lossy(&version).lines().next().unwrap_or_default().to_owned())
}

/// Opens a file of branches, compressed or not.
///
/// # Errors
/// It cannot be read, or is of no format that is known, or is a trace of another simulator: the message says how to make a recording of it.
pub fn open_file(path: &Path, format: SourceFormat, programs: &[PathBuf]) -> Result<OpenedSource> {
    open(path, format, programs, false)
}

/// The same, of traces of other simulators as well.
///
/// # Errors
/// As of [`open_file`].
pub fn open_file_or_trace(path: &Path, format: SourceFormat) -> Result<OpenedSource> {
    open(path, format, &[], true)
}

fn open(path: &Path, format: SourceFormat, programs: &[PathBuf], takes_traces: bool) -> Result<OpenedSource> {
    let mut reader = BufReader::with_capacity(1 << 16, decompress::open(path)?);
    let beginning = reader.fill_buf().with_context(|| format!("cannot read {}", path.display()))?;
    if beginning.is_empty() {
        bail!("{} is empty", path.display());
    }
    let format = if format == SourceFormat::Auto { recognised(path, beginning)? } else { format };
    ensure!(
        takes_traces || !format.is_of_another_simulator(),
        "{0} is a trace of another simulator: `trodden-lab convert {0} -o FILE` makes a recording of it for --from",
        path.display()
    );
    ensure!(
        programs.is_empty() || format == SourceFormat::PerfScript,
        "--program is for the text of `perf script`, and {} is none: leave it out",
        path.display()
    );
    let source: Box<dyn BranchSource> = match format {
        SourceFormat::Auto | SourceFormat::Recorded => Box::new(RecordedSource::new(reader, path)?),
        SourceFormat::Bt9 => Box::new(Bt9Source::new(reader, path)?),
        SourceFormat::Cbp2025 => Box::new(Cbp2025Source::new(reader, path)),
        SourceFormat::Champsim => Box::new(ChampSimSource::new(reader, path)),
        SourceFormat::PerfScript => Box::new(PerfScriptSource::new(reader, path, programs)?),
    };
    Ok(OpenedSource { source, origin: path.display().to_string(), running: None })
}

/// The format of a file by its beginning.
fn recognised(path: &Path, beginning: &[u8]) -> Result<SourceFormat> {
    let head = &beginning[..beginning.len().min(1024)];
    let is_text = !head.is_empty() && head.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace());
    Ok(match head {
        _ if FileKind::of(head).is_some() || head.starts_with(b"trodrec\n") => SourceFormat::Recorded,
        [b'B', b'T', b'9', b'_', ..] => SourceFormat::Bt9,
        _ if is_text => SourceFormat::PerfScript,
        [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..] => {
            bail!("{0} is the data of perf: give trodden its text, `perf script -i {0} -F brstack > branches.txt`", path.display())
        }
        _ if path.to_string_lossy().contains("champsim") => SourceFormat::Champsim,
        _ => bail!(
            "{} does not say what it is: of a trace of ChampSim or CBP2025 `trodden-lab convert` with --format makes a recording",
            path.display()
        ),
    })
}

/// A program that QEMU is to run.
pub struct EmulatedProgram<'a> {
    /// The command as its user wrote it.
    pub command: &'a [OsString],
    /// The program's file: QEMU does not search PATH.
    pub file: &'a Path,
    /// The file of trodden's plugin for QEMU.
    pub plugin: &'a Path,
    /// For the pipe between the plugin and this process.
    pub folder: TemporaryFolder,
    /// Where its standard output goes; `None`: where that of this process does.
    pub output: Option<Stdio>,
    /// What is recorded of it.
    pub level: Level,
}

impl EmulatedProgram<'_> {
    /// Runs the program under QEMU.
    ///
    /// # Errors
    /// QEMU is missing, or the program is none that it can run; the message says what to do.
    pub fn start(self) -> Result<OpenedSource> {
        let (name, arguments) = self.command.split_first().context("no program is named")?;
        refuse_script(self.file)?;
        let pipe = self.folder.path().join("blocks");
        nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).context("cannot make a pipe")?;
        let mut command = Command::new(QEMU);
        let mut plugin_argument = OsString::from(self.plugin.as_os_str());
        plugin_argument.push(",out=");
        plugin_argument.push(&pipe);
        if self.level == Level::Instructions {
            plugin_argument.push(",memory=on");
        }
        // QEMU names programs by the first argument that it is given; the program should see the name it was called by.
        command.arg("-plugin").arg(plugin_argument).arg("-0").arg(name).arg(self.file).args(arguments);
        self.output.into_iter().for_each(|output| _ = command.stdout(output));
        let child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => anyhow!("{QEMU} is not installed: apt-get install qemu-user"),
            _ => anyhow!("cannot run {QEMU}: {error}"),
        })?;
        let waiter = wait(child, pipe.clone());
        let stream = File::open(&pipe).with_context(|| format!("cannot read {}", pipe.display()))?;
        // A large pipe lets the program run on while branches are processed; a smaller one serves as well.
        let _ = nix::fcntl::fcntl(stream.as_fd(), nix::fcntl::FcntlArg::F_SETPIPE_SZ(1 << 20));
        let mut reader = BufReader::with_capacity(1 << 20, stream);
        let origin = shlex::try_join(self.command.iter().map(|w| w.to_str().unwrap_or("?"))).unwrap_or_default();
        if reader.fill_buf()?.is_empty() {
            let status = waiter.join().map_err(|_| anyhow!("waiting for {QEMU} failed"))??;
            bail!(
                "{QEMU} ended before {} began ({status}); see its message above: is it a program for x86-64, and QEMU built with plugins?",
                self.file.display()
            );
        }
        let source = Box::new(QemuSource::new(reader, Path::new("the stream of QEMU's plugin"), self.level)?);
        Ok(OpenedSource { source, origin, running: Some(Running { waiter, _folder: self.folder }) })
    }

    /// Runs the program to see whether QEMU and the plugin work together; how many instructions of it were recorded.
    ///
    /// # Errors
    /// As of [`EmulatedProgram::start`], or nothing was recorded.
    pub fn trial(self) -> Result<u64> {
        let (name, plugin) = (self.command[0].display(), self.plugin);
        let mut opened = self.start()?;
        let mut batch = Batch::default();
        while opened.source.read(&mut batch)? {
            batch.clear();
        }
        opened.end()?;
        let instructions = opened.source.notes().instructions;
        ensure!(instructions > 0, "{QEMU} runs `{name}`, and {} records nothing", plugin.display());
        Ok(instructions)
    }
}

/// Waits for QEMU; a reader that still waits for the pipe's other end goes on then.
fn wait(mut child: std::process::Child, pipe: PathBuf) -> JoinHandle<std::io::Result<ExitStatus>> {
    std::thread::spawn(move || {
        let status = child.wait();
        drop(OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(pipe));
        status
    })
}

fn refuse_script(program: &Path) -> Result<()> {
    let mut beginning = [0; 2];
    let is_read = File::open(program).and_then(|mut file| file.read_exact(&mut beginning)).is_ok();
    ensure!(
        !(is_read && &beginning == b"#!"),
        "{0} is a script: name the program that runs it, such as `trodden simulate -- /bin/sh {0}`",
        program.display()
    );
    Ok(())
}
