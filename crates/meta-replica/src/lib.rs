//! One replica: KV, Watch, Lease, Cluster, Maintenance services; the watch hub; the lease clock; HTTP.

pub mod watch;
