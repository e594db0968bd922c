//! What a name on the command line stands for: a run or suite, or a file or folder of one of the kinds that trodden reads. Every command
//! that takes several kinds asks here.
//!
//! Contents decide, not names, with two exceptions: OTF2 archives, which are several files, and raw and stream files whose program was
//! killed before it wrote their header, which hold zeros.

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use trodden_analysis::sequences::text as events;
use trodden_container::FileKind;
use trodden_stored::place::{COPIES, LOG, STREAM, with_extension};
use trodden_stored::{decompress, named};
use trodden_trace::perf_script::{self, ScriptLine};
use trodden_waits_file::import;

/// What commands can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A stored profile, a run, or a suite of runs.
    Profile,
    /// An exact trace.
    Trace,
    /// Logs of recorded streams: a file, or a folder of them.
    StreamLogs,
    /// Files that programs built with `--stream` write: one, or a folder of them.
    StreamFiles,
    /// A sequence of paths and calls as text.
    EventText,
    /// A recording of waits, or a trace of another tool that waits can be read from.
    Waits,
    /// Raw files of counts: one, or a folder of them.
    RawFiles,
    /// Text of `perf script` with branches.
    Branches,
    /// An executable, a library or a core file.
    Program,
}

/// Kinds of files with trodden's head.
const KINDS: &[(FileKind, InputKind)] = &[
    (FileKind::PROFILE, InputKind::Profile),
    (FileKind::TRACE, InputKind::Trace),
    (FileKind::STREAM_LOG, InputKind::StreamLogs),
    (FileKind::STREAM_FILE, InputKind::StreamFiles),
    (FileKind::RAW_COUNTS, InputKind::RawFiles),
];
/// How other files begin, where that is enough. All but programs are of earlier versions, which readers refuse with the remedy.
const BEGINNINGS: &[(&[u8], InputKind)] = &[
    (b"TRODPROF", InputKind::Profile),
    (b"TRODTRC", InputKind::Trace),
    (b"TRODWPP", InputKind::StreamLogs),
    (b"TRODSTR", InputKind::StreamFiles),
    (b"TRODRAW", InputKind::RawFiles),
    (b"\x7fELF", InputKind::Program),
];
/// How a file of `perf record` begins.
const PERF_DATA: &[u8] = b"PERFILE2";
/// Bytes of a file that are read first.
const BEGINNING: u64 = 4096;
/// Bytes of a text in which its first event must be.
const TEXT: u64 = 64 << 20;
/// Bytes of a line that are looked at.
const LINE: u64 = 1 << 16;
/// Ending of raw files.
const RAW: &str = "raw";
/// Ending of the archives of OTF2.
const OTF2: &str = "otf2";

impl InputKind {
    /// Recognises a file, a folder, a run or a suite.
    ///
    /// # Errors
    /// There is nothing of this name, it cannot be read, or it is of no kind that trodden reads.
    pub fn of(wanted: &Path) -> Result<InputKind> {
        // A suite may well have the name of a folder: `tests`.
        let is_run = |text: &str| named::files(text).is_ok();
        if wanted.is_dir() && wanted.to_str().is_some_and(is_run) {
            return Ok(InputKind::Profile);
        }
        match (InputKind::of_file(wanted)?, wanted.to_str()) {
            (Some(kind), _) => Ok(kind),
            (None, Some(text)) if !wanted.exists() => named::files(text).map(|_| InputKind::Profile),
            (None, _) => Err(InputKind::unknown(wanted)),
        }
    }

    /// Recognises a file or a folder; `None` if there is none, or if it is of no kind that trodden reads.
    ///
    /// # Errors
    /// It cannot be read, or is known and of no use to any command.
    pub fn of_file(path: &Path) -> Result<Option<InputKind>> {
        match fs::metadata(path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
            Ok(found) if found.is_dir() => of_folder(path),
            Ok(found) if found.is_file() => of_content(path),
            Ok(_) => bail!("{} is neither a file nor a folder", path.display()),
        }
    }

    /// The same for what a program may have left damaged: a raw or stream file without its header is one by its name.
    ///
    /// # Errors
    /// As of [`InputKind::of_file`].
    pub fn of_import(path: &Path) -> Result<Option<InputKind>> {
        let named = |extension: &str| path.is_file() && path.extension().is_some_and(|e| e == extension);
        Ok(match InputKind::of_file(path)? {
            None if named(RAW) => Some(InputKind::RawFiles),
            None if named(STREAM) => Some(InputKind::StreamFiles),
            found => found,
        })
    }

    /// What it is, with an article.
    pub fn phrase(self) -> &'static str {
        match self {
            InputKind::Profile => "a profile",
            InputKind::Trace => "a trace",
            InputKind::StreamLogs => "a stream of paths",
            InputKind::StreamFiles => "a stream file as programs write it",
            InputKind::EventText => "a sequence of events as text",
            InputKind::Waits => "a recording of waits",
            InputKind::RawFiles => "a raw file of counts",
            InputKind::Branches => "text of `perf script` with branches",
            InputKind::Program => "a program",
        }
    }

    /// Which commands take it.
    fn advice(self) -> &'static str {
        match self {
            InputKind::Profile => "`trodden report` shows it",
            InputKind::Trace => {
                "`trodden report`, `show`, `find`, `diff` and `export` take traces, and `trodden import` makes a profile of one"
            }
            InputKind::StreamLogs => "`trodden info`, `show`, `find --events`, `diff --sequence`, `patterns` and `segments` take streams",
            InputKind::StreamFiles => "`trodden import` makes a run of it, and `trodden show` shows its end",
            InputKind::EventText => "`trodden find --events`, `diff --sequence`, `patterns` and `segments` take such texts",
            InputKind::Waits => "`trodden report` shows it, and `trodden export chrome` writes its time line",
            InputKind::RawFiles => "`trodden import` makes a run of it",
            InputKind::Branches => "`trodden import FILE --program PROGRAM` makes a profile of it",
            InputKind::Program => "`trodden info` says what is known of it, and `trodden record -- PROGRAM` makes a profile",
        }
    }

    /// The error for what is of no kind, or not there.
    pub fn unknown(path: &Path) -> Error {
        let is_empty_folder = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        match fs::metadata(path) {
            Err(_) => anyhow!("there is no file or folder {}", path.display()),
            Ok(found) if found.is_dir() && is_empty_folder => anyhow!(
                "the folder {} is empty: no raw files, and if `trodden waits record` created it, the program used neither MPI nor threads",
                path.display()
            ),
            Ok(found) if found.is_dir() => {
                anyhow!("there are no raw files, no streams of paths and no recording of waits in the folder {}", path.display())
            }
            Ok(found) if found.len() == 0 => anyhow!("{}: the file is empty", path.display()),
            Ok(_) => anyhow!(
                "{} is neither a profile, a trace, a stream of paths nor a recording of waits, nor in a format that trodden imports (OTF2, \
                 CTF, Chrome trace JSON, text of `perf script` or `babeltrace2`)",
                path.display()
            ),
        }
    }

    /// The error of a command that does not take this kind.
    pub fn refused(self, wanted: &Path, command: &str) -> Error {
        anyhow!("{} is {}, which `trodden {command}` does not take: {}", wanted.display(), self.phrase(), self.advice())
    }

    /// Refuses options that mean nothing for this kind: their names, and whether they were given.
    ///
    /// # Errors
    /// Names the first one that was given.
    pub fn refuse_options(self, options: &[(&str, bool)]) -> Result<()> {
        options.iter().try_for_each(|(option, is_given)| {
            ensure!(!is_given, "{option} does not apply to {}: leave it out", self.phrase());
            Ok(())
        })
    }
}

/// The name of a run, a suite or a file as text, which the run store needs.
///
/// # Errors
/// It is not UTF-8.
pub fn name_of(wanted: &Path) -> Result<&str> {
    wanted.to_str().with_context(|| format!("the name {} is not UTF-8: rename the file", wanted.display()))
}

fn of_folder(folder: &Path) -> Result<Option<InputKind>> {
    // Other programs call files `.log` and `.raw`, too.
    let has = |folder: &Path, extension: &str, kind| -> Result<bool> {
        let files = with_extension(folder, extension)?;
        Ok(files.iter().any(|file| beginning(file).is_ok_and(|bytes| of_beginning(file, &bytes) == Some(kind))))
    };
    if !with_extension(folder, "process")?.is_empty() || import::ctf::is_trace(folder) {
        return Ok(Some(InputKind::Waits));
    }
    // A recorder that was killed leaves logs beside the files that it made them of.
    for (extension, kind) in [(STREAM, InputKind::StreamFiles), (LOG, InputKind::StreamLogs), (RAW, InputKind::RawFiles)] {
        if has(folder, extension, kind)? {
            return Ok(Some(kind));
        }
    }
    if folder.join(COPIES).is_dir() {
        return Ok(Some(InputKind::StreamLogs));
    }
    // `.trodden/last`: which of the folders in it is meant, the reader asks.
    let inner = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let has_inner =
        inner.flatten().any(|entry| entry.path().is_dir() && has(&entry.path(), STREAM, InputKind::StreamFiles).unwrap_or(false));
    Ok(has_inner.then_some(InputKind::StreamFiles))
}

fn of_content(path: &Path) -> Result<Option<InputKind>> {
    let cannot = || format!("cannot read {}", path.display());
    if path.extension().is_some_and(|extension| extension == OTF2) {
        return Ok(Some(InputKind::Waits));
    }
    let beginning = beginning(path).with_context(cannot)?;
    if let Some(kind) = of_beginning(path, &beginning) {
        return Ok(Some(kind));
    }
    if beginning.is_empty() {
        return Ok(None);
    }
    ensure!(
        !beginning.starts_with(PERF_DATA),
        "{0} is the data of perf: give trodden its text, `perf script -i {0} > trace.txt`",
        path.display()
    );
    if let Some(kind) = FileKind::of(&beginning) {
        let only = match kind {
            FileKind::KNOWN_PATHS | FileKind::SEGMENTS | FileKind::WEIGHTS => "only options such as --known and --weights take",
            FileKind::MORE_KNOWN => "only programs built with --residual take, by TRODDEN_KNOWN",
            FileKind::BRANCHES => "only `trodden simulate --from` takes",
            FileKind::WAITS => "belongs to a recording of waits: name its folder",
            _ => "no command takes",
        };
        bail!("{} is {}, which {only}", path.display(), kind.phrase());
    }
    of_text(BufReader::new(decompress::open(path)?.take(TEXT))).with_context(cannot)
}

/// How a file begins.
fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BEGINNING).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn of_beginning(path: &Path, bytes: &[u8]) -> Option<InputKind> {
    // The header is written when the program begins to count; before that there are zeros, or what says that it gave up.
    if bytes.iter().take(8).all(|byte| *byte == 0) {
        return match path.extension()? {
            extension if extension == RAW => Some(InputKind::RawFiles),
            extension if extension == STREAM => Some(InputKind::StreamFiles),
            _ => None,
        };
    }
    if let Some(found) = FileKind::of(bytes) {
        return KINDS.iter().find(|(kind, _)| *kind == found).map(|(_, kind)| *kind);
    }
    BEGINNINGS.iter().find(|(known, _)| bytes.starts_with(known)).map(|(_, kind)| *kind)
}

/// The kind of a text, by its first line or its first event.
fn of_text(mut text: impl BufRead) -> io::Result<Option<InputKind>> {
    let (mut bytes, mut head, mut is_first) = (Vec::new(), String::new(), true);
    loop {
        bytes.clear();
        if text.by_ref().take(LINE).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(import::is_header_alone(&head).then_some(InputKind::Waits));
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
        match perf_script::parse(line) {
            Ok(ScriptLine::Window(_, branches)) if !branches.is_empty() => return Ok(Some(InputKind::Branches)),
            Ok(ScriptLine::Branch(..)) => return Ok(Some(InputKind::Branches)),
            _ => {}
        }
        // Only the header of `perf script --header` is needed whole.
        if (head.len() as u64) < LINE {
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
        let kind = |text: &str| of_text(text.as_bytes()).unwrap();
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
        assert!(InputKind::of(path).unwrap_err().to_string().contains("is empty"));
        fs::create_dir(path.join("logs")).unwrap();
        for name in ["other.raw", "other.log"] {
            fs::write(path.join(name), "of another program").unwrap();
        }
        let mut expected = None;
        // Each outranks those before it.
        for (name, content, kind) in [
            ("a.raw", &b"\x93TRODDENRAWC"[..], InputKind::RawFiles),
            ("a.log", b"\x93TRODDENSLOG", InputKind::StreamLogs),
            ("a.stream", b"", InputKind::StreamFiles),
            ("1-2.process", b"", Waits),
        ] {
            assert_eq!(InputKind::of_file(path).unwrap(), expected);
            fs::write(path.join(name), content).unwrap();
            expected = Some(kind);
            assert_eq!(InputKind::of_file(path).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn an_option_of_another_kind_is_named() {
        let error = InputKind::Trace.refuse_options(&[("--top", false), ("--measure", true)]).unwrap_err();
        assert_eq!(error.to_string(), "--measure does not apply to a trace: leave it out");
    }
}
