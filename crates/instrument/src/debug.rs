//! Source positions from debug information: files, functions, chains of inlining.
//!
//! LLVM-C has no accessors for the names of debug scopes, so they are read from the operands of the metadata nodes. Operand order is that
//! of LLVM's `DISubprogram` (file, scope, name, linkage name, ...) and `DILexicalBlock` (file, scope, ...).

use crate::handle_map::HandleMap;
use crate::llvm::{Module, Value, file_name, llvm};
use indexmap::IndexMap;
use llvm_sys::core::*;
use llvm_sys::debuginfo::LLVMMetadataKind;
use llvm_sys::debuginfo::*;
use llvm_sys::prelude::LLVMMetadataRef;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use trodden_unit::{Scope, SourcePosition};

/// Collects the files and scopes that positions refer to.
pub struct Positions {
    module: Module,
    /// File names, in order of first use.
    pub files: Vec<String>,
    /// Functions and their inlined instances, callers first.
    pub scopes: Vec<Scope>,
    file_numbers: IndexMap<String, u32>,
    /// File numbers by metadata node, so that each path is normalised once.
    node_numbers: HandleMap<LLVMMetadataRef, u32>,
    scope_numbers: HandleMap<(LLVMMetadataRef, LLVMMetadataRef), u32>,
}

impl Positions {
    pub fn new(module: Module) -> Positions {
        Positions {
            module,
            files: Vec::new(),
            scopes: Vec::new(),
            file_numbers: IndexMap::new(),
            node_numbers: HandleMap::default(),
            scope_numbers: HandleMap::default(),
        }
    }

    /// Returns the source position of an instruction; `None` without debug information, and for compiler-generated code (line 0).
    pub fn of(&mut self, instruction: Value) -> Option<SourcePosition> {
        let position = self.at(instruction.location()?)?;
        (position.line != 0).then_some(position)
    }

    /// Returns the position of a function's declaration.
    pub fn of_function(&mut self, function: Value) -> Option<SourcePosition> {
        let scope = self.scope(subprogram(function)?, std::ptr::null_mut())?;
        let Scope { file, line, .. } = self.scopes[scope as usize];
        Some(SourcePosition { scope, file, line, column: 0 })
    }

    /// Returns the compiler that produced the function's compile unit, from debug information.
    pub fn producer(&self, function: Value) -> Option<String> {
        let unit = self.operands(subprogram(function)?).into_iter().flatten().find(|o| {
            let node = llvm!(LLVMValueAsMetadata(o.0));
            matches!(kind(node), LLVMMetadataKind::LLVMDICompileUnitMetadataKind)
        })?;
        unit.metadata_operands().get(1).copied().flatten()?.metadata_text()
    }

    fn at(&mut self, location: LLVMMetadataRef) -> Option<SourcePosition> {
        let inlined_at = llvm!(LLVMDILocationGetInlinedAt(location));
        let local = llvm!(LLVMDILocationGetScope(location));
        let file = self.file(llvm!(LLVMDIScopeGetFile(local)));
        let scope = self.scope(self.subprogram(local)?, inlined_at)?;
        let line = llvm!(LLVMDILocationGetLine(location));
        Some(SourcePosition { scope, file, line, column: llvm!(LLVMDILocationGetColumn(location)) })
    }

    /// Returns the function that contains a lexical block.
    fn subprogram(&self, mut scope: LLVMMetadataRef) -> Option<LLVMMetadataRef> {
        while !matches!(kind(scope), LLVMMetadataKind::LLVMDISubprogramMetadataKind) {
            let outer = self.operands(scope).get(1).copied().flatten()?;
            scope = llvm!(LLVMValueAsMetadata(outer.0));
        }
        Some(scope)
    }

    fn scope(&mut self, subprogram: LLVMMetadataRef, inlined_at: LLVMMetadataRef) -> Option<u32> {
        if let Some(&known) = self.scope_numbers.get(&(subprogram, inlined_at)) {
            return Some(known);
        }
        let caller = if inlined_at.is_null() { None } else { Some(self.at(inlined_at)?) };
        let operands = self.operands(subprogram);
        let name = |at: usize| operands.get(at).copied().flatten().and_then(Value::metadata_text).unwrap_or_default();
        let (name, linkage_name) = (name(2), name(3));
        let file = self.file(llvm!(LLVMDIScopeGetFile(subprogram)));
        let line = llvm!(LLVMDISubprogramGetLine(subprogram));
        let number = self.scopes.len() as u32;
        let linkage_name = if linkage_name == name { String::new() } else { linkage_name };
        self.scopes.push(Scope { name, linkage_name, file, line, inlined_at: caller });
        self.scope_numbers.insert((subprogram, inlined_at), number);
        Some(number)
    }

    fn file(&mut self, file: LLVMMetadataRef) -> u32 {
        let (files, numbers) = (&mut self.files, &mut self.file_numbers);
        *self.node_numbers.entry(file).or_insert_with(|| {
            *numbers.entry(path_of(file)).or_insert_with_key(|path| {
                files.push(path.clone());
                files.len() as u32 - 1
            })
        })
    }

    fn operands(&self, node: LLVMMetadataRef) -> Vec<Option<Value>> {
        Value(llvm!(LLVMMetadataAsValue(self.module.context(), node))).metadata_operands()
    }
}

/// Returns a file's path; empty for a null node.
pub fn path_of(file: LLVMMetadataRef) -> String {
    if file.is_null() {
        return String::new();
    }
    match file_name(file) {
        (folder, name) if name.starts_with('/') || folder.is_empty() => normalise(&name),
        (folder, name) => normalise(&format!("{folder}/{name}")),
    }
}

/// Normalises a path: removes `.`, and `..` if the result is the same file. Different units may include a header by different paths.
fn normalise(path: &str) -> String {
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

/// Returns a function's `DISubprogram`; `None` without debug information.
pub fn subprogram(function: Value) -> Option<LLVMMetadataRef> {
    let found = llvm!(LLVMGetSubprogram(function.0));
    (!found.is_null()).then_some(found)
}

fn kind(node: LLVMMetadataRef) -> LLVMMetadataKind {
    llvm!(LLVMGetMetadataKind(node))
}

/// Returns a location with line 0 in a function, for code without a source line; `None` without debug information.
pub fn no_line(module: Module, function: Value) -> Option<LLVMMetadataRef> {
    let scope = subprogram(function)?;
    Some(llvm!(LLVMDIBuilderCreateDebugLocation(module.context(), 0, 0, scope, std::ptr::null_mut())))
}
