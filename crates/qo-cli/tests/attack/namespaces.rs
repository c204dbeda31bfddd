//! Directories and buckets that vanish, are swapped or lose objects.
