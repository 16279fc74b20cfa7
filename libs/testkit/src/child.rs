//! A process that ends with its parent.

use std::ops::{Deref, DerefMut};
use std::process::Child;

/// A child process; the drop kills it and waits for it.
///
/// ```
/// use std::process::Command;
/// use forebay_testkit::child::OwnedChild;
/// let sleeper = OwnedChild(Command::new("sleep").arg("600").spawn()?);
/// let id = sleeper.id();
/// drop(sleeper);
/// assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct OwnedChild(pub Child);

impl Deref for OwnedChild {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for OwnedChild {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        // An error means that the child has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
