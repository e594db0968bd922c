//! The result as text.

use super::statistics::geometric_mean;
use super::variant::Variant;
use super::{Row, Suite};
use std::fmt::Write;

const HEAD: [&str; 9] = ["program", "variant", "user s", "+-", "ratio", "M instr.", "ratio", "code KB", "ratio"];

/// A line per variant of a program, then the geometric means of the ratios.
pub fn render(suite: &Suite) -> String {
    let mut lines: Vec<[String; 9]> = vec![HEAD.map(str::to_owned)];
    lines.extend(suite.rows.iter().map(|row| line(suite, row)));
    lines.extend(means(suite));
    let widths: Vec<usize> = (0..HEAD.len()).map(|column| lines.iter().map(|l| l[column].len()).max().unwrap_or_default()).collect();
    let mut out = String::new();
    for line in &lines {
        let cells: Vec<String> = (0..HEAD.len())
            .map(|c| if c < 2 { format!("{:<1$}", line[c], widths[c]) } else { format!("{:>1$}", line[c], widths[c]) })
            .collect();
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
    let _ = writeln!(
        out,
        "\n{}: medians of {} runs (input {}), +- half of the range; ratios to the plain build.",
        suite.date, suite.rounds, suite.input
    );
    if let Some(counter) = suite.instructions_by {
        let _ = writeln!(out, "Instructions of the short run, by {counter}.");
    }
    if suite.rows.iter().all(|row| row.same_output) {
        let _ = writeln!(out, "Every variant printed what the plain build prints.");
    }
    let _ = writeln!(out, "{}, {} cores, Linux {}; {}", suite.machine.processor, suite.machine.cores, suite.machine.kernel, suite.commit);
    out
}

fn line(suite: &Suite, row: &Row) -> [String; 9] {
    let ratios = Ratios::of(suite, row);
    [
        row.program.clone(),
        row.variant.name().to_owned() + if row.same_output { "" } else { " (OUTPUT DIFFERS)" },
        format!("{:.3}", row.user.median),
        format!("{:.1}%", row.user.width() * 50.0),
        ratio(ratios.user),
        row.instructions.map_or_else(String::new, |n| format!("{:.0}", n as f64 / 1e6)),
        ratio(ratios.instructions),
        format!("{:.0}", row.code_bytes as f64 / 1024.0),
        ratio(ratios.code),
    ]
}

fn means(suite: &Suite) -> Vec<[String; 9]> {
    let mut variants: Vec<Variant> = Vec::new();
    for row in suite.rows.iter().filter(|row| row.variant != Variant::Plain) {
        if !variants.contains(&row.variant) {
            variants.push(row.variant);
        }
    }
    let mean = |variant: Variant, of: fn(&Ratios) -> Option<f64>| {
        let ratios: Vec<f64> = suite.rows.iter().filter(|r| r.variant == variant).filter_map(|r| of(&Ratios::of(suite, r))).collect();
        ratio(geometric_mean(&ratios))
    };
    let line = |variant: Variant| {
        let mut line = HEAD.map(|_| String::new());
        line[0] = "geometric mean".into();
        line[1] = variant.name().into();
        line[4] = mean(variant, |r| r.user);
        line[6] = mean(variant, |r| r.instructions);
        line[8] = mean(variant, |r| r.code);
        line
    };
    variants.into_iter().map(line).collect()
}

/// A row beside the plain build of the same program.
struct Ratios {
    user: Option<f64>,
    instructions: Option<f64>,
    code: Option<f64>,
}

impl Ratios {
    fn of(suite: &Suite, row: &Row) -> Ratios {
        let plain =
            suite.rows.iter().find(|r| r.program == row.program && r.variant == Variant::Plain).filter(|_| row.variant != Variant::Plain);
        let over = |own: f64, plain: f64| (plain > 0.0).then_some(own / plain);
        Ratios {
            user: plain.and_then(|p| over(row.user.median, p.user.median)),
            instructions: plain.and_then(|p| over(row.instructions? as f64, p.instructions? as f64)),
            code: plain.and_then(|p| over(row.code_bytes as f64, p.code_bytes as f64)),
        }
    }
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(String::new, |v| format!("{v:.2}"))
}
