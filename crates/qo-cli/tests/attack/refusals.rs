//! A store that refuses for good.
