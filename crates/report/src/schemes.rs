//! Both schemes of finding untested segments, compared, and what the builds cost: text and JSON.

use crate::words::plural;
use serde_json::{Value, json};
use trodden_analysis::residual::{BuildCost, Costs, Schemes};

/// Segments that are named of those that one scheme alone finds.
const NAMED: usize = 5;

/// For a terminal.
pub fn text(found: &Schemes) -> String {
    let mut out = String::from("How untested segments were found (depth 1)\n");
    out += "  scheme              runs of tests  their time  tested  untested  executions  found by it alone\n";
    for (at, scheme) in found.schemes.iter().enumerate() {
        out += &format!(
            "  {:<18}  {:>13}  {:>8} ms  {:>6}  {:>8}  {:>10}  {:>17}\n",
            scheme.stages,
            scheme.runs,
            scheme.time.as_millis(),
            scheme.tested,
            scheme.untested.len(),
            scheme.executions,
            found.alone(at).len()
        );
    }
    for (at, scheme) in found.schemes.iter().enumerate() {
        let alone = found.alone(at);
        let more = alone.len().saturating_sub(NAMED);
        alone.iter().take(NAMED).for_each(|name| out += &format!("  {} alone: {name}\n", scheme.stages));
        if more > 0 {
            out += &format!("  {} alone: {} more\n", scheme.stages, plural(more as u128, "segment", "segments"));
        }
    }
    out + "\n" + &costs_text(&found.costs)
}

/// As JSON.
pub fn json(found: &Schemes) -> Value {
    let scheme = |at: usize| {
        let scheme = &found.schemes[at];
        json!({
            "scheme": scheme.stages,
            "test_runs": scheme.runs,
            "test_time_ms": scheme.time.as_millis() as u64,
            "tested": scheme.tested,
            "untested": scheme.untested.len(),
            "executions": scheme.executions.to_string(),
            "alone": found.alone(at),
        })
    };
    json!([scheme(0), scheme(1)])
}

/// What builds cost, for a terminal.
fn costs_text(costs: &Costs) -> String {
    let mut out = String::from("What it costs, of the build that counts nothing\n");
    out += "  build                       code    time\n";
    for row in &costs.builds {
        let (code, time) = costs.ratio(row);
        let time = time.map_or(String::from("      -"), |ratio| format!("{ratio:>7.3}"));
        out += &format!("  {:<24}  {code:>6.2} {time}\n", row.name);
    }
    match costs.rounds {
        0 => out + "  (--rounds N measures times)\n\n",
        _ => out + "\n",
    }
}

/// What builds cost, as JSON.
pub fn costs_json(costs: &Costs) -> Value {
    let row = |row: &BuildCost| {
        let (code, time) = costs.ratio(row);
        json!({
            "build": row.name,
            "code_bytes": row.code,
            "code_ratio": code,
            "time_us": row.time.map(|t| t.as_micros() as u64),
            "time_ratio": time,
        })
    };
    json!(costs.builds.iter().map(row).collect::<Vec<_>>())
}
