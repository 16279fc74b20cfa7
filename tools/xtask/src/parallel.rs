//! Runs items of work side by side, each of which uses one core.

use std::convert::Infallible;
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
    run_on(AT_ONCE, items, run, |place, result| take(&items[place], result))
}

/// Returns the number of processors that this process may use; 1 if the system does not tell.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Applies a function to the items, on all processors, and returns the results in order.
pub fn map_parallel<I: Sync, T: Send>(items: &[I], run: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let mut results = Vec::with_capacity(items.len());
    let Ok(()) = run_on(processors(), items, run, |place, result| {
        results.push((place, result));
        Ok::<(), Infallible>(())
    });
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Runs the items on this number of threads, and passes each result to `take`, with the place of
/// its item, when the item ends.
fn run_on<I: Sync, T: Send, E>(
    threads: usize,
    items: &[I],
    run: impl Fn(&I) -> T + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), E>,
) -> Result<(), E> {
    let (next, (sender, results)) = (AtomicUsize::new(0), mpsc::channel());
    thread::scope(|scope| {
        for _ in 0..threads {
            let (next, sender, run) = (&next, sender.clone(), &run);
            scope.spawn(move || {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(place) else { return };
                    if sender.send((place, run(item))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        results.into_iter().try_for_each(|(place, result)| take(place, result))
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
            |item, result| {
                assert_eq!(result, item * 2);
                sum += item;
                Ok(())
            },
        );
        assert_eq!((all, sum), (Ok(()), 49 * 50 / 2));
        let doubled: Vec<u32> = items.iter().map(|item| item * 2).collect();
        assert_eq!(map_parallel(&items, |item| item * 2), doubled);
        let runs = AtomicUsize::new(0);
        let run = |item: &u32| {
            runs.fetch_add(1, Ordering::Relaxed);
            *item
        };
        let outcome = run_parallel(&items, run, |_, item| match item {
            3 => Err("three".to_owned()),
            _ => Ok(()),
        });
        assert_eq!(outcome, Err("three".to_owned()));
        assert!(runs.load(Ordering::Relaxed) >= 4);
    }
}
