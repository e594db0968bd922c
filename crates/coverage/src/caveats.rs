//! Functions whose counts may be wrong, with the reasons.
//!
//! LLVM computes counts as if every call returned. They are corrected, unless the paths do not show which calls did not return. Functions
//! whose counts were not corrected are marked: in tables by a remark, in sources by a box below the function's first line, and in JSON by a
//! key. For other output, they are logged.

use crate::end_of_call::end_of_call;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use trodden_report::DemangledName;
use trodden_report::coverage::escape_html;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CaveatReason {
    /// The debug information lacks the position of a call that did not return.
    UnknownPosition,
    /// Corrected counts would be negative, because the positions at which executions ended contradict the counters.
    Contradiction,
    /// An exception passed through code that was inlined into the function, and it is unknown whether the function continued.
    UnwoundThroughInlined,
    /// The function's last call was compiled to a jump, so it cannot be observed whether the call returned.
    TailCall,
    /// The optimiser may have moved code before a call, or the code may belong to the call's arguments. This applies to code between the
    /// call and the next line with code.
    MovedCode,
    /// The function has branches. The counters of branches are not nested in the mapping that rustc writes.
    RustBranches,
    /// Several processes continued an execution of the function after a fork, and each of them counts the whole execution.
    Forked,
    /// A call in the function returned twice (`setjmp`).
    ReturnedTwice,
    /// The function was compiled in several ways, and the linker kept the source regions of only one of them.
    NotShown,
}

impl CaveatReason {
    pub fn key(self) -> &'static str {
        match self {
            CaveatReason::UnknownPosition => "unknown-position",
            CaveatReason::Contradiction => "contradiction",
            CaveatReason::UnwoundThroughInlined => "exception-through-inlined-code",
            CaveatReason::TailCall => "tail-call",
            CaveatReason::MovedCode => "moved-code",
            CaveatReason::RustBranches => "rust-branch",
            CaveatReason::Forked => "fork",
            CaveatReason::ReturnedTwice => "returned-twice",
            CaveatReason::NotShown => "not-shown",
        }
    }

    fn text(self) -> String {
        let assumes = |why: &str| format!("counts after its calls assume that they returned: {why}");
        match self {
            CaveatReason::UnknownPosition => assumes("debug information lacks the position of a call that did not return"),
            CaveatReason::Contradiction => assumes("the positions of calls that did not return contradict the function's counters"),
            CaveatReason::UnwoundThroughInlined => assumes("an exception passed through code that is inlined into the function"),
            CaveatReason::TailCall => assumes("the last call is a jump, so it is unknown whether it returned"),
            CaveatReason::MovedCode => assumes("code of later lines may have been executed before a call that did not return"),
            CaveatReason::RustBranches => assumes("code after a branch in which executions ended has the count of the branch"),
            CaveatReason::Forked => "several processes continued it after a fork, and each counts it from its entry on".to_owned(),
            CaveatReason::ReturnedTwice => "a call returned twice, so counts after it may be too low, or 0".to_owned(),
            CaveatReason::NotShown => {
                "compiled in several ways within one program, but the linker kept the regions of only one: executions of the others are \
                    not shown"
                    .to_owned()
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoverageCaveat {
    /// The name of the source file in the coverage mapping.
    pub file: String,
    /// The function's first line; 0 if its source regions are unknown.
    pub line: u64,
    /// The name by which LLVM's profiles identify the function.
    pub function: String,
    pub reason: CaveatReason,
}

impl CoverageCaveat {
    pub fn name(&self) -> String {
        DemangledName::from_linkage(crate::demangled::linkage_name(&self.function)).short
    }

    pub fn remark(&self) -> String {
        format!("not exact: {}", self.reason.text())
    }

    pub fn remark_with_name(&self) -> String {
        format!("not exact: {} ({}): {}", self.name(), self.line, self.reason.text())
    }

    pub fn json(&self) -> Value {
        json!({ "function": self.name(), "file": self.file, "line": self.line, "reason": self.reason.key(), "text": self.reason.text() })
    }
}

/// Marks functions with caveats in the output of `llvm-cov show`, by a box below the function's first line. `only_file` is the file's name
/// if there is only one file, because `llvm-cov` then prints no file names.
pub fn mark_sources(shown: &str, only_file: Option<&str>, caveats: &[CoverageCaveat]) -> String {
    let mut by_place: BTreeMap<(&str, u64), Vec<&CoverageCaveat>> = BTreeMap::new();
    for caveat in caveats {
        by_place.entry((&caveat.file, caveat.line)).or_default().push(caveat);
    }
    let (mut out, mut file) = (String::with_capacity(shown.len()), only_file.unwrap_or_default());
    for line in shown.split_inclusive('\n') {
        out.push_str(line);
        let text = line.trim_end();
        if let Some(name) = text.strip_suffix(':').filter(|name| !name.starts_with(' ')) {
            let has_name = |caveat: &&CoverageCaveat| caveat.function == name || caveat.name() == name;
            file = caveats.iter().find(has_name).map_or(name, |caveat| &caveat.file);
        }
        let number = text.split_once('|').and_then(|(number, _)| number.trim().parse().ok());
        let Some(found) = number.and_then(|number: u64| by_place.remove(&(file, number))) else { continue };
        const BOX_BORDER: &str = "  ------------------\n";
        out.push_str(BOX_BORDER);
        for caveat in found {
            out.push_str(&format!("  |  Not exact ({}): {}\n", caveat.name(), caveat.reason.text()));
        }
        out.push_str(BOX_BORDER);
    }
    out
}

/// Marks functions with caveats in an HTML page from `llvm-cov show`, by a box below the function's first line. Returns the page, and the
/// caveats whose line is not on the page.
pub fn mark_page<'c>(page: &str, caveats: &[&'c CoverageCaveat]) -> (String, Vec<&'c CoverageCaveat>) {
    let (mut page, mut unmarked) = (page.to_owned(), Vec::new());
    for caveat in caveats.iter().rev() {
        let number = caveat.line;
        let row = page.find(&format!("<a name='L{number}' href='#L{number}'><pre>{number}</pre>"));
        let code = row.and_then(|row| Some(row + page[row..].find("<td class='code'>")?));
        match code.and_then(|code| Some(code + page[code..].find(END_OF_CODE)? + END_OF_CODE.len())) {
            Some(end) => {
                let text = escape_html(&format!("Not exact ({}): {}", caveat.name(), caveat.reason.text()));
                page.insert_str(end, &format!("<div class='expansion-view'><pre>{text}</pre></div>"));
            }
            None => unmarked.push(*caveat),
        }
    }
    (page, unmarked)
}

const END_OF_CODE: &str = "</pre>";

/// Finds the last lines of calls in source files, each of which is read only once.
#[derive(Default)]
pub struct CallEndCache(BTreeMap<String, Option<Vec<String>>>);

impl CallEndCache {
    /// Returns the last line of the call that begins at a line and column; `None` if it cannot be determined or the file cannot be read.
    pub fn last_line(&mut self, file: &str, position: (u64, u64)) -> Option<u64> {
        let read = || Some(std::fs::read_to_string(file).ok()?.lines().map(str::to_owned).collect());
        let lines = self.0.entry(file.to_owned()).or_insert_with(read).as_deref()?;
        end_of_call(lines, position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_below_the_first_lines_of_functions() {
        let caveat = CoverageCaveat { file: "/x/a.c".into(), line: 4, function: "a.c:f".into(), reason: CaveatReason::TailCall };
        let shown = "/x/b.c:\n    4|      1|int f;\n/x/a.c:\n    4|      1|int f(void) {\n    5|      1|  4|\n";
        let marked = mark_sources(shown, None, &[caveat]);
        let lines: Vec<&str> = marked.lines().collect();
        assert_eq!((lines.len(), lines[3], lines[7]), (8, "    4|      1|int f(void) {", "    5|      1|  4|"));
        assert!(lines[5].starts_with("  |  Not exact (f): counts after its calls assume that they returned"), "{marked}");
    }

    #[test]
    fn boxes_on_pages_are_below_the_code_of_first_lines() {
        let caveat =
            |line, function: &str| CoverageCaveat { file: "/x/a.c".into(), line, function: function.into(), reason: CaveatReason::Forked };
        let row =
            |line| format!("<tr><td><a name='L{line}' href='#L{line}'><pre>{line}</pre></a></td><td class='code'><pre>}}</pre></td></tr>");
        let page = format!("{}{}", row(4), row(44));
        let (first, other, missing) = (caveat(4, "_Z1fIiEvv"), caveat(44, "g"), caveat(5, "h"));
        let (marked, unmarked) = mark_page(&page, &[&first, &other, &missing]);
        assert_eq!(unmarked, [&missing]);
        let boxes: Vec<&str> = marked.split("<pre>}</pre><div class='expansion-view'><pre>").collect();
        assert_eq!(boxes.len(), 3, "{marked}");
        assert!(boxes[1].starts_with("Not exact (f&lt;..&gt;): several processes") && boxes[2].starts_with("Not exact (g)"), "{marked}");
    }
}
