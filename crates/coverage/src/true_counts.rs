//! Corrects the counts of a function's regions for executions that ended early.
//!
//! LLVM counts some regions directly, at their start; these counts are exact. It computes the other counts from them, as if every execution
//! reached the end of each region. A computed count is too high if it includes an execution that ended before it reached the region. There
//! are two cases: the execution ended earlier in a region that contains both positions, or it ended anywhere in a different region that
//! leads to this one, as a loop's body leads to its condition.

use crate::region_code::{CodeRegion, FunctionRegions, RegionCounter, RegionCounterKind, RegionKind};
use crate::stops::ExecutionStop;
use std::collections::{BTreeMap, HashMap};

/// A position in a file: line and column, both from 1.
pub type LineAndColumn = (u64, u64);

/// A range of positions in a file. Code from a macro or from an included file has the position of the expansion or inclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceSpan {
    pub file: usize,
    pub start: LineAndColumn,
    pub end: LineAndColumn,
}

impl SourceSpan {
    fn contains_place(&self, file: usize, place: LineAndColumn) -> bool {
        self.file == file && self.start <= place && place < self.end
    }

    fn contains(&self, other: &SourceSpan) -> bool {
        self.file == other.file && self.start <= other.start && other.end <= self.end
    }
}

/// Computes the true counts of a function's regions, from its counters and from the positions where executions ended (stops).
pub struct CorrectedRegionCounts<'f> {
    function: &'f FunctionRegions,
    counts: &'f [u64],
    /// The span of each region, indexed by file and region.
    spans: Vec<Vec<SourceSpan>>,
    /// For each counter, the spans of the code regions whose count it is.
    owners: HashMap<u64, Vec<SourceSpan>>,
    /// For each counter, the region at whose start the program increments it.
    counted: HashMap<u64, SourceSpan>,
    /// The positions where executions ended, each with its index of the file.
    stops: Vec<(usize, LineAndColumn, &'f ExecutionStop)>,
    /// For each stop, the regions that contain it and whose counts LLVM computes from other counters. Each has its sum of counters.
    computed: Vec<Vec<(SourceSpan, CounterSum)>>,
}

/// A sum of counters, as a map from each counter to its factor.
type CounterSum = BTreeMap<u64, i128>;

impl<'f> CorrectedRegionCounts<'f> {
    /// Prepares the computation of a function's counts. `files` are the names of the function's files. Returns `None` if the position of a
    /// stop is unknown, if a corrected count would be negative, or if the mapping is corrupt.
    pub fn new(
        function: &'f FunctionRegions,
        counts: &'f [u64],
        files: &[String],
        stops: &'f [ExecutionStop],
    ) -> Option<CorrectedRegionCounts<'f>> {
        let spans = compute_region_spans(function)?;
        let (owners, counted) = assign_counters(function, &spans);
        let mut all = CorrectedRegionCounts { function, counts, spans, owners, counted, stops: Vec::new(), computed: Vec::new() };
        for stop in stops {
            let (file, place) = all.locate_stop(files, stop)?;
            all.computed.push(all.find_computed_regions(file, place)?);
            all.stops.push((file, place, stop));
        }
        let is_possible = |(file, number): (usize, usize)| all.entry_count(file, number).is_some_and(|count| count >= 0);
        let numbers = function.regions.iter().enumerate().flat_map(|(file, r)| (0..r.len()).map(move |number| (file, number)));
        let is_sound = numbers.filter(|(file, number)| is_code_region(&function.regions[*file][*number])).all(is_possible);
        is_sound.then_some(all)
    }

    /// Returns true if the function has more than one code region.
    pub fn has_branches(&self) -> bool {
        self.function.regions.iter().flatten().filter(|region| is_code_region(region)).count() > 1
    }

    /// Returns the regions that contain a position and whose counts LLVM computes from other counters. Each has its sum of counters.
    /// Returns `None` if the mapping is corrupt.
    fn find_computed_regions(&self, file: usize, place: LineAndColumn) -> Option<Vec<(SourceSpan, CounterSum)>> {
        let regions = self.function.regions.iter().zip(&self.spans).flat_map(|(regions, spans)| regions.iter().zip(spans));
        let around = regions.filter(|(region, span)| is_code_region(region) && span.contains_place(file, place));
        let computed = around.filter(|(region, _)| !matches!(region.counters[0].kind(), RegionCounterKind::Plain(_)));
        computed.map(|(region, span)| Some((*span, self.expand_counter(region.counters[0])?))).collect()
    }

    /// Returns the file's index and the position of a stop; `None` if no region contains the stop.
    fn locate_stop(&self, files: &[String], stop: &ExecutionStop) -> Option<(usize, LineAndColumn)> {
        let is_of = |file: &usize| files.get(*file).is_some_and(|name| *name == stop.file);
        let whole = |file: usize| self.spans[file].iter().filter(move |span| span.file == file);
        let direct = (0..files.len()).filter(is_of).find(|file| whole(*file).any(|span| span.contains_place(*file, stop.place)));
        // Code from an included file is attributed to the position of the inclusion.
        let included = || (0..files.len()).filter(is_of).find_map(|file| self.spans[file].first().filter(|span| span.file != file));
        direct.map(|file| (file, stop.place)).or_else(|| included().map(|span| (span.file, span.start)))
    }

    /// Returns the value that LLVM computes for a counter; `None` if the mapping is corrupt.
    pub fn count_of_counter(&self, counter: RegionCounter) -> Option<i128> {
        self.expand_counter(counter)?.into_iter().map(|(number, times)| Some(i128::from(*self.counts.get(number as usize)?) * times)).sum()
    }

    /// Expresses a counter as a sum of the counters that the program increments. Returns `None` if the mapping is corrupt.
    fn expand_counter(&self, counter: RegionCounter) -> Option<CounterSum> {
        let (mut terms, mut worklist) = (CounterSum::new(), vec![(counter, 1)]);
        // The limit on steps is needed because the expressions of a corrupt mapping may refer to each other in a cycle.
        let mut steps = 0;
        while let Some((counter, times)) = worklist.pop() {
            steps += 1;
            if steps > MAX_EXPANSION_STEPS {
                return None;
            }
            let (expression, sign) = match counter.kind() {
                RegionCounterKind::Zero => continue,
                RegionCounterKind::Plain(number) => {
                    *terms.entry(number).or_insert(0) += times;
                    continue;
                }
                RegionCounterKind::Difference(expression) => (expression, -1),
                RegionCounterKind::Sum(expression) => (expression, 1),
            };
            let [first, second] = *self.function.expressions.get(usize::try_from(expression).ok()?)?;
            worklist.extend([(first, times), (second, times * sign)]);
        }
        terms.retain(|_, times| *times != 0);
        Some(terms)
    }

    /// Counts the executions that are included in a counter's value but ended before they reached a span.
    fn count_ended_before(&self, counter: RegionCounter, span: &SourceSpan) -> Option<i128> {
        let terms = self.expand_counter(counter)?;
        let is_counted = |number: &u64, file: usize, place: LineAndColumn| {
            let others = || self.owners.get(number).into_iter().flatten().filter(|owner| *owner != span);
            match others().any(|owner| owner.contains(span)) {
                true => place < span.start && others().any(|owner| owner.contains(span) && owner.contains_place(file, place)),
                false => !span.contains_place(file, place) && others().any(|owner| owner.contains_place(file, place)),
            }
        };
        let times = |file, place, excluded: &CounterSum| -> i128 {
            let counted = terms.iter().filter(|(number, _)| !excluded.contains_key(number) && is_counted(number, file, place));
            counted.map(|(_, times)| *times).sum()
        };
        // A computed region before or around this region leads to this region if its sum of counters is a part of this region's sum.
        let is_part = |(region, sum): &(SourceSpan, CounterSum), place: LineAndColumn| {
            let is_before = if region.contains(span) { place < span.start } else { region.start < span.start };
            is_before && sum.iter().all(|(number, times)| terms.get(number) == Some(times))
        };
        let missing = self.stops.iter().zip(&self.computed).map(|((file, place, stop), computed)| {
            let mut parts = computed.iter().filter(|region| is_part(region, *place));
            let is_missing = times(*file, *place, &CounterSum::new()) > 0 || parts.any(|(_, sum)| times(*file, *place, sum) >= 0);
            if is_missing { stop.count } else { 0 }
        });
        Some(missing.sum())
    }

    /// Returns the number of executions that entered a region; `None` if the mapping is corrupt.
    pub fn entry_count(&self, file: usize, number: usize) -> Option<i128> {
        let (region, span) = (&self.function.regions[file][number], &self.spans[file][number]);
        let counter = *region.counters.first()?;
        // A gap region leads to the region that starts at its end.
        let is_at = |counted: &SourceSpan| match region.kind {
            RegionKind::Gap => (counted.file, counted.start) == (span.file, span.end),
            _ => counted == span,
        };
        let is_exact = matches!(counter.kind(), RegionCounterKind::Plain(number) if self.counted.get(&number).is_some_and(is_at));
        let value = self.count_of_counter(counter)?;
        Some(if is_exact { value } else { value - self.count_ended_before(counter, span)? })
    }

    /// Returns the number of executions that reached a position in a region; `None` if the mapping is corrupt.
    fn count_reaching(&self, (file, number): (usize, usize), place: LineAndColumn) -> Option<i128> {
        let span = &self.spans[file][number];
        let ended = self.stops.iter().filter(|(file, stop, _)| span.contains_place(*file, *stop) && *stop < place);
        Some(self.entry_count(file, number)? - ended.map(|(_, _, stop)| stop.count).sum::<i128>())
    }

    fn enclosing_region(&self, span: &SourceSpan) -> Option<(usize, usize)> {
        let contains = |(file, number): &(usize, usize)| {
            is_code_region(&self.function.regions[*file][*number]) && self.spans[*file][*number].contains(span)
        };
        let numbers = self.function.regions.iter().enumerate().flat_map(|(file, r)| (0..r.len()).map(move |number| (file, number)));
        let extent = |(file, number): &(usize, usize)| {
            let span = self.spans[*file][*number];
            (std::cmp::Reverse(span.start), span.end)
        };
        numbers.filter(contains).min_by_key(extent)
    }

    /// Returns the counts of a branch's true and false directions; `None` if they cannot be determined.
    pub fn direction_counts(&self, file: usize, number: usize) -> Option<[i128; 2]> {
        let (region, span) = (&self.function.regions[file][number], self.spans[file][number]);
        let [yes, no] = [*region.counters.first()?, *region.counters.get(1)?];
        let values = [self.count_of_counter(yes)?, self.count_of_counter(no)?];
        let around = self.enclosing_region(&span)?;
        let is_condition = self.count_of_counter(*self.function.regions[around.0][around.1].counters.first()?)? == values[0] + values[1];
        let sides = match (self.is_counted_at_target(yes, &span), self.is_counted_at_target(no, &span)) {
            (true, _) if is_condition => [values[0], self.count_reaching(around, span.end)? - values[0]],
            (_, true) if is_condition => [self.count_reaching(around, span.end)? - values[1], values[1]],
            (exact, other) => {
                let side = |counter, value: i128, exact: bool| {
                    Some(if exact { value } else { value - self.count_ended_before(counter, &span)? })
                };
                [side(yes, values[0], exact)?, side(no, values[1], other)?]
            }
        };
        (sides[0] >= 0 && sides[1] >= 0).then_some(sides)
    }

    /// Returns true if a branch's counter is incremented where the branch leads to, and not in the code that contains the branch.
    fn is_counted_at_target(&self, counter: RegionCounter, branch: &SourceSpan) -> bool {
        match counter.kind() {
            RegionCounterKind::Plain(number) => self.counted.get(&number).is_none_or(|counted| !counted.contains(branch)),
            _ => false,
        }
    }

    /// Returns the parts of regions after stops. A part extends from the end of a line to the end of the region. `ends` returns the last
    /// line of the call at a position, or `None` if the source does not show it. In that case, lines without code are assumed to belong to
    /// the call before them, and code that was executed before the call is assumed to be part of the call's arguments.
    pub fn parts_after_stops(
        &self,
        file: usize,
        is_code_line: impl Fn(u64) -> bool,
        mut ends: impl FnMut(LineAndColumn) -> Option<u64>,
    ) -> PartsAfterStops {
        let mut parts = PartsAfterStops::default();
        for (number, span) in self.spans[file].iter().enumerate().filter(|(_, span)| span.file == file) {
            if !is_code_region(&self.function.regions[file][number]) {
                continue;
            }
            for (_, place, stop) in self.stops.iter().filter(|(of, place, _)| span.contains_place(*of, *place)) {
                let is_argument = |before: &&LineAndColumn| {
                    self.enclosing_region(&empty_span(file, **before)) == self.enclosing_region(&empty_span(file, *place))
                };
                let last = stop.before.iter().rev().find(is_argument).map_or(place.0, |before| before.0.max(place.0));
                let next = (last + 1..=span.end.0).find(|line| is_code_line(*line)).unwrap_or(span.end.0.max(last + 1));
                let end = ends(*place).map(|end| end + 1);
                parts.has_unknown_lines |= end.is_none() && next > place.0 + 1;
                if let Some(start) = self.start_of_part(file, span, *place, end.unwrap_or(next)) {
                    parts.spans.push(SourceSpan { file, start, end: span.end });
                }
            }
        }
        parts.spans.sort();
        parts.spans.dedup();
        parts
    }

    /// Returns the start of the part of a region that begins with `line`. It is after everything on the previous line, including regions
    /// that start there.
    fn start_of_part(&self, file: usize, span: &SourceSpan, stop: LineAndColumn, line: u64) -> Option<LineAndColumn> {
        let mut start = (line - 1, END_OF_LINE).max(stop);
        loop {
            let other = |other: &&SourceSpan| {
                span != *other && span.contains(other) && other.contains_place(file, start) && !other.contains_place(file, stop)
            };
            match self.spans[file].iter().filter(other).map(|other| other.end).max() {
                Some(end) if end > start => start = end,
                _ => return (start < span.end).then_some(start),
            }
        }
    }

    /// Returns the number of executions that reached a part of a region; `None` if it cannot be determined.
    pub fn count_reaching_part(&self, part: &SourceSpan) -> Option<i128> {
        let regions = self.function.regions.get(part.file)?;
        let is_around_part = |number: &usize| {
            let span = self.spans[part.file][*number];
            is_code_region(&regions[*number]) && span.contains_place(part.file, part.start) && span.end == part.end
        };
        let number = (0..regions.len()).filter(is_around_part).max_by_key(|number| self.spans[part.file][*number].start)?;
        self.count_reaching((part.file, number), part.start).filter(|count| *count >= 0)
    }
}

#[derive(Debug, Default)]
pub struct PartsAfterStops {
    pub spans: Vec<SourceSpan>,
    /// True if the source does not show whether the lines after a call belong to the call.
    pub has_unknown_lines: bool,
}

/// Maximum number of steps in which a counter is expanded to a sum.
const MAX_EXPANSION_STEPS: usize = 1 << 16;
/// A column that is after all code of a line.
const END_OF_LINE: u64 = 1 << 20;

fn empty_span(file: usize, place: LineAndColumn) -> SourceSpan {
    SourceSpan { file, start: place, end: place }
}

fn is_code_region(region: &CodeRegion) -> bool {
    region.kind == RegionKind::Code && region.counters.first().is_some_and(|counter| *counter != RegionCounter::ZERO)
}

/// Returns the span of each region. A region in a macro or in an included file has the span of the expansion or inclusion. Returns `None`
/// if expansions form a cycle.
fn compute_region_spans(function: &FunctionRegions) -> Option<Vec<Vec<SourceSpan>>> {
    let mut expansions: HashMap<usize, (usize, &CodeRegion)> = HashMap::new();
    for (file, region) in function.regions.iter().enumerate().flat_map(|(file, regions)| regions.iter().map(move |r| (file, r))) {
        if let RegionKind::Expansion(to) = region.kind {
            expansions.insert(usize::try_from(to).ok()?, (file, region));
        }
    }
    let of_file = |file: usize| -> Option<Option<SourceSpan>> {
        let (mut at, mut span) = (file, None);
        for _ in 0..=function.regions.len() {
            let Some((to, region)) = expansions.get(&at) else { return Some(span) };
            span = Some(SourceSpan { file: *to, start: region.start, end: region.end });
            at = *to;
        }
        None
    };
    let files = function.regions.iter().enumerate();
    let all = files.map(|(file, regions)| {
        let whole = of_file(file)?;
        Some(regions.iter().map(|region| whole.unwrap_or(SourceSpan { file, start: region.start, end: region.end })).collect())
    });
    all.collect()
}

/// Returns two maps. For each counter, the first map has the code regions whose count is the counter. The second has the region at whose
/// start the counter is incremented, which is the outermost one. If there are several, such as a loop's step and body, it is the one that a
/// gap region leads to.
fn assign_counters(function: &FunctionRegions, spans: &[Vec<SourceSpan>]) -> (HashMap<u64, Vec<SourceSpan>>, HashMap<u64, SourceSpan>) {
    let mut owners: HashMap<u64, Vec<SourceSpan>> = HashMap::new();
    let mut gap_targets = Vec::new();
    for (regions, spans) in function.regions.iter().zip(spans) {
        for (region, span) in regions.iter().zip(spans) {
            let Some(RegionCounterKind::Plain(number)) = region.counters.first().map(|counter| counter.kind()) else { continue };
            match region.kind {
                RegionKind::Code => owners.entry(number).or_default().push(*span),
                RegionKind::Gap => gap_targets.push((number, span.file, span.end)),
                _ => {}
            }
        }
    }
    let choose = |(number, spans): (&u64, &Vec<SourceSpan>)| {
        let is_outer = |span: &&SourceSpan| !spans.iter().any(|other| other != *span && other.contains(span));
        let outer: Vec<SourceSpan> = spans.iter().filter(is_outer).copied().collect();
        let follows = |span: &&SourceSpan| gap_targets.contains(&(*number, span.file, span.start));
        Some((*number, *outer.iter().find(follows).or_else(|| outer.iter().min())?))
    };
    let counted = owners.iter().filter_map(choose).collect();
    (owners, counted)
}
