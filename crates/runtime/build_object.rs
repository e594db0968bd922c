//! Builds the runtime as a relocatable object, `trodden_rt.o`, and the entry point of programs without libc, `trodden_start.o`.
//!
//! Build scripts and tests of other crates include this file with `#[path]`. rustc compiles `trodden-wire` and the runtime as a static
//! library (`--cfg trodden_object`). `ld -r --gc-sections` keeps only the code reachable from the entry symbols, which includes almost
//! nothing of Rust's core library. objcopy makes all other symbols local, and strips or renames them, so that none clashes with a symbol of
//! the instrumented program, even if that is written in Rust. Invariant, checked here: the object refers only to the symbols in
//! [`MAY_BE_UNDEFINED`], all of which are weak.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Symbols that instrumented code refers to. All others become local.
const ENTRY_SYMBOLS: [&str; 7] = [
    "__trodden_enter",
    "__trodden_enter_shared",
    "__trodden_count",
    "__trodden_bias",
    "__trodden_event_now",
    "__trodden_stream_next",
    "__trodden_stream_enter",
];

/// Symbols that the object may refer to: section bounds that linkers define, symbols that instrumented units define, and functions of libc,
/// if the program has it.
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

/// Builds the object at `out`. Writes intermediate files next to it, with other extensions. Error messages name the failed step and the
/// package to install.
pub fn build(out: &Path) -> Result<(), String> {
    let crates = find_crates_folder();
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
    objcopy.args(list_functions_without_prefix(&whole)?.iter().map(|name| format!("--redefine-sym={name}=__trodden_{name}")));
    objcopy.args(ENTRY_SYMBOLS.map(|symbol| format!("--keep-global-symbol={symbol}"))).args([&whole, out]);
    run(&mut objcopy, BINUTILS)?;
    check_undefined(out)
}

/// Builds the entry point of programs without libc at `out`. Error messages are like those of [`build`].
pub fn build_start(out: &Path) -> Result<(), String> {
    let whole = out.with_extension("whole.o");
    rustc(&find_crates_folder().join("runtime/src/start.rs"), "trodden_start", "lib", &whole, &["--emit=obj".into()])?;
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["--strip-debug", "--strip-unneeded", "-R", ".comment"]).args([&whole, out]);
    run(&mut objcopy, BINUTILS).map(drop)
}

/// Returns the source files and folders whose changes require another build, for a build script to watch.
pub fn sources() -> Vec<PathBuf> {
    ["runtime/build_object.rs", "runtime/src", "wire/src"].map(|path| find_crates_folder().join(path)).to_vec()
}

fn find_crates_folder() -> PathBuf {
    // Prefer the value at run time, because the build folder may have been moved since this file was compiled.
    let own = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()));
    // `crates/driver` and `crates/oracle` contain links to the sources, so that the published crates include them.
    if own.join("runtime/src").exists() { own } else { own.join("..") }
}

fn rustc(source: &Path, name: &str, kind: &str, out: &Path, more: &[String]) -> Result<(), String> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.arg(source).args(["--edition", "2024", "--crate-name", name, "--crate-type", kind, "--cap-lints", "allow"]);
    // Small, position-independent code. Unwind tables let debuggers and profilers walk the stack.
    let options = ["opt-level=s", "panic=abort", "codegen-units=1", "relocation-model=pic", "code-model=small", "force-unwind-tables=yes"];
    rustc.args(options.iter().chain(&["overflow-checks=no", "debug-assertions=no", "embed-bitcode=no"]).flat_map(|option| ["-C", option]));
    rustc.args(more).arg("-o").arg(out);
    run(&mut rustc, "Rust (https://rustup.rs)").map(drop)
}

/// Returns the names of functions that lack the runtime's prefix, because they come from Rust's core and compiler libraries.
fn list_functions_without_prefix(object: &Path) -> Result<Vec<String>, String> {
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
