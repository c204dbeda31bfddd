//! Programs that try to outlive their worker, their lease or their job.
