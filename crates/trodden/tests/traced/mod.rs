//! A folder in which tests trace programs, and helpers for the output of commands.
#![allow(dead_code, reason = "each test file uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        let folder = Folder(tempfile::Builder::new().prefix("trodden-trace-").tempdir().unwrap());
        std::fs::write(folder.path("input"), "a small text, a small text\nof two lines\n").unwrap();
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn trodden(&self, arguments: &[&str]) -> Output {
        self.run(Path::new(env!("CARGO_BIN_EXE_trodden")), arguments, "")
    }

    pub fn laboratory(&self, arguments: &[&str]) -> Output {
        self.run(&Path::new(env!("CARGO_BIN_EXE_trodden")).with_file_name("trodden-lab"), arguments, "")
    }

    fn run(&self, program: &Path, arguments: &[&str], choices: &str) -> Output {
        // Traces of several recordings are compared, and programs such as grep execute different blocks at different addresses, so
        // addresses must not be randomised.
        let mut command = Command::new("setarch");
        command.arg("-R").arg(program);
        // With backtraces enabled, a program that panics executes millions of blocks.
        command.current_dir(self.0.path()).env_remove("TRODDEN_QUIET").env("RUST_BACKTRACE", "0").stdin(Stdio::null());
        command.env("TRODDEN_LABORATORY", choices);
        command.args(arguments).output().unwrap()
    }

    pub fn record(&self, options: &[&str], trace: &str, program: &[&str]) -> Output {
        self.record_with("", options, trace, program)
    }

    /// Records with the given options. Options of `trodden-lab with` may be in `choices` or among `options`.
    pub fn record_with(&self, choices: &str, options: &[&str], trace: &str, program: &[&str]) -> Output {
        let (mut chosen, mut own) = (vec![choices], Vec::new());
        let mut words = options.iter().copied();
        while let Some(word) = words.next() {
            match word {
                "--witness-strategy" | "--witness-weights" | "--limit" | "--machines" | "--check" | "--distribution" | "--keep-runs" => {
                    chosen.extend([word, words.next().unwrap()]);
                }
                "--plan" | "--plan=json" | "--calls" => chosen.push(word),
                other => own.push(other),
            }
        }
        let arguments = [&["trace", "record"], &own[..], &["--output", trace, "--"], program].concat();
        self.run(Path::new(env!("CARGO_BIN_EXE_trodden")), &arguments, &chosen.join(" "))
    }

    pub fn addresses(&self, trace: &str) -> Vec<String> {
        let output = must(self.trodden(&["export", "addresses", trace]));
        output.lines().filter(|l| !l.starts_with('#')).map(str::to_owned).collect()
    }

    pub fn compile(&self, compiler: &str, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
        let output = Command::new(compiler).current_dir(self.0.path()).args(["-O1", "-g", name, "-o", "app", "-pthread"]).output().unwrap();
        must(output);
    }

    /// Makes `program32`, which prints `32` and exits with status 5. Returns `None` if this system runs no 32-bit programs.
    pub fn assemble_32_bit_program(&self) -> Option<std::path::PathBuf> {
        const TEXT: &str = ".globl _start\n_start: mov $4,%eax\n mov $1,%ebx\n mov $text,%ecx\n mov $3,%edx\n int $0x80\n mov $1,%eax\n \
            mov $5,%ebx\n int $0x80\n.data\ntext: .ascii \"32\\n\"\n";
        std::fs::write(self.path("program32.s"), TEXT).unwrap();
        for line in ["as --32 program32.s -o program32.o", "ld -m elf_i386 program32.o -o program32"] {
            must(Command::new("sh").current_dir(self.0.path()).args(["-c", line]).output().unwrap());
        }
        let program = self.path("program32");
        let runs = Command::new(&program).output().is_ok_and(|output| output.status.code() == Some(5));
        if !runs {
            eprintln!("skipped: this system runs no 32-bit programs");
        }
        runs.then_some(program)
    }

    /// Checks that the merged trace of several runs equals the trace that stepping records, and returns its blocks.
    pub fn assert_matches_stepping(&self, program: &[&str], status: i32) -> Vec<String> {
        let merged = self.record(&["--runs", "4"], "merged.trace", program);
        assert_eq!(merged.status.code(), Some(status), "{}", String::from_utf8_lossy(&merged.stderr));
        assert!(!errors(&merged).contains("falling back to one run"), "{}", errors(&merged));
        let stepped = self.record(&["--collector", "single-step"], "stepped.trace", program);
        assert_eq!(stepped.status.code(), Some(status), "{}", String::from_utf8_lossy(&stepped.stderr));
        assert_eq!(merged.stdout, stepped.stdout);
        let (merged, stepped) = (self.addresses("merged.trace"), self.addresses("stepped.trace"));
        let parts = merged.iter().zip(&stepped).position(|(a, b)| a != b);
        assert!(merged == stepped, "{} and {} blocks, part at {parts:?}", merged.len(), stepped.len());
        merged
    }
}

pub fn must(output: Output) -> String {
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn is_installed(program: &str) -> bool {
    let there = Path::new(program).exists();
    if !there {
        eprintln!("skipped: {program} is not installed");
    }
    there
}
