//! Segments of random programs. Callees may be inlined, be cloned for some callers, or read from a variable who called them. In each case,
//! the counts must equal those of the whole program path, which is recorded independently.

use crate::place::{Place, laboratory, must, trodden, with_choices};
use std::collections::BTreeMap;
use std::fmt::Write;
use trodden_profile::Profile;

/// Pseudo-random numbers from a seed (xorshift, Marsaglia 2003).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

const FUNCTION_COUNT: u64 = 9;

/// Returns a call to some function, by name or through a pointer. All programs end, because each call uses up a limited amount of "fuel".
fn generate_call(dice: &mut Dice) -> String {
    let callee = dice.below(FUNCTION_COUNT);
    match dice.below(4) {
        0 => format!("table[(unsigned)(x + {callee}) % {FUNCTION_COUNT}](x - 1, y)"),
        _ => format!("f{callee}(x - {}, y ^ {})", 1 + dice.below(3), dice.below(9)),
    }
}

/// Appends statements with branches, loops, early returns, and calls in conditions, in arguments and as return values.
fn generate_statements(dice: &mut Dice, depth: u32, text: &mut String) {
    for _ in 0..1 + dice.below(3) {
        let (kind, number) = (dice.below(if depth == 0 { 3 } else { 7 }), dice.below(7) + 2);
        let wrote = match kind {
            0 => write!(text, "y += {};", generate_call(dice)),
            1 => write!(text, "y ^= x * {number};"),
            2 => write!(text, "__asm__ volatile(\"# {number}\" : \"+r\"(y));"),
            3 => write!(text, "if ({} % {number} == 1) return {};", generate_call(dice), generate_call(dice)),
            4 => write!(text, "for (int i = 0; i < {number} && fuel > 0; i++) {{ "),
            _ => write!(text, "if ((x ^ y) % {number} > {}) {{ ", number / 2 - 1),
        };
        wrote.expect("a string takes all");
        if kind >= 4 {
            generate_statements(dice, depth - 1, text);
            text.push_str("} ");
            if kind == 6 {
                text.push_str("else { ");
                generate_statements(dice, depth - 1, text);
                text.push_str("} ");
            }
        }
        text.push('\n');
    }
}

/// Returns a C program, or a C++ program with exceptions if `throws`.
fn generate_program(seed: u64, throws: bool) -> String {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut text = String::from("#include <stdio.h>\nstatic int fuel = 4000;\ntypedef int (*step)(int, int);\n");
    let linkage = |f: u64| if f.is_multiple_of(3) { "" } else { "static " };
    for f in 0..FUNCTION_COUNT {
        writeln!(text, "{}__attribute__((noinline)) int f{f}(int x, int y);", linkage(f)).expect("a string takes all");
    }
    let names: Vec<String> = (0..FUNCTION_COUNT).map(|f| format!("f{f}")).collect();
    writeln!(text, "static volatile step table[] = {{ {} }};", names.join(", ")).expect("a string takes all");
    for f in 0..FUNCTION_COUNT {
        let throw = if throws { "if (fuel % 31 == 7) throw x; " } else { "" };
        writeln!(text, "{}int f{f}(int x, int y) {{ if (fuel <= 0 || x < 0) return y; fuel--; {throw}", linkage(f))
            .expect("a string takes all");
        let catches = throws && dice.below(2) == 0;
        text.push_str(if catches { "try { " } else { "" });
        generate_statements(&mut dice, 2, &mut text);
        text.push_str(if catches { "} catch (int n) { y += n; }\n" } else { "" });
        writeln!(text, "return {}; }}", generate_call(&mut dice)).expect("a string takes all");
    }
    let body = "s += f0(i % 9, i) ^ table[i % 9](i % 5, s);";
    let body = if throws { format!("try {{ {body} }} catch (int n) {{ s -= n; }}") } else { body.to_owned() };
    writeln!(text, "int main() {{ int s = 0; for (int i = 0; i < 60; i++) {{ fuel = fuel / 2 + 40; {body} }} printf(\"%d\\n\", s); }}")
        .expect("a string takes all");
    text
}

fn record_program(place: &Place, program: &str, options: &[&str]) -> Vec<u8> {
    must(place.command(trodden()).arg("record").args(options).arg("--").arg(place.path(program))).stdout
}

/// For each function, by name: the hash of its shape, its number of counters, and its path counts.
type CountedFunctions = BTreeMap<String, (u64, u64, Vec<(u64, u64)>)>;

fn read_counts(place: &Place, file: &str) -> CountedFunctions {
    let profile = Profile::read(&place.path(file)).unwrap();
    let counts = profile.functions().map(|(_, unit, f)| (f.name.clone(), (f.shape, f.counters, unit.counts_of(f).collect())));
    counts.collect()
}

#[test]
fn counts_equal_those_of_the_whole_program_path() {
    let seeds: Vec<u64> = std::env::var("TRODDEN_SEEDS").map_or(vec![3, 4], |text| {
        let (first, last) = text.split_once('-').expect("TRODDEN_SEEDS is FIRST-LAST");
        (first.parse().unwrap()..=last.parse().unwrap()).collect()
    });
    for seed in seeds {
        let throws = seed % 2 == 1;
        let file = if throws { "prog.cc" } else { "prog.c" };
        let place = Place::with(&[(file, &generate_program(seed, throws))]);
        let level = ["-O2", "-O1", "-O0"][seed as usize % 3];
        for line in [format!("--trodden=stream {level} -w {file} -o prog"), format!("{level} -w {file} -o paths")] {
            if throws {
                place.cxx(&line)
            } else {
                place.cc(&line)
            };
        }
        let plain = record_program(&place, "prog", &["--whole-program", "--no-store", "-o", "stream"]);
        assert_eq!(record_program(&place, "paths", &["--no-store", "-o", "paths.trodden"]), plain, "seed {seed}");
        assert_eq!(read_counts(&place, "paths.trodden"), read_counts(&place, "stream"), "seed {seed}");
        let hashed = [(1, 0), (1, 15), (1, 5000), (2, 40), (3, 300)].map(|(depth, growth)| (depth, growth, "known-table"));
        for (depth, growth, scheme) in hashed.into_iter().chain([(1, 15, "ppp"), (2, 40, "ppp")]) {
            let (depth, growth) = (depth.to_string(), growth.to_string());
            let options = ["-o", "counting", "--segments", "stream.streams", "--depth", &depth, "--growth", &growth, "--scheme", scheme];
            must(with_choices(place.command(trodden()).args(["instrument", "prog"]), options));
            let counted = record_program(&place, "counting", &["--no-store", "-o", "counted"]);
            assert_eq!(counted, plain, "seed {seed}, depth {depth}, growth {growth}");
            let check = ["sequence", "check", "counted", "stream.streams", "--depth", &depth];
            let output = place.command(laboratory()).args(check).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && !said.starts_with("0 segments"), "seed {seed}, growth {growth}: {said}");
        }
    }
}

/// Returns the counts of executed segments, by name.
fn count_segments(place: &Place, file: &str, depth: &str) -> BTreeMap<String, u64> {
    let output = place.trodden(&format!("segments {file} --depth {depth} --top 0 --json"));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = answer["segments"].as_array().unwrap().iter();
    let name = |row: &serde_json::Value| {
        let paths = row["paths"].as_array().unwrap().iter();
        paths.map(|path| format!("{}:{}", path["function"].as_str().unwrap(), path["path"])).collect::<Vec<_>>().join(" > ")
    };
    rows.map(|row| (name(row), row["count"].as_u64().unwrap())).filter(|row| row.1 > 0).collect()
}

/// Copies that divide a function's paths must together count the same segments as a single program. Each of the three ways to divide is
/// tried: by function, by the tasks of strategy P3, and by path ends.
#[test]
fn copies_together_count_all_segments() {
    for (seed, throws) in [(4, false), (5, true)] {
        let file = if throws { "prog.cc" } else { "prog.c" };
        let place = Place::with(&[(file, &generate_program(seed, throws))]);
        let line = format!("--trodden=stream -O1 -w {file} -o prog");
        if throws {
            place.cxx(&line)
        } else {
            place.cc(&line)
        };
        let plain = record_program(&place, "prog", &["--whole-program", "--no-store", "-o", "stream"]);
        for depth in ["1", "2"] {
            let whole = ["-o", "counting", "--segments", "stream.streams", "--depth", depth, "--scheme", "pspp"];
            must(with_choices(place.command(trodden()).args(["instrument", "prog"]), whole));
            assert_eq!(record_program(&place, "counting", &["--no-store", "-o", "counted"]), plain, "seed {seed}");
            let expected = count_segments(&place, "counted", depth);
            assert!(expected.len() > 40, "{expected:?}");
            assert_eq!(expected, count_segments(&place, "stream.streams", depth), "seed {seed}, depth {depth}: pspp");
            for (strategy, copies) in [("weighted", "3"), ("p3", "4"), ("pbl", "2")] {
                let divided = ["--copies", copies, "--divide", "segments:stream.streams", "--segment-depth", depth];
                let mut options = vec!["--strategy", strategy, "--no-store", "-o", "shared"];
                options.extend((strategy == "p3").then_some("--all-procedures"));
                let mut command = place.command(trodden());
                let output = must(with_choices(command.arg("record"), [&divided[..], &options, &["--", "./prog"]].concat()));
                assert_eq!(output.stdout, plain, "seed {seed}, {strategy}");
                assert_eq!(count_segments(&place, "shared", depth), expected, "seed {seed}, depth {depth}, {strategy}");
                let is_divided = String::from_utf8_lossy(&output.stderr).contains("and 0 functions are divided between copies");
                assert_eq!(is_divided, strategy == "pbl", "{}", String::from_utf8_lossy(&output.stderr));
            }
        }
    }
}
