//! Compares two methods of finding untested interprocedural segments, and the costs of the builds that they need, as text and JSON.

use crate::words::plural;
use serde_json::{Value, json};
use trodden_analysis::residual::{BuildCost, BuildCosts, SchemeResults};

/// Maximum number of segments listed for each method, among those that only this method finds.
const MAX_LISTED: usize = 5;

/// Renders the comparison and the costs as text.
pub fn text(found: &SchemeResults) -> String {
    let mut out = String::from("How untested segments were found (depth 1)\n");
    out += "  scheme                  test runs   test time  tested  untested  executions  found by it alone\n";
    for (at, scheme) in found.schemes.iter().enumerate() {
        out += &format!(
            "  {:<18}  {:>13}  {:>8} ms  {:>6}  {:>8}  {:>10}  {:>17}\n",
            scheme.stages,
            scheme.runs,
            scheme.time.as_millis(),
            scheme.tested,
            scheme.untested.len(),
            scheme.executions,
            found.segments_found_only_by(at).len()
        );
    }
    for (at, scheme) in found.schemes.iter().enumerate() {
        let alone = found.segments_found_only_by(at);
        let more = alone.len().saturating_sub(MAX_LISTED);
        alone.iter().take(MAX_LISTED).for_each(|name| out += &format!("  {} alone: {name}\n", scheme.stages));
        if more > 0 {
            out += &format!("  {} alone: {} more\n", scheme.stages, plural(more as u128, "segment", "segments"));
        }
    }
    out + "\n" + &render_costs(&found.costs)
}

/// Returns the comparison, without the builds' costs, as JSON.
pub fn json(found: &SchemeResults) -> Value {
    let scheme = |at: usize| {
        let scheme = &found.schemes[at];
        json!({
            "scheme": scheme.stages,
            "test_runs": scheme.runs,
            "test_time_ms": scheme.time.as_millis() as u64,
            "tested": scheme.tested,
            "untested": scheme.untested.len(),
            "executions": scheme.executions.to_string(),
            "alone": found.segments_found_only_by(at),
        })
    };
    json!([scheme(0), scheme(1)])
}

fn render_costs(costs: &BuildCosts) -> String {
    let mut out = String::from("Code size and time, relative to the uninstrumented build\n");
    out += "  build                       code    time\n";
    for row in &costs.builds {
        let (code, time) = costs.ratio(row);
        let time = time.map_or(String::from("      -"), |ratio| format!("{ratio:>7.3}"));
        out += &format!("  {:<24}  {code:>6.2} {time}\n", row.name);
    }
    match costs.rounds {
        0 => out + "  (pass --rounds N to measure times)\n\n",
        _ => out + "\n",
    }
}

/// Returns the code size and time of each build as JSON.
pub fn costs_json(costs: &BuildCosts) -> Value {
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
