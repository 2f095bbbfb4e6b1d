//! A node's packages on disk: manifest, blobs, verify, publish by rename, fetch from peers.
