//! Threads for what nobody waits for with a request: they let those go first that answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use forebay_core::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;
use tracing::warn;

/// By how much the priority of a thread is lower here: where others want a processor too, it gets
/// a third of what each of those gets.
const NICE: i32 = 5;
/// How long tasks may take to end.
const END_WAIT: Duration = Duration::from_secs(60);

/// A runtime of its own for the tasks of a service that follow logs, and for all that those spawn:
/// under load they wait for whoever answers a request, and not the other way round. On Linux; the
/// threads of other systems are all alike. Dropping it ends its tasks, and waits until they have
/// let go of what they have; none of them may hold it.
///
/// ```
/// # fn main() -> forebay_core::Result<()> {
/// use forebay_serve::Background;
///
/// let background = Background::start("sums")?;
/// let sum = background.spawn(async { 1 + 1 });
/// # let waiting = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// assert_eq!(waiting.block_on(sum).unwrap(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Background {
    threads: Handle,
    /// How many threads there are.
    count: Arc<AtomicUsize>,
    /// Until it is dropped.
    runtime: Option<Runtime>,
}

impl Background {
    /// As many threads as there are processors, of this name.
    ///
    /// # Errors
    /// `Internal` when there is no runtime.
    pub fn start(name: &str) -> Result<Self> {
        let count = Arc::<AtomicUsize>::default();
        let (begun, ended) = (Arc::clone(&count), Arc::clone(&count));
        let runtime = Builder::new_multi_thread()
            .thread_name(name)
            .on_thread_start(move || {
                begun.fetch_add(1, Ordering::Relaxed);
                let_others_go_first();
            })
            .on_thread_stop(move || {
                ended.fetch_sub(1, Ordering::Release);
            })
            .enable_all()
            .build()
            .map_err(|error| Error::internal(format!("start the threads of {name}: {error}")))?;
        Ok(Self { threads: runtime.handle().clone(), count, runtime: Some(runtime) })
    }

    /// Begins a task.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.threads.spawn(task)
    }

    /// Ends the tasks; answers how many threads have not ended within this time.
    fn end(&mut self, wait_max: Duration) -> usize {
        let Some(runtime) = self.runtime.take() else { return 0 };
        // On a thread of its own: whoever drops it may be a task, which must not wait for others.
        let ending = thread::spawn(move || runtime.shutdown_timeout(wait_max));
        if ending.join().is_err() {
            warn!("threads in the background have not ended well; see the log");
        }
        self.count.load(Ordering::Acquire)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let left = self.end(END_WAIT);
        if left > 0 {
            warn!(left, "threads in the background have not ended, and may hold files still");
        }
    }
}

/// Of this thread alone, which Linux has a priority for; elsewhere it would be the process's.
fn let_others_go_first() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};

        // As low as there is at most, where the process itself has a low one.
        let nice = getpriority_process(None);
        let lowered = nice.and_then(|nice| setpriority_process(None, nice + NICE));
        if let Err(error) = lowered {
            warn!(%error, "a thread in the background has the priority of all others");
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

    /// What Linux cuts lower ones to.
    const LOWEST: i32 = 19;

    #[test]
    #[cfg(target_os = "linux")]
    fn others_go_first() {
        let nice = || getpriority_process(None).unwrap();
        let (ours, background) = (nice(), Background::start("test").unwrap());
        let here = Builder::new_current_thread().build().unwrap();
        let theirs = here.block_on(background.spawn(async move {
            // What a task spawns, and work that holds up its thread, too.
            let spawned = tokio::spawn(async move { tokio::task::block_in_place(nice) });
            (nice(), spawned.await.unwrap())
        }));
        let lower = (ours + NICE).min(LOWEST);
        assert_eq!(theirs.unwrap(), (lower, lower));
        assert_eq!(nice(), ours);
    }

    #[tokio::test]
    async fn tasks_have_let_go_once_it_is_dropped() {
        struct Held(Arc<AtomicBool>);
        impl Drop for Held {
            fn drop(&mut self) {
                thread::sleep(Duration::from_millis(50));
                self.0.store(true, Ordering::Release);
            }
        }
        let background = Background::start("test").unwrap();
        let is_gone = Arc::new(AtomicBool::new(false));
        let held = Held(Arc::clone(&is_gone));
        let (begun, has_begun) = oneshot::channel();
        let task = background.spawn(async move {
            let _held = held;
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        has_begun.await.unwrap();
        drop(background);
        assert!(is_gone.load(Ordering::Acquire));
        assert!(task.await.unwrap_err().is_cancelled());
    }

    #[test]
    fn threads_that_do_not_end_are_counted() {
        assert_eq!(Background::start("test").unwrap().end(END_WAIT), 0);
        let mut background = Background::start("test").unwrap();
        let ((begun, has_begun), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
        drop(background.spawn(async move {
            begun.send(()).unwrap();
            // It holds up its thread, until the test is over.
            let _ = released.recv();
        }));
        has_begun.recv().unwrap();
        // Others may be about to end.
        assert!(background.end(Duration::from_millis(10)) >= 1);
        drop(release);
    }
}
