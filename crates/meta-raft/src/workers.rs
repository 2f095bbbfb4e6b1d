//! The seam to threads: work that blocks for the disk, or takes long, goes through [`Workers`], so that in a
//! simulator it becomes tasks that take simulated time.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::Thread;

use tokio::sync::oneshot;

use crate::net::BoxFuture;

/// How a thread of its own competes with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// As they do.
    Normal,
    /// It gives way to everything else.
    Low,
}

/// Where work goes that would hold up the threads which serve others.
pub trait Workers: Send + Sync + 'static {
    /// Drives `work` to its end on a thread of its own; it may block for the disk between its waits.
    fn dedicated(&self, name: &str, priority: Priority, work: BoxFuture<'static, ()>) -> io::Result<()>;

    /// Runs `work` on a thread of a pool. [`blocking`] waits for its result.
    fn blocking(&self, work: Box<dyn FnOnce() + Send>);

    /// What a step of disk work takes beyond its call: nothing on a real disk, whose calls take the time.
    fn disk_time(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// Runs `work` off the threads that serve others. An error only if it panicked.
pub async fn blocking<T, F>(workers: &dyn Workers, work: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (tx, done) = oneshot::channel();
    // Whoever stopped waiting needs no result.
    workers.blocking(Box::new(move || drop(tx.send(work()))));
    done.await.map_err(|_| io::Error::other("work that blocks did not end"))
}

/// The same on a thread of its own that gives way to everything else, for what takes long and can wait.
pub(crate) async fn low_priority<T, F>(workers: &dyn Workers, name: &str, work: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (tx, done) = oneshot::channel();
    let disk_time = workers.disk_time();
    let work = async move {
        if let Some(disk_time) = disk_time {
            disk_time.await;
        }
        drop(tx.send(work()));
    };
    workers.dedicated(name, Priority::Low, Box::pin(work))?;
    done.await.map_err(|_| io::Error::other("it panicked"))
}

/// Real threads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Threads;

impl Workers for Threads {
    fn dedicated(&self, name: &str, priority: Priority, work: BoxFuture<'static, ()>) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.into());
        thread.spawn(move || {
            if priority == Priority::Low {
                // On Linux priorities are per thread. Without the right to change it the work is done all the same.
                let _ = rustix::process::setpriority_process(None, 19);
            }
            drive(work);
        })?;
        Ok(())
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        drop(tokio::task::spawn_blocking(work));
    }
}

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future on this thread until it ends, parked while it waits.
fn drive(work: BoxFuture<'static, ()>) {
    let mut work = pin!(work);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    while work.as_mut().poll(&mut context).is_pending() {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_of_its_own_waits_and_goes_on() {
        let (ask, asked) = oneshot::channel::<u32>();
        let (answer, answered) = oneshot::channel();
        let work = async move {
            let name = std::thread::current().name().map(str::to_owned);
            let _ = answer.send((name, asked.await));
        };
        Threads.dedicated("mine", Priority::Low, Box::pin(work)).unwrap();
        tokio::task::yield_now().await;
        ask.send(7).unwrap();
        let (name, asked) = answered.await.unwrap();
        assert_eq!((name.as_deref(), asked), (Some("mine"), Ok(7)));
    }

    #[tokio::test]
    async fn work_that_panics_is_an_error_to_whoever_waits() {
        assert_eq!(blocking(&Threads, || 7).await.unwrap(), 7);
        let panicked = blocking(&Threads, || panic!("on purpose")).await;
        assert!(panicked.is_err());
    }
}
