//! Segments through functions that are cut at some edges because they have too many paths.

use crate::place::Place;
use serde_json::Value;
use trodden_flow::CutReason;
use trodden_profile::Profile;

/// A function with too many paths must be cut at the same edges as in the recorded run. Otherwise, a path of a segment might contain a cut
/// edge.
#[test]
fn functions_are_cut_at_the_edges_of_the_recorded_run() {
    let branches: String = (0..14)
        .map(|n| format!("if (x >> {n} & 1) __asm__ volatile(\"# {n}\" : \"+r\"(r)); else __asm__ volatile(\"# no {n}\" : \"+r\"(r));\n"))
        .collect();
    let source = format!(
        "#include <stdio.h>\n__attribute__((noinline)) static int low(int x) {{ return x % 3 ? x * 2 : x + 1; }}\n\
         __attribute__((noinline)) static int many(int x) {{ int r = x;\n{branches} r += low(r);\n{branches} return r ^ low(x); }}\n\
         int main(void) {{ int s = 0; for (int x = 0; x < 300; x++) s += many(x * 77); printf(\"%d\\n\", s); return 0; }}\n"
    );
    let place = Place::with(&[("prog.c", &source)]);
    place.cc("--trodden=stream -O1 prog.c -o prog");
    place.trodden("record --no-store -o stream.trodden --whole-program -- ./prog");
    for growth in ["0", "1000"] {
        place.trodden(&format!("instrument prog -o counting --segments stream.trodden.streams --depth 2 --growth {growth}"));
        place.trodden("record --no-store -o counted.trodden -- ./counting");
        place.laboratory("sequence check counted.trodden stream.trodden.streams --depth 1");
        let answer: Value = serde_json::from_slice(&place.trodden("segments counted.trodden --top 0 --json").stdout).unwrap();
        let ends_in_low = |row: &&Value| row["paths"].as_array().unwrap().last().unwrap()["function"] == "low";
        let counts = answer["segments"].as_array().unwrap().iter().filter(ends_in_low).map(|row| row["count"].as_u64().unwrap());
        assert!(counts.sum::<u64>() >= 600, "{answer}");
    }
    let profile = Profile::read(&place.path("counted.trodden")).unwrap();
    let cut = profile.functions().any(|(_, _, f)| f.name == "many" && f.cuts.iter().any(|(_, reason)| *reason == CutReason::Limit));
    assert!(cut, "`many` has few paths");
}
