//! The openraft wiring: types, log and state adaptors, the peer transport, the proposer.
