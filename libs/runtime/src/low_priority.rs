//! Low-priority threads for background work, so that threads that serve requests run first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use forebay_core::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;
use tracing::warn;

/// Nice levels that are added for background threads. Under contention such a thread gets a third
/// of the processor time that a normal thread gets.
const NICE: i32 = 5;
/// Longest wait for tasks to end.
const END_WAIT: Duration = Duration::from_secs(60);

/// A separate runtime for the tasks of a service that follow logs, and for the tasks that these
/// spawn. Under load these tasks wait for threads that serve requests, and not the other way round.
/// Only Linux supports this; on other systems all threads have the same priority. Dropping the
/// runtime ends its tasks and waits until they have released their resources; no task may own the
/// runtime.
///
/// ```
/// # fn main() -> forebay_core::Result<()> {
/// use forebay_runtime::LowPriorityRuntime;
///
/// let background = LowPriorityRuntime::start("sums")?;
/// let sum = background.spawn(async { 1 + 1 });
/// # let waiting = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// assert_eq!(waiting.block_on(sum).unwrap(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LowPriorityRuntime {
    threads: Handle,
    /// Number of running threads.
    count: Arc<AtomicUsize>,
    /// `None` once the runtime is being dropped.
    runtime: Option<Runtime>,
}

impl LowPriorityRuntime {
    /// Starts as many threads of this name as there are processors.
    ///
    /// # Errors
    /// `Internal` if the runtime cannot be created.
    pub fn start(name: &str) -> Result<Self> {
        let count = Arc::<AtomicUsize>::default();
        let (start_count, end_count) = (Arc::clone(&count), Arc::clone(&count));
        let runtime = Builder::new_multi_thread()
            .thread_name(name)
            .on_thread_start(move || {
                start_count.fetch_add(1, Ordering::Relaxed);
                lower_thread_priority();
            })
            .on_thread_stop(move || {
                end_count.fetch_sub(1, Ordering::Release);
            })
            .enable_all()
            .build()
            .map_err(|error| {
                Error::internal(format!(
                    "could not start the threads of {name}: {error}; raise the limit of threads"
                ))
            })?;
        Ok(Self { threads: runtime.handle().clone(), count, runtime: Some(runtime) })
    }

    /// Spawns a task.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.threads.spawn(task)
    }

    /// Ends the tasks; returns the number of threads that have not ended within this time.
    fn end(&mut self, wait_max: Duration) -> usize {
        let Some(runtime) = self.runtime.take() else { return 0 };
        // A separate thread ends the runtime, because the caller may be a task, which must not
        // block on others.
        let ending = thread::spawn(move || runtime.shutdown_timeout(wait_max));
        if ending.join().is_err() {
            warn!("could not stop the background threads: a thread panicked");
        }
        self.count.load(Ordering::Acquire)
    }
}

impl Drop for LowPriorityRuntime {
    fn drop(&mut self) {
        let threads_left = self.end(END_WAIT);
        if threads_left > 0 {
            warn!(
                left = threads_left,
                "background threads did not end in time; their files may still be open"
            );
        }
    }
}

/// Raises the nice level of the current thread. Only Linux has a nice level per thread; elsewhere
/// the call would affect the whole process.
fn lower_thread_priority() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};

        // Linux caps the nice level if the process itself already has a high one.
        let nice = getpriority_process(None);
        let result = nice.and_then(|nice| setpriority_process(None, nice + NICE));
        if let Err(error) = result {
            warn!(%error, "could not lower the priority of a background thread");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    use rustix::process::getpriority_process;
    use tokio::sync::oneshot;

    use super::*;

    /// The highest nice level of Linux.
    const LOWEST: i32 = 19;

    #[test]
    #[cfg(target_os = "linux")]
    fn low_priority_runtime_runs_at_a_higher_nice_level() {
        let nice = || getpriority_process(None).unwrap();
        let (own_nice, background) = (nice(), LowPriorityRuntime::start("test").unwrap());
        let runtime = Builder::new_current_thread().build().unwrap();
        let task_nices = runtime.block_on(background.spawn(async move {
            // A spawned task, and blocking work in it, have the same nice level.
            let spawned = tokio::spawn(async move { tokio::task::block_in_place(nice) });
            (nice(), spawned.await.unwrap())
        }));
        let lower = (own_nice + NICE).min(LOWEST);
        assert_eq!(task_nices.unwrap(), (lower, lower));
        assert_eq!(nice(), own_nice);
    }

    #[tokio::test]
    async fn drop_of_the_runtime_ends_its_tasks() {
        struct SlowToDrop(Arc<AtomicBool>);
        impl Drop for SlowToDrop {
            fn drop(&mut self) {
                thread::sleep(Duration::from_millis(50));
                self.0.store(true, Ordering::Release);
            }
        }
        let background = LowPriorityRuntime::start("test").unwrap();
        let is_gone = Arc::new(AtomicBool::new(false));
        let value = SlowToDrop(Arc::clone(&is_gone));
        let (begin, has_begun) = oneshot::channel();
        let task = background.spawn(async move {
            let _held = value;
            begin.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        has_begun.await.unwrap();
        drop(background);
        assert!(is_gone.load(Ordering::Acquire));
        assert!(task.await.unwrap_err().is_cancelled());
    }

    #[test]
    fn threads_that_do_not_end_are_counted() {
        assert_eq!(LowPriorityRuntime::start("test").unwrap().end(END_WAIT), 0);
        let mut background = LowPriorityRuntime::start("test").unwrap();
        let ((begin, has_begun), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
        drop(background.spawn(async move {
            begin.send(()).unwrap();
            // The task blocks its thread until the end of the test.
            let _ = released.recv();
        }));
        has_begun.recv().unwrap();
        // Other threads may be about to end.
        assert!(background.end(Duration::from_millis(10)) >= 1);
        drop(release);
    }
}
