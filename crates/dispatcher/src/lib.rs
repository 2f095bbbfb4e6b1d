//! The REST front: Flink's API, /run-async, /icp, /nodes; adoption of runs; placement of jobs.
