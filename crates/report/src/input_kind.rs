//! Detects what a command's argument names: a run, a suite, or a file or folder in a format that trodden reads.
//!
//! The kind is determined by the content, not by the name, with two exceptions: an OTF2 archive consists of several files, and a raw or
//! stream file has only zeros if the program was killed before it wrote the header.

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use trodden_analysis::sequences::text as events;
use trodden_container::FileKind;
use trodden_stored::place::{COPIES_FOLDER, LOG_EXTENSION, STREAM_EXTENSION, files_with_extension};
use trodden_stored::{decompress, named};
use trodden_trace::perf_script::{self, ScriptLine};
use trodden_waits_file::import;

/// What a command's input contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A stored profile, a run, or a suite of runs.
    Profile,
    /// A trace of all executed blocks.
    Trace,
    /// A log of recorded streams, or a folder of logs.
    StreamLogs,
    /// A stream file written by a program that was built with `--stream`, or a folder of such files.
    StreamFiles,
    /// Paths and calls as text.
    EventText,
    /// A recording of waits, or another tool's trace from which waits can be imported.
    Waits,
    /// A raw file, in which an instrumented program counts, or a folder of raw files.
    RawFiles,
    /// Output of `perf script` with branches.
    Branches,
    /// An executable, a library or a core file.
    Program,
}

const INPUT_KINDS_BY_FILE_KIND: &[(FileKind, InputKind)] = &[
    (FileKind::PROFILE, InputKind::Profile),
    (FileKind::TRACE, InputKind::Trace),
    (FileKind::STREAM_LOG, InputKind::StreamLogs),
    (FileKind::STREAM_FILE, InputKind::StreamFiles),
    (FileKind::RAW_COUNTS, InputKind::RawFiles),
];
/// Magic numbers of programs and of trodden's earlier formats. The readers of earlier formats tell the user what to do.
const MAGIC_NUMBERS: &[(&[u8], InputKind)] = &[
    (b"TRODPROF", InputKind::Profile),
    (b"TRODTRC", InputKind::Trace),
    (b"TRODWPP", InputKind::StreamLogs),
    (b"TRODSTR", InputKind::StreamFiles),
    (b"TRODRAW", InputKind::RawFiles),
    (b"\x7fELF", InputKind::Program),
];
const PERF_DATA_MAGIC_NUMBER: &[u8] = b"PERFILE2";
const MAX_HEADER_BYTES: u64 = 4096;
/// Number of bytes within which a text must have its first event to be recognised.
const MAX_TEXT_BYTES: u64 = 64 << 20;
/// Maximum length of a line in bytes. Longer lines are truncated.
const MAX_LINE_BYTES: u64 = 1 << 16;
const RAW_EXTENSION: &str = "raw";
const OTF2_EXTENSION: &str = "otf2";

impl InputKind {
    /// Detects the kind of a file, a folder, a run or a suite. Fails if nothing has this name, or if the kind is unknown.
    pub fn detect(wanted: &Path) -> Result<InputKind> {
        // A suite may have the same name as a folder, such as `tests`.
        let is_run = |text: &str| named::list_profile_files(text).is_ok();
        if wanted.is_dir() && wanted.to_str().is_some_and(is_run) {
            return Ok(InputKind::Profile);
        }
        match (InputKind::detect_file(wanted)?, wanted.to_str()) {
            (Some(kind), _) => Ok(kind),
            (None, Some(text)) if !wanted.exists() => named::list_profile_files(text).map(|_| InputKind::Profile),
            (None, _) => Err(InputKind::unknown_kind_error(wanted)),
        }
    }

    /// Detects the kind of a file or folder. Returns `None` if it does not exist or its kind is unknown, and fails if no command accepts
    /// its kind.
    pub fn detect_file(path: &Path) -> Result<Option<InputKind>> {
        match fs::metadata(path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
            Ok(found) if found.is_dir() => detect_folder(path),
            Ok(found) if found.is_file() => detect_content(path),
            Ok(_) => bail!("{} is neither a file nor a folder", path.display()),
        }
    }

    /// Like [`InputKind::detect_file`], but also recognises raw and stream files with a corrupt header, by their extension.
    pub fn detect_import(path: &Path) -> Result<Option<InputKind>> {
        let named = |extension: &str| path.is_file() && path.extension().is_some_and(|e| e == extension);
        Ok(match InputKind::detect_file(path)? {
            None if named(RAW_EXTENSION) => Some(InputKind::RawFiles),
            None if named(STREAM_EXTENSION) => Some(InputKind::StreamFiles),
            found => found,
        })
    }

    /// Returns a noun phrase for the kind, such as `a profile`.
    pub fn noun_phrase(self) -> &'static str {
        match self {
            InputKind::Profile => "a profile",
            InputKind::Trace => "a trace",
            InputKind::StreamLogs => "a stream of paths",
            InputKind::StreamFiles => "a stream file written by a program",
            InputKind::EventText => "a sequence of events as text",
            InputKind::Waits => "a recording of waits",
            InputKind::RawFiles => "a raw file of counts",
            InputKind::Branches => "output of `perf script` with branches",
            InputKind::Program => "a program",
        }
    }

    fn describe_accepting_commands(self) -> &'static str {
        match self {
            InputKind::Profile => "`trodden report` shows it",
            InputKind::Trace => {
                "`trodden report`, `show`, `find`, `diff` and `export` accept traces, and `trodden import` converts them to profiles"
            }
            InputKind::StreamLogs => "`trodden info`, `show`, `find --events`, `diff --sequence`, `patterns` and `segments` accept streams",
            InputKind::StreamFiles => "`trodden import` converts it to a run, and `trodden show` shows its last events",
            InputKind::EventText => "`trodden find --events`, `diff --sequence`, `patterns` and `segments` accept such files",
            InputKind::Waits => "`trodden report` shows it, and `trodden export chrome` writes its timeline",
            InputKind::RawFiles => "`trodden import` converts it to a run",
            InputKind::Branches => "`trodden import FILE --program PROGRAM` converts it to a profile",
            InputKind::Program => "`trodden info` describes it, and `trodden record -- PROGRAM` records a profile",
        }
    }

    /// Returns the error for an input that does not exist or whose kind is unknown.
    pub fn unknown_kind_error(path: &Path) -> Error {
        let is_empty_folder = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        match fs::metadata(path) {
            Err(_) => anyhow!("file or folder {} does not exist", path.display()),
            Ok(found) if found.is_dir() && is_empty_folder => anyhow!(
                "the folder {} is empty. If `trodden waits record` created it, the program used neither MPI nor threads",
                path.display()
            ),
            Ok(found) if found.is_dir() => {
                anyhow!(
                    "folder {} contains nothing that trodden reads: no raw counts (*.raw), path streams or recording of waits",
                    path.display()
                )
            }
            Ok(found) if found.len() == 0 => anyhow!("{}: the file is empty", path.display()),
            Ok(_) => anyhow!(
                "cannot recognise the format of {}. Pass a profile, trace, path stream or recording of waits, or a file that trodden \
                 imports (OTF2, CTF, Chrome trace JSON, output of `perf script` or `babeltrace2`)",
                path.display()
            ),
        }
    }

    /// Returns the error for a command that does not accept this kind.
    pub fn not_accepted_error(self, wanted: &Path, command: &str) -> Error {
        anyhow!(
            "{} is {}, which `trodden {command}` does not accept; {}",
            wanted.display(),
            self.noun_phrase(),
            self.describe_accepting_commands()
        )
    }

    /// Rejects options that do not apply to this kind of input. Each element is an option's name and whether the option was given.
    pub fn reject_options(self, options: &[(&str, bool)]) -> Result<()> {
        options.iter().try_for_each(|(option, is_given)| {
            ensure!(!is_given, "{option} does not apply to {}. Omit {option}", self.noun_phrase());
            Ok(())
        })
    }
}

/// Returns the name of a run, suite or file as UTF-8, which the run store needs. Fails if the name is not UTF-8.
pub fn require_utf8_name(wanted: &Path) -> Result<&str> {
    wanted.to_str().with_context(|| format!("the file name {} is not valid UTF-8. Rename the file", wanted.display()))
}

fn detect_folder(folder: &Path) -> Result<Option<InputKind>> {
    // Other programs also use the extensions `.log` and `.raw`.
    let has = |folder: &Path, extension: &str, kind| -> Result<bool> {
        let files = files_with_extension(folder, extension)?;
        Ok(files.iter().any(|file| read_beginning(file).is_ok_and(|bytes| detect_by_beginning(file, &bytes) == Some(kind))))
    };
    if !files_with_extension(folder, "process")?.is_empty() || import::ctf::is_ctf_trace_folder(folder) {
        return Ok(Some(InputKind::Waits));
    }
    // Stream files come first: a recorder that was killed leaves logs beside the stream files that it had not converted yet.
    for (extension, kind) in
        [(STREAM_EXTENSION, InputKind::StreamFiles), (LOG_EXTENSION, InputKind::StreamLogs), (RAW_EXTENSION, InputKind::RawFiles)]
    {
        if has(folder, extension, kind)? {
            return Ok(Some(kind));
        }
    }
    if folder.join(COPIES_FOLDER).is_dir() {
        return Ok(Some(InputKind::StreamLogs));
    }
    // A folder of recordings, such as `.trodden/last`, has stream files only in its subfolders. It is accepted so that its reader can ask
    // the user to choose one.
    let inner = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let has_inner =
        inner.flatten().any(|entry| entry.path().is_dir() && has(&entry.path(), STREAM_EXTENSION, InputKind::StreamFiles).unwrap_or(false));
    Ok(has_inner.then_some(InputKind::StreamFiles))
}

fn detect_content(path: &Path) -> Result<Option<InputKind>> {
    let cannot = || format!("cannot read {}", path.display());
    if path.extension().is_some_and(|extension| extension == OTF2_EXTENSION) {
        return Ok(Some(InputKind::Waits));
    }
    let beginning = read_beginning(path).with_context(cannot)?;
    if let Some(kind) = detect_by_beginning(path, &beginning) {
        return Ok(Some(kind));
    }
    if beginning.is_empty() {
        return Ok(None);
    }
    ensure!(
        !beginning.starts_with(PERF_DATA_MAGIC_NUMBER),
        "{0} is the binary output of `perf record`. Convert it to text with `perf script -i {0} > trace.txt`",
        path.display()
    );
    if let Some(kind) = FileKind::detect(&beginning) {
        let only = match kind {
            FileKind::KNOWN_PATHS | FileKind::SEGMENTS | FileKind::ITERATIONS | FileKind::WEIGHTS => {
                "only options such as --known and --weights accept"
            }
            FileKind::FURTHER_KNOWN_PATHS => "only programs built with --residual accept, through the variable TRODDEN_KNOWN",
            FileKind::BRANCHES => "only `trodden simulate --from` accepts",
            FileKind::WAITS => "belongs to a recording of waits: name its folder",
            _ => "no command accepts",
        };
        bail!("{} is {}, which {only}", path.display(), kind.description());
    }
    detect_text(BufReader::new(decompress::open(path)?.take(MAX_TEXT_BYTES))).with_context(cannot)
}

fn read_beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_HEADER_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn detect_by_beginning(path: &Path, bytes: &[u8]) -> Option<InputKind> {
    // A program writes the header when it starts to count. Until then, the file consists of zeros, or of a single zero if there was no disk
    // space.
    if bytes.iter().take(8).all(|byte| *byte == 0) {
        return match path.extension()? {
            extension if extension == RAW_EXTENSION => Some(InputKind::RawFiles),
            extension if extension == STREAM_EXTENSION => Some(InputKind::StreamFiles),
            _ => None,
        };
    }
    if let Some(found) = FileKind::detect(bytes) {
        return INPUT_KINDS_BY_FILE_KIND.iter().find(|(kind, _)| *kind == found).map(|(_, kind)| *kind);
    }
    MAGIC_NUMBERS.iter().find(|(known, _)| bytes.starts_with(known)).map(|(_, kind)| *kind)
}

/// Detects the kind of a text from its first line or first event.
fn detect_text(mut text: impl BufRead) -> io::Result<Option<InputKind>> {
    let (mut bytes, mut head, mut is_first) = (Vec::new(), String::new(), true);
    loop {
        bytes.clear();
        if text.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(import::is_only_header(&head).then_some(InputKind::Waits));
        }
        if bytes.contains(&0) {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end_matches(['\n', '\r']);
        if is_first && events::is_first_line(line) {
            return Ok(Some(InputKind::EventText));
        }
        is_first = false;
        if head.trim().is_empty() && line.trim_start().starts_with(['{', '[']) || import::is_scheduler_line(line) {
            return Ok(Some(InputKind::Waits));
        }
        match perf_script::parse_script_line(line) {
            Ok(ScriptLine::Window(_, branches)) if !branches.is_empty() => return Ok(Some(InputKind::Branches)),
            Ok(ScriptLine::Branch(..)) => return Ok(Some(InputKind::Branches)),
            _ => {}
        }
        // The lines are collected to recognise the header of `perf script --header`.
        if (head.len() as u64) < MAX_LINE_BYTES {
            head.push_str(line);
            head.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use InputKind::{Branches, EventText, Waits};

    #[test]
    fn texts_are_recognised_by_their_first_event() {
        let kind = |text: &str| detect_text(text.as_bytes()).unwrap();
        assert_eq!(kind("#trodden events 1\nenter\tf\n"), Some(EventText));
        assert_eq!(kind("7 0x1000 0110 call\n7 0x2000  return\n"), Some(EventText));
        assert_eq!(kind("\n {\"traceEvents\": []}"), Some(Waits));
        assert_eq!(kind("[]"), Some(Waits));
        assert_eq!(kind("# a comment\n  app 11 [000] 5.0: sched:sched_switch: prev_comm=app\n"), Some(Waits));
        assert_eq!(kind("# ========\n# captured on    : Sat\n# ========\n#\n"), Some(Waits));
        assert_eq!(kind("  11/11  5.0:  401000 => 401020\n"), Some(Branches));
        assert_eq!(kind(" 11/11 5.0: 0x401000/0x401020/P/-/-/1 0x401030/0x401000/P/-/-/1\n"), Some(Branches));
        assert_eq!((kind("some words\n"), kind(""), kind("{\0")), (None, None, None));
    }

    #[test]
    fn folders_are_recognised_by_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert!(InputKind::detect(path).unwrap_err().to_string().contains("is empty"));
        fs::create_dir(path.join("logs")).unwrap();
        for name in ["other.raw", "other.log"] {
            fs::write(path.join(name), "of another program").unwrap();
        }
        let mut expected = None;
        // Each kind takes precedence over the kinds before it.
        for (name, content, kind) in [
            ("a.raw", &b"\x93TRODDENRAWC"[..], InputKind::RawFiles),
            ("a.log", b"\x93TRODDENSLOG", InputKind::StreamLogs),
            ("a.stream", b"", InputKind::StreamFiles),
            ("1-2.process", b"", Waits),
        ] {
            assert_eq!(InputKind::detect_file(path).unwrap(), expected);
            fs::write(path.join(name), content).unwrap();
            expected = Some(kind);
            assert_eq!(InputKind::detect_file(path).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn rejected_option_is_named() {
        let error = InputKind::Trace.reject_options(&[("--top", false), ("--measure", true)]).unwrap_err();
        assert_eq!(error.to_string(), "--measure does not apply to a trace. Omit --measure");
    }
}
