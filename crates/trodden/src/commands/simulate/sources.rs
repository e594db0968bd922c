//! Opens a source of branches: a program under QEMU, with the plugin that lies beside this program, or a file.

use crate::cli::{Simulate, SourceFormat};
use crate::decompress;
use crate::driver::assets::{installed_library, named_library};
use crate::driver::other_programs::named;
use crate::driver::toolchain::is_program;
use crate::temporary;
use anyhow::{Context, Result, anyhow, bail};
use nix::sys::stat::Mode;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::thread::JoinHandle;
use trodden_launch::process::exit_code;
use trodden_launch::temporary::TemporaryFolder;
use trodden_trace::sources::{
    Batch, BranchSource, Bt9Source, Cbp2025Source, ChampSimSource, Level, PerfScriptSource, QemuSource, RecordedSource,
};

/// The plugin's file name.
const PLUGIN: &str = "libtrodden_qemu_plugin.so";
/// Variable that names another plugin file.
const PLUGIN_VARIABLE: &str = "TRODDEN_QEMU_PLUGIN";
/// QEMU's user mode for programs of this machine.
const QEMU: &str = "qemu-x86_64";

/// A source, and what has to be waited for at its end.
pub struct Opened {
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

impl Opened {
    /// Waits for the program; its exit status, or success of a file.
    ///
    /// # Errors
    /// QEMU's end is not known.
    pub fn end(&mut self) -> Result<ExitCode> {
        let Some(running) = self.running.take() else { return Ok(ExitCode::SUCCESS) };
        let status = running.waiter.join().map_err(|_| anyhow!("waiting for {QEMU} failed"))??;
        Ok(exit_code(status))
    }
}

/// Opens what the job names. A program is followed at this level.
///
/// # Errors
/// The file or program is not there or not what it should be, or QEMU or the plugin is missing; the message says what to do.
pub fn open(job: &Simulate, level: Level) -> Result<Opened> {
    match &job.from {
        Some(file) => open_file(file, job.format, &job.program),
        None => run_program(&job.command, job.output.is_none(), level),
    }
}

/// Whether QEMU and the plugin are there and work together: runs `true` under them.
///
/// # Errors
/// A piece is missing, or nothing was recorded; says what.
pub fn trial() -> Result<String> {
    let version = Command::new(QEMU).arg("--version").output();
    let version = version.map_err(|_| anyhow!("{QEMU} is not installed"))?.stdout;
    let mut opened = run_program(&["true".into()], true, Level::Branches)?;
    let mut batch = Batch::default();
    while opened.source.read(&mut batch)? {
        batch.clear();
    }
    opened.end()?;
    let instructions = opened.source.notes().instructions;
    anyhow::ensure!(instructions > 0, "{QEMU} runs `true`, and {} records nothing", plugin()?.display());
    let version = String::from_utf8_lossy(&version).lines().next().unwrap_or_default().to_owned();
    Ok(format!("{version}; {} recorded {instructions} instructions of `true`", plugin()?.display()))
}

/// Opens a file of branches, compressed or not.
///
/// # Errors
/// It cannot be read, or is of no format that is known.
pub fn open_file(path: &Path, format: SourceFormat, programs: &[PathBuf]) -> Result<Opened> {
    use std::io::BufRead;
    let mut reader = BufReader::with_capacity(1 << 16, decompress::open(path)?);
    let beginning = reader.fill_buf().with_context(|| format!("cannot read {}", path.display()))?;
    if beginning.is_empty() {
        bail!("{} is empty", path.display());
    }
    let format = if format == SourceFormat::Auto { recognised(path, beginning)? } else { format };
    let source: Box<dyn BranchSource> = match format {
        SourceFormat::Auto | SourceFormat::Recorded => Box::new(RecordedSource::new(reader, path)?),
        SourceFormat::Bt9 => Box::new(Bt9Source::new(reader, path)?),
        SourceFormat::Cbp2025 => Box::new(Cbp2025Source::new(reader, path)),
        SourceFormat::Champsim => Box::new(ChampSimSource::new(reader, path)),
        SourceFormat::PerfScript => Box::new(PerfScriptSource::new(reader, path, programs)?),
    };
    Ok(Opened { source, origin: path.display().to_string(), running: None })
}

/// The format of a file by its beginning.
fn recognised(path: &Path, beginning: &[u8]) -> Result<SourceFormat> {
    let head = &beginning[..beginning.len().min(1024)];
    let is_text = !head.is_empty() && head.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace());
    Ok(match head {
        [b't', b'r', b'o', b'd', b'r', b'e', b'c', b'\n', ..] => SourceFormat::Recorded,
        [b'B', b'T', b'9', b'_', ..] => SourceFormat::Bt9,
        _ if is_text => SourceFormat::PerfScript,
        [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..] => {
            bail!("{0} is the data of perf: give trodden its text, `perf script -i {0} -F brstack > branches.txt`", path.display())
        }
        _ if path.to_string_lossy().contains("champsim") => SourceFormat::Champsim,
        _ => bail!("{} does not say what it is: name its format, --format champsim or cbp2025", path.display()),
    })
}

/// Runs a program under QEMU; its standard output goes to standard error, if the report takes that.
fn run_program(command_line: &[OsString], moves_output: bool, level: Level) -> Result<Opened> {
    let (name, arguments) = command_line.split_first().context("no program is named")?;
    let program = find_program(name)?;
    let plugin = plugin()?;
    let folder = temporary::folder("trodden-simulate-")?;
    let pipe = folder.path().join("blocks");
    nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).context("cannot make a pipe")?;
    let mut command = Command::new(QEMU);
    let mut plugin_argument = OsString::from(plugin.as_os_str());
    plugin_argument.push(",out=");
    plugin_argument.push(&pipe);
    if level == Level::Instructions {
        plugin_argument.push(",memory=on");
    }
    // QEMU names programs by the first argument that it is given; the program should see the name it was called by.
    command.arg("-plugin").arg(plugin_argument).arg("-0").arg(name).arg(&program).args(arguments);
    if moves_output {
        command.stdout(Stdio::from(std::io::stderr().as_fd().try_clone_to_owned()?));
    }
    let child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => anyhow!("{QEMU} is not installed: apt-get install qemu-user"),
        _ => anyhow!("cannot run {QEMU}: {error}"),
    })?;
    let waiter = wait(child, pipe.clone());
    let stream = File::open(&pipe).with_context(|| format!("cannot read {}", pipe.display()))?;
    // A large pipe lets the program run on while branches are processed; a smaller one serves as well.
    let _ = nix::fcntl::fcntl(stream.as_fd(), nix::fcntl::FcntlArg::F_SETPIPE_SZ(1 << 20));
    let mut reader = BufReader::with_capacity(1 << 20, stream);
    let origin = shlex::try_join(command_line.iter().map(|w| w.to_str().unwrap_or("?"))).unwrap_or_default();
    if is_empty(&mut reader)? {
        let status = waiter.join().map_err(|_| anyhow!("waiting for {QEMU} failed"))??;
        bail!(
            "{QEMU} ended before {} began ({status}); see its message above: is it a program for x86-64, and QEMU built with plugins?",
            program.display()
        );
    }
    let source = Box::new(QemuSource::new(reader, Path::new("the stream of QEMU's plugin"), level)?);
    Ok(Opened { source, origin, running: Some(Running { waiter, _folder: folder }) })
}

/// Waits for QEMU; a reader that still waits for the pipe's other end goes on then.
fn wait(mut child: std::process::Child, pipe: PathBuf) -> JoinHandle<std::io::Result<ExitStatus>> {
    std::thread::spawn(move || {
        let status = child.wait();
        drop(OpenOptions::new().write(true).custom_flags(nix::libc::O_NONBLOCK).open(pipe));
        status
    })
}

fn is_empty(reader: &mut BufReader<impl Read>) -> Result<bool> {
    use std::io::BufRead;
    Ok(reader.fill_buf()?.is_empty())
}

/// The program's file: QEMU does not search PATH.
fn find_program(name: &OsStr) -> Result<PathBuf> {
    let path = named(name).filter(|path| is_program(path));
    let path = path.ok_or_else(|| anyhow!("{} is no program that can be executed", name.display()))?;
    let mut beginning = [0; 2];
    if File::open(&path).and_then(|mut f| f.read_exact(&mut beginning)).is_ok() && &beginning == b"#!" {
        bail!("{} is a script: name the program that runs it, such as `trodden simulate -- /bin/sh {}`", path.display(), path.display());
    }
    Ok(path)
}

/// The plugin's file.
fn plugin() -> Result<PathBuf> {
    if let Some(named) = named_library(PLUGIN_VARIABLE, PLUGIN)? {
        return Ok(named);
    }
    installed_library(PLUGIN)?.map_err(|places| {
        let [one, other] = places.each_ref().map(|place| place.display());
        anyhow!(
            "the plugin is neither {one} nor {other}: build it with `cargo build --release -p trodden-qemu-plugin`, or name it by \
            {PLUGIN_VARIABLE}"
        )
    })
}
