//! Shards and collectives.
