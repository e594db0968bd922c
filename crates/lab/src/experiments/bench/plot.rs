//! A bar chart of the time that each variant adds to each program, with geometric means.
//!
//! The colours are those of Okabe and Ito (2008), which people with any kind of colour vision can distinguish. A bar that exceeds the chart
//! is truncated and labelled with its value. Runs under a simulator (callgrind) are left out, because all their bars would be truncated.

use super::result::BenchResult;
use super::statistics::geometric_mean;
use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const SERIES_COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(240, 228, 66),
    RGBColor(90, 90, 90),
];
const INK_COLOUR: RGBColor = RGBColor(40, 40, 40);
const FAINT_COLOUR: RGBColor = RGBColor(222, 222, 222);
const FONT_FAMILY: &str = "sans-serif";
/// Bars are truncated at this percentage.
const MAX_PERCENT: f64 = 200.0;
/// The fraction of a group's width that its bars occupy.
const BAR_WIDTH_SHARE: f64 = 0.84;
const CHART_HEIGHT: u32 = 560;

#[derive(Debug, PartialEq)]
struct Chart {
    title: String,
    variants: Vec<String>,
    groups: Vec<BarGroup>,
}

/// The bars of one program, or of the means. There is one bar per variant.
#[derive(Debug, PartialEq)]
struct BarGroup {
    name: String,
    bars: Vec<Option<OverheadBar>>,
}

/// Added time, in percent of the base's time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct OverheadBar {
    height: f64,
    /// Minimum and maximum of the individual runs.
    least: f64,
    greatest: f64,
}

/// Returns the chart as SVG; `None` if there is nothing to draw or drawing failed.
pub fn render_svg(suite: &BenchResult) -> Option<String> {
    let chart = Chart::from_suite(suite);
    if chart.variants.is_empty() {
        return None;
    }
    match draw_chart(&chart) {
        Ok(svg) => Some(svg),
        Err(error) => {
            eprintln!("cannot draw the chart: {error:#}");
            None
        }
    }
}

impl Chart {
    fn from_suite(suite: &BenchResult) -> Chart {
        let programs = suite.programs();
        let drawn = |variant: &str| programs.iter().any(|p| compute_bar(suite, p, variant).is_some());
        let variants: Vec<String> = suite.variants.iter().map(|v| v.name.clone()).filter(|v| drawn(v)).collect();
        let group = |program: &&str| BarGroup {
            name: (*program).to_owned(),
            bars: variants.iter().map(|v| compute_bar(suite, program, v)).collect(),
        };
        let mut groups: Vec<BarGroup> = programs.iter().map(group).collect();
        let mean = |variant: &String| {
            let ratios: Vec<f64> = programs.iter().filter_map(|p| compute_bar(suite, p, variant)).map(|b| 1.0 + b.height / 100.0).collect();
            let height = ratio_to_percent(geometric_mean(&ratios)?);
            Some(OverheadBar { height, least: height, greatest: height })
        };
        groups.push(BarGroup { name: "geom. mean".into(), bars: variants.iter().map(mean).collect() });
        let title = format!("User time added by counting ({}, input {}, medians of {} runs)", suite.date, suite.input, suite.rounds);
        Chart { title, variants, groups }
    }

    /// Returns the lowest and the highest value of the axis.
    fn axis_range(&self) -> (f64, f64) {
        let bars = || self.groups.iter().flat_map(|g| g.bars.iter().flatten());
        let lowest = bars().map(|b| b.height).fold(0.0, f64::min);
        let highest = bars().map(|b| b.height).fold(10.0, f64::max);
        // A margin above and below the bars leaves room for the labels of the means. The limits keep an outlier from making all other bars
        // short.
        (lowest.max(-MAX_PERCENT) * 1.2, (highest * 1.15).min(MAX_PERCENT))
    }
}

fn compute_bar(suite: &BenchResult, program: &str, variant: &str) -> Option<OverheadBar> {
    let own = suite.figures(program, variant).filter(|f| f.base_user_s.is_none())?;
    let ratio = suite.ratios(program, variant).user?;
    let base = own.user.median / ratio;
    Some(OverheadBar {
        height: ratio_to_percent(ratio),
        least: ratio_to_percent(own.user.min / base),
        greatest: ratio_to_percent(own.user.max / base),
    })
}

fn ratio_to_percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

fn draw_chart(chart: &Chart) -> Result<String> {
    let mut out = String::new();
    let per_group = (chart.variants.len() as u32 * 9 + 16).max(78);
    let width = (chart.groups.len() as u32 * per_group + 120).max(760);
    {
        let area = SVGBackend::with_string(&mut out, (width, CHART_HEIGHT)).into_drawing_area();
        let failed = |error: &dyn std::fmt::Display| anyhow!("{error}");
        area.fill(&WHITE).map_err(|e| failed(&e))?;
        area.draw(&Text::new(chart.title.clone(), (16, 14), text_style(17, INK_COLOUR))).map_err(|e| failed(&e))?;
        draw_legend(&area, chart, width).map_err(|e| failed(&e))?;
        let rows = count_legend_rows(chart, width);
        draw_bars(&area.margin(40 + rows * 20, 14, 14, 18), chart).map_err(|e| failed(&e))?;
        area.present().map_err(|e| failed(&e))?;
    }
    Ok(out)
}

pub type ChartArea<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
pub type DrawResult = std::result::Result<(), Box<dyn std::error::Error>>;

fn text_style(size: u32, colour: RGBColor) -> TextStyle<'static> {
    TextStyle { color: colour.to_backend_color(), ..TextStyle::from((FONT_FAMILY, size).into_font()) }
}

/// Computes the positions of the legend's entries, which wrap into rows.
fn legend_positions(chart: &Chart, width: u32) -> Vec<(i32, i32)> {
    let (mut x, mut row) = (16, 0);
    let mut places = Vec::new();
    for variant in &chart.variants {
        let wide = 40 + 8 * variant.chars().count() as i32;
        if x + wide > width as i32 && x > 16 {
            (x, row) = (16, row + 1);
        }
        places.push((x, 44 + row * 20));
        x += wide;
    }
    places
}

fn count_legend_rows(chart: &Chart, width: u32) -> i32 {
    legend_positions(chart, width).last().map_or(1, |(_, y)| (y - 44) / 20 + 1)
}

fn draw_legend(area: &ChartArea, chart: &Chart, width: u32) -> DrawResult {
    for (at, ((x, y), variant)) in legend_positions(chart, width).into_iter().zip(&chart.variants).enumerate() {
        area.draw(&Rectangle::new([(x, y - 6), (x + 14, y + 6)], variant_colour(at).filled()))?;
        area.draw(&Rectangle::new([(x, y - 6), (x + 14, y + 6)], INK_COLOUR.stroke_width(1)))?;
        area.draw(&Text::new(variant.clone(), (x + 20, y), text_style(14, INK_COLOUR).pos(Pos::new(HPos::Left, VPos::Center))))?;
    }
    Ok(())
}

fn variant_colour(at: usize) -> RGBColor {
    let RGBColor(red, green, blue) = SERIES_COLOURS[at % SERIES_COLOURS.len()];
    // The palette is reused with paler colours the second time, and with darker ones the third time.
    let mix = |part: u8| match at / SERIES_COLOURS.len() % 3 {
        0 => part,
        1 => 255 - (255 - part) / 5 * 2,
        _ => part / 5 * 2,
    };
    RGBColor(mix(red), mix(green), mix(blue))
}

fn draw_bars(area: &ChartArea, chart: &Chart) -> DrawResult {
    let (lowest, highest) = chart.axis_range();
    let count = chart.groups.len();
    let mut canvas =
        ChartBuilder::on(area).x_label_area_size(26).y_label_area_size(64).build_cartesian_2d(0.0..count as f64, lowest..highest)?;
    let mean = count as f64 - 1.0;
    canvas.draw_series([Rectangle::new([(mean, lowest), (count as f64, highest)], RGBColor(244, 244, 240).filled())])?;
    canvas
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT_COLOUR)
        .axis_style(INK_COLOUR)
        .y_labels(10)
        .y_label_formatter(&|v| if v.abs() < 0.5 { "0 %".to_owned() } else { format!("{v:+.0} %") })
        .y_label_style(text_style(13, INK_COLOUR))
        .y_desc("added user time, base = 0")
        .axis_desc_style(text_style(14, INK_COLOUR))
        .draw()?;
    for (at, group) in chart.groups.iter().enumerate() {
        draw_group(&mut canvas, chart, at, group, (lowest, highest))?;
        // The label is below the axis. The canvas gives positions in the complete drawing, but `area` expects positions relative to itself.
        let (x, y) = canvas.backend_coord(&(at as f64 + 0.5, lowest));
        let (left, top) = area.get_base_pixel();
        let place = (x - left, y - top + 8);
        area.draw(&Text::new(group.name.clone(), place, text_style(13, INK_COLOUR).pos(Pos::new(HPos::Center, VPos::Top))))?;
    }
    canvas.draw_series([PathElement::new(vec![(0.0, 0.0), (count as f64, 0.0)], INK_COLOUR.stroke_width(1))])?;
    Ok(())
}

type Canvas<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>>;

fn draw_group(canvas: &mut Canvas, chart: &Chart, group: usize, bars: &BarGroup, (lowest, highest): (f64, f64)) -> DrawResult {
    let width = BAR_WIDTH_SHARE / chart.variants.len() as f64;
    let is_mean = group + 1 == chart.groups.len();
    for (at, bar) in bars.bars.iter().enumerate() {
        let Some(bar) = bar else { continue };
        let left = group as f64 + (1.0 - BAR_WIDTH_SHARE) / 2.0 + at as f64 * width;
        let (right, middle) = (left + width * 0.92, left + width * 0.46);
        let top = bar.height.clamp(lowest, highest);
        canvas.draw_series([Rectangle::new([(left, 0.0), (right, top)], variant_colour(at).filled())])?;
        let is_truncated = bar.height > highest;
        if !is_truncated && bar.greatest > bar.least {
            let ends = vec![(middle, bar.least.max(lowest)), (middle, bar.greatest.min(highest))];
            canvas.draw_series([PathElement::new(ends, INK_COLOUR.stroke_width(1))])?;
        }
        if is_truncated || is_mean {
            // Rotated text is positioned by its centre.
            let room = (highest - lowest) * 0.04;
            let at = if is_truncated { highest - room } else { top.max(0.0) + room };
            let text = text_style(12, INK_COLOUR).pos(Pos::new(HPos::Center, VPos::Center)).transform(FontTransform::Rotate270);
            canvas.draw_series([Text::new(format!("{:+.0}", bar.height), (middle, at), text)])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::result::{BenchOutcome, tests::create_result};
    use super::*;

    fn create_sample_result() -> BenchResult {
        create_result(&[
            ("a", "plain", &[1.0, 1.0, 1.0], 1),
            ("a", "trodden", &[1.4, 1.5, 1.6], 1),
            ("b", "plain", &[1.0], 1),
            ("b", "trodden", &[6.0], 1),
        ])
    }

    #[test]
    fn colours_are_distinct() {
        let all: std::collections::BTreeSet<_> = (0..3 * SERIES_COLOURS.len())
            .map(|at| {
                let RGBColor(r, g, b) = variant_colour(at);
                (r, g, b)
            })
            .collect();
        assert_eq!(all.len(), 3 * SERIES_COLOURS.len());
    }

    #[test]
    fn bars_show_added_time() {
        let chart = Chart::from_suite(&create_sample_result());
        assert_eq!(chart.variants, ["trodden"]);
        let names: Vec<&str> = chart.groups.iter().map(|g| g.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "geom. mean"]);
        let bar = chart.groups[0].bars[0].unwrap();
        assert!((bar.height - 50.0).abs() < 1e-9 && (bar.least - 40.0).abs() < 1e-9 && (bar.greatest - 60.0).abs() < 1e-9);
        assert!((chart.groups[2].bars[0].unwrap().height - 200.0).abs() < 1e-9, "the mean of 1.5 and 6 is 3");
        assert_eq!(chart.axis_range(), (0.0, MAX_PERCENT));
    }

    #[test]
    fn truncated_bar_is_labelled() {
        let svg = render_svg(&create_sample_result()).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("+500"), "{svg}");
        assert!(svg.contains("trodden") && svg.contains("geom. mean"));
    }

    #[test]
    fn runs_under_a_simulator_are_omitted() {
        let mut suite = create_sample_result();
        for row in suite.rows.iter_mut().filter(|r| r.variant == "trodden") {
            if let BenchOutcome::Measured(figures) = &mut row.outcome {
                figures.base_user_s = Some(1.0);
            }
        }
        assert_eq!(render_svg(&suite), None);
    }
}
