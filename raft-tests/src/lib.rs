//! The proof: real processes under faults, power cuts, checkers.
