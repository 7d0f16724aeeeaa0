//! Bytes, tokens and the parts of a reply.
