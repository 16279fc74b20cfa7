//! Edges of windows, for any slides, lengths and moments: the test computes which event counts
//! when, both by spans of time and by tiles.

use std::collections::HashSet;

use forebay_core::clock::Timestamp;
use forebay_core::view::Window;
use forebay_sketch::{EventAdmission, TileId, TiledWindow as _, Windows};
use proptest::prelude::*;

fn time(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// Returns moments near 1970, near the edges of slides, and anywhere.
fn moments() -> impl Strategy<Value = i64> {
    prop_oneof![-200_i64..200, -4_000_000_000_000_000_i64..4_000_000_000_000_000]
}

fn slides() -> impl Strategy<Value = i64> {
    prop_oneof![1_i64..30, Just(60_000_000), Just(86_400_000_000)]
}

fn windows() -> impl Strategy<Value = Window> {
    let tumbling = slides().prop_map(|length_us| Window::Tumbling { length_us });
    let sliding = (slides(), 1_i64..40)
        .prop_map(|(slide_us, slides)| Window::Sliding { length_us: slide_us * slides, slide_us });
    prop_oneof![tumbling, sliding, Just(Window::Unbounded)]
}

fn lengths(window: Window) -> (i64, i64) {
    match window {
        Window::Tumbling { length_us } => (length_us, length_us),
        Window::Sliding { length_us, slide_us } => (slide_us, length_us),
        Window::Unbounded => (i64::MAX, i64::MAX),
    }
}

/// Returns whether one of the event's tiles is a tile of the window.
fn counts(windows: &Windows, window: Window, event: i64, at: i64) -> bool {
    windows.tiles_of(time(event)).any(|tile| window.tiles(time(at)).contains(&tile))
}

proptest! {
    #[test]
    fn span_contains_its_moment_and_ends_at_a_hop(window in windows(), at in moments()) {
        let Some(span) = window.span(time(at)) else {
            prop_assert_eq!(window, Window::Unbounded);
            return Ok(());
        };
        let (slide_us, length_us) = lengths(window);
        prop_assert!(span.contains(&time(at)));
        prop_assert_eq!(span.end.micros_since(span.start), length_us);
        prop_assert_eq!(span.end.as_micros().rem_euclid(slide_us), 0);
        prop_assert!(span.end.as_micros() - at <= slide_us, "it ends with the slide of its moment");
    }

    #[test]
    fn tiles_and_span_cover_the_same_events(
        window in windows(), others in proptest::collection::vec(windows(), 0..3),
        at in moments(), edge in 0..4_u8, near in -3_i64..4,
    ) {
        let all: HashSet<_> = others.into_iter().chain([window]).collect();
        let all = Windows::new(all.into_iter().collect(), 0).unwrap();
        let (from, to) = match window.span(time(at)) {
            Some(span) => (span.start.as_micros(), span.end.as_micros()),
            None => (i64::MIN, i64::MAX),
        };
        let near_moment = [from, to, at, from / 2 + to / 2][usize::from(edge)];
        let event = near_moment.saturating_add(near);
        let is_covered = from <= event && (event < to || window == Window::Unbounded);
        let found = counts(&all, window, event, at);
        prop_assert_eq!(found, is_covered, "{} in {}..{}", event, from, to);
    }

    #[test]
    fn tile_leaves_its_window_once(window in windows(), event in moments()) {
        let all = Windows::new(vec![window], 0).unwrap();
        for tile in all.tiles_of(time(event)) {
            let Some(leaves) = window.leaves(tile) else {
                prop_assert_eq!(tile, TileId::Unbounded);
                continue;
            };
            let covers = |at: Timestamp| window.tiles(at).contains(&tile);
            prop_assert!(covers(leaves.plus_micros(-1)) && !covers(leaves));
            let (slide_us, length_us) = lengths(window);
            prop_assert!(!covers(leaves.plus_micros(slide_us)));
            let begins = leaves.plus_micros(-length_us);
            prop_assert!(covers(begins) && !covers(begins.plus_micros(-1)));
        }
    }

    #[test]
    fn dropped_tile_counts_in_no_window(
        window in windows(), other in windows(), allowed_lateness_us in 0_i64..100,
        event in moments(), later in 0_i64..3_000,
    ) {
        prop_assume!(window != other);
        let all = Windows::new(vec![window, other], allowed_lateness_us).unwrap();
        let now = event.saturating_add(later);
        for tile in all.tiles_of(time(event)) {
            let covers = |at: i64| {
                all.windows().iter().any(|window| window.tiles(time(at)).contains(&tile))
            };
            // As time advances, no event starts to count again, so the furthest moment back
            // decides.
            let oldest = now - allowed_lateness_us;
            prop_assert_eq!(all.keeps(tile, time(now)), covers(oldest) || event > oldest);
        }
    }

    #[test]
    fn admitted_event_has_retained_tiles(
        window in windows(), now in moments(),
        allowed_lateness_us in 0_i64..10_000, late in -50_i64..12_000,
    ) {
        let all = Windows::new(vec![window], allowed_lateness_us).unwrap();
        let event = time(now - late);
        match all.admit(event, time(now)) {
            EventAdmission::Admitted => {
                prop_assert!(late <= allowed_lateness_us);
                prop_assert!(all.tiles_of(event).all(|tile| all.keeps(tile, time(now))));
            }
            EventAdmission::Late { by_us } => prop_assert_eq!(by_us, late - allowed_lateness_us),
            EventAdmission::Future { .. } => prop_assert!(false, "no event is a day ahead"),
        }
    }
}
