//! Clusters in process and as processes, ports, waiters, a fault proxy: what tests share.
