//! Runs items of work side by side, each of which uses one core.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// The number of items that run at a time.
const AT_ONCE: usize = 2;

/// Runs the items, two at a time, and passes each result to `take` when its item ends.
///
/// # Errors
/// Returns the first error of `take`, after the running items have ended.
pub fn run_parallel<I: Sync, T: Send>(
    items: &[I],
    run: impl Fn(&I) -> T + Sync,
    mut take: impl FnMut(&I, T) -> Result<(), String>,
) -> Result<(), String> {
    let (next, (ended, results)) = (AtomicUsize::new(0), mpsc::channel());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            let (next, ended, run) = (&next, ended.clone(), &run);
            scope.spawn(move || {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if ended.send((item, run(item))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(ended);
        results.into_iter().try_for_each(|(item, ran)| take(item, ran))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_run_once_and_an_error_ends_the_run() {
        let items: Vec<u32> = (0..50).collect();
        let mut sum = 0;
        let all = run_parallel(
            &items,
            |item| item * 2,
            |item, twice| {
                assert_eq!(twice, item * 2);
                sum += item;
                Ok(())
            },
        );
        assert_eq!((all, sum), (Ok(()), 49 * 50 / 2));
        let runs = AtomicUsize::new(0);
        let run = |item: &u32| {
            runs.fetch_add(1, Ordering::Relaxed);
            *item
        };
        let ended = run_parallel(&items, run, |_, item| match item {
            3 => Err("three".to_owned()),
            _ => Ok(()),
        });
        assert_eq!(ended, Err("three".to_owned()));
        assert!(runs.load(Ordering::Relaxed) >= 4);
    }
}
