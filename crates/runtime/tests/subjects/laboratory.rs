//! Builds and runs small programs with the runtime. Also reads raw files, by code that is independent of the crate `trodden-profile`.

#[path = "../../build_object.rs"]
pub mod build_object;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::SystemTime;
use trodden_wire::file_header::{FileHeader, FileKind};
use trodden_wire::{LostThreads, RAW_VERSION, RawHeader, region_lost_offset};

/// Returns the path of the runtime's object. The first test process builds it, unless it is newer than its sources, while the others wait.
pub fn object() -> &'static Path {
    static OBJECT: OnceLock<PathBuf> = OnceLock::new();
    OBJECT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("object");
        fs::create_dir_all(&folder).unwrap();
        let lock = fs::File::create(folder.join("lock")).unwrap();
        lock.lock().unwrap();
        let object = folder.join("trodden_rt.o");
        let built = fs::metadata(&object).and_then(|m| m.modified());
        if !built.is_ok_and(|built| last_modified(&build_object::sources()) < built) {
            build_object::build(&object).unwrap();
        }
        object
    })
}

/// Returns the latest modification time of all files and of the files in all folders.
fn last_modified(paths: &[PathBuf]) -> SystemTime {
    let written = |path: &PathBuf| match path.is_dir() {
        true => last_modified(&fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()),
        false => fs::metadata(path).unwrap().modified().unwrap(),
    };
    paths.iter().map(written).max().unwrap_or(SystemTime::UNIX_EPOCH)
}

pub struct Laboratory {
    pub folder: PathBuf,
}

impl Laboratory {
    pub fn new(name: &str) -> Laboratory {
        Laboratory::in_folder(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    pub fn in_folder(folder: PathBuf) -> Laboratory {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Laboratory { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn source(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path("subject.h"), include_str!("subject.h")).unwrap();
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Runs a compiler in the laboratory's folder.
    pub fn compile(&self, compiler: &str, arguments: &[&str]) {
        let mut command = Command::new(compiler);
        command.current_dir(&self.folder).args(arguments);
        let output = command.output().unwrap_or_else(|error| panic!("{compiler}: {error}; install it"));
        assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Builds a C program and links it with the runtime.
    pub fn program(&self, name: &str, text: &str, flags: &[&str]) -> PathBuf {
        let source = format!("{name}.c");
        self.source(&source, text);
        let mut arguments = vec!["-O1", "-pthread", "-o", name, &source, object().to_str().unwrap()];
        arguments.extend(flags);
        self.compile("gcc", &arguments);
        self.path(name)
    }

    /// Returns a command that runs a program in the laboratory's folder, with `TRODDEN_OUTPUT` set to `pattern`.
    pub fn command(&self, program: &Path, pattern: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).env("TRODDEN_OUTPUT", pattern);
        command
    }

    /// Runs a program, which must succeed and print no message.
    pub fn run(&self, program: &Path, pattern: &str) {
        assert_silent_success(&self.command(program, pattern).output().unwrap());
    }

    pub fn raw_files(&self, folder: &str) -> Vec<RawFileContents> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else { return vec![] };
        let mut paths: Vec<_> =
            entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "raw")).collect();
        paths.sort();
        paths.iter().map(|path| RawFileContents::read(path)).collect()
    }

    /// Returns the contents of the only raw file in a subfolder.
    pub fn raw_file(&self, folder: &str) -> RawFileContents {
        let mut all = self.raw_files(folder);
        assert_eq!(all.len(), 1, "raw files in {folder}");
        all.remove(0)
    }
}

pub fn assert_silent_success(output: &Output) {
    assert!(output.status.success() && output.stderr.is_empty(), "{:?}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
}

/// Asserts success, and that standard error consists of one line that starts with `trodden: ` and contains all of `parts`.
pub fn assert_one_message(output: &Output, parts: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {text}", output.status);
    assert!(text.starts_with("trodden: ") && text.ends_with('\n') && text.lines().count() == 1, "{text:?}");
    for part in parts {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

/// The contents of a raw file.
pub struct RawFileContents {
    pub name: String,
    pub image_path: String,
    pub units: Vec<[u8; 16]>,
    pub regions: Vec<Vec<u64>>,
    pub lost: LostThreads,
}

impl RawFileContents {
    pub fn read(path: &Path) -> RawFileContents {
        let bytes = fs::read(path).unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        macro_rules! field {
            ($name:ident) => {
                word(std::mem::offset_of!(RawHeader, $name)) as usize
            };
        }
        assert_eq!(FileHeader::read(&bytes), Ok(FileHeader::new(FileKind::RAW_COUNTS, RAW_VERSION)));
        let units = (0..field!(units)).map(|index| field!(units_offset) + 32 * index);
        let (first, stride) = (field!(regions_offset), field!(region_stride));
        assert_eq!((bytes.len() - first) % stride, 0, "partial region");
        let regions = (first..bytes.len()).step_by(stride);
        let tails = regions.clone().map(|at| LostThreads(word(at + region_lost_offset(field!(counters) as u64) as usize)));
        let lost = tails.fold(LostThreads(field!(lost) as u64), LostThreads::merge);
        RawFileContents {
            name: path.file_name().unwrap().to_str().unwrap().to_owned(),
            image_path: String::from_utf8(bytes[field!(path_offset)..][..field!(path_len)].to_vec()).unwrap(),
            units: units.map(|at| bytes[at..at + 16].try_into().unwrap()).collect(),
            regions: regions.map(|at| (0..field!(counters)).map(|index| word(at + 8 * index)).collect()).collect(),
            lost,
        }
    }

    /// Returns the sum of a counter over all regions.
    pub fn count(&self, index: usize) -> u64 {
        self.regions.iter().map(|region| region[index]).sum()
    }
}

/// Returns true if the test runs as root. If not, prints that `what` is skipped.
pub fn is_root(what: &str) -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    let root = id.stdout == b"0\n";
    if !root {
        eprintln!("skipped, needs root: {what}");
    }
    root
}

pub struct Mount(pub PathBuf);

impl Mount {
    /// Mounts a file system. If that is not possible, prints a note and returns `None`.
    pub fn new(at: PathBuf, arguments: &[&str]) -> Option<Mount> {
        fs::create_dir_all(&at).unwrap();
        if !is_root("mounting") {
            return None;
        }
        let output = Command::new("mount").args(arguments).arg(&at).output().unwrap();
        if !output.status.success() {
            eprintln!("skipped, cannot mount: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(Mount(at))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
