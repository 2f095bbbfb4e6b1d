//! What wakes a guard: an order or the end of its parent, the end of init, the deadline. Between them it sleeps; the
//! timer counts the time that the host is suspended, and what came due while the guard was stopped wakes it at once.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::control::{Boottime, Order};
use super::sys;

/// Something happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Happened {
    /// The parent ordered something.
    Ordered(Order),
    /// The deadline is reached.
    DeadlineReached,
    /// The parent died or let go.
    ParentGone,
    /// Init has exited, and is not reaped yet.
    InitExited,
}

/// Everything that can happen to an attempt.
pub struct Events {
    init: OwnedFd,
    timer: OwnedFd,
    deadline: Boottime,
    orders: Orders,
}

impl Events {
    /// Of the attempt whose init that is. Orders come in on stdin.
    pub fn new(init: Pid, deadline: Boottime) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        let init = pidfd_open(init, PidfdFlags::empty())?;
        let mut events = Self { init, timer, deadline, orders: Orders::default() };
        events.set_deadline(deadline);
        Ok(events)
    }

    /// From now on this is the deadline.
    pub fn set_deadline(&mut self, deadline: Boottime) {
        self.deadline = deadline;
        let at = Duration::from_nanos(deadline.as_ns());
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec { tv_sec: at.as_secs() as i64, tv_nsec: i64::from(at.subsec_nanos()) };
        let value = Itimerspec { it_interval: zero, it_value: value };
        // A valid time on a timer of ours: it cannot be refused.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value);
    }

    /// Waits for what happens next. A program that ended by itself did so, however late the guard comes to see it;
    /// an order that comes after the deadline is not followed.
    pub fn next(&mut self) -> Happened {
        loop {
            let stdin = io::stdin();
            let wait = self.orders.is_empty() && !self.deadline.left().is_zero();
            let of = [self.init.as_fd(), self.timer.as_fd(), stdin.as_fd()];
            let [exited, _, can_read] = sys::readable(of, wait);
            if exited {
                return Happened::InitExited;
            }
            if self.deadline.left().is_zero() {
                return Happened::DeadlineReached;
            }
            if let Some(order) = self.orders.next() {
                return Happened::Ordered(order);
            }
            if can_read && !self.orders.read(stdin.as_fd()) {
                return Happened::ParentGone;
            }
        }
    }
}

/// Orders that were read and not followed yet.
#[derive(Default)]
struct Orders {
    whole: VecDeque<Order>,
    /// A line without its end.
    rest: Vec<u8>,
}

impl Orders {
    fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    fn next(&mut self) -> Option<Order> {
        self.whole.pop_front()
    }

    /// Reads what is there. False if there is nobody any more who writes.
    fn read(&mut self, from: impl AsFd) -> bool {
        let mut buffer = [0; 4096];
        let read = match rustix::io::read(from, &mut buffer) {
            Ok(0) => return false,
            Ok(n) => &buffer[..n],
            Err(rustix::io::Errno::INTR) => return true,
            Err(_) => return false,
        };
        for byte in read {
            match byte {
                // An order of a newer parent is passed over: the deadline alone keeps us safe.
                b'\n' => {
                    let line = std::mem::take(&mut self.rest);
                    self.whole.extend(std::str::from_utf8(&line).ok().and_then(Order::parse));
                }
                byte => self.rest.push(*byte),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_however_they_are_cut_and_nonsense_is_passed_over() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut orders = Orders::default();
        let deadline = Order::Deadline(Boottime::from_ns(7));
        for piece in ["D ", "7\nT", "\n\nX 9\n\u{fe}\nK\nD 1"] {
            rustix::io::write(&write, piece.as_bytes()).unwrap();
            assert!(orders.read(&read));
        }
        let seen: Vec<_> = std::iter::from_fn(|| orders.next()).collect();
        assert_eq!(seen, [deadline, Order::Terminate, Order::Kill]);
        drop(write);
        assert!(!orders.read(&read), "half a line is no order");
        assert!(orders.is_empty());
    }
}
