//! Advice: the findings of [`trodden_analysis::advise`] over a program, ranked, and their forms.
//!
//! [`text`] is for terminals, [`json`] and [`sarif`] are for other tools. Their common sentences are in `words.rs`.

pub mod json;
pub mod sarif;
pub mod text;
mod words;

use crate::error::ReportError;
use crate::measure::Measure;
use crate::select;
use crate::view::{Function, View};
use std::collections::HashMap;
use trodden_analysis::advise::{AdviceFinding, AdviceKind, AdviseOptions, advise};
use trodden_unit::properties::{FunctionProperties, UnitProperties};

/// Which findings are shown.
#[derive(Clone, Debug)]
pub struct AdviceSelection {
    /// Functions: one's name, or a regular expression for full names.
    pub function: Option<String>,
    /// Kinds; empty: all.
    pub kinds: Vec<AdviceKind>,
    /// At most so many findings that save something, and so many that do not.
    pub top: usize,
    /// Only findings that save at least this share of all executed instructions, from 0 to 1. Findings that save nothing are searched for
    /// in functions that execute at least this share.
    pub min_share: f64,
    /// Thresholds of the analyses.
    pub options: AdviseOptions,
}

impl Default for AdviceSelection {
    fn default() -> AdviceSelection {
        AdviceSelection { function: None, kinds: Vec::new(), top: 10, min_share: 0.0005, options: AdviseOptions::default() }
    }
}

/// Joins findings about the same lines: each once, with the sum of what they save and their number.
fn once(function: &Function, findings: impl Iterator<Item = AdviceFinding>) -> Vec<(AdviceFinding, u128, usize)> {
    let mut all: Vec<(AdviceFinding, u128, usize)> = Vec::new();
    let mut known: HashMap<_, usize> = HashMap::new();
    for finding in findings {
        let lines = words::lines(function, &finding);
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

/// Gives the block properties of a function, if its unit's bitcode is known.
pub type PropertiesOf<'f> = dyn Fn(&Function) -> Option<(&'f UnitProperties, &'f FunctionProperties)> + 'f;

/// A finding with its function and share.
pub struct RankedAdvice<'v, 'a> {
    /// The function.
    pub function: &'v Function<'a>,
    /// What was found in it.
    pub finding: AdviceFinding,
    /// What it saves at most, as a share of all executed instructions; all copies together.
    pub share: f64,
    /// The number of copies of the code that have this finding. Compilers unroll loops and inline functions; a finding in several copies
    /// of the same lines is shown once, for the copy that saves most.
    pub copies: usize,
}

/// The findings to show.
pub struct Advice<'v, 'a> {
    /// Those that save something, most first.
    pub savings: Vec<RankedAdvice<'v, 'a>>,
    /// Those that save nothing, most surprising first.
    pub others: Vec<RankedAdvice<'v, 'a>>,
    /// Numbers of both sorts, shown or not.
    pub found: (usize, usize),
    /// The number of functions that were analysed.
    pub functions: usize,
    /// Analysed functions whose block properties are needed and unknown, because there is no bitcode of them.
    pub without_bitcode: Vec<&'v Function<'a>>,
}

impl AdviceSelection {
    /// The functions to analyse: no others can have a finding that is shown.
    ///
    /// # Errors
    /// No function has the given name; the pattern is no regular expression.
    pub fn functions<'v, 'a>(&self, view: &'v View<'a>) -> Result<Vec<&'v Function<'a>>, ReportError> {
        let selection = select::Selection { function: self.function.clone(), ..select::Selection::default() };
        let total = view.total(Measure::Instructions);
        let hot = |f: &&Function| f.instructions > 0 && select::share(f.instructions, total) >= self.min_share;
        Ok(selection.functions(view)?.into_iter().filter(hot).collect())
    }

    /// Whether findings of a kind are selected.
    pub fn includes(&self, kind: AdviceKind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    /// Searches for findings and ranks them.
    ///
    /// # Errors
    /// As for [`AdviceSelection::functions`].
    pub fn advise<'v, 'a>(&self, view: &'v View<'a>, properties: &PropertiesOf) -> Result<Advice<'v, 'a>, ReportError> {
        let functions = self.functions(view)?;
        let total = view.total(Measure::Instructions);
        let (mut savings, mut others, mut without_bitcode) = (Vec::new(), Vec::new(), Vec::new());
        for &function in &functions {
            let known = properties(function);
            if known.is_none() && self.includes(AdviceKind::Redundant) {
                without_bitcode.push(function);
            }
            let found = advise(function.map, &function.paths, known, &self.options).into_iter().filter(|f| self.includes(f.kind()));
            for (finding, saves, copies) in once(function, found) {
                let ranked = RankedAdvice { function, share: select::share(saves, total), finding, copies };
                match ranked.finding.kind() {
                    AdviceKind::Never => others.push(ranked),
                    _ if ranked.share >= self.min_share => savings.push(ranked),
                    _ => {}
                }
            }
        }
        savings.sort_by(|a: &RankedAdvice, b| b.share.total_cmp(&a.share).then_with(|| a.function.name.full.cmp(&b.function.name.full)));
        others.sort_by(|a: &RankedAdvice, b| b.finding.surprise().total_cmp(&a.finding.surprise()));
        let found = (savings.len(), others.len());
        savings.truncate(crate::select::limit(self.top));
        others.truncate(crate::select::limit(self.top));
        Ok(Advice { savings, others, found, functions: functions.len(), without_bitcode })
    }
}
