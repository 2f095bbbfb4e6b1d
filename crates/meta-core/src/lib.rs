//! The state machine: `apply(entry) -> outcomes + events`. Pure: no clock, no I/O, no async, no randomness.
