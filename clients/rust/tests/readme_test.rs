//! The front page's second example: a unit test of code that reads, as users write theirs.

use std::time::Duration;

use forebay::schema::{FieldType, KeyType, StoreSpec};
use forebay::testing::{Row, SimulatedState};
use forebay::{ErrorCode, Reader};

// readme: begin
fn is_regular(users: &Reader, user: &str) -> forebay::Result<bool> {
    let visits = users.field_as("visits", FieldType::INT64)?;
    let fresh = users.view()?.max_staleness(Duration::from_secs(5));
    Ok(fresh.get_i64(&visits, user, 0)? >= 3)
}

#[test]
fn third_visit_makes_a_regular() -> forebay::Result<()> {
    let spec = StoreSpec::documents("users", KeyType::String).field("visits", FieldType::INT64);
    let users = Reader::in_memory(&spec, [Row::new("ada").set("visits", 2)])?;
    assert!(!is_regular(&users, "ada")?);
    users.write(users.upsert("ada").increment("visits", 1))?;
    assert!(is_regular(&users, "ada")?);
    users.simulate(SimulatedState::Stale(Duration::from_secs(60)))?;
    assert_eq!(is_regular(&users, "ada").unwrap_err().code(), ErrorCode::Stale);
    Ok(())
}
// readme: end

#[test]
fn front_page_shows_this_test() {
    let (page, test_text) = (include_str!("../../../README.md"), include_str!("readme_test.rs"));
    let (_, rest) = test_text.split_once("// readme: begin\n").unwrap();
    let (shown_test, _) = rest.split_once("// readme: end\n").unwrap();
    assert!(page.contains(shown_test), "copy what stands between the marks to README.md");
}
