//! Source positions from debug information: files, functions, chains of inlining.
//!
//! LLVM-C has no accessors for the names of debug scopes, so they are read from the operands of the metadata nodes. Operand order is that
//! of LLVM's `DISubprogram` (file, scope, name, linkage name, ...) and `DILexicalBlock` (file, scope, ...).

use crate::handle_map::HandleMap;
use crate::llvm::{DebugFile, DebugLocation, LocalScope, Metadata, Module, Subprogram, Value};
use indexmap::IndexMap;
use llvm_sys::debuginfo::LLVMMetadataKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use trodden_unit::{Scope, SourcePosition};

/// Collects the files and scopes that positions refer to.
pub struct SourcePositionCollector {
    module: Module,
    /// File names, in order of first use.
    pub files: Vec<String>,
    /// Functions and their inlined instances, callers first.
    pub scopes: Vec<Scope>,
    file_numbers: IndexMap<String, u32>,
    /// File numbers by metadata node, so that each path is normalised once.
    node_numbers: HandleMap<Option<DebugFile>, u32>,
    scope_numbers: HandleMap<(Subprogram, Option<DebugLocation>), u32>,
}

impl SourcePositionCollector {
    pub fn new(module: Module) -> SourcePositionCollector {
        SourcePositionCollector {
            module,
            files: Vec::new(),
            scopes: Vec::new(),
            file_numbers: IndexMap::new(),
            node_numbers: HandleMap::default(),
            scope_numbers: HandleMap::default(),
        }
    }

    /// Returns the source position of an instruction; `None` without debug information, and for compiler-generated code (line 0).
    pub fn position_of(&mut self, instruction: Value) -> Option<SourcePosition> {
        let position = self.position_at(instruction.location()?)?;
        (position.line != 0).then_some(position)
    }

    /// Returns the position at which a function is declared; `None` without debug information.
    pub fn position_of_function(&mut self, function: Value) -> Option<SourcePosition> {
        let scope = self.scope_number(function.subprogram()?, None)?;
        let Scope { file, line, .. } = self.scopes[scope as usize];
        Some(SourcePosition { scope, file, line, column: 0 })
    }

    /// Returns the compiler that produced the function's compile unit, from debug information.
    pub fn compiler_name(&self, function: Value) -> Option<String> {
        let is_unit = |o: &Value| matches!(o.as_metadata().metadata_kind(), LLVMMetadataKind::LLVMDICompileUnitMetadataKind);
        let unit = self.operands(function.subprogram()?.into()).into_iter().flatten().find(is_unit)?;
        unit.metadata_operands().get(1).copied().flatten()?.metadata_text()
    }

    fn position_at(&mut self, location: DebugLocation) -> Option<SourcePosition> {
        let file = self.file_number(location.scope().file());
        let scope = self.scope_number(self.enclosing_subprogram(location.scope())?, location.inlined_at())?;
        Some(SourcePosition { scope, file, line: location.line(), column: location.column() })
    }

    /// Returns the function that contains a lexical block.
    fn enclosing_subprogram(&self, scope: LocalScope) -> Option<Subprogram> {
        let mut node = Metadata::from(scope);
        loop {
            if let Some(subprogram) = node.as_subprogram() {
                return Some(subprogram);
            }
            node = self.operands(node).get(1).copied().flatten()?.as_metadata();
        }
    }

    fn scope_number(&mut self, subprogram: Subprogram, inlined_at: Option<DebugLocation>) -> Option<u32> {
        if let Some(&known) = self.scope_numbers.get(&(subprogram, inlined_at)) {
            return Some(known);
        }
        let caller = match inlined_at {
            Some(call) => Some(self.position_at(call)?),
            None => None,
        };
        let operands = self.operands(subprogram.into());
        let name = |at: usize| operands.get(at).copied().flatten().and_then(Value::metadata_text).unwrap_or_default();
        let (name, linkage_name) = (name(2), name(3));
        let (file, line) = (self.file_number(subprogram.file()), subprogram.line());
        let number = self.scopes.len() as u32;
        let linkage_name = if linkage_name == name { String::new() } else { linkage_name };
        self.scopes.push(Scope { name, linkage_name, file, line, inlined_at: caller });
        self.scope_numbers.insert((subprogram, inlined_at), number);
        Some(number)
    }

    fn file_number(&mut self, file: Option<DebugFile>) -> u32 {
        let (files, numbers) = (&mut self.files, &mut self.file_numbers);
        *self.node_numbers.entry(file).or_insert_with(|| {
            *numbers.entry(path_of_file(file)).or_insert_with_key(|path| {
                files.push(path.clone());
                files.len() as u32 - 1
            })
        })
    }

    fn operands(&self, node: Metadata) -> Vec<Option<Value>> {
        self.module.context().as_value(node).metadata_operands()
    }
}

/// Returns a file's path; empty if there is none.
pub fn path_of_file(file: Option<DebugFile>) -> String {
    let Some(file) = file else { return String::new() };
    match file.folder_and_name() {
        (folder, name) if name.starts_with('/') || folder.is_empty() => normalise_path(&name),
        (folder, name) => normalise_path(&format!("{folder}/{name}")),
    }
}

/// Normalises a path: removes `.`, and `..` if the result is the same file. Different units may include a header by different paths.
fn normalise_path(path: &str) -> String {
    let (mut short, mut goes_up) = (PathBuf::new(), false);
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir if short.file_name().is_some() => goes_up = short.pop(),
            _ => short.push(component),
        }
    }
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    if goes_up && identity(&short) != identity(Path::new(path)) {
        short = Path::new(path).components().collect();
    }
    short.into_os_string().into_string().unwrap_or_else(|_| path.to_owned())
}

/// Returns a location with line 0 in a function, for code without a source line; `None` without debug information.
pub fn location_without_line(module: Module, function: Value) -> Option<DebugLocation> {
    Some(module.context().location_without_line(function.subprogram()?))
}
