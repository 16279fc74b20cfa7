//! Compares the goals of this tree, `bench/goals.toml`, with the table that documents them in
//! `bench/README.md`: a goal that moves only in one of them fails here.

use std::fs;

use forebay_bench_report::Goals;
use forebay_testkit::tree;

#[test]
fn documented_goals_equal_the_goals_file() {
    let root = tree::root_of(Goals::FILE).unwrap();
    let goals = Goals::load(&root).unwrap();
    let stated: Vec<[String; 3]> = goals
        .all()
        .iter()
        .map(|goal| [goal.bench.clone(), goal.measure.clone(), goal.words()])
        .collect();
    let page = fs::read_to_string(root.join("bench/README.md")).unwrap();
    assert_eq!(stated, documented(&page));
    assert!(!stated.is_empty());
}

/// Returns benchmark, measure and goal of each row between the markers.
fn documented(page: &str) -> Vec<[String; 3]> {
    let (_, rest) = page.split_once("<!-- goals:begin -->").unwrap();
    let (table, _) = rest.split_once("<!-- goals:end -->").unwrap();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| {
        let cells: Vec<String> =
            row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
        [cells[0].clone(), cells[1].clone(), cells[2].clone()]
    };
    rows.map(cells).collect()
}
