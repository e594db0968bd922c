//! Advice for a program: the findings of [`trodden_analysis::advise`], ranked. [`text`] formats them for terminals, [`json`] and [`sarif`]
//! for other tools. All three share the sentences in `words.rs`.

pub mod json;
pub mod sarif;
pub mod text;
mod words;

use crate::error::ReportError;
use crate::measure::PathMeasure;
use crate::select;
use crate::view::{Function, ProfileView};
use std::collections::HashMap;
use trodden_analysis::advise::{AdviceFinding, AdviceKind, AdviseOptions, advise};
use trodden_unit::properties::{FunctionProperties, UnitProperties};

/// Which findings to search for, and how many to show.
#[derive(Clone, Debug)]
pub struct AdviceSelection {
    /// A function's name, or a regular expression that is matched against full names; `None` selects all functions.
    pub function: Option<String>,
    /// The kinds of findings; an empty list selects all.
    pub kinds: Vec<AdviceKind>,
    /// Maximum number of findings to show in each of two lists: findings that save instructions, and findings that save none.
    pub top: usize,
    /// A finding must save at least this share of all executed instructions (0 to 1). Functions that execute less are not analysed.
    pub min_share: f64,
    /// Thresholds that decide when an analysis reports a finding.
    pub options: AdviseOptions,
}

impl Default for AdviceSelection {
    fn default() -> AdviceSelection {
        AdviceSelection { function: None, kinds: Vec::new(), top: 10, min_share: 0.0005, options: AdviseOptions::default() }
    }
}

/// Merges findings of the same kind about the same source lines. Such findings repeat if the compiler copied the code, by unrolling a loop
/// or inlining a function. Returns each finding with its total savings and the number of copies.
fn merge_copies(function: &Function, findings: impl Iterator<Item = AdviceFinding>) -> Vec<(AdviceFinding, u128, usize)> {
    let mut all: Vec<(AdviceFinding, u128, usize)> = Vec::new();
    let mut known: HashMap<_, usize> = HashMap::new();
    for finding in findings {
        let lines = words::related_lines(function, &finding);
        let at = lines.map(|lines| *known.entry((finding.kind(), lines)).or_insert(all.len())).unwrap_or(all.len());
        match all.get_mut(at) {
            Some((_, saves, copies)) => {
                *saves += u128::from(finding.saves);
                *copies += 1;
            }
            None => all.push((finding.clone(), finding.saves.into(), 1)),
        }
    }
    all
}

/// Looks up a function's block properties. Returns `None` if the bitcode of the function's unit is not available.
pub type FindProperties<'f> = dyn Fn(&Function) -> Option<(&'f UnitProperties, &'f FunctionProperties)> + 'f;

/// A finding of the advice analyses, with its function and estimated savings.
pub struct RankedAdvice<'v, 'a> {
    /// The function in which the finding was made.
    pub function: &'v Function<'a>,
    /// The finding. If the compiler copied the code, its block numbers are those of one copy.
    pub finding: AdviceFinding,
    /// Upper bound for the savings in all copies, as a share of all executed instructions.
    pub share: f64,
    /// Number of copies of the code that have this finding. The compiler creates copies when it unrolls loops and inlines functions.
    pub copies: usize,
}

/// Ranked findings, truncated to the requested number.
pub struct ShownAdvice<'v, 'a> {
    /// Findings that save instructions, largest savings first.
    pub savings: Vec<RankedAdvice<'v, 'a>>,
    /// Findings that save nothing, such as two frequent edges that never occur on the same path. The most surprising one comes first.
    pub others: Vec<RankedAdvice<'v, 'a>>,
    /// Lengths of the two lists before they were truncated.
    pub found: (usize, usize),
    /// Number of functions that were analysed.
    pub functions: usize,
    /// Analysed functions in which redundant computations could not be searched for, because their bitcode is not available.
    pub without_bitcode: Vec<&'v Function<'a>>,
}

impl AdviceSelection {
    /// Returns the functions to analyse: those that execute at least [`AdviceSelection::min_share`] of all instructions. Fails if no
    /// function matches, or if the pattern is not a valid regular expression.
    pub fn functions<'v, 'a>(&self, view: &'v ProfileView<'a>) -> Result<Vec<&'v Function<'a>>, ReportError> {
        let selection = select::PathSelection { function: self.function.clone(), ..select::PathSelection::default() };
        let total = view.total(PathMeasure::Instructions);
        let hot = |f: &&Function| f.instructions > 0 && select::share(f.instructions, total) >= self.min_share;
        Ok(selection.functions(view)?.into_iter().filter(hot).collect())
    }

    /// Returns true if findings of this kind are selected.
    pub fn includes(&self, kind: AdviceKind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    /// Searches for findings and ranks them. Fails like [`AdviceSelection::functions`].
    pub fn advise<'v, 'a>(&self, view: &'v ProfileView<'a>, properties: &FindProperties) -> Result<ShownAdvice<'v, 'a>, ReportError> {
        let functions = self.functions(view)?;
        let total = view.total(PathMeasure::Instructions);
        let (mut savings, mut others, mut without_bitcode) = (Vec::new(), Vec::new(), Vec::new());
        for &function in &functions {
            let known = properties(function);
            if known.is_none() && self.includes(AdviceKind::Redundant) {
                without_bitcode.push(function);
            }
            let found = advise(function.map, &function.paths, known, &self.options).into_iter().filter(|f| self.includes(f.kind()));
            for (finding, saves, copies) in merge_copies(function, found) {
                let ranked = RankedAdvice { function, share: select::share(saves, total), finding, copies };
                match ranked.finding.kind() {
                    AdviceKind::Never => others.push(ranked),
                    _ if ranked.share >= self.min_share => savings.push(ranked),
                    _ => {}
                }
            }
        }
        savings.sort_by(|a: &RankedAdvice, b| b.share.total_cmp(&a.share).then_with(|| a.function.name.full.cmp(&b.function.name.full)));
        others.sort_by(|a: &RankedAdvice, b| b.finding.surprise_score().total_cmp(&a.finding.surprise_score()));
        let found = (savings.len(), others.len());
        savings.truncate(crate::select::limit(self.top));
        others.truncate(crate::select::limit(self.top));
        Ok(ShownAdvice { savings, others, found, functions: functions.len(), without_bitcode })
    }
}
