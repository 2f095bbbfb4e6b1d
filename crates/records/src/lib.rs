//! The domain's records: packages, runs, jobs, nodes; their keys; pure planners; invariants.
