//! Compares the goals of `make bench-index` with the table that documents them, and checks that
//! each goal is printed.

use std::fs;

use forebay_bench_index::goals::Goals;
use forebay_bench_index::verdict::{Measurements, judge};
use forebay_bench_index::{plan, table};
use forebay_testkit::tree;

fn goals() -> Goals {
    Goals::load(&tree::root_of(Goals::FILE).unwrap()).unwrap()
}

#[test]
fn goal_rows_equal_the_documented_table() {
    let goals = goals();
    let stated: Vec<[String; 3]> = goals
        .rows
        .iter()
        .map(|row| [row.measure.clone(), row.goal.clone(), row.stretch.clone()])
        .collect();
    let root = tree::root_of(Goals::FILE).unwrap();
    let page = fs::read_to_string(root.join("bench/index/README.md")).unwrap();
    assert_eq!(stated, documented(&page));
    assert_eq!((stated.len(), goals.count()), (15, 73));
}

/// Returns measure, goal and stretch of each row between the markers.
fn documented(page: &str) -> Vec<[String; 3]> {
    let (_, rest) = page.split_once("<!-- goals:begin -->").unwrap();
    let (table, _) = rest.split_once("<!-- goals:end -->").unwrap();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        [cells[0], cells[1], cells[2]].map(str::to_owned)
    };
    rows.map(cells).collect()
}

#[test]
fn unmeasured_goals_are_printed() {
    let goals = goals();
    let judged = judge(&goals, &Measurements::new());
    let text = table::goals(&judged);
    for row in &goals.rows {
        assert!(text.contains(&row.measure), "{} is not in {text}", row.measure);
    }
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("  ")).collect();
    let parts: Vec<&str> =
        goals.rows.iter().flat_map(|row| &row.parts).map(|part| part.name.as_str()).collect();
    assert_eq!(lines.len(), parts.len());
    for (line, part) in lines.iter().zip(parts) {
        assert!(line.contains(part) && line.contains("not measured"), "{line}");
    }
    assert!(table::closing(&judged).contains("met 0 of 73 goals (0 missed, 0 noisy, 73 not"));
}

#[test]
fn every_goal_names_a_section_of_a_million_documents_or_more() {
    let sections = plan::sections();
    for part in goals().rows.iter().flat_map(|row| &row.parts) {
        let Some(section) = sections.iter().find(|section| section.name == part.section) else {
            assert!(part.needs.is_some(), "{}: no section '{}'", part.name, part.section);
            continue;
        };
        assert!(section.data.entries >= 1_000_000, "{}: '{}'", part.name, section.name);
    }
}
