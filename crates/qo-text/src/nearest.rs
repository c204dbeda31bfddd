//! Did you mean …?

/// The candidate that a misspelled word most likely meant, if one is near enough.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let scored = candidates.into_iter().map(|candidate| {
        let lower = candidate.to_lowercase();
        let distance = strsim::damerau_levenshtein(&word, &lower);
        // A word that was cut short, or that lacks its beginning, counts as near whatever its length.
        let part = word.len() >= 3 && (lower.starts_with(&word) || lower.ends_with(&word));
        (if part { distance.min(1) } else { distance }, candidate)
    });
    // A third of the letters may be wrong; with more it is another word.
    let most = word.chars().count().div_ceil(3);
    scored
        .filter(|&(distance, _)| distance <= most)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, near)| near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_its_word_and_another_word_finds_none() {
        let known = ["max_concurrent", "command", "timeout_secs", "group"];
        assert_eq!(nearest("max_concurent", known), Some("max_concurrent"));
        assert_eq!(nearest("timeout", known), Some("timeout_secs"));
        assert_eq!(nearest("Command", known), Some("command"));
        assert_eq!(nearest("grpou", known), Some("group"));
        assert_eq!(nearest("payload", known), None);
        assert_eq!(nearest("x", ["y"]), Some("y"));
        assert_eq!(nearest("", known), None);
    }
}
