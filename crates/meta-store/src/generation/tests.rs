//! Tests of the generations.
