//! What one choice has to do with another, and the refusal of settings that do not heed it.

use super::settings::Settings;
use std::fmt;

/// Something that settings may ask for.
#[derive(Clone, Copy)]
pub struct Choice {
    /// How people ask for it: the option, and the setting where there is no option or it reads otherwise.
    pub spelling: &'static str,
    /// Whether settings ask for it.
    pub is_made: fn(&Settings) -> bool,
}

/// What one choice has to do with another.
pub struct Rule {
    /// What is asked for.
    pub one: Choice,
    /// How it stands to the other.
    pub relation: Relation,
    /// What it needs or excludes.
    pub other: Choice,
    /// Why.
    pub reason: &'static str,
    /// What to do instead.
    pub remedy: &'static str,
}

/// How two choices stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They cannot be had together.
    Excludes,
    /// The first makes no sense without the second.
    Needs,
}

/// Settings that make no sense together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// What is asked for.
    pub one: &'static str,
    /// How it stands to the other.
    pub relation: Relation,
    /// What it excludes or needs.
    pub other: &'static str,
    /// Why.
    pub reason: String,
    /// What to do instead.
    pub remedy: &'static str,
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Excluded { one, relation, other, reason, remedy } = self;
        let relation = match relation {
            Relation::Excludes => "does not go together with",
            Relation::Needs => "makes no sense without",
        };
        write!(f, "{one} {relation} {other}: {reason}; {remedy}")
    }
}

impl std::error::Error for Excluded {}

impl Rule {
    /// Whether settings break it.
    pub(super) fn is_broken(&self, settings: &Settings) -> bool {
        (self.one.is_made)(settings)
            && match self.relation {
                Relation::Excludes => (self.other.is_made)(settings),
                Relation::Needs => !(self.other.is_made)(settings),
            }
    }

    /// What is said of settings that break it.
    pub(super) fn excluded(&self) -> Excluded {
        let Rule { one, relation, other, reason, remedy } = self;
        Excluded { one: one.spelling, relation: *relation, other: other.spelling, reason: (*reason).into(), remedy }
    }
}
