//! The chart: for each goal with a bound, the distance of the median from the goal, with its
//! quartiles. A bar left of the line is met; twice as far right is twice as much as the goal
//! allows.

use std::path::Path;

use plotters::prelude::*;

use crate::verdict::{GoalResult, Verdict};

const ROW_HEIGHT: u32 = 22;
const WIDTH: u32 = 1_100;
const MARGIN: u32 = 60;
/// Width of the words of a goal, in pixels.
const WORDS_WIDTH: u32 = 470;
/// Range of ratios to the goal in the chart.
const LEAST: f64 = 0.125;
const MOST: f64 = 8.0;

/// A bar: the words and the share of the goal that was used (1 is the goal itself).
#[derive(Clone, Debug, PartialEq)]
struct Bar {
    words: String,
    quartiles: [f64; 3],
    color: RGBColor,
}

/// Draws the judged goals, as SVG.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn draw(judged: &[GoalResult], path: &Path) -> Result<(), String> {
    let bars: Vec<Bar> = judged.iter().filter_map(bar).collect();
    let height = MARGIN * 2 + ROW_HEIGHT * bars.len().max(1) as u32;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    draw_on(&area, &bars).map_err(|error| format!("draw {}: {error}", path.display()))
}

fn draw_on<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    bars: &[Bar],
) -> Result<(), Box<dyn std::error::Error>>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let rows = bars.len().max(1) as f64;
    let title = "the index and its goals: 1 is the goal, left of it is better (quartiles)";
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin_right(MARGIN)
        .set_label_area_size(LabelAreaPosition::Left, WORDS_WIDTH)
        .set_label_area_size(LabelAreaPosition::Bottom, MARGIN)
        .build_cartesian_2d((LEAST..MOST).log_scale(), 0.0..rows)?;
    let words = |y: &f64| {
        let place = (rows - y).floor() as usize;
        bars.get(place).map_or(String::new(), |bar| bar.words.clone())
    };
    chart
        .configure_mesh()
        .disable_mesh()
        .disable_y_axis()
        .x_desc("found / goal (goal / found where more is better)")
        .x_label_formatter(&|ratio| format!("{ratio}"))
        .draw()?;
    let bounded = |ratio: f64| ratio.clamp(LEAST, MOST);
    for (place, bar) in bars.iter().enumerate() {
        let middle = rows - place as f64 - 0.5;
        let [first, median, third] = bar.quartiles.map(bounded);
        let fill = bar.color.filled();
        chart.draw_series([
            Rectangle::new([(LEAST, middle - 0.3), (median, middle + 0.3)], fill),
            Rectangle::new([(first, middle - 0.1), (third, middle + 0.1)], BLACK.filled()),
        ])?;
        let start = chart.backend_coord(&(LEAST, middle));
        let text = Text::new(words(&middle), (8, start.1 - 6), ("sans-serif", 12));
        area.draw(&text)?;
    }
    chart.draw_series([PathElement::new(vec![(1.0, 0.0), (1.0, rows)], BLACK)])?;
    area.present()?;
    Ok(())
}

fn bar(part: &GoalResult) -> Option<Bar> {
    let goal = part.goal.as_deref()?;
    let number = goal.split_whitespace().nth(1)?.parse::<f64>().ok().filter(|goal| *goal != 0.0)?;
    let found = part.found?;
    let all = [found.quartile_1, found.median, found.quartile_3];
    let mut quartiles = all.map(|found| match goal.starts_with(">=") {
        true => number / found.max(f64::MIN_POSITIVE),
        false => found / number,
    });
    quartiles.sort_by(f64::total_cmp);
    let color = match part.verdict {
        Verdict::Met => RGBColor(88, 160, 110),
        Verdict::Noisy => RGBColor(200, 170, 80),
        _ => RGBColor(200, 96, 88),
    };
    let measure: String = part.measure.chars().take(34).collect();
    Some(Bar { words: format!("{measure}: {} ({goal})", part.name), quartiles, color })
}

#[cfg(test)]
mod tests {
    use forebay_bench_report::Spread;

    use super::*;

    fn judged(goal: &str, found: f64) -> GoalResult {
        GoalResult {
            measure: "Rust get".to_owned(),
            name: "50 B".to_owned(),
            goal: Some(goal.to_owned()),
            stretch: None,
            unit: "D".to_owned(),
            found: Spread::of(&[found]).ok(),
            value: None,
            of: "ns".to_owned(),
            reference: None,
            verdict: Verdict::Missed,
        }
    }

    #[test]
    fn chart_draws_better_values_on_the_left() {
        assert_eq!(bar(&judged("<= 2.5 D", 5.0)).unwrap().quartiles, [2.0; 3]);
        assert_eq!(bar(&judged(">= 2 x", 4.0)).unwrap().quartiles, [0.5; 3]);
        assert!(bar(&GoalResult { found: None, ..judged("<= 1 D", 1.0) }).is_none());
    }

    #[test]
    fn chart_names_every_bar() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.svg");
        draw(&[judged("<= 2.5 D", 5.0), judged(">= 2 x", 400.0)], &path).unwrap();
        let chart_text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(chart_text.matches("Rust get: 50 B").count(), 2, "{chart_text}");
    }
}
