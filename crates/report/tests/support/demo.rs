//! A profile with everything that reports must be able to show: loops, inlined code, a switch, a call that did not return, a function whose
//! paths are cut, a function without debug information, and a name with markup.

use super::{FunctionBuilder, UnitBuilder, profile};
use trodden_profile::Profile;
use trodden_unit::{EdgeKind, Skipped, SourcePosition};

pub const DEMO_SOURCE_FILE: &str = "/src/demo/demo.c";
pub const UTIL_HEADER_FILE: &str = "/src/demo/util.h";

const DEMO_SOURCE: &str = r#"#include "util.h"

static int limit = 100;

int classify(const int *values, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        int v = smaller(values[i], limit);
        if (v < 0 && limit > 0)
            sum -= v;
        else
            sum += v;
    }
    return sum;
}

const char *kind_of(int c)
{
    switch (c) {
    case 'a': case 'b':
        return "letter";
    case '0':
        return "digit";
    default:
        check(c); /* exits for control characters */
        return "other";
    }
}

int never(int x)
{
    return x ? x : 1;
}

void Queue::push(int x)
{
    if (full())
        grow();
    at(end++) = x;
}
"#;

const UTIL: &str = r#"// Smaller of two numbers.
static inline int smaller(int a, int b)
{
	if (a < b)
		return a;
	return b;
}
"#;

pub fn sources(path: &str) -> Option<String> {
    match path {
        DEMO_SOURCE_FILE => Some(DEMO_SOURCE.into()),
        UTIL_HEADER_FILE => Some(UTIL.into()),
        _ => None,
    }
}

pub fn demo() -> Profile {
    let mut unit = UnitBuilder::new("demo.c", &[DEMO_SOURCE_FILE, UTIL_HEADER_FILE, "/src/demo/generated.c"]);
    classify(&mut unit);
    kind_of(&mut unit);
    never(&mut unit);
    push(&mut unit);
    blob(&mut unit);
    hostile(&mut unit);
    function_with_cut_paths(&mut unit);
    unit.map.skipped.push(Skipped { name: "fast_copy".into(), reason: "naked function".into() });
    profile(vec![("/usr/bin/demo", vec![unit.build_unit_profile()])])
}

fn line(scope: u32, line: u32, column: u32) -> SourcePosition {
    SourcePosition { scope, file: 0, line, column }
}

fn classify(unit: &mut UnitBuilder) {
    let own = unit.add_scope("classify", 0, 5, None);
    let inlined = unit.add_scope("smaller", 1, 2, Some(line(own, 9, 17)));
    let at = |l, c| line(own, l, c);
    let inside = |l, c| SourcePosition { scope: inlined, file: 1, line: l, column: c };
    let function = FunctionBuilder::new("classify", Some(at(5, 0)))
        .block(3, &[at(7, 9), at(8, 14)], Some(at(8, 23)))
        .block(4, &[at(9, 17), inside(4, 8)], Some(inside(4, 6)))
        .block(1, &[inside(5, 3)], None)
        .block(2, &[at(10, 15)], Some(at(10, 13)))
        .block(2, &[at(10, 25)], Some(at(10, 19)))
        .block(2, &[at(11, 17)], None)
        .block(2, &[at(13, 17)], None)
        .block(3, &[at(8, 33), at(8, 23)], Some(at(8, 23)))
        .block(1, &[at(15, 5)], None)
        .branch(0, 1, 8)
        .branch(1, 2, 3)
        .edge(2, 3, EdgeKind::Always)
        .branch(3, 4, 6)
        .branch(4, 5, 6)
        .edge(5, 7, EdgeKind::Always)
        .edge(6, 7, EdgeKind::Always)
        .branch(7, 1, 8)
        .edge(8, None, EdgeKind::Return);
    let walker = unit.add(function);
    unit.walk(&walker, &[0, 8], true, 3);
    unit.walk(&walker, &[0, 1, 3, 6, 7, 1, 2, 3, 6, 7, 8], true, 1_000_000);
    unit.walk(&walker, &[0, 1, 2, 3, 4, 5, 7, 1, 2, 3, 6, 7, 1, 3, 6, 7, 8], true, 20_000);
}

fn kind_of(unit: &mut UnitBuilder) {
    let own = unit.add_scope("kind_of", 0, 18, None);
    let at = |l, c| line(own, l, c);
    let function = FunctionBuilder::new("kind_of", Some(at(18, 0)))
        .block(2, &[at(20, 13)], Some(at(20, 5)))
        .block(1, &[at(22, 9)], None)
        .block(1, &[at(24, 9)], None)
        .block(3, &[at(26, 9), at(27, 9)], None)
        .block(1, &[at(29, 1)], None)
        .edge(0, 1, EdgeKind::Case(97))
        .cases(&[98])
        .edge(0, 2, EdgeKind::Case(48))
        .edge(0, 3, EdgeKind::Default)
        .edge(1, 4, EdgeKind::Always)
        .edge(2, 4, EdgeKind::Always)
        .edge(3, None, EdgeKind::Reach)
        .edge(3, 4, EdgeKind::Always)
        .edge(4, None, EdgeKind::Return);
    let walker = unit.add(function);
    unit.walk(&walker, &[0, 1, 4], true, 7_000);
    unit.walk(&walker, &[0, 3, 4], true, 12);
    unit.walk(&walker, &[0, 3], false, 1);
}

fn never(unit: &mut UnitBuilder) {
    let own = unit.add_scope("never", 0, 31, None);
    let at = |l, c| line(own, l, c);
    unit.add(FunctionBuilder::new("never", Some(at(31, 0))).block(2, &[at(33, 12), at(33, 5)], None).edge(0, None, EdgeKind::Return));
}

fn push(unit: &mut UnitBuilder) {
    let own = unit.add_scope("push", 0, 36, None);
    let at = |l, c| line(own, l, c);
    let function = FunctionBuilder::new("_ZN4demo5Queue4pushEi", Some(at(36, 0)))
        .block(3, &[at(38, 9)], Some(at(38, 9)))
        .block(6, &[at(39, 9)], None)
        .block(4, &[at(40, 5), at(41, 1)], None)
        .branch(0, 1, 2)
        .edge(1, 2, EdgeKind::Always)
        .edge(2, None, EdgeKind::Return);
    let walker = unit.add(function);
    unit.walk(&walker, &[0, 2], true, 500);
    unit.walk(&walker, &[0, 1, 2], true, 9);
}

fn blob(unit: &mut UnitBuilder) {
    let function = FunctionBuilder::new("blob", None)
        .block(5, &[], None)
        .block(2, &[], None)
        .block(1, &[], None)
        .branch(0, 1, 2)
        .edge(1, 2, EdgeKind::Always)
        .edge(2, None, EdgeKind::Return);
    let walker = unit.add(function);
    unit.walk(&walker, &[0, 1, 2], true, 40);
}

/// A function name that no C compiler emits but that an object file may contain.
pub const HOSTILE_NAME: &str = "x</script><img src=y onerror=\"document.title='owned'\">&amp;\u{1b}[31m;";

fn hostile(unit: &mut UnitBuilder) {
    let walker = unit.add(FunctionBuilder::new(HOSTILE_NAME, None).block(1, &[], None).edge(0, None, EdgeKind::Return));
    unit.walk(&walker, &[0], true, 5);
}

/// A function with forty branches in a row. It has too many paths, so they are cut. Its source file is missing.
fn function_with_cut_paths(unit: &mut UnitBuilder) {
    const BRANCHES: u32 = 40;
    let own = unit.add_scope("table", 2, 10, None);
    let at = |l, c| SourcePosition { scope: own, file: 2, line: l, column: c };
    let mut function = FunctionBuilder::new("table", Some(at(10, 0)));
    for i in 0..BRANCHES {
        function = function.block(1, &[at(11 + 2 * i, 9)], Some(at(11 + 2 * i, 5))).block(2, &[at(12 + 2 * i, 9)], None);
    }
    function = function.block(1, &[at(100, 1)], None);
    for i in 0..BRANCHES {
        function = function.branch(2 * i, 2 * i + 1, 2 * i + 2).edge(2 * i + 1, 2 * i + 2, EdgeKind::Always);
    }
    let walker = unit.add(function.edge(2 * BRANCHES, None, EdgeKind::Return));
    let all: Vec<u32> = (0..=2 * BRANCHES).collect();
    let even: Vec<u32> = all.iter().copied().filter(|b| b % 2 == 0).collect();
    unit.walk(&walker, &all, true, 30);
    unit.walk(&walker, &even, true, 4);
}
