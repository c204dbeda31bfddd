//! Texts of jobs: JSON that people can read, cut at a bound.

/// Most bytes of a text that a page shows. The whole text is one click away.
pub const SHOWN: usize = 16 << 10;

/// A JSON text with a line for each value. The numbers stay as they are written, whatever their size.
///
/// It reads at most `most` bytes and says whether that was all. A text that is no JSON comes out as it is, but for its
/// spaces.
pub fn pretty(json: &str, most: usize) -> (String, bool) {
    let cut = json.floor_char_boundary(most);
    let (mut out, mut depth) = (String::with_capacity(cut + cut / 4), 0_usize);
    let mut characters = json[..cut].chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' => {
                out.push('"');
                let mut escaped = false;
                for c in characters.by_ref() {
                    out.push(c);
                    if c == '"' && !escaped {
                        break;
                    }
                    escaped = c == '\\' && !escaped;
                }
            }
            '{' | '[' => {
                out.push(c);
                while characters.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                if let Some(closing) = characters.next_if(|c| matches!(c, '}' | ']')) {
                    out.push(closing);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(',');
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
        // Deep nesting indents each line: what is shown has a bound of its own.
        if out.len() > 2 * most {
            return (out, false);
        }
    }
    (out, cut == json.len())
}

fn line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth.min(40)));
}

/// A text cut at a bound, from its end, and whether that was all.
pub fn tail(text: &str, most: usize) -> (&str, bool) {
    let from = text.ceil_char_boundary(text.len().saturating_sub(most));
    (&text[from..], from == 0)
}

/// A number with a thin space between thousands: `12 345`.
pub fn number(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_laid_out_and_its_values_stay() {
        let text = r#"{"a":[1, 12345678901234567890123],"b":{},"c":"x,{\"y\\","d":[ ]}"#;
        let (shown, whole) = pretty(text, SHOWN);
        let expected = "{\n  \"a\": [\n    1,\n    12345678901234567890123\n  ],\n  \"b\": {},\n  \"c\": \"x,{\\\"y\\\\\",\n  \"d\": []\n}";
        assert_eq!((shown.as_str(), whole), (expected, true));
    }

    #[test]
    fn a_long_or_deep_text_is_cut() {
        let long = format!("\"{}\"", "ü".repeat(SHOWN));
        let (shown, whole) = pretty(&long, SHOWN);
        assert!(shown.len() <= SHOWN && !whole);
        let deep = format!("{}1", "[".repeat(SHOWN));
        let (shown, whole) = pretty(&deep, SHOWN);
        assert!(shown.len() < 3 * SHOWN && !whole);
        assert_eq!((tail("aüb", 2), tail("ab", 2)), (("b", false), ("ab", true)));
        assert_eq!((number(7_u64), number(1_234_567_u64)), ("7".into(), "1\u{202f}234\u{202f}567".into()));
    }
}
