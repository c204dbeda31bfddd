//! Two services that share a namespace keep their own configuration.
