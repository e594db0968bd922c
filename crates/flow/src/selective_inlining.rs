//! Chooses which calls are inlined, and which functions are copied with the calling context as an additional argument, when a program
//! counts path segments across calls.
//!
//! Source: K. Vaswani, *Efficient Online Path Profiling*, sections 3.4.4 (selective inlining) and 3.4.5 (copies if inlining would add too
//! much code). The thesis does not say how to choose. Here the choice is greedy: the next step is the one that saves most executed
//! instructions per instruction of added code, while the code budget lasts. A copy saves the callee's load of the context variable;
//! inlining also saves the call. The nesting of inlined calls is limited by the depth of segments, which also bounds recursion. O(steps *
//! calls).

/// Maximum number of steps for a unit. Each step adds a version of a function.
const MAX_INLINING_STEPS: usize = 1 << 12;
/// Approximate number of instructions saved per execution of an inlined call (docs/benchmarks/constants.md compares other values).
const INSTRUCTIONS_SAVED_BY_INLINING: f64 = 2.0;
/// Approximate number of instructions saved per execution of a call that calls a copy instead of the function itself.
const INSTRUCTIONS_SAVED_BY_COPYING: f64 = 1.0;

/// A function that may be inlined or copied.
#[derive(Clone, Debug, Default)]
pub struct InliningCandidate {
    /// Number of instructions.
    pub size: u64,
    /// Number of calls to the function.
    pub entries: f64,
    /// The function's calls that are part of counted path segments and whose callees may be copied.
    pub calls: Vec<CandidateCall>,
}

/// A call site.
#[derive(Clone, Copy, Debug)]
pub struct CandidateCall {
    /// The function that is called, or may be called.
    pub callee: usize,
    /// Number of executions.
    pub executions: f64,
}

/// How a version of a function's code is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionKind {
    /// As the function itself.
    Own,
    /// As a copy that several call sites share.
    Duplicate,
    /// As a copy that is inlined at one call site.
    Inlined {
        /// Number of nested inlined calls, including this one.
        depth: u32,
    },
}

/// A version of a function's code.
#[derive(Clone, Debug)]
pub struct FunctionVersion {
    /// The function.
    pub function: usize,
    /// How the version is used.
    pub kind: VersionKind,
    /// For each call site of the function, the version that is inlined there, or `None` if the call is not inlined.
    pub inlined: Vec<Option<usize>>,
    /// This version's share of the function's executions.
    share: f64,
}

/// The chosen versions. The first ones are the functions themselves.
#[derive(Clone, Debug)]
pub struct InliningChoice {
    /// All versions.
    pub versions: Vec<FunctionVersion>,
    /// The copy of each function for call sites that are not inlined, or `None` if the function has no copy.
    pub duplicates: Vec<Option<usize>>,
}

#[derive(Clone, Copy)]
enum InliningStep {
    Inline { version: usize, call: usize },
    Duplicate { function: usize },
}

/// Chooses versions such that at most `depth` inlined calls are nested, and all versions together add at most `budget` instructions.
pub fn choose_versions(functions: &[InliningCandidate], depth: u32, budget: u64) -> InliningChoice {
    let own = |(function, candidate): (usize, &InliningCandidate)| FunctionVersion {
        function,
        kind: VersionKind::Own,
        inlined: vec![None; candidate.calls.len()],
        share: 1.0,
    };
    let mut choice = InliningChoice { versions: functions.iter().enumerate().map(own).collect(), duplicates: vec![None; functions.len()] };
    let mut left = budget;
    for _ in 0..MAX_INLINING_STEPS {
        let Some((step, callee)) = choice.find_best_step(functions, depth, left) else { break };
        left -= functions[callee].size;
        choice.take_step(functions, step, callee);
    }
    choice
}

impl InliningChoice {
    /// Returns the version of the callee that a version's call site calls or inlines, or `None` if that is the callee itself.
    pub fn target(&self, functions: &[InliningCandidate], version: usize, call: usize) -> Option<usize> {
        let version = &self.versions[version];
        version.inlined[call].or(self.duplicates[functions[version.function].calls[call].callee])
    }

    /// Returns the step that saves most per instruction of added code, and the function of which it adds a version.
    fn find_best_step(&self, functions: &[InliningCandidate], depth: u32, left: u64) -> Option<(InliningStep, usize)> {
        let mut not_inlined = vec![0.0; functions.len()];
        let mut best: Option<(f64, InliningStep, usize)> = None;
        let mut consider = |gain: f64, step: InliningStep, callee: usize| {
            let gain = gain / functions[callee].size.max(1) as f64;
            if gain > 0.0 && functions[callee].size <= left && best.as_ref().is_none_or(|(best_gain, ..)| gain > *best_gain) {
                best = Some((gain, step, callee));
            }
        };
        for (at, version) in self.versions.iter().enumerate() {
            let may_nest = match version.kind {
                VersionKind::Own | VersionKind::Duplicate => depth > 0,
                VersionKind::Inlined { depth: own } => own < depth,
            };
            for (number, call) in functions[version.function].calls.iter().enumerate().filter(|(n, _)| version.inlined[*n].is_none()) {
                let executions = call.executions * version.share;
                let has_copy = self.duplicates[call.callee].is_some();
                if !has_copy {
                    not_inlined[call.callee] += executions;
                }
                if may_nest {
                    let saved = if has_copy {
                        INSTRUCTIONS_SAVED_BY_INLINING - INSTRUCTIONS_SAVED_BY_COPYING
                    } else {
                        INSTRUCTIONS_SAVED_BY_INLINING
                    };
                    consider(executions * saved, InliningStep::Inline { version: at, call: number }, call.callee);
                }
            }
        }
        for (function, executions) in not_inlined.into_iter().enumerate() {
            consider(executions * INSTRUCTIONS_SAVED_BY_COPYING, InliningStep::Duplicate { function }, function);
        }
        best.map(|(_, step, callee)| (step, callee))
    }

    fn take_step(&mut self, functions: &[InliningCandidate], step: InliningStep, callee: usize) {
        let (new, candidate) = (self.versions.len(), &functions[callee]);
        let (kind, executions, replaced) = match step {
            InliningStep::Inline { version, call } => {
                let from = &mut self.versions[version];
                from.inlined[call] = Some(new);
                let depth = if let VersionKind::Inlined { depth } = from.kind { depth + 1 } else { 1 };
                let executions = functions[from.function].calls[call].executions * from.share;
                (VersionKind::Inlined { depth }, executions, self.duplicates[callee].unwrap_or(callee))
            }
            InliningStep::Duplicate { function } => (VersionKind::Duplicate, self.executions_not_inlined(functions, function), function),
        };
        if kind == VersionKind::Duplicate {
            self.duplicates[callee] = Some(new);
        }
        // The new version takes over executions of the version that was called before.
        let share = (executions / candidate.entries.max(f64::MIN_POSITIVE)).min(self.versions[replaced].share);
        self.versions[replaced].share -= share;
        self.versions.push(FunctionVersion { function: callee, kind, inlined: vec![None; candidate.calls.len()], share });
    }

    fn executions_not_inlined(&self, functions: &[InliningCandidate], callee: usize) -> f64 {
        let of_version = |version: &FunctionVersion| -> f64 {
            let calls = functions[version.function].calls.iter().zip(&version.inlined);
            calls
                .filter(|(call, inlined)| call.callee == callee && inlined.is_none())
                .map(|(call, _)| call.executions * version.share)
                .sum()
        };
        self.versions.iter().map(of_version).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Function 0 calls 1 twice and itself; 1 calls 2, which is large.
    fn functions() -> Vec<InliningCandidate> {
        let call = |callee, executions| CandidateCall { callee, executions };
        vec![
            InliningCandidate { size: 10, entries: 100.0, calls: vec![call(1, 40.0), call(1, 60.0), call(0, 99.0)] },
            InliningCandidate { size: 5, entries: 100.0, calls: vec![call(2, 100.0)] },
            InliningCandidate { size: 500, entries: 100.0, calls: Vec::new() },
        ]
    }

    fn added_size(choice: &InliningChoice, functions: &[InliningCandidate]) -> u64 {
        choice.versions[functions.len()..].iter().map(|v| functions[v.function].size).sum()
    }

    #[test]
    fn no_version_is_added_without_a_budget() {
        let functions = functions();
        let choice = choose_versions(&functions, 1, 0);
        assert_eq!((choice.versions.len(), added_size(&choice, &functions)), (3, 0));
        assert!((0..3).all(|call| choice.target(&functions, 0, call).is_none()));
    }

    #[test]
    fn copy_for_several_calls_is_preferred_to_inlining_one_call() {
        let functions = functions();
        // A copy for the two call sites of function 1 saves less than inlining the call at the more frequent site.
        let choice = choose_versions(&functions, 1, 5);
        assert_eq!(choice.versions[3].kind, VersionKind::Inlined { depth: 1 });
        assert_eq!((choice.target(&functions, 0, 1), choice.target(&functions, 0, 0)), (Some(3), None));
        let mut more = functions.clone();
        more[0].calls.push(CandidateCall { callee: 1, executions: 50.0 });
        let choice = choose_versions(&more, 1, 5);
        assert_eq!((choice.versions[3].kind, choice.duplicates[1]), (VersionKind::Duplicate, Some(3)));
        assert!([0, 1, 3].iter().all(|call| choice.target(&more, 0, *call) == Some(3)));
    }

    #[test]
    fn depth_bounds_nesting_and_budget_bounds_code() {
        let functions = functions();
        for depth in 0..4 {
            for budget in [0, 9, 10, 15, 30, 100, 600, 100_000] {
                let choice = choose_versions(&functions, depth, budget);
                assert!(added_size(&choice, &functions) <= budget);
                for (at, version) in choice.versions.iter().enumerate() {
                    assert!(!matches!(version.kind, VersionKind::Inlined { depth: own } if own > depth), "{version:?}");
                    for (call, inlined) in functions[version.function].calls.iter().zip(&version.inlined) {
                        let Some(inlined) = inlined.map(|i| &choice.versions[i]) else { continue };
                        let outer = if let VersionKind::Inlined { depth } = version.kind { depth } else { 0 };
                        assert_eq!((inlined.function, inlined.kind), (call.callee, VersionKind::Inlined { depth: outer + 1 }), "{at}");
                    }
                }
            }
        }
        // Recursion is inlined up to depth 3: each version of function 0 contains the next one.
        let choice = choose_versions(&functions, 3, 100_000);
        let mut at = 0;
        for depth in 1..=3 {
            at = choice.versions[at].inlined[2].unwrap();
            assert_eq!(choice.versions[at].kind, VersionKind::Inlined { depth });
        }
        assert!(choice.versions[at].inlined[2].is_none());
    }
}
