//! An ordered map that allocates only from two entries on. With a key per job most lanes hold one job, and a B-tree of
//! one entry would take ten times its size.

use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ordered<K, V> {
    None,
    One(K, V),
    // Boxed so that the common forms stay small.
    #[allow(clippy::box_collection)]
    Many(Box<BTreeMap<K, V>>),
}

impl<K: Ord + Copy, V: Copy> Ordered<K, V> {
    pub(crate) fn first(&self) -> Option<(K, V)> {
        match self {
            Self::None => None,
            Self::One(key, value) => Some((*key, *value)),
            Self::Many(map) => map.first_key_value().map(|(k, v)| (*k, *v)),
        }
    }

    /// The first entry whose key lies after `key`.
    fn after(&self, key: K) -> Option<(K, V)> {
        match self {
            Self::One(k, v) if *k > key => Some((*k, *v)),
            Self::None | Self::One(..) => None,
            Self::Many(map) => map
                .range((std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded))
                .next()
                .map(|(k, v)| (*k, *v)),
        }
    }

    /// The first entry, or the first whose key lies after one.
    pub(crate) fn first_after(&self, key: Option<K>) -> Option<(K, V)> {
        key.map_or_else(|| self.first(), |key| self.after(key))
    }

    pub(crate) fn get(&self, key: K) -> Option<V> {
        match self {
            Self::One(k, v) if *k == key => Some(*v),
            Self::None | Self::One(..) => None,
            Self::Many(map) => map.get(&key).copied(),
        }
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self {
            Self::None => *self = Self::One(key, value),
            Self::One(k, v) => *self = Self::Many(Box::new(BTreeMap::from([(*k, *v), (key, value)]))),
            Self::Many(map) => {
                map.insert(key, value);
            }
        }
    }

    /// Removes an entry. Returns whether it was there.
    pub(crate) fn remove(&mut self, key: K) -> bool {
        match self {
            Self::One(k, _) if *k == key => {
                *self = Self::None;
                true
            }
            Self::None | Self::One(..) => false,
            Self::Many(map) => {
                let was_there = map.remove(&key).is_some();
                if map.is_empty() {
                    *self = Self::None;
                }
                was_there
            }
        }
    }

    /// Moves an entry to another key, or inserts or removes it.
    pub(crate) fn reseat(&mut self, before: Option<K>, after: Option<K>, value: V) {
        if let Some(key) = before {
            self.remove(key);
        }
        if let Some(key) = after {
            self.insert(key, value);
        }
    }

    /// All entries, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, V)> {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(k, v) => (Some((*k, *v)), None),
            Self::Many(map) => (None, Some(map.iter().map(|(k, v)| (*k, *v)))),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map_at_every_size(steps in prop::collection::vec((any::<bool>(), 0u8..6), 0..40)) {
            let (mut ours, mut plain) = (Ordered::None, BTreeMap::new());
            for (insert, key) in steps {
                if insert {
                    // Inserting twice never happens: ranks are unique.
                    if plain.insert(key, key).is_none() { ours.insert(key, key); }
                } else {
                    prop_assert_eq!(ours.remove(key), plain.remove(&key).is_some());
                }
                prop_assert!(ours.iter().eq(plain.iter().map(|(k, v)| (*k, *v))));
                prop_assert_eq!(ours.first(), plain.iter().next().map(|(k, v)| (*k, *v)));
                prop_assert_eq!(ours.get(key), plain.get(&key).copied());
                prop_assert_eq!(ours.first_after(Some(key)), plain.range(key + 1..).next().map(|(k, v)| (*k, *v)));
            }
        }
    }
}
