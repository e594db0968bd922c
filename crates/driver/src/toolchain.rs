//! Finds clang, and the other tools of the same LLVM.
//!
//! clang is the one that `TRODDEN_CLANG` names, or else `CC` if that is a clang, or else the newest supported one among `clang` and
//! `clang-N` on the search path and in the folders of packages (`/usr/lib/llvm-N`). Its version is told by its file name or folder; only
//! if neither has a version, clang is asked. Bitcode is compiled by the LLVM that wrote it, if that is installed, or else by a newer one.
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

pub use launchers::{compiler_on_path, is_program, on_path};

/// Variable that names clang.
pub const CLANG_VARIABLE: &str = "TRODDEN_CLANG";
/// The oldest major version of LLVM that is supported.
pub const OLDEST_LLVM: u32 = 19;
/// The newest major version of LLVM that is supported.
pub const NEWEST_LLVM: u32 = 22;
/// The versions that trodden is tested with.
pub const TESTED_LLVM: [u32; 2] = [19, 22];

/// A tool of LLVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The C compiler.
    Clang,
    /// The C++ compiler.
    ClangCxx,
    /// The linker `ld.lld`.
    Lld,
    /// The tool for LLVM's profiles.
    Profdata,
    /// The tool for coverage.
    Cov,
    /// The demangler.
    Cxxfilt,
    /// The optimiser.
    Opt,
    /// The archiver.
    Ar,
    /// The tool that lists symbols.
    Nm,
    /// The tool that indexes archives.
    Ranlib,
}

impl Tool {
    /// Returns the tool's name without version.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Clang => "clang",
            Tool::ClangCxx => "clang++",
            Tool::Lld => "ld.lld",
            Tool::Profdata => "llvm-profdata",
            Tool::Cov => "llvm-cov",
            Tool::Cxxfilt => "llvm-cxxfilt",
            Tool::Opt => "opt",
            Tool::Ar => "llvm-ar",
            Tool::Nm => "llvm-nm",
            Tool::Ranlib => "llvm-ranlib",
        }
    }

    /// Returns the name of Debian's package with the tool, without version.
    pub fn package(self) -> &'static str {
        match self {
            Tool::Clang | Tool::ClangCxx => "clang",
            Tool::Lld => "lld",
            Tool::Profdata | Tool::Cov | Tool::Cxxfilt | Tool::Opt | Tool::Ar | Tool::Nm | Tool::Ranlib => "llvm",
        }
    }

    /// Finds the tool of the default LLVM.
    ///
    /// # Errors
    /// Fails if it is not installed; the message names the command that installs it.
    pub fn find(self, context: &DriverContext) -> Result<PathBuf> {
        Llvm::find(context)?.tool(context, self)
    }
}

/// An installation of LLVM of a supported version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Llvm {
    /// Its major version.
    pub major: u32,
    clang: PathBuf,
}

impl Llvm {
    /// Finds the default LLVM.
    ///
    /// # Errors
    /// Fails if none is supported; the message tells what was found, and how to install one.
    pub fn find(context: &DriverContext) -> Result<Llvm> {
        if let Some(named) = Llvm::named(context)? {
            return Ok(named);
        }
        let versioned = (OLDEST_LLVM..=NEWEST_LLVM).rev().find_map(|major| Llvm::installed(context, major));
        if versioned.as_ref().is_none_or(|found| found.major < NEWEST_LLVM)
            && let Some(plain) = compiler_on_path(context, OsStr::new("clang"))
            && let Ok(major) = major_of(&plain)
            && is_supported(major)
            && versioned.as_ref().is_none_or(|found| found.major < major)
        {
            return Ok(Llvm { major, clang: plain });
        }
        versioned.map_or_else(|| bail!("{}", none_found(context)), Ok)
    }

    /// Returns the LLVM that a compiler's name requests, such as `clang-19`, unless `TRODDEN_CLANG` is set. Otherwise finds the default.
    ///
    /// # Errors
    /// Fails if the name requests a version that is not supported.
    pub fn called(context: &DriverContext, name: &str) -> Result<Llvm> {
        let requested = name.rsplit_once('-').filter(|(kind, _)| kind.ends_with("clang") || kind.ends_with("clang++"));
        let major = requested.and_then(|(_, version)| version.parse().ok());
        let Some(major) = major.filter(|_| context.value(CLANG_VARIABLE).is_none()) else { return Llvm::find(context) };
        ensure!(
            is_supported(major),
            "the build calls {name}, but trodden supports clang {OLDEST_LLVM} to {NEWEST_LLVM}. Let it call one of them, or set \
                {CLANG_VARIABLE} to the clang to use instead"
        );
        Llvm::installed(context, major).map_or_else(|| Llvm::find(context), Ok)
    }

    /// Returns the LLVM to compile bitcode with that version `wanted` wrote: the same version or, if it is not installed, the default or
    /// the oldest newer one. `what` says for the message whose bitcode it is, as in `a.c was compiled by`.
    ///
    /// # Errors
    /// Fails if there is none, or if `TRODDEN_CLANG` names an older one.
    pub fn for_bitcode(context: &DriverContext, wanted: u32, what: &str) -> Result<Llvm> {
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
            let named = Llvm::find(context)?;
            let major = named.major;
            ensure!(major >= wanted, "{what} LLVM {wanted}, whose bitcode clang {major} cannot read. {}", remedy());
            return Ok(named);
        }
        let default = Llvm::find(context)?;
        if default.major == wanted || wanted < OLDEST_LLVM {
            return Ok(default);
        }
        let same = Llvm::installed(context, wanted).filter(|_| is_supported(wanted));
        let newer = || (wanted..=NEWEST_LLVM).find_map(|major| Llvm::installed(context, major));
        match same.or_else(|| Some(default.clone()).filter(|llvm| llvm.major > wanted)).or_else(newer) {
            Some(found) => Ok(found),
            None => bail!("{what} LLVM {wanted}, but the newest clang found is {}. {}", default.major, remedy()),
        }
    }

    /// Returns the LLVM of `TRODDEN_CLANG` or of `CC`, if one of them names a clang.
    ///
    /// # Errors
    /// Fails if it is not supported, or `TRODDEN_CLANG` names no program.
    pub fn named(context: &DriverContext) -> Result<Option<Llvm>> {
        if let Some(word) = context.value(CLANG_VARIABLE) {
            let found = program_named(context, word);
            let found = found.with_context(|| {
                format!("{CLANG_VARIABLE} is {}, which is not a program: set it to the path or the name of a clang", word.display())
            })?;
            return Llvm::from_clang(found, CLANG_VARIABLE).map(Some);
        }
        let Some(cc) = context.value("CC").and_then(|cc| cc.to_str()?.split_whitespace().next()) else { return Ok(None) };
        if !is_clang(Path::new(cc).file_name().and_then(OsStr::to_str).unwrap_or_default()) {
            return Ok(None);
        }
        program_named(context, OsStr::new(cc)).map(|clang| Llvm::from_clang(clang, "CC")).transpose()
    }

    /// Checks the version of a clang that a variable names.
    fn from_clang(clang: PathBuf, variable: &str) -> Result<Llvm> {
        let major = major_of(&clang)?;
        ensure!(
            is_supported(major),
            "{variable} names {}, which is clang {major}, but trodden needs clang {OLDEST_LLVM} to {NEWEST_LLVM}. Install one with \
                {}, and set {CLANG_VARIABLE} to it",
            clang.display(),
            install(Tool::Clang)
        );
        Ok(Llvm { major, clang })
    }

    /// Finds `clang-N`, or the clang of the packages of that version.
    fn installed(context: &DriverContext, major: u32) -> Option<Llvm> {
        let packaged = || Some(packages_folder(major).join(Tool::Clang.name())).filter(|path| is_program(path));
        let clang = compiler_on_path(context, OsStr::new(&format!("clang-{major}"))).or_else(packaged)?;
        Some(Llvm { major, clang })
    }

    /// Checks that this LLVM can read some bytes of the file `file`, if they are bitcode.
    ///
    /// # Errors
    /// Fails if a newer LLVM wrote them.
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

    /// Finds a tool.
    ///
    /// # Errors
    /// Fails if it is not installed; the message names the command that installs it.
    pub fn tool(&self, context: &DriverContext, tool: Tool) -> Result<PathBuf> {
        let versioned = format!("{}-{}", tool.name(), self.major);
        let own_name = self.clang.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let beside = || self.clang.with_file_name(own_name.replacen("clang", tool.name(), 1));
        let found = match tool {
            Tool::Clang => return Ok(self.clang.clone()),
            Tool::ClangCxx => Some(beside()).filter(|path| own_name.contains("clang") && is_program(path)),
            _ => None,
        };
        let in_folder = || {
            let folder = self.folder()?;
            [&*versioned, tool.name()].iter().map(|name| folder.join(name)).find(|path| is_program(path))
        };
        let packaged = || Some(packages_folder(self.major).join(tool.name())).filter(|path| is_program(path));
        let found = found.or_else(in_folder).or_else(|| compiler_on_path(context, OsStr::new(&versioned))).or_else(packaged);
        found.with_context(|| format!("{versioned} is not installed: run `{}` (`trodden doctor` checks the rest)", self.install(tool)))
    }

    /// Returns the command that installs a tool of this version.
    pub fn install(&self, tool: Tool) -> String {
        format!("apt-get install {}-{}", tool.package(), self.major)
    }

    /// Returns the folder with the other tools. `None` if clang is a link to a program with a different name.
    fn folder(&self) -> Option<PathBuf> {
        let file = fs::canonicalize(&self.clang).ok()?;
        let name = file.file_name()?.to_str()?;
        let is_clang = name.strip_prefix("clang").is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        is_clang.then(|| file.parent().unwrap_or(Path::new("/")).to_owned())
    }

    /// Returns the installation's root folder, such as `/opt/llvm-22`; `None` for folders that other programs share, such as `/usr`.
    pub fn root(&self) -> Option<PathBuf> {
        let root = self.folder()?.parent()?.to_owned();
        (root.components().count() > 2 && root != Path::new("/usr/local")).then_some(root)
    }
}

/// Finds a tool for a profile of programs that the LLVM version `wanted` compiled: that of [`Llvm::for_bitcode`] or, on a machine without
/// clang, of that version or a newer one.
///
/// # Errors
/// Fails if it is not installed; the message names the command that installs it.
pub fn find_for_profile(context: &DriverContext, tool: Tool, wanted: u32, what: &str) -> Result<PathBuf> {
    let is_without_clang = || context.value(CLANG_VARIABLE).is_none() && Llvm::find(context).is_err();
    let alone = |major: u32| {
        let packaged = || Some(packages_folder(major).join(tool.name())).filter(|path| is_program(path));
        compiler_on_path(context, OsStr::new(&format!("{}-{major}", tool.name()))).or_else(packaged)
    };
    match Llvm::for_bitcode(context, wanted, what) {
        Ok(llvm) => llvm.tool(context, tool),
        Err(error) if is_without_clang() => (wanted.max(OLDEST_LLVM)..=NEWEST_LLVM).find_map(alone).ok_or(error),
        Err(error) => Err(error),
    }
}

/// Returns the command that installs a tool if no LLVM is found, as part of a message.
pub fn install(tool: Tool) -> String {
    let [oldest, newest] = TESTED_LLVM.map(|major| format!("{}-{major}", tool.package()));
    format!("`apt-get install {newest}` (or `{oldest}`)")
}

/// Whether a major version of LLVM is supported.
pub fn is_supported(major: u32) -> bool {
    (OLDEST_LLVM..=NEWEST_LLVM).contains(&major)
}

fn packages_folder(major: u32) -> PathBuf {
    PathBuf::from(format!("/usr/lib/llvm-{major}/bin"))
}

/// Returns every clang on the search path and in the folders of packages, by version, newest last. The first of a version counts.
pub fn all_clangs(context: &DriverContext) -> BTreeMap<u32, PathBuf> {
    let mut found = BTreeMap::new();
    for folder in context.search_path() {
        let names = fs::read_dir(&folder).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|n| n == "clang" || n.strip_prefix("clang-").is_some_and(is_number)).collect();
        // Versioned names first, as they are preferred.
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let clangs = names.iter().map(|name| folder.join(name)).filter(|path| is_program(path) && !is_launcher(path));
        clangs.filter_map(|path| Some((major_of(&path).ok()?, path))).for_each(|(major, path)| _ = found.entry(major).or_insert(path));
    }
    for major in OLDEST_LLVM..=NEWEST_LLVM {
        let path = packages_folder(major).join(Tool::Clang.name());
        if is_program(&path) {
            found.entry(major).or_insert(path);
        }
    }
    found
}

/// Describes what was found instead of a supported clang.
fn none_found(context: &DriverContext) -> String {
    let found = all_clangs(context);
    let others: Vec<String> = found.iter().rev().map(|(major, path)| format!("clang {major} ({})", path.display())).collect();
    let others = if others.is_empty() { String::new() } else { format!(", only {}", others.join(", ")) };
    format!(
        "no clang from {OLDEST_LLVM} to {NEWEST_LLVM} is installed{others}: run {}, or set {CLANG_VARIABLE} \
            (`trodden doctor` checks the rest)",
        install(Tool::Clang)
    )
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Returns the major version of a clang.
///
/// # Errors
/// Fails if the program cannot be run, or is not clang.
pub fn major_of(clang: &Path) -> Result<u32> {
    if let Some(major) = fs::canonicalize(clang).ok().and_then(|file| major_in_path(&file)) {
        return Ok(major);
    }
    let output = Command::new(clang).arg("--version").output().with_context(|| format!("cannot run {}", clang.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_once("clang version ").map(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    let major = version.and_then(|version| version.parse().ok());
    major.with_context(|| format!("`{} --version` names no version of clang", clang.display()))
}

/// Returns the version in the path of a clang: `clang-19`, or `llvm-19/bin/clang`.
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

/// Whether a name is that of a clang: `clang`, maybe with a target before it and a version after it.
fn is_clang(name: &str) -> bool {
    let kind = name.rsplit_once('-').filter(|(_, version)| is_number(version)).map_or(name, |(kind, _)| kind);
    kind == "clang" || kind.ends_with("-clang")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    /// Creates a folder with programs, each of which prints the given version.
    fn with_programs(programs: &[(&str, u32)]) -> TempDir {
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

    fn found(folder: &TempDir, variables: &[(&str, &str)]) -> (u32, PathBuf) {
        let llvm = Llvm::find(&context(folder, variables)).unwrap();
        (llvm.major, llvm.clang.strip_prefix(folder.path()).unwrap().to_owned())
    }

    #[test]
    fn variables_come_before_the_newest_supported_clang() {
        let folder = with_programs(&[("clang", 30), ("clang-14", 14), ("clang-19", 19), ("clang-22", 22), ("clang++-22", 22)]);
        assert_eq!(found(&folder, &[]), (22, "clang-22".into()));
        assert_eq!(found(&folder, &[("CC", "clang-19 -m64")]), (19, "clang-19".into()));
        assert_eq!(found(&folder, &[("CC", "gcc-12")]), (22, "clang-22".into()));
        assert_eq!(found(&folder, &[("CC", "clang-22"), ("TRODDEN_CLANG", "clang-19")]), (19, "clang-19".into()));
        let context = context(&folder, &[]);
        let llvm = Llvm::find(&context).unwrap();
        assert_eq!(llvm.tool(&context, Tool::ClangCxx).unwrap(), folder.path().join("clang++-22"));
        assert_eq!(Llvm::called(&context, "x86_64-linux-gnu-clang-19").unwrap().major, 19);
        assert_eq!(["clang", "gcc-12", "clang-20"].map(|name| Llvm::called(&context, name).unwrap().major), [22; 3]);
        let error = Llvm::called(&context, "clang-14").unwrap_err().to_string();
        assert!(error.contains("calls clang-14") && error.contains("supports clang 19 to 22"), "{error}");
    }

    /// Debian's ccache has links for all compilers in a folder that users put first in PATH.
    #[test]
    fn links_to_a_compiler_cache_are_skipped() {
        let folder = with_programs(&[("ccache", 22), ("clang-22", 22)]);
        let links = folder.path().join("links");
        fs::create_dir(&links).unwrap();
        std::os::unix::fs::symlink("../ccache", links.join("clang-22")).unwrap();
        let path = format!("{}:{}", links.display(), folder.path().display());
        let link = links.join("clang-22").display().to_string();
        for (name, word) in [("CC", "clang-22"), ("TRODDEN_CLANG", "clang-22"), ("CC", &link), ("TRODDEN_CLANG", &link)] {
            let context = DriverContext::in_folder(folder.path(), &[("PATH", &path), (name, word)]);
            assert_eq!(Llvm::find(&context).unwrap().clang, folder.path().join("clang-22"), "{name}={word}");
        }
    }

    #[test]
    fn clang_without_a_version_in_its_name_is_asked() {
        let folder = with_programs(&[("my-clang", 20), ("clang", 21)]);
        let named = folder.path().join("my-clang");
        assert_eq!(found(&folder, &[("TRODDEN_CLANG", named.to_str().unwrap())]), (20, "my-clang".into()));
        assert_eq!(all_clangs(&context(&folder, &[])).get(&21), Some(&folder.path().join("clang")));
    }

    #[test]
    fn other_versions_are_refused_with_the_version_and_a_remedy() {
        let folder = with_programs(&[("clang-18", 18), ("clang-23", 23), ("clang-19", 19)]);
        for (variable, name, version) in [("CC", "clang-18", "clang 18"), ("TRODDEN_CLANG", "clang-23", "clang 23")] {
            let said = Llvm::find(&context(&folder, &[(variable, name)])).unwrap_err().to_string();
            assert!(said.contains(version) && said.contains("19 to 22") && said.contains("apt-get install"), "{said}");
        }
        let said = Llvm::find(&context(&folder, &[("TRODDEN_CLANG", "/nowhere/clang")])).unwrap_err().to_string();
        assert!(said.contains("/nowhere/clang, which is not a program"), "{said}");
    }

    #[test]
    fn bitcode_is_compiled_by_its_own_version_or_a_newer_one() {
        let folder = with_programs(&[("clang-19", 19), ("clang-21", 21), ("clang-22", 22)]);
        let major =
            |wanted, variables: &[_]| Llvm::for_bitcode(&context(&folder, variables), wanted, "a.c was compiled by").map(|llvm| llvm.major);
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
