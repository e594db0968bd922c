//! Which operations each branch class performs on the path stack. This is the content of the profiler's control register (section 5.2).
//!
//! The mapping is programmable within two restrictions. A branch performs either `update`, which records it in the path and adds its
//! events, or `update-count`, which only adds its events. The order of operations is fixed: update, pop, push. A branch is a backward
//! branch if its target is at the branch or before it. The paper does not define the operations of a backward branch that is not taken. In
//! the presets, such a branch also ends the path, and the next path begins at the next instruction, because the paper's classes depend only
//! on a branch's address and target.

use crate::error::HardwareError;
use crate::names::names;
use crate::stream::{BranchKind, RetiredBranch};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The classes into which the profiler divides branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BranchType {
    /// A call to a fixed or a computed address.
    Call,
    /// A return.
    Return,
    /// A conditional branch or jump to a later address.
    Forward,
    /// A taken conditional branch or jump, to its own or an earlier address.
    Backward,
    /// A conditional branch to its own or an earlier address, if it is not taken.
    BackwardNotTaken,
    /// A jump to a computed address.
    Indirect,
}

names! {
    BranchType {
        Call "call", Return "return", Forward "forward", Backward "backward", BackwardNotTaken "backward-not-taken", Indirect "indirect"
    }
}

impl BranchType {
    /// Classifies a branch.
    pub fn from_branch(branch: &RetiredBranch) -> BranchType {
        match branch.kind {
            BranchKind::Call | BranchKind::IndirectCall => BranchType::Call,
            BranchKind::Return => BranchType::Return,
            BranchKind::IndirectJump => BranchType::Indirect,
            BranchKind::Conditional | BranchKind::Jump if branch.target > branch.address => BranchType::Forward,
            BranchKind::Conditional | BranchKind::Jump if branch.is_taken => BranchType::Backward,
            BranchKind::Conditional | BranchKind::Jump => BranchType::BackwardNotTaken,
        }
    }
}

/// The operations that a branch class performs, in execution order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathStackOperations {
    /// Whether the branch is recorded in the path on top of the stack. Otherwise, the branch only updates that path's event counter.
    pub update: bool,
    /// Whether the path on top ends.
    pub pop: bool,
    /// Whether a new path begins at the next instruction that is executed.
    pub push: bool,
}

/// The branches across which paths are extended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathExtension {
    /// Paths are not extended.
    #[default]
    None,
    /// A path is extended across at most this many backward branches.
    Loops(u16),
    /// A path is extended across at most this many calls that have not returned yet.
    Calls(u16),
}

/// The operations of all branch classes, and how paths are extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationMapping {
    rows: [PathStackOperations; 6],
    /// The branches across which paths are extended.
    pub extension: PathExtension,
}

/// A named mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MappingPreset {
    /// Acyclic paths within a procedure: table 5.1.
    BallLarus,
    /// Paths that also end at calls, for recording whole program paths: table 5.2.
    WholeProgram,
    /// Like `BallLarus`, but paths are extended across backward branches.
    ExtendedLoops,
    /// Like `BallLarus`, but paths are extended across calls.
    ExtendedCalls,
}

names! {
    MappingPreset {
        BallLarus "ball-larus", WholeProgram "whole-program", ExtendedLoops "extended-loops", ExtendedCalls "extended-calls"
    }
}

const fn operations(update: bool, pop: bool, push: bool) -> PathStackOperations {
    PathStackOperations { update, pop, push }
}

/// Table 5.1, in the order of [`BranchType::ALL`].
const BALL_LARUS_OPERATIONS: [PathStackOperations; 6] = [
    operations(false, false, true),
    operations(false, true, false),
    operations(true, false, false),
    operations(true, true, true),
    operations(true, true, true),
    operations(true, true, true),
];
/// Table 5.2.
const WHOLE_PROGRAM_OPERATIONS: [PathStackOperations; 6] = [
    operations(false, true, true),
    operations(false, true, true),
    operations(true, false, false),
    operations(true, true, true),
    operations(true, true, true),
    operations(true, true, true),
];

impl OperationMapping {
    /// Returns the mapping of a preset. Only the extended presets use `extensions`: the maximum number of backward branches or calls that
    /// a path is extended across.
    pub fn preset(preset: MappingPreset, extensions: u16) -> OperationMapping {
        match preset {
            MappingPreset::BallLarus => OperationMapping { rows: BALL_LARUS_OPERATIONS, extension: PathExtension::None },
            MappingPreset::WholeProgram => OperationMapping { rows: WHOLE_PROGRAM_OPERATIONS, extension: PathExtension::None },
            MappingPreset::ExtendedLoops => OperationMapping { rows: BALL_LARUS_OPERATIONS, extension: PathExtension::Loops(extensions) },
            MappingPreset::ExtendedCalls => OperationMapping { rows: BALL_LARUS_OPERATIONS, extension: PathExtension::Calls(extensions) },
        }
    }

    /// Parses a mapping from TOML: a preset, and the branch classes whose operations differ from it.
    ///
    /// ```toml
    /// preset = "ball-larus"     # the default
    /// extend = "loops"          # or "calls", "none"
    /// extensions = 2
    /// [mapping]
    /// backward-not-taken = ["update"]
    /// call = ["update-count", "push"]
    /// ```
    ///
    /// # Errors
    /// Fails if the text is not valid TOML, contains an unknown name, or violates a restriction of the hardware.
    pub fn from_toml(text: &str) -> Result<OperationMapping, HardwareError> {
        let file: MappingFile = toml::from_str(text).map_err(|e| HardwareError::Syntax(e.to_string()))?;
        file.to_mapping()
    }

    /// Returns the operations of a branch class.
    pub fn operations(&self, class: BranchType) -> PathStackOperations {
        self.rows[class as usize]
    }

    /// Returns true if the path stack has exactly one entry for each active procedure, so that each entry has one return address.
    pub fn follows_procedures(&self) -> bool {
        let (call, back) = (self.operations(BranchType::Call), self.operations(BranchType::Return));
        call.push && !call.pop && back.pop && !back.push
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct MappingFile {
    preset: Option<String>,
    extend: Option<String>,
    extensions: Option<u16>,
    #[serde(default)]
    mapping: BTreeMap<String, Vec<String>>,
}

impl MappingFile {
    fn to_mapping(&self) -> Result<OperationMapping, HardwareError> {
        let extensions = self.extensions.unwrap_or(1);
        let name = self.preset.as_deref().unwrap_or("ball-larus");
        let preset = MappingPreset::from_name(name)
            .ok_or_else(|| HardwareError::parameter("preset", name, "ball-larus, whole-program, extended-loops or extended-calls"))?;
        let mut mapping = OperationMapping::preset(preset, extensions);
        match self.extend.as_deref() {
            None => {}
            Some("none") => mapping.extension = PathExtension::None,
            Some("loops") => mapping.extension = PathExtension::Loops(extensions),
            Some("calls") => mapping.extension = PathExtension::Calls(extensions),
            Some(other) => return Err(HardwareError::parameter("extend", other, "none, loops or calls")),
        }
        for (class, operations) in &self.mapping {
            let class = BranchType::from_name(class).ok_or_else(|| {
                HardwareError::parameter("mapping", class, "one of call, return, forward, backward, backward-not-taken and indirect")
            })?;
            mapping.rows[class as usize] = parse_operations(class, operations)?;
        }
        // If the file has no row for backward branches that are not taken, the row for taken ones also applies to them.
        if !self.mapping.contains_key(BranchType::BackwardNotTaken.name()) {
            mapping.rows[BranchType::BackwardNotTaken as usize] = mapping.rows[BranchType::Backward as usize];
        }
        Ok(mapping)
    }
}

fn parse_operations(class: BranchType, names: &[String]) -> Result<PathStackOperations, HardwareError> {
    let has = |name: &str| names.iter().any(|n| n == name);
    if let Some(other) = names.iter().find(|n| !["update", "update-count", "pop", "push"].contains(&n.as_str())) {
        return Err(HardwareError::parameter(class.name(), other, "one of the operations update, update-count, pop and push"));
    }
    if has("update") && has("update-count") {
        return Err(HardwareError::parameter(class.name(), "update and update-count", "one of the two, as the hardware cannot do both"));
    }
    let place = |name: &String| ["update", "update-count", "pop", "push"].iter().position(|o| o == name);
    if names.windows(2).any(|pair| place(&pair[0]) >= place(&pair[1])) {
        return Err(HardwareError::parameter(
            class.name(),
            names.join(", "),
            "in the hardware's order, each at most once: update or update-count, pop, push",
        ));
    }
    Ok(PathStackOperations { update: has("update"), pop: has("pop"), push: has("push") })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rows of a mapping as the paper prints them: update, update-count, pop, push.
    fn printed_rows(mapping: &OperationMapping) -> Vec<(&'static str, [bool; 4])> {
        let row = |class: BranchType| {
            let o = mapping.operations(class);
            (class.name(), [o.update, !o.update, o.pop, o.push])
        };
        [BranchType::Call, BranchType::Return, BranchType::Forward, BranchType::Backward, BranchType::Indirect].map(row).to_vec()
    }

    #[test]
    fn ball_larus_preset_is_table_5_1() {
        let (x, o) = (false, true);
        let expected = vec![
            ("call", [x, o, x, o]),
            ("return", [x, o, o, x]),
            ("forward", [o, x, x, x]),
            ("backward", [o, x, o, o]),
            ("indirect", [o, x, o, o]),
        ];
        assert_eq!(printed_rows(&OperationMapping::preset(MappingPreset::BallLarus, 1)), expected);
        assert!(OperationMapping::preset(MappingPreset::BallLarus, 1).follows_procedures());
    }

    #[test]
    fn whole_program_preset_is_table_5_2() {
        let (x, o) = (false, true);
        let expected = vec![
            ("call", [x, o, o, o]),
            ("return", [x, o, o, o]),
            ("forward", [o, x, x, x]),
            ("backward", [o, x, o, o]),
            ("indirect", [o, x, o, o]),
        ];
        assert_eq!(printed_rows(&OperationMapping::preset(MappingPreset::WholeProgram, 1)), expected);
        assert!(!OperationMapping::preset(MappingPreset::WholeProgram, 1).follows_procedures());
    }

    #[test]
    fn files_start_from_a_preset() {
        let mapping = OperationMapping::from_toml("preset = \"whole-program\"\n[mapping]\ncall = [\"update-count\", \"push\"]\n").unwrap();
        assert_eq!(mapping.operations(BranchType::Call), operations(false, false, true));
        assert_eq!(mapping.operations(BranchType::Return), operations(false, true, true));
        assert_eq!(OperationMapping::from_toml("").unwrap(), OperationMapping::preset(MappingPreset::BallLarus, 1));
        let extended = OperationMapping::from_toml("extend = \"loops\"\nextensions = 3").unwrap();
        assert_eq!(extended, OperationMapping::preset(MappingPreset::ExtendedLoops, 3));
        let open = OperationMapping::from_toml("[mapping]\nbackward-not-taken = [\"update\"]").unwrap();
        assert_eq!(open.operations(BranchType::BackwardNotTaken), operations(true, false, false));
        let moved = OperationMapping::from_toml("[mapping]\nbackward = [\"update\"]").unwrap();
        assert_eq!(moved.operations(BranchType::BackwardNotTaken), operations(true, false, false));
    }

    #[test]
    fn mappings_outside_the_hardware_restrictions_are_rejected() {
        for (text, word) in [
            ("preset = \"x\"", "ball-larus"),
            ("extend = \"x\"", "loops or calls"),
            ("color = 1", "unknown field"),
            ("[mapping]\njump = []", "backward-not-taken"),
            ("[mapping]\ncall = [\"update\", \"update-count\"]", "one of the two"),
            ("[mapping]\ncall = [\"push\", \"pop\"]", "order"),
            ("[mapping]\ncall = [\"turn\"]", "operations"),
        ] {
            let error = OperationMapping::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
