//! Clang options that are accepted when machine code is generated again from a unit's bitcode.
//!
//! A unit's map contains the code generation options of its build, which bitcode does not contain. Programs, profiles and caches with maps
//! may come from people who are not trusted, and clang has options that load libraries (`-fplugin=`) or write files (`-ftime-trace=`).
//! Therefore only the options and values in the lists below are passed to clang; any other option is an error.
//!
//! Invariant: [`CodegenOptions`] that come from a map contain only listed options, and none of these names a file, a library or a program.

use std::fmt;

/// Values that are accepted after the name of an option.
#[derive(Clone, Copy, Debug)]
enum AcceptedValues {
    Nothing,
    OneOf(&'static [&'static str]),
    /// Letters, digits and `+ - _ .`. Without a slash, the value cannot be the path of a file in a different folder.
    Name,
    Number,
}

impl AcceptedValues {
    fn allows_value(self, value: &str) -> bool {
        match self {
            AcceptedValues::Nothing => value.is_empty(),
            AcceptedValues::OneOf(values) => values.contains(&value),
            AcceptedValues::Name => !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || "+-_.".contains(c)),
            AcceptedValues::Number => !value.is_empty() && value.len() <= 19 && value.chars().all(|c| c.is_ascii_digit()),
        }
    }
}

use AcceptedValues::{Name, Nothing, Number, OneOf};

const ACCEPTED_BOOLEAN_VALUES: AcceptedValues = OneOf(&["true", "false", "1", "0"]);

/// Accepted options of clang. An option has several entries if its values have several forms.
const ACCEPTED_CLANG_OPTIONS: &[(&str, AcceptedValues)] = &[
    ("-O", OneOf(&["", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "s", "z", "g", "fast"])),
    ("-fpic", Nothing),
    ("-fPIC", Nothing),
    ("-fpie", Nothing),
    ("-fPIE", Nothing),
    ("-fno-pic", Nothing),
    ("-fno-PIC", Nothing),
    ("-fno-pie", Nothing),
    ("-fno-PIE", Nothing),
    ("-static-pie", Nothing),
    ("-m64", Nothing),
    ("-march=", Name),
    ("-mcpu=", Name),
    ("-mtune=", Name),
    ("-msse", OneOf(&["", "2", "3", "4", "4a", "4.1", "4.2"])),
    ("-mno-sse", OneOf(&["", "2", "3", "4", "4a", "4.1", "4.2"])),
    ("-mavx", AcceptedValues::Name),
    ("-mavx", Nothing),
    ("-mno-avx", AcceptedValues::Name),
    ("-mno-avx", Nothing),
    ("-mcmodel=", OneOf(&["small", "kernel", "medium", "large", "tiny"])),
    ("-mlarge-data-threshold=", Number),
    ("-mtls-dialect=", OneOf(&["gnu", "gnu2"])),
    ("-mrelax-all", Nothing),
    ("-mno-relax-all", Nothing),
    ("-mrelax-relocations=", OneOf(&["yes", "no"])),
    ("-mharden-sls=", OneOf(&["none", "all", "return", "indirect-jmp"])),
    ("-mretpoline", Nothing),
    ("-mretpoline-external-thunk", Nothing),
    ("-mindirect-branch-cs-prefix", Nothing),
    ("-mfunction-return=", OneOf(&["keep", "thunk-extern"])),
    ("-ftls-model=", OneOf(&["global-dynamic", "local-dynamic", "initial-exec", "local-exec"])),
    ("-fbasic-block-sections=", OneOf(&["none", "all"])),
    ("-fintegrated-as", Nothing),
    ("-fno-integrated-as", Nothing),
    ("-faddrsig", Nothing),
    ("-fno-addrsig", Nothing),
    ("-fsplit-stack", Nothing),
    ("-fstack-size-section", Nothing),
    ("-ffp-contract=", OneOf(&["on", "off", "fast", "fast-honor-pragmas"])),
    ("-fno-plt", Nothing),
    ("-femulated-tls", Nothing),
    ("-fno-emulated-tls", Nothing),
    ("-fzero-initialized-in-bss", Nothing),
    ("-fno-zero-initialized-in-bss", Nothing),
    ("-ffunction-sections", Nothing),
    ("-fno-function-sections", Nothing),
    ("-fdata-sections", Nothing),
    ("-fno-data-sections", Nothing),
    ("-funique-section-names", Nothing),
    ("-fno-unique-section-names", Nothing),
];

/// Accepted options of LLVM, which follow the argument `-mllvm`. The name of an option with a value ends with `=`.
const ACCEPTED_LLVM_OPTIONS: &[(&str, AcceptedValues)] = &[
    ("-x86-asm-syntax=", OneOf(&["att", "intel"])),
    ("-x86-branches-within-32B-boundaries", Nothing),
    ("-x86-align-branch-boundary=", Number),
    ("-x86-align-branch=", Name),
    ("-x86-pad-max-prefix-size=", Number),
    ("-x86-early-ifcvt", Nothing),
    ("-x86-cmov-converter=", ACCEPTED_BOOLEAN_VALUES),
    ("-align-all-functions=", Number),
    ("-align-all-blocks=", Number),
    ("-align-all-nofallthru-blocks=", Number),
    ("-align-loops=", Number),
    ("-enable-tail-merge=", ACCEPTED_BOOLEAN_VALUES),
    ("-enable-tail-merge", Nothing),
    ("-tail-merge-threshold=", Number),
    ("-tail-merge-size=", Number),
    ("-tail-dup-size=", Number),
    ("-tail-dup-placement=", ACCEPTED_BOOLEAN_VALUES),
    ("-disable-block-placement", Nothing),
    ("-disable-tail-duplicate", Nothing),
    ("-disable-early-taildup", Nothing),
    ("-disable-branch-fold", Nothing),
    ("-disable-machine-licm", Nothing),
    ("-disable-machine-cse", Nothing),
    ("-disable-machine-sink", Nothing),
    ("-disable-cgp", Nothing),
    ("-disable-lsr", Nothing),
    ("-disable-copyprop", Nothing),
    ("-disable-peephole", Nothing),
    ("-enable-misched=", ACCEPTED_BOOLEAN_VALUES),
    ("-enable-misched", Nothing),
    ("-enable-post-misched=", ACCEPTED_BOOLEAN_VALUES),
    ("-regalloc=", OneOf(&["default", "basic", "fast", "greedy", "pbqp"])),
    ("-split-spill-mode=", OneOf(&["default", "size", "speed"])),
    ("-min-jump-table-entries=", Number),
    ("-max-jump-table-size=", Number),
    ("-jump-table-density=", Number),
    ("-optsize-jump-table-density=", Number),
    ("-enable-machine-outliner=", OneOf(&["always", "never", "optimistic-pgo", "conservative-pgo"])),
    ("-enable-split-machine-functions", Nothing),
    ("-emulated-tls=", ACCEPTED_BOOLEAN_VALUES),
    ("-relax-elf-relocations=", ACCEPTED_BOOLEAN_VALUES),
    ("-stack-alignment=", Number),
];

/// Error for a compiler option in a map that is not in the lists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its map contains the compiler option `{option}`, which trodden does not accept from files, because it might load libraries or write \
        files. Rebuild the program without this option"
)]
pub struct RejectedOption {
    /// The option, with unprintable characters escaped.
    pub option: String,
}

/// Code generation options that are passed to clang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodegenOptions(Vec<String>);

impl CodegenOptions {
    /// Accepts the options in a map ([`crate::UnitMap::codegen`]). Fails if an option or its value is not in the lists.
    pub fn from_map(arguments: &[String]) -> Result<CodegenOptions, RejectedOption> {
        let rejected = |option: String| Err(RejectedOption { option: option.escape_debug().to_string() });
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if argument == "-mllvm" {
                let option = rest.next().map_or("", String::as_str);
                if !is_option_listed(ACCEPTED_LLVM_OPTIONS, option) {
                    return rejected(format!("-mllvm {option}"));
                }
            } else if !is_option_listed(ACCEPTED_CLANG_OPTIONS, argument)
                && !argument.strip_prefix("--target=").is_some_and(is_known_target)
            {
                return rejected(argument.clone());
            }
        }
        Ok(CodegenOptions(arguments.to_vec()))
    }

    /// Accepts any options. They must come from the user's own command line.
    pub fn from_command_line(arguments: Vec<String>) -> CodegenOptions {
        CodegenOptions(arguments)
    }

    /// Returns the options as command-line arguments of clang.
    pub fn arguments(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for CodegenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

/// Returns true if an option of the user's build affects code generation from bitcode, so that the map must contain it. This includes
/// listed options whose value is not listed, such as a file name; they are accepted only from the user's own command line.
pub fn affects_generated_code(option: &str) -> bool {
    let has_any_value = |name: &str| name.ends_with('=') && option.starts_with(name);
    is_option_listed(ACCEPTED_CLANG_OPTIONS, option) || ACCEPTED_CLANG_OPTIONS.iter().any(|(name, _)| has_any_value(name))
}

/// Returns whether trodden supports a target, given by its LLVM triple.
pub fn is_known_target(triple: &str) -> bool {
    Name.allows_value(triple) && triple.starts_with("x86_64") && triple.contains("linux") && !triple.contains("x32")
}

fn is_option_listed(list: &[(&str, AcceptedValues)], option: &str) -> bool {
    list.iter().any(|(name, accepted)| option.strip_prefix(name).is_some_and(|value| accepted.allows_value(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_map(text: &str) -> Result<CodegenOptions, RejectedOption> {
        CodegenOptions::from_map(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn listed_options_are_accepted() {
        for text in [
            "",
            "-O2 -fPIC -ffunction-sections -fdata-sections",
            "-Os -march=native -mtune=znver4 -mavx2 -mno-avx512f -mno-avx512vl -msse4.2 -mcmodel=large",
            "--target=x86_64-unknown-linux-gnu -fbasic-block-sections=all -ffp-contract=fast -ftls-model=initial-exec",
            "-mllvm -x86-asm-syntax=intel -mllvm -align-all-nofallthru-blocks=5 -O3",
        ] {
            assert_eq!(from_map(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn unlisted_options_are_rejected_and_named_in_the_error() {
        for option in [
            "-fplugin=/tmp/x.so",
            "-fpass-plugin=x.so",
            "-ftime-trace=/home/u/.bashrc",
            "-ftime-trace",
            "-B/tmp",
            "-o",
            "@file",
            "a.c",
            "-Xclang",
            "-load",
            "-wrapper",
            "--config=/tmp/x",
            "-save-temps",
            "-gsplit-dwarf",
            "-fbasic-block-sections=list=/etc/passwd",
            "-march=../x",
            "-O/x",
            "-mavx/../x",
            "--target=../x86_64-linux",
            "--target=aarch64-linux-gnu",
            "-mcmodel=",
        ] {
            assert_eq!(from_map(&format!("-O2 {option}")).unwrap_err().option, option);
        }
        for option in ["-mllvm -info-output-file=x", "-mllvm -load=x.so", "-mllvm -O2", "-mllvm -align-loops=-1", "-mllvm x"] {
            assert_eq!(from_map(&format!("-O2 {option} -fPIC")).unwrap_err().option, option);
        }
        assert_eq!(from_map("-O2 -mllvm").unwrap_err().option, "-mllvm ");
        assert_eq!(CodegenOptions::from_map(&["-O2\n".into()]).unwrap_err().option, "-O2\\n");
        assert!(CodegenOptions::from_map(&[String::new()]).is_err());
    }

    #[test]
    fn listed_options_with_any_value_affect_generated_code() {
        for option in ["-O2", "-fPIC", "-mavx2", "-fbasic-block-sections=list=order.txt"] {
            assert!(affects_generated_code(option), "{option}");
        }
        for option in ["-Wall", "-fplugin=x.so", "-fPICx", "-ObjC", "-g", "-c"] {
            assert!(!affects_generated_code(option), "{option}");
        }
    }
}
