//! Checks whether settings can be combined in one build. Each error contains the reason and what to do about it.
//!
//! 1. A build observes one [kind](crate::observe::ObservationKind) of data. Two kinds exclude each other unless one restricts the other.
//! 2. Each kind supports certain path numberings, and may not support hash tables or counters that threads share.
//! 3. Some settings require or exclude other settings: the [`FeatureRule`]s of the kinds, and [`FEATURE_RULES`].

use super::axes::{ExperimentScheme, ThreadCounters};
use super::rule::{FeatureRelation, FeatureRule, RequestedFeature, SettingsConflict};
use super::settings::Settings;
use crate::observe::{FeatureAdmission, KINDS, ObservationKind, requested_kinds};

/// Checks whether settings can be combined. Fails with the first conflict.
pub fn check(settings: &Settings) -> Result<(), SettingsConflict> {
    let kinds: Vec<&'static ObservationKind> = requested_kinds(settings).collect();
    check_kinds(&kinds)?;
    check_numbering(settings, &kinds)?;
    let admits = |feature: &RequestedFeature, admission: fn(&ObservationKind) -> FeatureAdmission| match (feature.is_requested)(settings) {
        true => kinds.iter().try_for_each(|kind| check_feature_admission(kind, feature, admission(kind))),
        false => Ok(()),
    };
    admits(&TABLES_FEATURE, |kind| kind.tables)?;
    admits(&SHARED_COUNTERS_FEATURE, |kind| kind.shared_counters)?;
    rules().find(|rule| rule.is_violated_by(settings)).map_or(Ok(()), |rule| Err(rule.conflict()))
}

pub(super) fn rules() -> impl Iterator<Item = &'static FeatureRule> {
    KINDS.iter().flat_map(|kind| kind.rules).chain(FEATURE_RULES)
}

/// Checks that the requested kinds of observation can be combined: at most one kind, and possibly another one that restricts it.
fn check_kinds(kinds: &[&'static ObservationKind]) -> Result<(), SettingsConflict> {
    let pairs = kinds.iter().enumerate().flat_map(|(at, one)| kinds[at + 1..].iter().map(move |other| (*one, *other)));
    let Some((one, other)) = pairs.into_iter().find(|(one, other)| !one.can_combine_with(other)) else { return Ok(()) };
    Err(SettingsConflict {
        one: one.option,
        relation: FeatureRelation::Excludes,
        other: other.option,
        reason: format!("a build observes either {} or {}", one.observes, other.observes),
        remedy: one.conflict_remedy.or(other.conflict_remedy).unwrap_or("make two builds"),
    })
}

fn check_numbering(settings: &Settings, kinds: &[&'static ObservationKind]) -> Result<(), SettingsConflict> {
    let Some(ExperimentScheme::Interesting(scheme)) = settings.scheme else { return Ok(()) };
    let others = || kinds.iter().filter(|kind| !kind.numberings.contains(&scheme));
    others().try_for_each(|kind| match kind.other_numberings {
        FeatureAdmission::Admitted => Ok(()),
        FeatureAdmission::Rejected { reason, remedy } => {
            Err(mutual_exclusion_conflict(SELECTIVE_SCHEME_FEATURE.spelling, kind.option, reason, remedy))
        }
    })?;
    match others().count() < kinds.len() {
        true => Ok(()),
        false => Err(SettingsConflict {
            one: SELECTIVE_SCHEME_FEATURE.spelling,
            relation: FeatureRelation::Needs,
            other: "--interesting",
            reason: "the scheme numbers interesting paths".into(),
            remedy: "select interesting paths with `trodden instrument --interesting SET`",
        }),
    }
}

fn check_feature_admission(
    kind: &ObservationKind,
    feature: &RequestedFeature,
    admission: FeatureAdmission,
) -> Result<(), SettingsConflict> {
    let FeatureAdmission::Rejected { reason, remedy } = admission else { return Ok(()) };
    Err(mutual_exclusion_conflict(kind.option, feature.spelling, reason, remedy))
}

fn mutual_exclusion_conflict(one: &'static str, other: &'static str, reason: &str, remedy: &'static str) -> SettingsConflict {
    SettingsConflict { one, relation: FeatureRelation::Excludes, other, reason: reason.into(), remedy }
}

pub(super) const SELECTIVE_SCHEME_FEATURE: RequestedFeature = RequestedFeature {
    spelling: "a --scheme of interesting paths",
    is_requested: |settings| matches!(settings.scheme, Some(ExperimentScheme::Interesting(_))),
};

pub(super) const TABLES_FEATURE: RequestedFeature =
    RequestedFeature { spelling: "--table-slots", is_requested: |settings| settings.table_slots.is_some_and(|slots| slots > 0) };

pub(super) const SHARED_COUNTERS_FEATURE: RequestedFeature =
    RequestedFeature { spelling: "--threads atomic", is_requested: |settings| settings.threads == Some(ThreadCounters::Atomic) };

/// Rules that belong to no particular kind of observation.
static FEATURE_RULES: &[FeatureRule] = &[FeatureRule {
    one: RequestedFeature { spelling: "--array-paths", is_requested: |settings| settings.array_paths.is_some() },
    relation: FeatureRelation::Needs,
    other: TABLES_FEATURE,
    reason: "without tables, all counts are in arrays",
    remedy: "set --table-slots, or use --max-paths",
}];
