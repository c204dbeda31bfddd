//! What a worker and a running job say about themselves.
