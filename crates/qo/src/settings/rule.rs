//! The rule that a value broke, on its own, for messages that show the field and the value in another way.

use qo_core::Error;

/// The part of an `Invalid` error after its field and value; the whole message if it has another form.
pub fn rule(error: &Error) -> &str {
    let after_value = || {
        let (_, value) = error.message().split_once(": \"")?;
        let mut escaped = false;
        let end = value.find(|c: char| {
            let is_end = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            is_end
        })?;
        // After a long value, which is cut, comes its length.
        value[end..].split_once(": ").map(|(_, rule)| rule)
    };
    after_value().unwrap_or(error.message())
}

#[cfg(test)]
mod tests {
    use super::*;
    use qo_core::ErrorKind;

    #[test]
    fn the_rule_is_found_whatever_the_value_holds() {
        for value in ["", "a b", "a\": b: c", "\\", &"x: ".repeat(100)] {
            assert_eq!(rule(&Error::invalid("name", value, "must be: short")), "must be: short", "{value}");
        }
        assert_eq!(rule(&Error::new(ErrorKind::NotFound, "job 7")), "job 7");
    }
}
