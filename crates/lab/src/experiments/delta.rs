//! `trodden-lab experiment delta`: how compact the numbers of executed paths are on corpus programs, and how compact they could be.
//!
//! Reproduces figures 3.17 (span against number of paths) and 3.18 (Ball-Larus delta over preferential delta) of Vaswani's thesis as a
//! table and a chart. The delta of a numbering is the span of the executed paths' numbers divided by the number of executed paths. Programs
//! count in hash tables, so that no paths have to be cut. `trodden-oracle delta` measures the spans.

use crate::experiments::bench::plot::{ChartArea, DrawResult};
use crate::experiments::bench::statistics::geometric_mean;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use plotters::prelude::*;
use serde::Deserialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::interesting::InterestingBuilds;
use trodden_corpus::oracle::build_oracle;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;
use trodden_corpus::{Corpus, CorpusInput};

const DEFAULT_PROGRAMS: &[&str] = &["gzip", "bzip2", "lua", "minisat", "mawk", "hmmer"];
const PUBLISHED_COLOUR: RGBColor = RGBColor(213, 94, 0);
const SEARCHED_COLOUR: RGBColor = RGBColor(0, 114, 178);
const INK_COLOUR: RGBColor = RGBColor(40, 40, 40);
const FAINT_COLOUR: RGBColor = RGBColor(222, 222, 222);
const FONT_FAMILY: &str = "sans-serif";

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  trodden-lab experiment delta gzip lua --input ref --output docs/benchmarks/delta")]
pub struct DeltaOptions {
    /// Corpus programs [default: gzip, bzip2, lua, minisat, mawk, hmmer].
    programs: Vec<String>,
    /// Run whose executed paths are numbered.
    #[arg(long, value_enum, default_value_t = CorpusInput::Train)]
    input: CorpusInput,
    /// Time limit of the search for the smallest span of a function, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    limit_ms: u64,
    /// Time limit of all searches for a program, in seconds; remaining functions count as not proven.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    total_s: u64,
    /// Also write NAME.md and NAME.svg, after each program.
    #[arg(long, value_name = "NAME")]
    output: Option<PathBuf>,
}

/// Spans of path numbers in a function, as printed by `trodden-oracle delta`.
#[derive(Debug, Deserialize)]
struct DeltaRow {
    paths: u64,
    ball_larus: String,
    published: Option<u64>,
    restarted: Option<u64>,
    searched: Option<u64>,
    proven: bool,
}

impl DeltaRow {
    fn delta_of_span(&self, span: Option<u64>) -> Option<f64> {
        span.map(|span| span as f64 / self.paths as f64)
    }

    /// Returns the ratio of the Ball-Larus span to the span of preferential numbering as published.
    fn ratio(&self) -> Option<f64> {
        Some(self.ball_larus.parse::<f64>().ok()? / self.published? as f64)
    }
}

pub fn run(options: &DeltaOptions) -> Result<()> {
    packages::ensure_packages_for(PackagePurpose::Bench)?;
    let oracle = build_oracle()?;
    let corpus = Corpus::in_target();
    let programs = corpus.prepare(&options.programs, DEFAULT_PROGRAMS)?;
    let mut all = Vec::new();
    for program in &programs {
        all.push((program.as_str(), measure_program(&corpus, program, options, &oracle)?));
        if let Some(name) = &options.output {
            let chart = draw_charts(&all)?;
            for (extension, content) in [("md", &render_table(&all, options)), ("svg", &chart)] {
                let file = name.with_extension(extension);
                std::fs::write(&file, content).with_context(|| format!("cannot write {}", file.display()))?;
            }
        }
    }
    print!("{}", render_table(&all, options));
    Ok(())
}

fn measure_program(corpus: &Corpus, program: &str, options: &DeltaOptions, oracle: &Path) -> Result<Vec<DeltaRow>> {
    let stored = steps::path_for_process("delta", "trodden");
    InterestingBuilds::prepare(corpus, program, options.input)?.run_in_tables(corpus, &stored)?;
    let limits = ["--limit-ms".to_owned(), options.limit_ms.to_string(), "--total-s".to_owned(), options.total_s.to_string()];
    let output = steps::output(Command::new(oracle).arg("delta").arg(&stored).args(limits));
    let _ = std::fs::remove_file(&stored);
    output?.lines().map(|line| serde_json::from_str(line).context("`trodden-oracle delta` printed a line that is not a span")).collect()
}

fn render_table(all: &[(&str, Vec<DeltaRow>)], options: &DeltaOptions) -> String {
    let mut text = format!(
        "Spans of the numbers of executed paths (input {}, paths not cut), over the number of paths: delta. `ppp` is as published, \
         `orders` the best of 17 orders of out-edges, `searched` the best that a search of {} ms per function found; `proven` are \
         functions whose span is proven minimal. The last columns are the largest delta, and the delta of Ball-Larus numbers over that \
         of `ppp`.\n\n\
         | program | functions | paths | delta = 1: ppp | orders | searched | proven | delta <= 1.5: ppp | largest: ppp | searched | \
         ratio: geom. mean | largest |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        options.input.name(),
        options.limit_ms
    );
    for (program, rows) in all {
        append_row(&mut text, program, &rows.iter().collect::<Vec<_>>());
    }
    if all.len() > 1 {
        append_row(&mut text, "all", &all.iter().flat_map(|(_, rows)| rows).collect::<Vec<_>>());
    }
    text
}

fn append_row(text: &mut String, program: &str, rows: &[&DeltaRow]) {
    let share = |is: &dyn Fn(&DeltaRow) -> bool| {
        format!("{:.1} %", 100.0 * rows.iter().filter(|r| is(r)).count() as f64 / rows.len().max(1) as f64)
    };
    let at_most = |limit: f64, span: fn(&DeltaRow) -> Option<u64>| share(&|r| r.delta_of_span(span(r)).is_some_and(|d| d <= limit));
    let largest = |span: fn(&DeltaRow) -> Option<u64>| rows.iter().filter_map(|r| r.delta_of_span(span(r))).fold(0.0, f64::max);
    let ratios: Vec<f64> = rows.iter().filter_map(|r| r.ratio()).collect();
    let _ = writeln!(
        text,
        "| {program} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.3e} |",
        rows.len(),
        rows.iter().map(|r| r.paths).sum::<u64>(),
        at_most(1.0, |r| r.published),
        at_most(1.0, |r| r.restarted),
        at_most(1.0, |r| r.searched),
        share(&|r| r.proven),
        at_most(1.5, |r| r.published),
        largest(|r| r.published),
        largest(|r| r.searched),
        geometric_mean(&ratios).unwrap_or(1.0),
        ratios.iter().copied().fold(0.0, f64::max),
    );
}

fn draw_charts(all: &[(&str, Vec<DeltaRow>)]) -> Result<String> {
    let rows: Vec<&DeltaRow> = all.iter().flat_map(|(_, rows)| rows).collect();
    let mut out = String::new();
    {
        let area = SVGBackend::with_string(&mut out, (1000, 460)).into_drawing_area();
        let failed = |error: &dyn std::fmt::Display| anyhow!("cannot draw the chart: {error}");
        area.fill(&WHITE).map_err(|e| failed(&e))?;
        let (left, right) = area.split_horizontally(500);
        draw_spans(&left, &rows).map_err(|e| failed(&e))?;
        draw_ratios(&right, &rows).map_err(|e| failed(&e))?;
        area.present().map_err(|e| failed(&e))?;
    }
    Ok(out)
}

/// Formats a label of a logarithmic axis so that it fits the margin.
fn power_label(value: &f64) -> String {
    if *value < 1e4 { format!("{value}") } else { format!("{value:e}") }
}

/// Draws figure 3.17: span against number of paths.
fn draw_spans(area: &ChartArea, rows: &[&DeltaRow]) -> DrawResult {
    let max = rows.iter().filter_map(|r| r.published).max().unwrap_or(1).max(10) as f64 * 1.5;
    let paths = rows.iter().map(|r| r.paths).max().unwrap_or(1).max(10) as f64 * 1.5;
    let mut canvas = ChartBuilder::on(area)
        .caption("Span of the numbers against executed paths", (FONT_FAMILY, 16))
        .margin(12)
        .x_label_area_size(38)
        .y_label_area_size(58)
        .build_cartesian_2d((0.8f64..paths).log_scale(), (0.8f64..max).log_scale())?;
    canvas
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT_COLOUR)
        .axis_style(INK_COLOUR)
        .x_desc("paths")
        .y_desc("span")
        .x_label_formatter(&power_label)
        .y_label_formatter(&power_label)
        .draw()?;
    canvas.draw_series([PathElement::new(vec![(1.0, 1.0), (paths.min(max), paths.min(max))], INK_COLOUR.stroke_width(1))])?;
    let dots = |span: fn(&DeltaRow) -> Option<u64>, size: i32, colour: RGBColor| {
        let place = move |r: &&DeltaRow| span(r).map(|s| Circle::new((r.paths as f64, s as f64), size, colour.filled()));
        rows.iter().filter_map(place).collect::<Vec<_>>()
    };
    canvas
        .draw_series(dots(|r| r.published, 3, PUBLISHED_COLOUR))?
        .label("ppp as published")
        .legend(|(x, y)| Circle::new((x + 8, y), 3, PUBLISHED_COLOUR.filled()));
    canvas
        .draw_series(dots(|r| r.searched, 2, SEARCHED_COLOUR))?
        .label("smallest found")
        .legend(|(x, y)| Circle::new((x + 8, y), 2, SEARCHED_COLOUR.filled()));
    canvas.configure_series_labels().position(SeriesLabelPosition::UpperLeft).background_style(WHITE).draw()?;
    Ok(())
}

/// Draws figure 3.18: Ball-Larus delta over preferential delta, with functions sorted by ratio.
fn draw_ratios(area: &ChartArea, rows: &[&DeltaRow]) -> DrawResult {
    let mut ratios: Vec<f64> = rows.iter().filter_map(|r| r.ratio()).collect();
    ratios.sort_by(f64::total_cmp);
    let max = ratios.last().copied().unwrap_or(1.0).max(10.0) * 2.0;
    let min = ratios.first().copied().unwrap_or(1.0).min(0.5);
    let mut canvas = ChartBuilder::on(area)
        .caption("Ball-Larus delta over ppp's", (FONT_FAMILY, 16))
        .margin(12)
        .x_label_area_size(38)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..ratios.len() as f64, (min..max).log_scale())?;
    canvas
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT_COLOUR)
        .axis_style(INK_COLOUR)
        .x_desc("functions by ratio")
        .y_desc("ratio")
        .x_label_formatter(&|at| format!("{at:.0}"))
        .y_label_formatter(&power_label)
        .draw()?;
    canvas.draw_series(ratios.iter().enumerate().map(|(at, ratio)| Circle::new((at as f64, *ratio), 2, SEARCHED_COLOUR.filled())))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_and_chart_show_the_measurements() {
        let row = |paths, ball_larus: &str, published, searched, proven| DeltaRow {
            paths,
            ball_larus: ball_larus.into(),
            published: Some(published),
            restarted: Some(published),
            searched: Some(searched),
            proven,
        };
        let all = vec![("one", vec![row(1, "1", 1, 1, true), row(10, "4000", 20, 15, false)])];
        let options = DeltaOptions { programs: vec![], input: CorpusInput::Train, limit_ms: 5, total_s: 5, output: None };
        let text = render_table(&all, &options);
        assert!(text.contains("| one | 2 | 11 | 50.0 % | 50.0 % | 50.0 % | 50.0 % | 50.0 % | 2.0 | 1.5 | 14.1 | 2.000e2 |"), "{text}");
        let svg = draw_charts(&all).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("ppp as published"), "{svg}");
    }
}
