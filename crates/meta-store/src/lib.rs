//! Bytes on disk: the write-ahead log, the vote, sled checkpoint generations, identity.
