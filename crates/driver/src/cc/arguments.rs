//! Parses clang command lines to find out whether the command compiles or links, its inputs, and its output.
//!
//! Only options that affect instrumentation are recognised. All arguments are passed on to clang unchanged, and no command line is ever
//! reconstructed from the parsed form. The caller passes a function that reads response files.

use super::options::{OPTIONS_WITH_VALUE, OPTIONS_WITHOUT_MACHINE_CODE};
use super::response_files::expand_response_files;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use trodden_unit::codegen;

/// How the compiler treats an input file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompilerInputKind {
    /// Source code or LLVM IR that is compiled to machine code.
    Source,
    /// Assembly, which the plugin does not see, because it is assembled and not compiled.
    Assembly,
    /// A header to precompile.
    Header,
    /// An input of the linker: an object, an archive, a library or a linker script.
    Linkable,
}

/// An input file on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputArgument {
    /// Index of the file in [`CompilerCommandLine::arguments`].
    pub index: usize,
    /// How clang treats the file.
    pub kind: CompilerInputKind,
}

/// A parsed clang command line.
#[derive(Clone, Debug, Default)]
pub struct CompilerCommandLine {
    /// All arguments, with response files expanded.
    pub arguments: Vec<OsString>,
    /// True if the command generates machine code from sources.
    pub compiles: bool,
    /// True if the command links an executable or a shared library.
    pub links: bool,
    /// Input files.
    pub inputs: Vec<InputArgument>,
    /// The value of `-o`.
    pub output: Option<OsString>,
    /// True if the user requests link-time optimisation.
    pub lto: bool,
    /// True if the user requests whole-program optimisation of virtual calls. Clang accepts this only with LTO.
    pub whole_program_vtables: bool,
    /// True if an option determines how much debug information to generate.
    pub debug: bool,
    /// True if an option determines the build ID.
    pub build_id: bool,
    /// File to which the linker writes the list of its inputs, if the user requests that list.
    pub dependency_file: Option<OsString>,
    /// The linker, as selected by `-fuse-ld=` or `--ld-path=`.
    pub linker: Option<OsString>,
    /// True if the command links a shared library.
    pub shared: bool,
    /// True if the command links without libc's start files, as with `-nostartfiles`.
    pub without_start_files: bool,
    /// True if an option names an entry point, or a linker script, which may set one.
    pub entry: bool,
    /// Code generation options that must be repeated when bitcode is compiled, because the bitcode does not record them.
    pub codegen: Vec<String>,
    /// The target triple, if trodden does not support the target.
    pub unsupported_target: Option<String>,
}

impl CompilerCommandLine {
    /// Parses the arguments that follow the compiler's name. `response` returns the content of a response file, or `None` if it cannot be
    /// read.
    pub fn read(arguments: &[OsString], response: &dyn Fn(&OsStr) -> Option<Vec<u8>>) -> CompilerCommandLine {
        let arguments = expand_response_files(arguments, response);
        let mut parser = ArgumentParser::default();
        let mut at = 0;
        while at < arguments.len() {
            at += parser.parse_argument(&arguments, at);
        }
        let (compiles, links) = parser.compiles_and_links();
        let mut line = parser.line;
        (line.compiles, line.links) = (compiles, links);
        line.arguments = arguments;
        line
    }

    /// Returns the names of all inputs of this kind, in command line order.
    pub fn inputs_of(&self, kind: CompilerInputKind) -> impl Iterator<Item = &OsStr> {
        self.inputs.iter().filter(move |i| i.kind == kind).map(|i| self.arguments[i.index].as_os_str())
    }

    /// Returns the file that a link command writes.
    pub fn image(&self) -> &OsStr {
        self.output.as_deref().unwrap_or(OsStr::new("a.out"))
    }
}

#[derive(Default)]
struct ArgumentParser {
    line: CompilerCommandLine,
    language: Option<OsString>,
    only_compile: bool,
    makes_no_code: bool,
    relocatable: bool,
    /// True if a library is linked by name (`-lfoo`). Such a library is not an input file.
    libraries: bool,
    /// True after `--`: all further arguments are inputs.
    only_inputs: bool,
}

impl ArgumentParser {
    /// Parses the argument at index `at` and its value, if it has one. Returns the number of arguments consumed.
    fn parse_argument(&mut self, arguments: &[OsString], at: usize) -> usize {
        let argument = &arguments[at];
        let text = argument.to_string_lossy();
        if self.only_inputs || !text.starts_with('-') || text == "-" {
            self.add_input(at, argument);
            return 1;
        }
        if text == "--" {
            self.only_inputs = true;
            return 1;
        }
        let value = if OPTIONS_WITH_VALUE.contains(&&*text) { arguments.get(at + 1) } else { None };
        match value {
            Some(value) => self.parse_option_with_value(&text, value),
            None => self.parse_option(&text, argument),
        }
        if value.is_some() { 2 } else { 1 }
    }

    fn add_input(&mut self, at: usize, argument: &OsStr) {
        let kind = match &self.language {
            Some(language) => kind_of_language(&language.to_string_lossy()),
            None => kind_of_extension(argument),
        };
        self.line.inputs.push(InputArgument { index: at, kind });
    }

    fn parse_option_with_value(&mut self, option: &str, value: &OsStr) {
        let text = value.to_string_lossy();
        match option {
            "-o" | "--output" => self.line.output = Some(value.to_owned()),
            "-x" | "--language" => self.set_language(value),
            "-l" => self.libraries = true,
            "-target" | "--target" => self.set_target(&text),
            "-Xlinker" | "--for-linker" => self.parse_linker_argument(value),
            "-e" | "--entry" | "-T" => self.line.entry = true,
            "-mllvm" => self.line.codegen.extend(["-mllvm".to_owned(), text.into_owned()]),
            _ => {}
        }
    }

    fn parse_option(&mut self, text: &str, argument: &OsStr) {
        if OPTIONS_WITHOUT_MACHINE_CODE.contains(&text) || text.starts_with("-print-") || text.starts_with("--print-") {
            self.makes_no_code = true;
        }
        if codegen::affects_generated_code(text) {
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
            "-m16" | "-m32" | "-mx32" => self.line.unsupported_target = Some(text.to_owned()),
            _ => self.parse_option_with_joined_value(text, argument),
        }
    }

    fn parse_option_with_joined_value(&mut self, text: &str, argument: &OsStr) {
        let rest = |prefix: &str| OsStr::from_bytes(&argument.as_bytes()[prefix.len()..]);
        if text == "-flto" || text.starts_with("-flto=") {
            self.line.lto = true;
        } else if text.starts_with("-g") {
            self.line.debug |= is_debug_level(text);
        } else if let Some(prefix) = ["--output=", "-o"].into_iter().find(|prefix| text.starts_with(prefix)) {
            self.line.output = Some(rest(prefix).to_owned());
        } else if text.starts_with("-x") {
            self.set_language(rest("-x"));
        } else if text.starts_with("-l") {
            self.libraries = true;
        } else if let Some(triple) = text.strip_prefix("--target=") {
            self.set_target(triple);
        } else if let Some(prefix) = ["-fuse-ld=", "--ld-path="].into_iter().find(|prefix| text.starts_with(prefix)) {
            self.line.linker = Some(rest(prefix).to_owned());
        } else if names_entry_point(text) {
            self.line.entry = true;
        } else if text.starts_with("-Wl,") {
            argument.as_bytes()[4..].split(|b| *b == b',').for_each(|part| self.parse_linker_argument(OsStr::from_bytes(part)));
        }
    }

    fn set_language(&mut self, name: &OsStr) {
        self.language = (name != "none").then(|| name.to_owned());
    }

    fn set_target(&mut self, triple: &str) {
        let known = codegen::is_known_target(triple);
        self.line.unsupported_target = (!known).then(|| triple.to_owned());
        if known {
            self.line.codegen.push(format!("--target={triple}"));
        }
    }

    fn parse_linker_argument(&mut self, argument: &OsStr) {
        let text = argument.to_string_lossy();
        match &*text {
            "-r" | "--relocatable" => self.relocatable = true,
            "-shared" | "--shared" | "-Bshareable" => self.line.shared = true,
            _ if names_entry_point(&text) => self.line.entry = true,
            "--build-id" | "-build-id" => self.line.build_id = true,
            _ if text.starts_with("--build-id=") || text.starts_with("-build-id=") => self.line.build_id = true,
            _ => {
                if let Some(file) = text.trim_start_matches('-').strip_prefix("dependency-file=") {
                    self.line.dependency_file = Some(file.into());
                }
            }
        }
    }

    /// Returns (whether the command compiles, whether it links).
    fn compiles_and_links(&self) -> (bool, bool) {
        let has = |kind| self.line.inputs.iter().any(|i| i.kind == kind);
        let compiles = has(CompilerInputKind::Source);
        if self.makes_no_code || (has(CompilerInputKind::Header) && !has(CompilerInputKind::Linkable) && !compiles) {
            return (false, false);
        }
        let links = !self.only_compile && !self.relocatable && (compiles || self.libraries || !self.line.inputs.is_empty());
        (compiles, links)
    }
}

/// Returns true if a `-g...` option says how much debug information to generate.
fn is_debug_level(text: &str) -> bool {
    let rest = &text[2..];
    let levels = ["", "0", "1", "2", "3", "mlt", "full", "lldb", "sce", "dbx", "codeview", "line-tables-only", "line-directives-only"];
    levels.contains(&rest) || ((rest.starts_with("gdb") || rest.starts_with("dwarf")) && rest != "dwarf-aranges")
}

/// Returns true if an option names an entry point or a linker script. It may be an option of clang or of the linker.
fn names_entry_point(text: &str) -> bool {
    const OPTIONS_NOT_NAMING_ENTRY: &[&str] = &["-emit", "-exp", "-exclude", "-eh-frame", "-enable", "-error", "-embed", "-end-"];
    const OPTIONS_NOT_NAMING_SCRIPT: &[&str] = &["-Ttext", "-Tdata", "-Tbss", "-Trodata-segment", "-Tldata-segment"];
    let is_one_of = |known: &[&str]| known.iter().any(|k| text.starts_with(k));
    (text.starts_with("-e") && !is_one_of(OPTIONS_NOT_NAMING_ENTRY))
        || (text.starts_with("-T") && !is_one_of(OPTIONS_NOT_NAMING_SCRIPT))
        || is_one_of(&["--entry", "--script", "-script"])
}

fn kind_of_language(language: &str) -> CompilerInputKind {
    match language {
        "assembler" | "assembler-with-cpp" => CompilerInputKind::Assembly,
        _ if language.ends_with("-header") || language.ends_with("-user") || language.ends_with("-header-unit") => {
            CompilerInputKind::Header
        }
        _ => CompilerInputKind::Source,
    }
}

/// Infers the kind of an input from its file extension, as clang does.
fn kind_of_extension(name: &OsStr) -> CompilerInputKind {
    const SOURCE_EXTENSIONS: &[&str] = &[
        "c", "i", "cc", "cp", "cxx", "cpp", "CPP", "c++", "C++", "C", "CC", "CXX", "ii", "m", "mi", "mm", "M", "mii", "ll", "bc", "cppm",
        "ccm", "cxxm", "c++m", "ixx", "pcm",
    ];
    const HEADER_EXTENSIONS: &[&str] = &["h", "H", "hh", "hp", "hxx", "hpp", "HPP", "h++", "tcc"];
    if name == "-" {
        return CompilerInputKind::Source;
    }
    let bytes = name.as_bytes();
    let end = bytes.iter().rposition(|b| *b == b'.').filter(|dot| !bytes[*dot..].contains(&b'/'));
    let Some(extension) = end.and_then(|dot| std::str::from_utf8(&bytes[dot + 1..]).ok()) else { return CompilerInputKind::Linkable };
    match extension {
        "s" | "S" | "sx" | "asm" => CompilerInputKind::Assembly,
        _ if SOURCE_EXTENSIONS.contains(&extension) => CompilerInputKind::Source,
        _ if HEADER_EXTENSIONS.contains(&extension) => CompilerInputKind::Header,
        _ => CompilerInputKind::Linkable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn read(text: &str) -> CompilerCommandLine {
        let arguments: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        CompilerCommandLine::read(&arguments, &|_| None)
    }

    #[test]
    fn compiling_and_linking_commands_are_recognised() {
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
    fn values_of_options_are_not_inputs() {
        let line = read("-I a.c -include b.h -MF c.d -Xlinker d.o -o e.o -D f.c -mllvm g.c -c h.c");
        assert_eq!(line.inputs_of(CompilerInputKind::Source).collect::<Vec<_>>(), ["h.c"]);
        assert_eq!(line.output.unwrap(), "e.o");
        assert_eq!(line.inputs.len(), 1);
    }

    #[test]
    fn last_lto_option_wins() {
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
    fn linker_options_are_parsed_in_every_spelling() {
        for text in ["-Wl,--build-id a.o", "-Wl,-z,now,--build-id=none a.o", "-Xlinker --build-id=sha1 a.o"] {
            assert!(read(text).build_id, "{text}");
        }
        assert!(!read("-Wl,-z,now a.o").build_id);
        assert_eq!(read("-Wl,--dependency-file=x.d a.o").dependency_file.unwrap(), "x.d");
        assert_eq!(read("-fuse-ld=lld a.o").linker.unwrap(), "lld");
    }

    #[test]
    fn entry_point_options_are_recognised_in_every_spelling() {
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
    fn other_machines_are_unsupported_targets() {
        assert_eq!(read("--target=aarch64-linux-gnu -c a.c").unsupported_target.unwrap(), "aarch64-linux-gnu");
        assert_eq!(read("-m32 -c a.c").unsupported_target.unwrap(), "-m32");
        assert!(read("-target x86_64-unknown-linux-gnu -c a.c").unsupported_target.is_none());
    }

    #[test]
    fn codegen_options_are_recorded() {
        let line =
            read("-O2 -Wall -fPIC -DX=1 -ffunction-sections -std=c11 -march=native -mllvm -x86-asm-syntax=intel -fsanitize=address -c a.c");
        let expected = ["-O2", "-fPIC", "-ffunction-sections", "-march=native", "-mllvm", "-x86-asm-syntax=intel"];
        assert_eq!(line.codegen, expected);
    }

    #[test]
    fn arguments_that_are_not_utf8_are_kept() {
        let odd = OsString::from_vec(b"-o\xff.o".to_vec());
        let line = CompilerCommandLine::read(&["-c".into(), "a.c".into(), odd], &|_| None);
        assert_eq!(line.output.unwrap().as_bytes(), b"\xff.o");
    }

    #[test]
    fn arguments_after_double_dash_are_inputs() {
        let line = read("-c -- -a.c");
        assert_eq!(line.inputs_of(CompilerInputKind::Source).collect::<Vec<_>>(), ["-a.c"]);
    }
}
