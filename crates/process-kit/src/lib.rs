//! How every process boots, is configured, logs, measures and stops.
