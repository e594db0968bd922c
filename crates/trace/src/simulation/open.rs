//! Opens a source of branches: a file, or a program under QEMU's user mode with trodden's plugin.

use crate::sources::{
    BranchSource, Bt9Source, Cbp2025Source, ChampSimSource, EventBatch, PerfScriptSource, QemuSource, RecordedSource, SourceDetail,
};
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

/// The QEMU user-mode emulator for x86-64 programs.
pub const QEMU: &str = "qemu-x86_64";

/// A source, and the process that writes it, if there is one.
pub struct OpenedSource {
    /// The source.
    pub source: Box<dyn BranchSource>,
    /// The command, or the path of the file.
    pub origin: String,
    running: Option<RunningSource>,
}

struct RunningSource {
    waiter: JoinHandle<std::io::Result<ExitStatus>>,
    _folder: TemporaryFolder,
}

impl OpenedSource {
    /// Waits for the program and returns its exit status; `None` if the source is a file.
    ///
    /// # Errors
    /// The status is not available.
    pub fn end(&mut self) -> Result<Option<ExitStatus>> {
        let Some(running) = self.running.take() else { return Ok(None) };
        let status = running.waiter.join().map_err(|_| anyhow!("cannot wait for {QEMU}"))??;
        Ok(Some(status))
    }
}

/// The format of a file of branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceFormat {
    /// The format is recognised by the file's first bytes, that of ChampSim by the file's name.
    Auto,
    /// A recording written by `trodden simulate --record`.
    Recorded,
    /// A text trace of CBP-5.
    Bt9,
    /// A trace of CBP2025.
    Cbp2025,
    /// A trace of ChampSim.
    Champsim,
    /// The output of `perf script`: branch stacks, or branches of Intel PT.
    PerfScript,
}

impl SourceFormat {
    /// All formats, by their names in options and experiment files.
    pub const NAMED: [(SourceFormat, &'static str); 6] = [
        (Self::Auto, "auto"),
        (Self::Recorded, "recorded"),
        (Self::Bt9, "bt9"),
        (Self::Cbp2025, "cbp2025"),
        (Self::Champsim, "champsim"),
        (Self::PerfScript, "perf-script"),
    ];

    /// Returns true if this is the trace format of another simulator. Only `trodden-lab` reads such files.
    fn is_of_another_simulator(self) -> bool {
        matches!(self, Self::Bt9 | Self::Cbp2025 | Self::Champsim)
    }

    /// Returns the format with this name.
    pub fn from_name(name: &str) -> Option<SourceFormat> {
        Self::NAMED.into_iter().find(|(_, known)| *known == name).map(|(format, _)| format)
    }
}

/// Returns the first line of QEMU's version message.
///
/// # Errors
/// QEMU is not installed.
pub fn qemu_version() -> Result<String> {
    let version = Command::new(QEMU)
        .arg("--version")
        .output()
        .map_err(|_| anyhow!("{QEMU} is not installed. Install it with `apt-get install qemu-user`"))?
        .stdout;
    Ok(String::from_utf8_lossy(&version).lines().next().unwrap_or_default().to_owned())
}

/// Opens a file of branches, which may be compressed.
///
/// # Errors
/// The file cannot be read or its format is unknown, or it is a trace from a different simulator; the message then says how to convert it.
pub fn open_file(path: &Path, format: SourceFormat, programs: &[PathBuf]) -> Result<OpenedSource> {
    open(path, format, programs, false)
}

/// Like [`open_file`], but also accepts traces from other simulators.
///
/// # Errors
/// The file cannot be read, or its format is unknown.
pub fn open_file_or_trace(path: &Path, format: SourceFormat) -> Result<OpenedSource> {
    open(path, format, &[], true)
}

fn open(path: &Path, format: SourceFormat, programs: &[PathBuf], accepts_traces: bool) -> Result<OpenedSource> {
    let mut reader = BufReader::with_capacity(1 << 16, decompress::open(path)?);
    let beginning = reader.fill_buf().with_context(|| format!("cannot read {}", path.display()))?;
    if beginning.is_empty() {
        bail!("{} is empty", path.display());
    }
    let format = if format == SourceFormat::Auto { recognise_format(path, beginning)? } else { format };
    ensure!(
        accepts_traces || !format.is_of_another_simulator(),
        "{0} is a trace from another simulator. Convert it with `trodden-lab convert {0} -o FILE`, and pass FILE to --from",
        path.display()
    );
    ensure!(
        programs.is_empty() || format == SourceFormat::PerfScript,
        "--program applies only to the output of `perf script`, but {} has a different format. Omit --program",
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

fn recognise_format(path: &Path, beginning: &[u8]) -> Result<SourceFormat> {
    let start = &beginning[..beginning.len().min(1024)];
    let is_text = !start.is_empty() && start.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace());
    Ok(match start {
        _ if FileKind::detect(start).is_some() || start.starts_with(b"trodrec\n") => SourceFormat::Recorded,
        [b'B', b'T', b'9', b'_', ..] => SourceFormat::Bt9,
        _ if is_text => SourceFormat::PerfScript,
        [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..] => {
            bail!(
                "{0} is a perf data file. Convert it with `perf script -i {0} -F brstack > branches.txt`, and pass branches.txt",
                path.display()
            )
        }
        _ if path.to_string_lossy().contains("champsim") => SourceFormat::Champsim,
        _ => bail!(
            "the format of {} is unknown. To convert a trace from ChampSim or CBP2025, use `trodden-lab convert` with --format",
            path.display()
        ),
    })
}

/// A program to run under QEMU.
pub struct EmulatedProgram<'a> {
    /// The command as the user wrote it.
    pub command: &'a [OsString],
    /// The program's file, since QEMU does not search PATH.
    pub file: &'a Path,
    /// The file of trodden's plugin for QEMU.
    pub plugin: &'a Path,
    /// A folder for the pipe between the plugin and this process.
    pub folder: TemporaryFolder,
    /// The program's standard output; `None` if it is inherited.
    pub output: Option<Stdio>,
    /// What is recorded.
    pub level: SourceDetail,
}

impl EmulatedProgram<'_> {
    /// Runs the program under QEMU.
    ///
    /// # Errors
    /// QEMU is missing, or cannot run the program.
    pub fn start(self) -> Result<OpenedSource> {
        let (name, arguments) = self.command.split_first().context("expected a program to run")?;
        reject_script(self.file)?;
        let pipe = self.folder.path().join("blocks");
        nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR)
            .context("cannot create a pipe for the branches that the program takes")?;
        let mut command = Command::new(QEMU);
        let mut plugin_argument = OsString::from(self.plugin.as_os_str());
        plugin_argument.push(",out=");
        plugin_argument.push(&pipe);
        if self.level == SourceDetail::Instructions {
            plugin_argument.push(",memory=on");
        }
        // By default the program's argument 0 is the path given to QEMU; it should be the name in the command.
        command.arg("-plugin").arg(plugin_argument).arg("-0").arg(name).arg(self.file).args(arguments);
        self.output.into_iter().for_each(|output| _ = command.stdout(output));
        let child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => anyhow!("{QEMU} is not installed. Run `apt-get install qemu-user`"),
            _ => anyhow!("cannot run {QEMU} (package qemu-user): {error}"),
        })?;
        let waiter = wait_in_background(child, pipe.clone());
        let stream = File::open(&pipe).with_context(|| format!("cannot read {}", pipe.display()))?;
        // With a large pipe the program need not wait while branches are processed. A smaller one also works.
        let _ = nix::fcntl::fcntl(stream.as_fd(), nix::fcntl::FcntlArg::F_SETPIPE_SZ(1 << 20));
        let mut reader = BufReader::with_capacity(1 << 20, stream);
        let origin = shlex::try_join(self.command.iter().map(|w| w.to_str().unwrap_or("?"))).unwrap_or_default();
        if reader.fill_buf()?.is_empty() {
            let status = waiter.join().map_err(|_| anyhow!("cannot wait for {QEMU}"))??;
            bail!(
                "{QEMU} ended before {} started ({status}); its message is above. Check that this is an x86-64 program, and that QEMU was \
                 built with plugins",
                self.file.display()
            );
        }
        let source = Box::new(QemuSource::new(reader, Path::new("the stream of QEMU's plugin"), self.level)?);
        Ok(OpenedSource { source, origin, running: Some(RunningSource { waiter, _folder: self.folder }) })
    }

    /// Runs the program to test whether QEMU and the plugin work together. Returns the number of recorded instructions.
    ///
    /// # Errors
    /// See [`EmulatedProgram::start`], or nothing was recorded.
    pub fn count_trial_instructions(self) -> Result<u64> {
        let (name, plugin) = (self.command[0].display(), self.plugin);
        let mut opened = self.start()?;
        let mut batch = EventBatch::default();
        while opened.source.read(&mut batch)? {
            batch.clear();
        }
        opened.end()?;
        let instructions = opened.source.notes().instructions;
        ensure!(instructions > 0, "{QEMU} ran `{name}`, but the QEMU plugin {} recorded no instructions", plugin.display());
        Ok(instructions)
    }
}

/// Waits for QEMU in a thread, and then releases a reader that still waits for the other end of the pipe.
fn wait_in_background(mut child: std::process::Child, pipe: PathBuf) -> JoinHandle<std::io::Result<ExitStatus>> {
    std::thread::spawn(move || {
        let status = child.wait();
        drop(OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(pipe));
        status
    })
}

fn reject_script(program: &Path) -> Result<()> {
    let mut beginning = [0; 2];
    let is_read = File::open(program).and_then(|mut file| file.read_exact(&mut beginning)).is_ok();
    ensure!(
        !(is_read && &beginning == b"#!"),
        "{0} is a script. Pass its interpreter, such as `trodden simulate -- /bin/sh {0}`",
        program.display()
    );
    Ok(())
}
