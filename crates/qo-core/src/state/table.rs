//! Rows with small typed handles. A handle costs 4 bytes, and a handle of a job does not index a table of lanes.

use slab::Slab;
use std::{fmt, marker::PhantomData, num::NonZeroU32, ops};

/// A handle of a row of type `T`. Not zero, so that `Option` of it costs nothing.
pub(crate) struct Ix<T>(NonZeroU32, PhantomData<fn() -> T>);

impl<T> Ix<T> {
    /// The handle of a table's first row, and the smallest handle.
    pub(crate) const FIRST: Self = Self(NonZeroU32::MIN, PhantomData);
    /// Not smaller than any handle.
    pub(crate) const LAST: Self = Self(NonZeroU32::MAX, PhantomData);

    fn from_slab(key: usize) -> Self {
        let number = u32::try_from(key + 1).ok().and_then(NonZeroU32::new);
        Self(number.unwrap_or_else(|| panic!("a table holds at most 4 billion rows")), PhantomData)
    }

    fn slab(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl<T> Clone for Ix<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ix<T> {}
impl<T> PartialEq for Ix<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T> Eq for Ix<T> {}
impl<T> PartialOrd for Ix<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Ix<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}
impl<T> std::hash::Hash for Ix<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl<T> fmt::Debug for Ix<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.slab())
    }
}

/// A table of rows of type `T`.
#[derive(Debug)]
pub(crate) struct Table<T>(Slab<T>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Slab::new())
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&mut self, row: T) -> Ix<T> {
        Ix::from_slab(self.0.insert(row))
    }

    pub(crate) fn remove(&mut self, ix: Ix<T>) -> T {
        self.0.remove(ix.slab())
    }

    pub(crate) fn get(&self, ix: Ix<T>) -> Option<&T> {
        self.0.get(ix.slab())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ix<T>, &T)> {
        self.0.iter().map(|(key, row)| (Ix::from_slab(key), row))
    }
}

impl<T> ops::Index<Ix<T>> for Table<T> {
    type Output = T;
    fn index(&self, ix: Ix<T>) -> &T {
        &self.0[ix.slab()]
    }
}

impl<T> ops::IndexMut<Ix<T>> for Table<T> {
    fn index_mut(&mut self, ix: Ix<T>) -> &mut T {
        &mut self.0[ix.slab()]
    }
}
