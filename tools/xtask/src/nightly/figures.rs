//! The part `release`: builds the package, with RocksDB compiled in, and runs the demo alternately
//! on that build and on the dev build. The dev build represents the product only if its figures are
//! close to those of the release build.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::record::PartReport;
use crate::clock::Stopwatch;
use crate::suite::Suite;
use crate::workspace::Workspace;
use crate::{demo, package};

/// Runs of the demo on each build; the part compares medians.
const ROUNDS: usize = 3;
/// Ratio of a figure of the dev build to that of the release build, at most.
const RATIO_MAX: f64 = 1.25;
/// Limit of the package's build on two cores.
const PACKAGE_MAX: Duration = Duration::from_secs(30 * 60);

type Figures = BTreeMap<String, f64>;

/// Builds, runs and compares.
///
/// # Errors
/// Returns an error if a build or a demo fails, or a demo writes no figures.
pub(super) fn run(workspace: &Workspace) -> Result<PartReport, String> {
    demo::setup(workspace)?;
    let watch = Stopwatch::start();
    package::run(workspace)?;
    let build_time = watch.elapsed();
    let release = workspace.target()?.join("package/release");
    workspace.build_demo()?;
    let dev = workspace.target()?.join("debug");
    let (mut of_dev, mut of_release) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_dev.push(figures(workspace, &dev)?);
        of_release.push(figures(workspace, &release)?);
    }
    let mut outcome = PartReport::default();
    outcome.measured.push(format!("make package {} s", build_time.as_secs()));
    let verdict =
        if build_time <= PACKAGE_MAX { Ok(()) } else { Err(format!("{} s", build_time.as_secs())) };
    outcome.suites.push(Suite::single("nightly/make package", verdict));
    for (name, ratio) in ratios(&of_dev, &of_release) {
        outcome.measured.push(format!("{name} dev/release {ratio:.2}"));
        let verdict = if is_held(ratio) { Ok(()) } else { Err(format!("ratio {ratio:.2}")) };
        outcome.suites.push(Suite::single(&format!("nightly/dev-release {name}"), verdict));
    }
    Ok(outcome)
}

/// Returns the figures of a run of the demo on a folder of programs.
fn figures(workspace: &Workspace, programs: &Path) -> Result<Figures, String> {
    let path = workspace.target()?.join("xtask/demo-figures.json");
    demo::measured(workspace, programs, &path)?;
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the ratio of the medians of each figure.
fn ratios(dev: &[Figures], release: &[Figures]) -> Vec<(String, f64)> {
    let names = dev.iter().flat_map(BTreeMap::keys).collect::<std::collections::BTreeSet<_>>();
    let ratio = |name: &String| median(dev, name) / median(release, name);
    names.into_iter().map(|name| (name.clone(), ratio(name))).collect()
}

/// Reports whether a ratio is within the limit. A ratio of a missing figure, NaN, is not.
fn is_held(ratio: f64) -> bool {
    ratio <= RATIO_MAX
}

fn median(all: &[Figures], name: &str) -> f64 {
    let mut values: Vec<f64> =
        all.iter().filter_map(|figures| figures.get(name).copied()).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_compares_the_medians() {
        let figures_of =
            |values: [f64; 3]| values.map(|value| Figures::from([("get".to_owned(), value)]));
        let ratios = ratios(&figures_of([9.0, 2.0, 3.0]), &figures_of([1.0, 2.0, 90.0]));
        assert_eq!(ratios, [("get".to_owned(), 1.5)]);
    }

    #[test]
    fn missing_figure_fails() {
        let one_round = [Figures::from([("get".to_owned(), 1.0)])];
        assert!(ratios(&one_round, &[Figures::new()])[0].1.is_nan());
        assert!(!is_held(f64::NAN) && is_held(RATIO_MAX));
    }
}
