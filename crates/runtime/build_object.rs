//! Builds the runtime, `trodden_rt.o`, and the entry point for programs without libc, `trodden_start.o`, as relocatable objects. Uses
//! rustc, GNU ld and objcopy.
//!
//! Build scripts and tests of crates beside `crates/runtime` include this file with `#[path]`. rustc compiles `trodden-wire` and the
//! runtime to a static library (`--cfg trodden_object`). `ld -r --gc-sections` keeps only code that the entry symbols reach, and thus
//! almost nothing of Rust's core library. objcopy makes all other symbols local, and strips or renames them, so that no symbol clashes with
//! the subject, even if the subject is a Rust program. Invariant, checked here: the object refers only to the symbols in
//! [`MAY_BE_UNDEFINED`], and all these references are weak.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Symbols that instrumented code refers to. All other symbols become local.
const ENTRY_SYMBOLS: [&str; 7] = [
    "__trodden_enter",
    "__trodden_enter_shared",
    "__trodden_count",
    "__trodden_bias",
    "__trodden_event_now",
    "__trodden_stream_next",
    "__trodden_stream_enter",
];

/// Symbols that the object may refer to: section bounds that linkers define, definitions in units, and libc functions that may be absent.
pub const MAY_BE_UNDEFINED: [&str; 21] = [
    "__start_trodden_units",
    "__stop_trodden_units",
    "__start_trodden_counters",
    "__stop_trodden_counters",
    "__start_trodden_functions",
    "__stop_trodden_functions",
    "__ehdr_start",
    "__trodden_default_output",
    "__trodden_default_on_untested",
    "__trodden_watched",
    "trodden_untested",
    "__trodden_switch",
    "__trodden_event",
    "__trodden_event_thread",
    "__trodden_event_cost",
    "__trodden_shared_bias",
    "__trodden_direct_place",
    "__trodden_stream_place",
    "__register_atfork",
    "pthread_atfork",
    "__cxa_finalize",
];

const BINUTILS: &str = "GNU binutils (Debian: apt install binutils)";

/// Builds the runtime object at `out`, with intermediate files beside it. An error names the step that failed and the package to install.
pub fn build(out: &Path) -> Result<(), String> {
    let crates = crates_folder();
    let stem = |extension: &str| out.with_extension(extension);
    let folder = out.parent().ok_or_else(|| format!("{}: not the path of a file", out.display()))?;
    let wire = folder.join("libtrodden_wire.rlib");
    let (archive, whole) = (stem("a"), stem("whole.o"));
    rustc(&crates.join("wire/src/lib.rs"), "trodden_wire", "rlib", &wire, &[])?;
    let with_wire = ["--cfg".into(), "trodden_object".into(), "--extern".into(), format!("trodden_wire={}", wire.display())];
    rustc(&crates.join("runtime/src/lib.rs"), "trodden_runtime", "staticlib", &archive, &with_wire)?;
    let mut ld = Command::new("ld");
    ld.args(["-r", "--gc-sections"]).args(ENTRY_SYMBOLS.iter().flat_map(|symbol| ["-u", symbol])).arg("-o").args([&whole, &archive]);
    run(&mut ld, BINUTILS)?;
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["--strip-debug", "--strip-unneeded", "-R", ".comment", "-R", ".llvmbc", "-R", ".llvmcmd"]);
    objcopy.args(foreign_functions(&whole)?.iter().map(|name| format!("--redefine-sym={name}=__trodden_{name}")));
    objcopy.args(ENTRY_SYMBOLS.map(|symbol| format!("--keep-global-symbol={symbol}"))).args([&whole, out]);
    run(&mut objcopy, BINUTILS)?;
    check_undefined(out)
}

/// Builds the entry point for programs without libc at `out`. Fails like [`build`].
pub fn build_start(out: &Path) -> Result<(), String> {
    let whole = out.with_extension("whole.o");
    rustc(&crates_folder().join("runtime/src/start.rs"), "trodden_start", "lib", &whole, &["--emit=obj".into()])?;
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["--strip-debug", "--strip-unneeded", "-R", ".comment"]).args([&whole, out]);
    run(&mut objcopy, BINUTILS).map(drop)
}

/// Returns the source files, so that build scripts can watch them.
pub fn sources() -> Vec<PathBuf> {
    ["runtime/build_object.rs", "runtime/src", "wire/src"].map(|path| crates_folder().join(path)).to_vec()
}

fn crates_folder() -> PathBuf {
    // Read when the build script runs, because the build folder may have moved since the script was compiled.
    let own = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()));
    // `crates/driver` and `crates/oracle` link to these sources, so that their published crates contain the sources.
    if own.join("runtime/src").exists() { own } else { own.join("..") }
}

fn rustc(source: &Path, name: &str, kind: &str, out: &Path, more: &[String]) -> Result<(), String> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.arg(source).args(["--edition", "2024", "--crate-name", name, "--crate-type", kind, "--cap-lints", "allow"]);
    // Code must be small and position-independent. Unwind tables let debuggers and profilers walk the stack.
    let options = ["opt-level=s", "panic=abort", "codegen-units=1", "relocation-model=pic", "code-model=small", "force-unwind-tables=yes"];
    rustc.args(options.iter().chain(&["overflow-checks=no", "debug-assertions=no", "embed-bitcode=no"]).flat_map(|option| ["-C", option]));
    rustc.args(more).arg("-o").arg(out);
    run(&mut rustc, "Rust (https://rustup.rs)").map(drop)
}

/// Returns functions from Rust's core and compiler libraries. Their names do not show that they belong to the runtime.
fn foreign_functions(object: &Path) -> Result<Vec<String>, String> {
    let mut nm = Command::new("nm");
    nm.arg("--defined-only").arg(object);
    let text = run(&mut nm, BINUTILS)?;
    let functions = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, name) = (words.next()?, words.next()?);
        (["t", "T", "w", "W"].contains(&kind) && !name.contains("trodden")).then(|| name.to_owned())
    });
    Ok(functions.collect())
}

fn check_undefined(object: &Path) -> Result<(), String> {
    let mut nm = Command::new("nm");
    nm.arg("-u").arg(object);
    for line in run(&mut nm, BINUTILS)?.lines() {
        let (kind, name) = line.trim().split_once(' ').unwrap_or(("", line));
        if kind != "w" || !MAY_BE_UNDEFINED.contains(&name) {
            return Err(format!(
                "{}: refers to {name}, which subjects do not have: the runtime must not panic or call libc",
                object.display()
            ));
        }
    }
    Ok(())
}

fn run(command: &mut Command, package: &str) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}; install {package}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program} failed while building the runtime:\n{}", String::from_utf8_lossy(&output.stderr))),
    }
}
