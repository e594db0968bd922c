//! What a clang command line asks for: does it compile, does it link, from which inputs, to which output.
//!
//! Only as much of clang's syntax as decides where instrumentation goes. An argument that is not known here is passed on
//! untouched like every other: the command line itself is never rebuilt from this reading. Pure apart from response
//! files (`@file`), which a function given by the caller reads.

use super::options::{NOTHING_MADE, WITH_VALUE};
use super::response_files::expand;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use trodden_unit::codegen;

/// What an input file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Source text or intermediate code: the compiler makes machine code of it.
    Source,
    /// Assembly: passes the compiler by.
    Assembly,
    /// A header to precompile.
    Header,
    /// For the linker: an object, an archive, a library, a linker script.
    Linkable,
}

/// An input file of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputArgument {
    /// Its place in [`CommandLine::arguments`].
    pub at: usize,
    /// What it is.
    pub kind: InputKind,
}

/// A clang command line, read.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// Its arguments, response files expanded.
    pub arguments: Vec<OsString>,
    /// Whether it makes machine code from sources. Questions, preprocessing, checks, precompiled headers, intermediate code, assembling and
    /// merging of objects make none.
    pub compiles: bool,
    /// Whether it links an executable or a shared library.
    pub links: bool,
    /// Its input files.
    pub inputs: Vec<InputArgument>,
    /// File named by `-o`.
    pub output: Option<OsString>,
    /// The user wants link-time optimisation.
    pub lto: bool,
    /// The user wants optimisation of virtual calls over the whole program, which clang accepts together with LTO only.
    pub whole_program_vtables: bool,
    /// The user says what debug information to make.
    pub debug: bool,
    /// The user says what build id to make.
    pub build_id: bool,
    /// File to which the user has the linker write its dependencies.
    pub dependency_file: Option<OsString>,
    /// Value of `-fuse-ld=` or `--ld-path=`.
    pub linker: Option<OsString>,
    /// It links a shared library.
    pub shared: bool,
    /// It links without libc's start files.
    pub without_start_files: bool,
    /// The user says where the image is entered, or gives a linker script that may say so.
    pub entry: bool,
    /// Options that decide how machine code is made of intermediate code and that the intermediate code does not hold.
    pub codegen: Vec<String>,
    /// The machine, if trodden does not know it.
    pub foreign: Option<String>,
}

impl CommandLine {
    /// Reads a command line (without the compiler's name). `response` gives the bytes of a response file, `None` if it cannot be read.
    pub fn read(arguments: &[OsString], response: &dyn Fn(&OsStr) -> Option<Vec<u8>>) -> CommandLine {
        let arguments = expand(arguments, response);
        let mut reading = Reading::default();
        let mut at = 0;
        while at < arguments.len() {
            at += reading.argument(&arguments, at);
        }
        let (compiles, links) = reading.does();
        let mut line = reading.line;
        (line.compiles, line.links) = (compiles, links);
        line.arguments = arguments;
        line
    }

    /// The names of its inputs of one kind, in order.
    pub fn inputs_of(&self, kind: InputKind) -> impl Iterator<Item = &OsStr> {
        self.inputs.iter().filter(move |i| i.kind == kind).map(|i| self.arguments[i.at].as_os_str())
    }

    /// The file that a link makes.
    pub fn image(&self) -> &OsStr {
        self.output.as_deref().unwrap_or(OsStr::new("a.out"))
    }
}

/// The state of reading from left to right.
#[derive(Default)]
struct Reading {
    line: CommandLine,
    language: Option<OsString>,
    only_compile: bool,
    nothing_made: bool,
    relocatable: bool,
    /// Something that only the linker sees without being a file of the command line (`-lfoo`).
    libraries: bool,
    only_inputs: bool,
}

impl Reading {
    /// Takes in the argument at `at` and says how many arguments that were.
    fn argument(&mut self, arguments: &[OsString], at: usize) -> usize {
        let argument = &arguments[at];
        let text = argument.to_string_lossy();
        if self.only_inputs || !text.starts_with('-') || text == "-" {
            self.input(at, argument);
            return 1;
        }
        if text == "--" {
            self.only_inputs = true;
            return 1;
        }
        let value = if WITH_VALUE.contains(&&*text) { arguments.get(at + 1) } else { None };
        match value {
            Some(value) => self.option_with_value(&text, value),
            None => self.option(&text, argument),
        }
        if value.is_some() { 2 } else { 1 }
    }

    fn input(&mut self, at: usize, argument: &OsStr) {
        let kind = match &self.language {
            Some(language) => kind_of_language(&language.to_string_lossy()),
            None => kind_of_name(argument),
        };
        self.line.inputs.push(InputArgument { at, kind });
    }

    fn option_with_value(&mut self, option: &str, value: &OsStr) {
        let text = value.to_string_lossy();
        match option {
            "-o" | "--output" => self.line.output = Some(value.to_owned()),
            "-x" | "--language" => self.language(value),
            "-l" => self.libraries = true,
            "-target" | "--target" => self.target(&text),
            "-Xlinker" | "--for-linker" => self.linker_argument(value),
            "-e" | "--entry" | "-T" => self.line.entry = true,
            "-mllvm" => self.line.codegen.extend(["-mllvm".to_owned(), text.into_owned()]),
            _ => {}
        }
    }

    fn option(&mut self, text: &str, argument: &OsStr) {
        if NOTHING_MADE.contains(&text) || text.starts_with("-print-") || text.starts_with("--print-") {
            self.nothing_made = true;
        }
        if codegen::shapes_code(text) {
            self.line.codegen.push(text.to_owned());
        }
        match text {
            "-c" | "-S" | "--compile" | "--assemble" => self.only_compile = true,
            "-r" | "--relocatable" => self.relocatable = true,
            "-shared" | "--shared" => self.line.shared = true,
            "-nostdlib" | "--no-standard-libraries" | "-nostartfiles" => self.line.without_start_files = true,
            "-fno-lto" => self.line.lto = false,
            "-fwhole-program-vtables" => self.line.whole_program_vtables = true,
            "-fno-whole-program-vtables" => self.line.whole_program_vtables = false,
            "-m16" | "-m32" | "-mx32" => self.line.foreign = Some(text.to_owned()),
            _ => self.option_with_joined_value(text, argument),
        }
    }

    fn option_with_joined_value(&mut self, text: &str, argument: &OsStr) {
        let rest = |prefix: &str| OsStr::from_bytes(&argument.as_bytes()[prefix.len()..]);
        if text == "-flto" || text.starts_with("-flto=") {
            self.line.lto = true;
        } else if text.starts_with("-g") {
            self.line.debug |= is_debug_level(text);
        } else if let Some(prefix) = ["--output=", "-o"].into_iter().find(|prefix| text.starts_with(prefix)) {
            self.line.output = Some(rest(prefix).to_owned());
        } else if text.starts_with("-x") {
            self.language(rest("-x"));
        } else if text.starts_with("-l") {
            self.libraries = true;
        } else if let Some(triple) = text.strip_prefix("--target=") {
            self.target(triple);
        } else if let Some(prefix) = ["-fuse-ld=", "--ld-path="].into_iter().find(|prefix| text.starts_with(prefix)) {
            self.line.linker = Some(rest(prefix).to_owned());
        } else if names_entry(text) {
            self.line.entry = true;
        } else if text.starts_with("-Wl,") {
            argument.as_bytes()[4..].split(|b| *b == b',').for_each(|part| self.linker_argument(OsStr::from_bytes(part)));
        }
    }

    fn language(&mut self, name: &OsStr) {
        self.language = (name != "none").then(|| name.to_owned());
    }

    fn target(&mut self, triple: &str) {
        let known = codegen::is_known_target(triple);
        self.line.foreign = (!known).then(|| triple.to_owned());
        if known {
            self.line.codegen.push(format!("--target={triple}"));
        }
    }

    fn linker_argument(&mut self, argument: &OsStr) {
        let text = argument.to_string_lossy();
        match &*text {
            "-r" | "--relocatable" => self.relocatable = true,
            "-shared" | "--shared" | "-Bshareable" => self.line.shared = true,
            _ if names_entry(&text) => self.line.entry = true,
            "--build-id" | "-build-id" => self.line.build_id = true,
            _ if text.starts_with("--build-id=") || text.starts_with("-build-id=") => self.line.build_id = true,
            _ => {
                if let Some(file) = text.trim_start_matches('-').strip_prefix("dependency-file=") {
                    self.line.dependency_file = Some(file.into());
                }
            }
        }
    }

    /// Whether the command compiles, and whether it links.
    fn does(&self) -> (bool, bool) {
        let has = |kind| self.line.inputs.iter().any(|i| i.kind == kind);
        let compiles = has(InputKind::Source);
        if self.nothing_made || (has(InputKind::Header) && !has(InputKind::Linkable) && !compiles) {
            return (false, false);
        }
        let links = !self.only_compile && !self.relocatable && (compiles || self.libraries || !self.line.inputs.is_empty());
        (compiles, links)
    }
}

/// Whether a `-g...` option says how much debug information to make.
fn is_debug_level(text: &str) -> bool {
    let rest = &text[2..];
    let levels = ["", "0", "1", "2", "3", "mlt", "full", "lldb", "sce", "dbx", "codeview", "line-tables-only", "line-directives-only"];
    levels.contains(&rest) || ((rest.starts_with("gdb") || rest.starts_with("dwarf")) && rest != "dwarf-aranges")
}

/// Whether an option of the driver or of the linker says where the image is entered, or names a linker script.
fn names_entry(text: &str) -> bool {
    const OTHERS: &[&str] = &["-emit", "-exp", "-exclude", "-eh-frame", "-enable", "-error", "-embed", "-end-"];
    const ADDRESSES: &[&str] = &["-Ttext", "-Tdata", "-Tbss", "-Trodata-segment", "-Tldata-segment"];
    let is_one_of = |known: &[&str]| known.iter().any(|k| text.starts_with(k));
    (text.starts_with("-e") && !is_one_of(OTHERS))
        || (text.starts_with("-T") && !is_one_of(ADDRESSES))
        || is_one_of(&["--entry", "--script", "-script"])
}

fn kind_of_language(language: &str) -> InputKind {
    match language {
        "assembler" | "assembler-with-cpp" => InputKind::Assembly,
        _ if language.ends_with("-header") || language.ends_with("-user") || language.ends_with("-header-unit") => InputKind::Header,
        _ => InputKind::Source,
    }
}

/// What clang takes a file for by the end of its name.
fn kind_of_name(name: &OsStr) -> InputKind {
    const SOURCES: &[&str] = &[
        "c", "i", "cc", "cp", "cxx", "cpp", "CPP", "c++", "C++", "C", "CC", "CXX", "ii", "m", "mi", "mm", "M", "mii", "ll", "bc", "cppm",
        "ccm", "cxxm", "c++m", "ixx", "pcm",
    ];
    const HEADERS: &[&str] = &["h", "H", "hh", "hp", "hxx", "hpp", "HPP", "h++", "tcc"];
    if name == "-" {
        return InputKind::Source;
    }
    let bytes = name.as_bytes();
    let end = bytes.iter().rposition(|b| *b == b'.').filter(|dot| !bytes[*dot..].contains(&b'/'));
    let Some(ending) = end.and_then(|dot| std::str::from_utf8(&bytes[dot + 1..]).ok()) else { return InputKind::Linkable };
    match ending {
        "s" | "S" | "sx" | "asm" => InputKind::Assembly,
        _ if SOURCES.contains(&ending) => InputKind::Source,
        _ if HEADERS.contains(&ending) => InputKind::Header,
        _ => InputKind::Linkable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn read(text: &str) -> CommandLine {
        let arguments: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        CommandLine::read(&arguments, &|_| None)
    }

    #[test]
    fn what_a_command_does() {
        const NEITHER: (bool, bool) = (false, false);
        const COMPILES: (bool, bool) = (true, false);
        const LINKS: (bool, bool) = (false, true);
        const BOTH: (bool, bool) = (true, true);
        let cases = [
            (COMPILES, "-c a.c"),
            (COMPILES, "-O2 -S a.cpp -o -"),
            (COMPILES, "-x c -c -o /dev/null -"),
            (COMPILES, "-x ir m -c -o m.o"),
            (COMPILES, "-r a.c b.o -o ab.o"),
            (COMPILES, "-c a.c -MD -MF a.d -MT a.o"),
            (COMPILES, "-c -include-pch all.h.pch a.cc"),
            (BOTH, "a.c b.c -o prog"),
            (BOTH, "a.s b.c"),
            (BOTH, "-x c -"),
            (BOTH, "-x c++ a -x none b.o"),
            (LINKS, "a.o b.o -lm"),
            (LINKS, "a.s"),
            (LINKS, "-shared -o libx.so -Wl,--whole-archive libx.a"),
            (LINKS, "libx.so.1.2.3"),
            (LINKS, "dir.c/object"),
            (LINKS, "-nostdlib -T layout.ld a.o"),
            (NEITHER, "-c a.s"),
            (NEITHER, "-c start.S -o start.o"),
            (NEITHER, "-r a.o b.o -o ab.o"),
            (NEITHER, "-Wl,-r a.o b.o -o ab.o"),
            (NEITHER, "-nostdlib -Xlinker -r a.o -o ab.o"),
            (NEITHER, "all.h"),
            (NEITHER, "-x c++-header all.hpp -o all.pch"),
            (NEITHER, "-E a.c"),
            (NEITHER, "-M a.c"),
            (NEITHER, "-MM a.c"),
            (NEITHER, "-fsyntax-only a.c"),
            (NEITHER, "-emit-llvm -c a.c"),
            (NEITHER, "--version"),
            (NEITHER, "-v"),
            (NEITHER, "-print-search-dirs"),
            (NEITHER, "--print-file-name=libc.so"),
            (NEITHER, "-### a.c"),
            (NEITHER, "-cc1 -emit-obj a.c"),
            (NEITHER, "-Wl,--version"),
            (NEITHER, ""),
        ];
        for (does, text) in cases {
            let line = read(text);
            assert_eq!((line.compiles, line.links), does, "{text}");
        }
    }

    #[test]
    fn values_of_options_are_no_inputs() {
        let line = read("-I a.c -include b.h -MF c.d -Xlinker d.o -o e.o -D f.c -mllvm g.c -c h.c");
        assert_eq!(line.inputs_of(InputKind::Source).collect::<Vec<_>>(), ["h.c"]);
        assert_eq!(line.output.unwrap(), "e.o");
        assert_eq!(line.inputs.len(), 1);
    }

    #[test]
    fn the_last_option_on_link_time_optimisation_counts() {
        assert!(read("-flto=thin -c a.c").lto);
        assert!(!read("-flto -fno-lto -c a.c").lto);
        assert!(read("-fno-lto -flto -c a.c").lto);
    }

    #[test]
    fn only_options_that_set_a_level_are_debug_levels() {
        for text in ["-g", "-g0", "-g3", "-ggdb", "-ggdb3", "-gdwarf-4", "-gline-tables-only", "-gmlt"] {
            assert!(read(text).debug, "{text}");
        }
        for text in ["-gz", "-gsplit-dwarf", "-gno-column-info", "-gcolumn-info", "-grecord-command-line", "-gpubnames", "-O2"] {
            assert!(!read(text).debug, "{text}");
        }
    }

    #[test]
    fn linker_options_are_read_in_each_spelling() {
        for text in ["-Wl,--build-id a.o", "-Wl,-z,now,--build-id=none a.o", "-Xlinker --build-id=sha1 a.o"] {
            assert!(read(text).build_id, "{text}");
        }
        assert!(!read("-Wl,-z,now a.o").build_id);
        assert_eq!(read("-Wl,--dependency-file=x.d a.o").dependency_file.unwrap(), "x.d");
        assert_eq!(read("-fuse-ld=lld a.o").linker.unwrap(), "lld");
    }

    #[test]
    fn the_users_own_entry_is_seen_in_each_spelling() {
        for text in [
            "-e go",
            "-ego",
            "--entry go",
            "--entry=go",
            "-Wl,-e,go",
            "-Wl,-ego",
            "-Wl,--entry=go",
            "-Wl,-entry,go",
            "-Xlinker -e -Xlinker go",
        ] {
            assert!(read(&format!("{text} a.o")).entry, "{text}");
        }
        for text in ["-T layout.ld", "-Tlayout.ld", "-Wl,-T,layout.ld", "-Wl,--script=layout.ld"] {
            assert!(read(&format!("{text} a.o")).entry, "{text}");
        }
        for text in ["-Wl,--emit-relocs", "-Wl,-export-dynamic", "-Wl,-E", "-Wl,-Ttext=0x1000", "-Ttext 0x1000", "-Wl,--exclude-libs,ALL"] {
            assert!(!read(&format!("{text} a.o")).entry, "{text}");
        }
        assert!(read("-nostdlib a.o").without_start_files && read("-nostartfiles a.o").without_start_files);
        assert!(!read("-nodefaultlibs a.o").without_start_files);
    }

    #[test]
    fn other_machines_are_foreign() {
        assert_eq!(read("--target=aarch64-linux-gnu -c a.c").foreign.unwrap(), "aarch64-linux-gnu");
        assert_eq!(read("-m32 -c a.c").foreign.unwrap(), "-m32");
        assert!(read("-target x86_64-unknown-linux-gnu -c a.c").foreign.is_none());
    }

    #[test]
    fn codegen_options_are_kept() {
        let line =
            read("-O2 -Wall -fPIC -DX=1 -ffunction-sections -std=c11 -march=native -mllvm -x86-asm-syntax=intel -fsanitize=address -c a.c");
        let expected = ["-O2", "-fPIC", "-ffunction-sections", "-march=native", "-mllvm", "-x86-asm-syntax=intel"];
        assert_eq!(line.codegen, expected);
    }

    #[test]
    fn arguments_that_are_no_text_stay_as_they_are() {
        let odd = OsString::from_vec(b"-o\xff.o".to_vec());
        let line = CommandLine::read(&["-c".into(), "a.c".into(), odd], &|_| None);
        assert_eq!(line.output.unwrap().as_bytes(), b"\xff.o");
    }

    #[test]
    fn after_two_dashes_all_arguments_are_inputs() {
        let line = read("-c -- -a.c");
        assert_eq!(line.inputs_of(InputKind::Source).collect::<Vec<_>>(), ["-a.c"]);
    }
}
