//! Compiles bitcode of crates and caches the resulting objects.

use super::CONFIGURATION_VARIABLE;
use crate::assets::TEMPORARY_PREFIX;
use crate::compile_step::CODEGEN_SEPARATOR;
use crate::context::DriverContext;
use crate::experiment;
use crate::rebuild::BitcodeCompiler;
use crate::store_size::CRATES_FOLDER;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::atomic_file;
use trodden_unit::{CodegenOptions, Identity};

pub struct CrateCompiler {
    pub compiler: BitcodeCompiler,
    pub codegen: CodegenOptions,
    /// The part of the cache key that all results of this compiler have in common.
    pub shared: String,
    pub cache: PathBuf,
}

impl CrateCompiler {
    pub fn new(context: &DriverContext, codegen: Vec<String>) -> Result<CrateCompiler> {
        let compiler = BitcodeCompiler::new(context, experiment::variable_for_plugin(context).into())?;
        let way = context.variable(CONFIGURATION_VARIABLE).and_then(OsStr::to_str).unwrap_or_default();
        let shared = format!("{way} {} {}", compiler.identity_of_clang()?, codegen.join(CODEGEN_SEPARATOR));
        let cache = context.store()?.root().join(CRATES_FOLDER);
        Ok(CrateCompiler { compiler, codegen: CodegenOptions::from_command_line(codegen), shared, cache })
    }

    /// Returns true if code is compiled without optimisation. Then the plugin's process-wide options have no effect.
    pub fn is_unoptimised(&self) -> bool {
        self.codegen.arguments().iter().any(|argument| argument == "-O0")
    }

    /// Returns the cache file for the result of applying a compilation step to this content. The step's name is part of the cache key.
    pub fn cache_file(&self, step: &str, content: Identity, extension: &str) -> PathBuf {
        let key = Identity::from_content(format!("{content} {step} {}", self.shared).as_bytes()).to_string();
        self.cache.join(&key[..2]).join(format!("{key}.{extension}"))
    }

    pub fn move_to_cache(&self, made: &Path, file: &Path) -> Result<()> {
        let bytes = fs::read(made).with_context(|| format!("cannot read {}", made.display()))?;
        atomic_file::write_unsynced(file, TEMPORARY_PREFIX, &bytes).with_context(|| format!("cannot write {}", file.display()))?;
        fs::remove_file(made).with_context(|| format!("cannot remove {}", made.display()))
    }

    /// Returns the object that is compiled from some bitcode. If it is not cached, compiles the bitcode in `folder`.
    pub fn compile_object(&self, bitcode: &[u8], is_counted: bool, folder: &Path) -> Result<PathBuf> {
        let path = self.cache_file(if is_counted { "counted" } else { "plain" }, Identity::from_content(bitcode), "o");
        if path.is_file() {
            return Ok(path);
        }
        let object = folder.join(path.file_name().expect("files of the cache have names"));
        let module = object.with_extension("bc");
        fs::write(&module, bitcode).with_context(|| format!("cannot write {}", module.display()))?;
        let command = match is_counted {
            true => self.compiler.command(&module, &self.codegen, &object),
            false => self.compiler.plain_command(&module, &self.codegen, &object),
        };
        self.compiler.run(command, &module)?;
        fs::remove_file(&module).with_context(|| format!("cannot remove {}", module.display()))?;
        self.move_to_cache(&object, &path)?;
        Ok(path)
    }
}
