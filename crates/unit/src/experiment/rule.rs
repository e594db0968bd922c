//! Rules between settings, and the errors for settings that violate them.

use super::settings::Settings;
use std::fmt;

/// Something that settings may request.
#[derive(Clone, Copy)]
pub struct Choice {
    /// How users request it: by the option, and by the setting if there is no option or its name differs.
    pub spelling: &'static str,
    /// Returns whether settings request it.
    pub is_made: fn(&Settings) -> bool,
}

/// A relation between two choices.
pub struct Rule {
    /// The choice that is restricted.
    pub one: Choice,
    /// Its relation to the other.
    pub relation: Relation,
    /// The choice that it needs or excludes.
    pub other: Choice,
    /// The reason.
    pub reason: &'static str,
    /// What to do instead.
    pub remedy: &'static str,
}

/// How one choice restricts another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They cannot be combined.
    Excludes,
    /// The first requires the second.
    Needs,
}

/// Settings that cannot be combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsConflict {
    /// The choice that is restricted.
    pub one: &'static str,
    /// Its relation to the other.
    pub relation: Relation,
    /// The choice that it excludes or needs.
    pub other: &'static str,
    /// The reason.
    pub reason: String,
    /// What to do instead.
    pub remedy: &'static str,
}

impl fmt::Display for SettingsConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SettingsConflict { one, relation, other, reason, remedy } = self;
        let relation = match relation {
            Relation::Excludes => "cannot be combined with",
            Relation::Needs => "requires",
        };
        write!(f, "{one} {relation} {other}: {reason}; {remedy}")
    }
}

impl std::error::Error for SettingsConflict {}

impl Rule {
    /// Returns whether settings violate the rule.
    pub(super) fn is_broken(&self, settings: &Settings) -> bool {
        (self.one.is_made)(settings)
            && match self.relation {
                Relation::Excludes => (self.other.is_made)(settings),
                Relation::Needs => !(self.other.is_made)(settings),
            }
    }

    /// Returns the error for settings that violate the rule.
    pub(super) fn excluded(&self) -> SettingsConflict {
        let Rule { one, relation, other, reason, remedy } = self;
        SettingsConflict { one: one.spelling, relation: *relation, other: other.spelling, reason: (*reason).into(), remedy }
    }
}
