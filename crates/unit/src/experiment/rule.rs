//! Rules about which settings can be combined, and the errors for settings that violate them.

use super::settings::Settings;
use std::fmt;

/// A feature that settings may request.
#[derive(Clone, Copy)]
pub struct RequestedFeature {
    /// The option that requests the feature. The text includes the setting if there is no option, or if the setting's name is different.
    pub spelling: &'static str,
    /// Returns true if settings request the feature.
    pub is_requested: fn(&Settings) -> bool,
}

/// A rule about two features.
pub struct FeatureRule {
    /// The feature that the rule restricts.
    pub one: RequestedFeature,
    /// Whether it excludes or needs the other feature.
    pub relation: Relation,
    /// The other feature.
    pub other: RequestedFeature,
    /// The reason for the rule, as a clause.
    pub reason: &'static str,
    /// Advice, as an imperative clause.
    pub remedy: &'static str,
}

/// Relation of one feature to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The two cannot be combined.
    Excludes,
    /// The first requires the second.
    Needs,
}

/// Settings that cannot be combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsConflict {
    /// The feature that is restricted, as users spell it.
    pub one: &'static str,
    /// Whether it excludes or needs the other feature.
    pub relation: Relation,
    /// The other feature, as users spell it.
    pub other: &'static str,
    /// The reason.
    pub reason: String,
    /// Advice, as an imperative clause.
    pub remedy: &'static str,
}

impl fmt::Display for SettingsConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SettingsConflict { one, relation, other, reason, remedy } = self;
        let relation = match relation {
            Relation::Excludes => "cannot be combined with",
            Relation::Needs => "requires",
        };
        write!(f, "{one} {relation} {other}, because {reason}; {remedy}")
    }
}

impl std::error::Error for SettingsConflict {}

impl FeatureRule {
    pub(super) fn is_violated_by(&self, settings: &Settings) -> bool {
        (self.one.is_requested)(settings)
            && match self.relation {
                Relation::Excludes => (self.other.is_requested)(settings),
                Relation::Needs => !(self.other.is_requested)(settings),
            }
    }

    pub(super) fn conflict(&self) -> SettingsConflict {
        let FeatureRule { one, relation, other, reason, remedy } = self;
        SettingsConflict { one: one.spelling, relation: *relation, other: other.spelling, reason: (*reason).into(), remedy }
    }
}
