//! One call of a client: how long it may take, whether it insists on a leader, and what its failure is
//! called.

use std::time::Duration;

use meta_api::status::{
    DEADLINE_EXCEEDED, NO_LEADER, REQUEST_TIMED_OUT, SERVER_STOPPED, TOO_MANY_REQUESTS, refusal_to_status,
};
use meta_raft::{NotSent, ProposeError, ReadError};
use meta_types::Refusal;
use tonic::Status;
use tonic::metadata::MetadataMap;

/// The longest a call may take, whatever the client says: etcd's 5 s and two election timeouts.
pub const SERVER_TIMEOUT: Duration = Duration::from_secs(7);

/// The time limit of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// What is left of it when the call arrives.
    pub timeout: Duration,
    /// The client set it; else it is the server's own.
    pub clients: bool,
}

impl Deadline {
    /// The server's own.
    pub const SERVER: Self = Self { timeout: SERVER_TIMEOUT, clients: false };

    /// From `grpc-timeout`, if that is shorter than the server's. A value that cannot be read is ignored.
    pub fn of(metadata: &MetadataMap) -> Self {
        let asked = metadata.get("grpc-timeout").and_then(|value| parse_timeout(value.to_str().ok()?));
        match asked {
            Some(timeout) if timeout < SERVER_TIMEOUT => Self { timeout, clients: true },
            _ => Self::SERVER,
        }
    }

    /// The status of a proposal without an outcome.
    pub fn propose_error(&self, error: &ProposeError) -> Status {
        match error {
            ProposeError::Unknown => self.expired(),
            ProposeError::NotSent(NotSent::NoLeader) => Status::unavailable(NO_LEADER),
            ProposeError::NotSent(NotSent::Overloaded) => Status::resource_exhausted(TOO_MANY_REQUESTS),
            ProposeError::NotSent(NotSent::TooLarge) => refusal_to_status(&Refusal::RequestTooLarge),
            ProposeError::Stopped => Status::unavailable(SERVER_STOPPED),
        }
    }

    /// The status of a linearizable read that was not confirmed.
    pub fn read_error(&self, error: ReadError) -> Status {
        match error {
            ReadError::Timeout => self.expired(),
            ReadError::Stopped => Status::unavailable(SERVER_STOPPED),
        }
    }

    /// The status of a call that ran out of time.
    pub fn expired(&self) -> Status {
        if self.clients {
            Status::deadline_exceeded(DEADLINE_EXCEEDED)
        } else {
            Status::unavailable(REQUEST_TIMED_OUT)
        }
    }
}

/// True if the client wants an error at once while no leader is known.
pub fn requires_leader(metadata: &MetadataMap) -> bool {
    metadata.get("hasleader").is_some_and(|value| value == "true")
}

/// gRPC's format: at most eight digits and a unit.
fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        for (text, timeout) in [
            ("5S", Some(Duration::from_secs(5))),
            ("1500m", Some(Duration::from_millis(1500))),
            ("99999999u", Some(Duration::from_micros(99_999_999))),
            ("1H", Some(Duration::from_secs(3600))),
            ("", None),
            ("S", None),
            ("5", None),
            ("-5S", None),
            ("123456789S", None),
            ("5é", None),
        ] {
            assert_eq!(parse_timeout(text), timeout, "{text:?}");
        }
    }

    #[test]
    fn only_what_certainly_was_not_carried_out_is_safe_to_send_again() {
        use meta_api::status::{ErrorClass, classify};
        let unknown = |status: Status| matches!(classify(&status), ErrorClass::Unknown(_));
        let not_sent = |status: Status| matches!(classify(&status), ErrorClass::NotSent(_));
        for deadline in [Deadline::SERVER, Deadline { clients: true, ..Deadline::SERVER }] {
            assert!(unknown(deadline.propose_error(&ProposeError::Unknown)));
            assert!(unknown(deadline.propose_error(&ProposeError::Stopped)));
            assert!(not_sent(deadline.propose_error(&ProposeError::NotSent(NotSent::NoLeader))));
            assert!(not_sent(deadline.propose_error(&ProposeError::NotSent(NotSent::Overloaded))));
        }
        let status = Deadline::SERVER.propose_error(&ProposeError::Unknown);
        assert_eq!(
            (status.code(), status.message()),
            (tonic::Code::Unavailable, "etcdserver: request timed out")
        );
    }

    #[test]
    fn the_clients_deadline_counts_if_it_is_the_shorter() {
        let mut metadata = MetadataMap::new();
        assert_eq!(Deadline::of(&metadata), Deadline::SERVER);
        metadata.insert("grpc-timeout", "100m".parse().unwrap());
        let deadline = Deadline::of(&metadata);
        assert_eq!(deadline, Deadline { timeout: Duration::from_millis(100), clients: true });
        assert_eq!(deadline.expired().code(), tonic::Code::DeadlineExceeded);
        metadata.insert("grpc-timeout", "1H".parse().unwrap());
        assert_eq!(Deadline::of(&metadata), Deadline::SERVER);
        assert_eq!(Deadline::SERVER.expired().message(), "etcdserver: request timed out");
    }
}
