//! Rules about which settings can be combined, and the errors for settings that violate the rules.

use super::settings::Settings;
use std::fmt;

/// A feature that users can request by a setting.
#[derive(Clone, Copy)]
pub struct RequestedFeature {
    /// The command-line option that requests the feature. The setting is added to the text if it has a different name, or replaces the
    /// option if there is none.
    pub spelling: &'static str,
    /// Returns true if the settings request the feature.
    pub is_requested: fn(&Settings) -> bool,
}

/// A rule about two features.
pub struct FeatureRule {
    /// The feature that may be requested only if the rule is satisfied.
    pub one: RequestedFeature,
    /// Whether `one` excludes or requires the other feature.
    pub relation: FeatureRelation,
    /// The other feature.
    pub other: RequestedFeature,
    /// Reason for the rule, worded as a clause.
    pub reason: &'static str,
    /// What the user can do, worded as an imperative clause.
    pub remedy: &'static str,
}

/// Relation of one feature to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureRelation {
    /// The first feature cannot be combined with the second.
    Excludes,
    /// The first feature requires the second.
    Needs,
}

/// Error for settings that cannot be combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsConflict {
    /// The restricted feature, as users write it.
    pub one: &'static str,
    /// Whether `one` excludes or requires the other feature.
    pub relation: FeatureRelation,
    /// The other feature, as users write it.
    pub other: &'static str,
    /// The reason.
    pub reason: String,
    /// What the user can do, worded as an imperative clause.
    pub remedy: &'static str,
}

impl fmt::Display for SettingsConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SettingsConflict { one, relation, other, reason, remedy } = self;
        let relation = match relation {
            FeatureRelation::Excludes => "cannot be combined with",
            FeatureRelation::Needs => "requires",
        };
        write!(f, "{one} {relation} {other}, because {reason}; {remedy}")
    }
}

impl std::error::Error for SettingsConflict {}

impl FeatureRule {
    pub(super) fn is_violated_by(&self, settings: &Settings) -> bool {
        (self.one.is_requested)(settings)
            && match self.relation {
                FeatureRelation::Excludes => (self.other.is_requested)(settings),
                FeatureRelation::Needs => !(self.other.is_requested)(settings),
            }
    }

    pub(super) fn conflict(&self) -> SettingsConflict {
        let FeatureRule { one, relation, other, reason, remedy } = self;
        SettingsConflict { one: one.spelling, relation: *relation, other: other.spelling, reason: (*reason).into(), remedy }
    }
}
