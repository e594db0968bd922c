//! Finds clang and the other tools of the same LLVM installation.
//!
//! The default clang is the one that `TRODDEN_CLANG` names; otherwise the one in `CC`, if that is a clang; otherwise the newest supported
//! one among `clang` and `clang-N` on the search path and in the package folders (`/usr/lib/llvm-N`). Its version is derived from its file
//! name or folder. If neither contains a version, clang is run to query it. Bitcode is compiled by the LLVM version that wrote it, if
//! installed, or else by a newer version.
//!
//! To support a new version of LLVM, change [`NEWEST_LLVM`] and [`TESTED_LLVM`] here, and `instrument/src/host.rs`.

mod launchers;

use crate::context::DriverContext;
use anyhow::{Context, Result, bail, ensure};
use launchers::{is_launcher, program_named};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_unit::bitcode::producer_major;

pub use launchers::{find_compiler_on_path, find_on_path, is_program};

/// Environment variable with the path or name of clang.
pub const CLANG_VARIABLE: &str = "TRODDEN_CLANG";
/// The oldest major version of LLVM that trodden supports.
pub const OLDEST_LLVM: u32 = 19;
/// The newest major version of LLVM that trodden supports.
pub const NEWEST_LLVM: u32 = 22;
/// The major versions of LLVM that trodden is tested with.
pub const TESTED_LLVM: [u32; 2] = [19, 22];

/// A tool that is part of LLVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LlvmTool {
    /// The C compiler.
    Clang,
    /// The C++ compiler.
    ClangCxx,
    /// The linker `ld.lld`.
    Lld,
    /// `llvm-profdata`, which merges and converts profiles.
    Profdata,
    /// `llvm-cov`, which reports coverage.
    Cov,
    /// The demangler.
    Cxxfilt,
    /// The optimiser.
    Opt,
    /// The archiver.
    Ar,
    /// `llvm-nm`, which lists the symbols of object files.
    Nm,
    /// `llvm-ranlib`, which adds an index to archives.
    Ranlib,
}

impl LlvmTool {
    /// Returns the tool's name without a version.
    pub fn name(self) -> &'static str {
        match self {
            LlvmTool::Clang => "clang",
            LlvmTool::ClangCxx => "clang++",
            LlvmTool::Lld => "ld.lld",
            LlvmTool::Profdata => "llvm-profdata",
            LlvmTool::Cov => "llvm-cov",
            LlvmTool::Cxxfilt => "llvm-cxxfilt",
            LlvmTool::Opt => "opt",
            LlvmTool::Ar => "llvm-ar",
            LlvmTool::Nm => "llvm-nm",
            LlvmTool::Ranlib => "llvm-ranlib",
        }
    }

    /// Returns the name of the Debian package that contains the tool, without a version.
    pub fn package(self) -> &'static str {
        match self {
            LlvmTool::Clang | LlvmTool::ClangCxx => "clang",
            LlvmTool::Lld => "lld",
            LlvmTool::Profdata | LlvmTool::Cov | LlvmTool::Cxxfilt | LlvmTool::Opt | LlvmTool::Ar | LlvmTool::Nm | LlvmTool::Ranlib => {
                "llvm"
            }
        }
    }

    /// Finds the tool in the default LLVM. If it is not installed, fails with a message that names the command to install it.
    pub fn find(self, context: &DriverContext) -> Result<PathBuf> {
        LlvmToolchain::find(context)?.tool(context, self)
    }
}

/// An installed LLVM of a supported version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LlvmToolchain {
    /// Its major version.
    pub major: u32,
    clang: PathBuf,
}

impl LlvmToolchain {
    /// Finds the default LLVM. If no supported LLVM is installed, fails with a message that says what was found instead and how to install
    /// one.
    pub fn find(context: &DriverContext) -> Result<LlvmToolchain> {
        if let Some(named) = LlvmToolchain::from_environment(context)? {
            return Ok(named);
        }
        let versioned = (OLDEST_LLVM..=NEWEST_LLVM).rev().find_map(|major| LlvmToolchain::find_installed(context, major));
        if versioned.as_ref().is_none_or(|found| found.major < NEWEST_LLVM)
            && let Some(plain) = find_compiler_on_path(context, OsStr::new("clang"))
            && let Ok(major) = query_major_version(&plain)
            && is_supported(major)
            && versioned.as_ref().is_none_or(|found| found.major < major)
        {
            return Ok(LlvmToolchain { major, clang: plain });
        }
        versioned.map_or_else(|| bail!("{}", describe_missing_clang(context)), Ok)
    }

    /// Returns the LLVM version that the name of a compiler requests, as in `clang-19`. If `TRODDEN_CLANG` is set or the name requests no
    /// version, returns the default LLVM. Fails if the requested version is not supported.
    pub fn for_compiler_name(context: &DriverContext, name: &str) -> Result<LlvmToolchain> {
        let requested = name.rsplit_once('-').filter(|(kind, _)| kind.ends_with("clang") || kind.ends_with("clang++"));
        let major = requested.and_then(|(_, version)| version.parse().ok());
        let Some(major) = major.filter(|_| context.value(CLANG_VARIABLE).is_none()) else { return LlvmToolchain::find(context) };
        ensure!(
            is_supported(major),
            "the build calls {name}, but trodden supports clang {OLDEST_LLVM} to {NEWEST_LLVM}. Let the build call one of these, or set \
             {CLANG_VARIABLE} to the clang to use instead"
        );
        LlvmToolchain::find_installed(context, major).map_or_else(|| LlvmToolchain::find(context), Ok)
    }

    /// Returns an LLVM that can compile bitcode written by LLVM version `wanted`: the same version if it is installed, or else the default
    /// LLVM if it is newer, or else the oldest newer one. `what` starts the error message and says whose bitcode it is, as in `a.c was
    /// compiled by`. Fails if no such LLVM is installed, or if `TRODDEN_CLANG` names an older one.
    pub fn for_bitcode(context: &DriverContext, wanted: u32, what: &str) -> Result<LlvmToolchain> {
        let remedy = || {
            if wanted > NEWEST_LLVM {
                return format!(
                    "This version of trodden supports LLVM up to {NEWEST_LLVM}: use a newer trodden, or build with an older compiler"
                );
            }
            format!(
                "Run `apt-get install clang-{wanted}`, set {CLANG_VARIABLE} to a clang that is new enough, or build with an older compiler"
            )
        };
        if context.value(CLANG_VARIABLE).is_some() {
            let named = LlvmToolchain::find(context)?;
            let major = named.major;
            ensure!(major >= wanted, "{what} LLVM {wanted}, whose bitcode clang {major} cannot read. {}", remedy());
            return Ok(named);
        }
        let default = LlvmToolchain::find(context)?;
        if default.major == wanted || wanted < OLDEST_LLVM {
            return Ok(default);
        }
        let same = LlvmToolchain::find_installed(context, wanted).filter(|_| is_supported(wanted));
        let newer = || (wanted..=NEWEST_LLVM).find_map(|major| LlvmToolchain::find_installed(context, major));
        match same.or_else(|| Some(default.clone()).filter(|llvm| llvm.major > wanted)).or_else(newer) {
            Some(found) => Ok(found),
            None => bail!("{what} LLVM {wanted}, but the newest clang found is {}. {}", default.major, remedy()),
        }
    }

    /// Returns the LLVM that `TRODDEN_CLANG` or `CC` names, or `None` if neither names a clang. Fails if that LLVM is not supported, or if
    /// `TRODDEN_CLANG` names no program.
    pub fn from_environment(context: &DriverContext) -> Result<Option<LlvmToolchain>> {
        if let Some(word) = context.value(CLANG_VARIABLE) {
            let found = program_named(context, word);
            let found = found.with_context(|| {
                format!(
                    "{CLANG_VARIABLE} is {}, which is not a program. Set the variable to the path or the name of a clang",
                    word.display()
                )
            })?;
            return LlvmToolchain::from_clang(found, CLANG_VARIABLE).map(Some);
        }
        let Some(cc) = context.value("CC").and_then(|cc| cc.to_str()?.split_whitespace().next()) else { return Ok(None) };
        if !is_clang_name(Path::new(cc).file_name().and_then(OsStr::to_str).unwrap_or_default()) {
            return Ok(None);
        }
        program_named(context, OsStr::new(cc)).map(|clang| LlvmToolchain::from_clang(clang, "CC")).transpose()
    }

    /// Creates the LLVM installation to which a clang belongs, and checks its version. `variable` is the environment variable that names
    /// the clang, for messages.
    fn from_clang(clang: PathBuf, variable: &str) -> Result<LlvmToolchain> {
        let major = query_major_version(&clang)?;
        ensure!(
            is_supported(major),
            "{variable} names {}, which is clang {major}, but trodden needs clang {OLDEST_LLVM} to {NEWEST_LLVM}. Install one with \
                {}, and set {CLANG_VARIABLE} to it",
            clang.display(),
            install(LlvmTool::Clang)
        );
        Ok(LlvmToolchain { major, clang })
    }

    /// Finds `clang-N` on the search path, or clang in the package folder of this version.
    fn find_installed(context: &DriverContext, major: u32) -> Option<LlvmToolchain> {
        let packaged = || Some(packages_folder(major).join(LlvmTool::Clang.name())).filter(|path| is_program(path));
        let clang = find_compiler_on_path(context, OsStr::new(&format!("clang-{major}"))).or_else(packaged)?;
        Some(LlvmToolchain { major, clang })
    }

    /// Fails if `bytes`, the content of `file`, are bitcode that a newer LLVM wrote, which this LLVM cannot read.
    pub fn check_bitcode(&self, bytes: &[u8], file: &OsStr) -> Result<()> {
        let Some(producer) = producer_major(bytes).filter(|producer| *producer > self.major) else { return Ok(()) };
        bail!(
            "{} contains bitcode of LLVM {producer}, which clang {} cannot read. Compile it again, or set \
                {CLANG_VARIABLE} to clang {producer}",
            file.display(),
            self.major
        )
    }

    /// Returns the path of clang.
    pub fn clang(&self) -> &Path {
        &self.clang
    }

    /// Finds a tool of this LLVM. If the tool is not installed, fails with a message that names the command to install it.
    pub fn tool(&self, context: &DriverContext, tool: LlvmTool) -> Result<PathBuf> {
        let versioned = format!("{}-{}", tool.name(), self.major);
        let own_name = self.clang.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let beside = || self.clang.with_file_name(own_name.replacen("clang", tool.name(), 1));
        let found = match tool {
            LlvmTool::Clang => return Ok(self.clang.clone()),
            LlvmTool::ClangCxx => Some(beside()).filter(|path| own_name.contains("clang") && is_program(path)),
            _ => None,
        };
        let in_folder = || {
            let folder = self.folder()?;
            [&*versioned, tool.name()].iter().map(|name| folder.join(name)).find(|path| is_program(path))
        };
        let packaged = || Some(packages_folder(self.major).join(tool.name())).filter(|path| is_program(path));
        let found = found.or_else(in_folder).or_else(|| find_compiler_on_path(context, OsStr::new(&versioned))).or_else(packaged);
        found.with_context(|| {
            format!(
                "{versioned} is not installed. Run `{}`, and then `trodden doctor`, which checks whether anything else is missing",
                self.install(tool)
            )
        })
    }

    /// Returns the shell command that installs a tool of this version.
    pub fn install(&self, tool: LlvmTool) -> String {
        format!("apt-get install {}-{}", tool.package(), self.major)
    }

    /// Returns the folder with the other tools of this LLVM; `None` if clang is a link to a program with a different name.
    fn folder(&self) -> Option<PathBuf> {
        let file = fs::canonicalize(&self.clang).ok()?;
        let name = file.file_name()?.to_str()?;
        let is_clang_name = name.strip_prefix("clang").is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        is_clang_name.then(|| file.parent().unwrap_or(Path::new("/")).to_owned())
    }

    /// Returns the root folder of this installation, such as `/opt/llvm-22`; `None` if the folder is shared with other programs, as `/usr`
    /// is.
    pub fn root(&self) -> Option<PathBuf> {
        let root = self.folder()?.parent()?.to_owned();
        (root.components().count() > 2 && root != Path::new("/usr/local")).then_some(root)
    }
}

/// Finds a tool for a profile of programs that LLVM version `wanted` compiled. It belongs to the LLVM that
/// [`LlvmToolchain::for_bitcode`] returns, or, on a machine without clang, to the same or a newer version. If the tool is not installed,
/// fails with a message that names the command to install it.
pub fn find_for_profile(context: &DriverContext, tool: LlvmTool, wanted: u32, what: &str) -> Result<PathBuf> {
    let is_without_clang = || context.value(CLANG_VARIABLE).is_none() && LlvmToolchain::find(context).is_err();
    let alone = |major: u32| {
        let packaged = || Some(packages_folder(major).join(tool.name())).filter(|path| is_program(path));
        find_compiler_on_path(context, OsStr::new(&format!("{}-{major}", tool.name()))).or_else(packaged)
    };
    match LlvmToolchain::for_bitcode(context, wanted, what) {
        Ok(llvm) => llvm.tool(context, tool),
        Err(error) if is_without_clang() => (wanted.max(OLDEST_LLVM)..=NEWEST_LLVM).find_map(alone).ok_or(error),
        Err(error) => Err(error),
    }
}

/// Returns a part of a message: the shell command that installs a tool on a machine where no LLVM was found.
pub fn install(tool: LlvmTool) -> String {
    let [oldest, newest] = TESTED_LLVM.map(|major| format!("{}-{major}", tool.package()));
    format!("`apt-get install {newest}` (or `{oldest}`)")
}

/// Returns true if trodden supports this major version of LLVM.
pub fn is_supported(major: u32) -> bool {
    (OLDEST_LLVM..=NEWEST_LLVM).contains(&major)
}

fn packages_folder(major: u32) -> PathBuf {
    PathBuf::from(format!("/usr/lib/llvm-{major}/bin"))
}

/// Returns every clang on the search path and in the package folders, by major version. If several have the same version, the first one
/// that was found is returned.
pub fn find_all_clangs(context: &DriverContext) -> BTreeMap<u32, PathBuf> {
    let mut found = BTreeMap::new();
    for folder in context.search_path() {
        let names = fs::read_dir(&folder).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|n| n == "clang" || n.strip_prefix("clang-").is_some_and(is_number)).collect();
        // Versioned names are longer and preferred, so they come first.
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let clangs = names.iter().map(|name| folder.join(name)).filter(|path| is_program(path) && !is_launcher(path));
        clangs
            .filter_map(|path| Some((query_major_version(&path).ok()?, path)))
            .for_each(|(major, path)| _ = found.entry(major).or_insert(path));
    }
    for major in OLDEST_LLVM..=NEWEST_LLVM {
        let path = packages_folder(major).join(LlvmTool::Clang.name());
        if is_program(&path) {
            found.entry(major).or_insert(path);
        }
    }
    found
}

fn describe_missing_clang(context: &DriverContext) -> String {
    let found = find_all_clangs(context);
    let others: Vec<String> = found.iter().rev().map(|(major, path)| format!("clang {major} ({})", path.display())).collect();
    let others = if others.is_empty() { String::new() } else { format!(", only {}", others.join(", ")) };
    format!(
        "no clang from {OLDEST_LLVM} to {NEWEST_LLVM} is installed{others}: run {}, or set {CLANG_VARIABLE} \
            (`trodden doctor` checks the rest)",
        install(LlvmTool::Clang)
    )
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Determines the major version of a clang. Fails if the program cannot be run or is not clang.
pub fn query_major_version(clang: &Path) -> Result<u32> {
    if let Some(major) = fs::canonicalize(clang).ok().and_then(|file| major_in_path(&file)) {
        return Ok(major);
    }
    let output = Command::new(clang).arg("--version").output().with_context(|| format!("cannot run {}", clang.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_once("clang version ").map(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    let major = version.and_then(|version| version.parse().ok());
    major.with_context(|| format!("cannot find clang's version in the output of `{} --version`", clang.display()))
}

/// Returns the major version that the path of a clang contains, as in `clang-19` or `llvm-19/bin/clang`.
fn major_in_path(file: &Path) -> Option<u32> {
    let name = file.file_name()?.to_str()?;
    let folder = || Some(file.parent()?.parent()?.file_name()?.to_str()?.strip_prefix("llvm")?.trim_start_matches('-').to_owned());
    let version = match name.strip_prefix("clang-") {
        Some(version) => version.to_owned(),
        None if name == "clang" => folder()?,
        None => return None,
    };
    version.parse().ok().filter(|_| is_number(&version))
}

/// Returns true for the name `clang`, with or without a target prefix and a version suffix.
fn is_clang_name(name: &str) -> bool {
    let kind = name.rsplit_once('-').filter(|(_, version)| is_number(version)).map_or(name, |(kind, _)| kind);
    kind == "clang" || kind.ends_with("-clang")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    /// Creates a folder with fake compilers. Each is given by its name and the version that it prints.
    fn create_fake_compilers(programs: &[(&str, u32)]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, version) in programs {
            let path = folder.path().join(name);
            fs::write(&path, format!("#!/bin/sh\necho 'Some clang version {version}.1.0'\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder
    }

    fn context(folder: &TempDir, variables: &[(&str, &str)]) -> DriverContext {
        let path = folder.path().to_str().unwrap();
        DriverContext::in_folder(folder.path(), &[&[("PATH", path)], variables].concat())
    }

    fn find_version_and_path(folder: &TempDir, variables: &[(&str, &str)]) -> (u32, PathBuf) {
        let llvm = LlvmToolchain::find(&context(folder, variables)).unwrap();
        (llvm.major, llvm.clang.strip_prefix(folder.path()).unwrap().to_owned())
    }

    #[test]
    fn variables_come_before_the_newest_supported_clang() {
        let folder = create_fake_compilers(&[("clang", 30), ("clang-14", 14), ("clang-19", 19), ("clang-22", 22), ("clang++-22", 22)]);
        assert_eq!(find_version_and_path(&folder, &[]), (22, "clang-22".into()));
        assert_eq!(find_version_and_path(&folder, &[("CC", "clang-19 -m64")]), (19, "clang-19".into()));
        assert_eq!(find_version_and_path(&folder, &[("CC", "gcc-12")]), (22, "clang-22".into()));
        assert_eq!(find_version_and_path(&folder, &[("CC", "clang-22"), ("TRODDEN_CLANG", "clang-19")]), (19, "clang-19".into()));
        let context = context(&folder, &[]);
        let llvm = LlvmToolchain::find(&context).unwrap();
        assert_eq!(llvm.tool(&context, LlvmTool::ClangCxx).unwrap(), folder.path().join("clang++-22"));
        assert_eq!(LlvmToolchain::for_compiler_name(&context, "x86_64-linux-gnu-clang-19").unwrap().major, 19);
        assert_eq!(["clang", "gcc-12", "clang-20"].map(|name| LlvmToolchain::for_compiler_name(&context, name).unwrap().major), [22; 3]);
        let error = LlvmToolchain::for_compiler_name(&context, "clang-14").unwrap_err().to_string();
        assert!(error.contains("calls clang-14") && error.contains("supports clang 19 to 22"), "{error}");
    }

    /// Debian's ccache has links under all compiler names, in a folder that users put first in `PATH`.
    #[test]
    fn links_to_a_compiler_cache_are_skipped() {
        let folder = create_fake_compilers(&[("ccache", 22), ("clang-22", 22)]);
        let links = folder.path().join("links");
        fs::create_dir(&links).unwrap();
        std::os::unix::fs::symlink("../ccache", links.join("clang-22")).unwrap();
        let path = format!("{}:{}", links.display(), folder.path().display());
        let link = links.join("clang-22").display().to_string();
        for (name, word) in [("CC", "clang-22"), ("TRODDEN_CLANG", "clang-22"), ("CC", &link), ("TRODDEN_CLANG", &link)] {
            let context = DriverContext::in_folder(folder.path(), &[("PATH", &path), (name, word)]);
            assert_eq!(LlvmToolchain::find(&context).unwrap().clang, folder.path().join("clang-22"), "{name}={word}");
        }
    }

    #[test]
    fn clang_without_a_version_in_its_name_is_run_to_query_it() {
        let folder = create_fake_compilers(&[("my-clang", 20), ("clang", 21)]);
        let named = folder.path().join("my-clang");
        assert_eq!(find_version_and_path(&folder, &[("TRODDEN_CLANG", named.to_str().unwrap())]), (20, "my-clang".into()));
        assert_eq!(find_all_clangs(&context(&folder, &[])).get(&21), Some(&folder.path().join("clang")));
    }

    #[test]
    fn unsupported_version_error_names_version_and_advice() {
        let folder = create_fake_compilers(&[("clang-18", 18), ("clang-23", 23), ("clang-19", 19)]);
        for (variable, name, version) in [("CC", "clang-18", "clang 18"), ("TRODDEN_CLANG", "clang-23", "clang 23")] {
            let said = LlvmToolchain::find(&context(&folder, &[(variable, name)])).unwrap_err().to_string();
            assert!(said.contains(version) && said.contains("19 to 22") && said.contains("apt-get install"), "{said}");
        }
        let said = LlvmToolchain::find(&context(&folder, &[("TRODDEN_CLANG", "/nowhere/clang")])).unwrap_err().to_string();
        assert!(said.contains("/nowhere/clang, which is not a program"), "{said}");
    }

    #[test]
    fn bitcode_is_compiled_by_same_or_newer_llvm() {
        let folder = create_fake_compilers(&[("clang-19", 19), ("clang-21", 21), ("clang-22", 22)]);
        let major = |wanted, variables: &[_]| {
            LlvmToolchain::for_bitcode(&context(&folder, variables), wanted, "a.c was compiled by").map(|llvm| llvm.major)
        };
        assert_eq!([0, 19, 20, 21, 22].map(|wanted| major(wanted, &[]).unwrap()), [22, 19, 22, 21, 22]);
        assert_eq!(major(20, &[("CC", "clang-19")]).unwrap(), 21);
        assert_eq!(major(19, &[("TRODDEN_CLANG", "clang-21")]).unwrap(), 21);
        let said = major(22, &[("TRODDEN_CLANG", "clang-21")]).unwrap_err().to_string();
        assert!(said.contains("a.c was compiled by LLVM 22, whose bitcode clang 21 cannot read"), "{said}");
        let said = major(23, &[]).unwrap_err().to_string();
        assert!(said.contains("newest clang found is 22") && said.contains("supports LLVM up to 22"), "{said}");
    }

    #[test]
    fn version_is_taken_from_the_file_or_its_folder() {
        let major = |path: &str| major_in_path(Path::new(path));
        assert_eq!(
            [major("/usr/lib/llvm-19/bin/clang"), major("/usr/lib64/llvm20/bin/clang"), major("/usr/bin/clang-22")],
            [Some(19), Some(20), Some(22)]
        );
        assert_eq!([major("/opt/llvm/bin/clang"), major("/usr/bin/clang"), major("/usr/bin/ccache"), major("/x/clang-cpp")], [None; 4]);
    }
}
