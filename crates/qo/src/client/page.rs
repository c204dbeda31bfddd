//! A part of a long list.

/// Which part of a list a call returns: at most `limit` entries, those after `after`.
///
/// The answer says what to put into [`Page::after`] for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<C> {
    /// What the list continues after. Defaults to its beginning.
    pub after: Option<C>,
    /// At most this many entries. Defaults to 100.
    pub limit: usize,
}

impl<C> Page<C> {
    /// The page after an entry.
    pub fn after(after: C) -> Self {
        Self { after: Some(after), ..Self::default() }
    }

    /// With at most this many entries.
    #[must_use]
    pub fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }
}

impl<C> Default for Page<C> {
    fn default() -> Self {
        Self { after: None, limit: 100 }
    }
}
