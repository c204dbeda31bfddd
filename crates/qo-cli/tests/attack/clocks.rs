//! A bucket whose answers tell a wrong time.
