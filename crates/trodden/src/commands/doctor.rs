//! `trodden doctor`: checks the installation, and names the command that installs each missing component. The last check compiles, runs and
//! counts a small program.

use crate::context::driver_context;
use crate::last_store;
use crate::notes::reasons;
use crate::output;
use crate::surroundings::recording_context;
use crate::temporary;
use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{FcntlArg, fcntl};
use serde::Serialize;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use trodden_driver::assets;
use trodden_driver::cargo::RustcVersion;
use trodden_driver::other_programs::run as printed;
use trodden_driver::toolchain::{
    LlvmTool, LlvmToolchain, NEWEST_LLVM, OLDEST_LLVM, TESTED_LLVM, find_all_clangs, find_on_path, is_supported,
};
use trodden_profile::store::locate;
use trodden_recording::record;

const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Serialize)]
struct DoctorFinding {
    what: &'static str,
    /// True if nothing works without the component; false if only some commands need it.
    required: bool,
    ok: bool,
    /// What was found, or the error message.
    detail: String,
    /// A command or advice that fixes the error.
    remedy: Option<String>,
}

#[derive(Debug, Serialize)]
struct DoctorReport {
    schema_version: u32,
    ok: bool,
    checks: Vec<DoctorFinding>,
}

const QEMU_REMEDY: &str = "install a QEMU with plugin support (Debian 12: apt-get install qemu-user; Debian 13's has none: build QEMU with \
    --enable-plugins --target-list=x86_64-linux-user, and put its qemu-x86_64 on PATH); cargo build --release -p trodden-qemu-plugin";

/// Name of the check, whether it must pass, the check itself, and how to fix a failure.
type DoctorCheck = (&'static str, bool, fn() -> Result<String>, InstallationRemedy);

enum InstallationRemedy {
    Text(&'static str),
    /// Install these tools, in the LLVM version in use.
    Install(&'static [LlvmTool]),
}

use InstallationRemedy::{Install, Text};

const DOCTOR_CHECKS: &[DoctorCheck] = &[
    ("clang", true, check_clang, Install(&[LlvmTool::Clang])),
    ("linker and tools for objects", true, check_binutils, Text("apt-get install binutils")),
    ("C library for linking", true, check_c_library, Text("apt-get install libc6-dev libgcc-12-dev")),
    ("plugin", true, check_plugin, Text("cargo build --release -p trodden-instrument")),
    ("unit cache", true, check_unit_cache, Text("set TRODDEN_CACHE to a writable folder")),
    ("run store", false, check_run_store, Text("set TRODDEN_RUNS to a writable folder")),
    (
        "open file description locks",
        true,
        check_file_locks,
        Text("use a local file system (ext4, xfs, btrfs, tmpfs) for TMPDIR and profiles; needs Linux 3.15 or later"),
    ),
    ("/proc", true, check_proc, Text("mount -t proc proc /proc")),
    ("lld and LLVM's tools (for --lto)", false, check_lto, Install(&[LlvmTool::Lld, LlvmTool::Ar])),
    ("LLVM's tools for coverage and edge profiles", false, check_profile_tools, Install(&[LlvmTool::Cov])),
    ("Rust (for cargo trodden)", false, check_rust, Text("install Rust from https://rustup.rs, then: rustup update stable")),
    (
        "collectors of traces",
        false,
        crate::commands::trace::list_names_of_working_collectors,
        Text("allow ptrace; in a container, add the capability SYS_PTRACE"),
    ),
    (
        "memory protection keys (to trace programs that read their own code)",
        false,
        check_protection_keys,
        Text("use a processor and a kernel that list `ospke` in /proc/cpuinfo, or trace such programs with --collector single-step"),
    ),
    ("QEMU user mode with trodden's plugin (for simulate)", false, crate::commands::simulate::try_qemu_plugin, Text(QEMU_REMEDY)),
    (
        "wait recorder (for waits)",
        false,
        crate::commands::waits::try_waits_recorder,
        Text("cargo build --release -p trodden-waits-recorder"),
    ),
    ("end-to-end trial", true, try_to_build_and_record_program, Text("fix the problems above, then run `trodden doctor` again")),
];

/// Runs all checks. Returns status 0 if all required checks pass, else 1.
pub fn run(json: bool) -> Result<ExitCode> {
    trodden_trace::command::trace_in_this_process()?;
    let checks: Vec<DoctorFinding> = DOCTOR_CHECKS.iter().map(run_doctor_check).collect();
    let ok = checks.iter().all(|c| c.ok || !c.required);
    match json {
        true => output::print_json(&DoctorReport { schema_version: SCHEMA_VERSION, ok, checks })?,
        false => print_findings(&mut output::text_writer(), &checks)?,
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_protection_keys() -> Result<String> {
    anyhow::ensure!(
        trodden_trace::has_protection_keys(),
        "the processor or kernel has no memory protection keys, so traced programs that read their own code see the jumps and breakpoints \
         that tracing writes"
    );
    Ok("available".to_owned())
}

fn run_doctor_check((what, required, find, remedy): &DoctorCheck) -> DoctorFinding {
    match find() {
        Ok(detail) => DoctorFinding { what, required: *required, ok: true, detail, remedy: None },
        Err(error) => {
            DoctorFinding { what, required: *required, ok: false, detail: reasons(&error), remedy: Some(remedy.describe_remedy()) }
        }
    }
}

impl InstallationRemedy {
    fn describe_remedy(&self) -> String {
        match self {
            Text(text) => (*text).to_owned(),
            Install(tools) => {
                let major = LlvmToolchain::find(driver_context()).map_or(NEWEST_LLVM, |llvm| llvm.major);
                let packages: Vec<String> = tools.iter().map(|tool| format!(" {}-{major}", tool.package())).collect();
                format!("apt-get install{}", packages.concat())
            }
        }
    }
}

fn print_findings(out: &mut impl Write, checks: &[DoctorFinding]) -> io::Result<()> {
    for check in checks {
        let mark = match (check.ok, check.required) {
            (true, _) => "ok     ",
            (false, true) => "MISSING",
            (false, false) => "absent ",
        };
        writeln!(out, "{mark}  {}: {}", check.what, check.detail)?;
        if let Some(remedy) = &check.remedy {
            writeln!(out, "           -> {remedy}")?;
        }
    }
    Ok(())
}

/// Describes the clang in use and lists the other clangs that were found.
fn check_clang() -> Result<String> {
    let llvm = LlvmToolchain::find(driver_context())?;
    let cxx = llvm.tool(driver_context(), LlvmTool::ClangCxx)?;
    let version = first_output_line(Command::new(llvm.clang()).arg("--version"))?;
    let untested = if TESTED_LLVM.contains(&llvm.major) { String::new() } else { "; trodden is not tested with this version".to_owned() };
    let kind = |major| match (is_supported(major), TESTED_LLVM.contains(&major)) {
        (true, true) => "supported",
        (true, false) => "supported, but not tested",
        (false, _) if major < OLDEST_LLVM => "too old",
        (false, _) => "too new",
    };
    let others = find_all_clangs(driver_context()).into_iter().rev().filter(|(major, _)| *major != llvm.major);
    let others: Vec<String> = others.map(|(major, path)| format!("clang {major} ({}; {})", path.display(), kind(major))).collect();
    let others = if others.is_empty() { String::new() } else { format!("; also found: {}", others.join(", ")) };
    Ok(format!("{}, {} ({version}){untested}{others}", llvm.clang().display(), cxx.display()))
}

fn check_binutils() -> Result<String> {
    let ar = find_on_path(driver_context(), OsStr::new("ar")).context("ar is not installed")?;
    let version = first_output_line(Command::new("ld").arg("--version"))?;
    Ok(format!("{version}; {}", ar.display()))
}

fn check_c_library() -> Result<String> {
    let clang = LlvmTool::Clang.find(driver_context())?;
    let mut found = Vec::new();
    for file in ["crt1.o", "crtbegin.o"] {
        let path = first_output_line(Command::new(&clang).arg(format!("-print-file-name={file}")))?;
        ensure!(Path::new(&path).is_absolute(), "{file} is not installed");
        found.push(path);
    }
    Ok(found.join(", "))
}

fn check_plugin() -> Result<String> {
    let plugin = assets::COMPILER_PLUGIN_LIBRARY.find(driver_context())?;
    assets::try_compiler_plugin(driver_context(), &LlvmToolchain::find(driver_context())?, &plugin)?;
    Ok(plugin.display().to_string())
}

/// Checks that the unit cache is writable, and writes the runtime object to it.
fn check_unit_cache() -> Result<String> {
    let cache = driver_context().store()?;
    assets::runtime_object(&cache)?;
    let trial = tempfile::tempfile_in(cache.root()).with_context(|| format!("cannot write to {}", cache.root().display()))?;
    drop(trial);
    Ok(cache.root().display().to_string())
}

/// Finds the run store that `trodden report` would read in this folder. A missing run store is not an error.
fn check_run_store() -> Result<String> {
    match (locate(Path::new(".")), last_store::find_last_store()) {
        (Some(folder), _) => Ok(folder.display().to_string()),
        (None, Some(last)) => Ok(format!("none here; the last run was stored in {}", last.display())),
        (None, None) => Ok("none yet: `trodden record` creates one".to_owned()),
    }
}

/// Checks that open file description locks work. The runtime uses them to lock regions of a raw file.
fn check_file_locks() -> Result<String> {
    let folder = std::env::temp_dir();
    let file =
        tempfile::tempfile_in(&folder).with_context(|| format!("cannot write to {}. Set TMPDIR to a writable folder", folder.display()))?;
    let lock = nix::libc::flock { l_type: nix::libc::F_WRLCK as _, l_whence: nix::libc::SEEK_SET as _, l_start: 0, l_len: 1, l_pid: 0 };
    fcntl(&file, FcntlArg::F_OFD_SETLK(&lock))
        .context("the kernel does not support file locks of the kind that trodden needs (open file description locks)")?;
    Ok(format!("work in {}", std::env::temp_dir().display()))
}

fn check_proc() -> Result<String> {
    let link = fs::read_link("/proc/self/exe").context("cannot read /proc/self/exe, because /proc is not mounted. Mount it")?;
    Ok(format!("mounted ({})", link.display()))
}

fn check_lto() -> Result<String> {
    let lld = LlvmTool::Lld.find(driver_context())?;
    let version = first_output_line(Command::new(&lld).arg("--version"))?;
    [LlvmTool::Ar, LlvmTool::Nm, LlvmTool::Ranlib].iter().try_for_each(|tool| tool.find(driver_context()).map(drop))?;
    Ok(version)
}

/// Checks that llvm-cov and llvm-profdata have clang's major version. Their file formats differ between versions.
fn check_profile_tools() -> Result<String> {
    let llvm = LlvmToolchain::find(driver_context())?;
    let mut found = Vec::new();
    for tool in [LlvmTool::Cov, LlvmTool::Profdata] {
        let path = llvm.tool(driver_context(), tool)?;
        let output = Command::new(&path).arg("--version").output().with_context(|| format!("cannot run {}", path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.lines().find_map(|l| l.trim().split_once("LLVM version ")).map_or("?", |(_, version)| version);
        ensure!(
            version.split('.').next() == Some(&llvm.major.to_string()),
            "{} belongs to LLVM {version}, but clang belongs to LLVM {}",
            path.display(),
            llvm.major
        );
        found.push(format!("{} ({version})", path.display()));
    }
    Ok(found.join(", "))
}

fn check_rust() -> Result<String> {
    let rustc = RustcVersion::read(driver_context()).context("rustc is not installed")?;
    let clang = rustc.compiler(driver_context())?;
    first_output_line(Command::new("cargo").arg("--version")).context("cargo is not installed")?;
    Ok(format!("rustc {} with LLVM {}, whose bitcode clang {} compiles", rustc.release, rustc.llvm, clang.major))
}

/// A program whose function `odd` has two paths. One of them is executed three times.
const TRIAL_PROGRAM: &str = "\
__attribute__((noinline)) int odd(int n) {
  if (n & 1) return n * 3;
  return n;
}
int main(int c, char **v) { (void)v; return odd(c) + odd(c) + odd(c) == 9 * c ? 0 : 1; }
";

fn try_to_build_and_record_program() -> Result<String> {
    let place = temporary::create_temporary_folder("trodden-doctor-")?;
    let (source, program) = (place.path().join("trial.c"), place.path().join("trial"));
    fs::write(&source, TRIAL_PROGRAM)?;
    let trodden = driver_context().executable_folder()?.join("trodden");
    let mut compile = Command::new(&trodden);
    compile.args(["cc", "-O0", "-g"]).arg(&source).arg("-o").arg(&program).current_dir(place.path());
    first_output_line(&mut compile).context("cannot compile the test program")?;
    let profile = record::record_trial(&program, place.path(), &recording_context()).context("cannot record the test program")?;
    let counts = profile
        .functions()
        .find(|(_, _, f)| f.plain_name() == "odd")
        .map(|(_, unit, f)| unit.counts_of(f).map(|c| c.1).collect::<Vec<_>>());
    match counts {
        Some(counts) if counts == [3] => Ok("a program was compiled, run and counted; the counts are correct".into()),
        Some(counts) => bail!("the test program's function `odd` took one path 3 times, but the counts are {counts:?}"),
        None => bail!("the test program's function `odd` is not in the profile"),
    }
}

fn first_output_line(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&printed(command)?).lines().next().unwrap_or_default().to_owned())
}
