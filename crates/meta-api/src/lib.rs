//! The wire: etcd v3 messages and services, and their conversions to our own types.
