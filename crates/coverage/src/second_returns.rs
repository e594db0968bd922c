//! Finds functions with a call that returned twice in the same process, such as `setjmp`.

use std::collections::BTreeSet;
use trodden_flow::{CutReason, Edge};
use trodden_profile::{PathEnd, PathStart, Profile};
use trodden_report::ProfileView;
use trodden_report::view::Function;

/// Warns about functions in which calls returned more often than they were made, within one process. When LLVM computes a region's count as
/// a difference of counters, it assumes that each call returns once. So code after such a call may have count 0 although it was executed.
pub fn warn_of_second_returns(profile: &Profile) {
    let view = ProfileView::from_profile(profile);
    let names: BTreeSet<&str> = view.functions.iter().filter(|f| has_second_return(f)).map(|f| f.name.short.as_str()).collect();
    let Some(first) = names.first() else { return };
    let more = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
    log::warn!(
        "a call in {first}{more} returned twice (setjmp, vfork), so LLVM's counts for the code after the call may be too low or 0. For \
         exact path counts, run `trodden report`"
    );
}

/// Returns true if a call in a function returned more often than it was made, not counting returns in forked processes.
pub fn has_second_return(function: &Function) -> bool {
    let forks = || {
        Some((function.unit.map.edge_profile.as_ref()?, function.unit.map.functions.iter().position(|f| std::ptr::eq(f, function.map))?))
    };
    let is_fork = |edge: &Edge| forks().is_some_and(|(edges, number)| edges.fork_edges_of(number).any(|fork| fork == *edge));
    let cuts = function.map.cuts.iter().filter(|(_, reason)| *reason == CutReason::ReturnsTwice);
    let again: BTreeSet<Edge> = cuts.map(|(edge, _)| *edge).filter(|edge| !is_fork(edge)).collect();
    let returned = |beginning: &PathStart| matches!(beginning, PathStart::After(edge) if again.contains(edge));
    let complete = &function.paths.complete;
    let begun: i128 = complete.iter().filter(|p| returned(&p.beginning)).map(|p| i128::from(p.count)).sum();
    let unfinished: i128 = function.paths.unfinished.iter().filter(|u| returned(&u.beginning)).map(|u| i128::from(u.count)).sum();
    let made: i128 =
        complete.iter().filter(|p| matches!(p.end, PathEnd::Cut(edge) if again.contains(&edge))).map(|p| i128::from(p.count)).sum();
    begun + unfinished > made
}
