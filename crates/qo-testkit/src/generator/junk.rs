//! Meaningless texts in place of valid ones.

use super::bad::{bad_commands, check_error};
use proptest::prelude::*;
use qo_core::{Error, GroupRef, Json, Key, Name, caps};

/// Commands as JSON text with one value replaced by junk: what a bad client may send.
pub fn bad_json() -> impl Strategy<Value = String> {
    (bad_commands(), any::<prop::sample::Index>(), junk()).prop_map(|(command, place, junk)| {
        let mut value = serde_json::to_value(command).expect("a command is JSON");
        let places = count(&value);
        replace(&mut value, &mut place.index(places), &junk);
        value.to_string()
    })
}

fn junk() -> impl Strategy<Value = serde_json::Value> {
    let long = "k".repeat(caps::KEY_BYTES + 1);
    let texts = ["", "*", "cluster", "queue:", "a/", "/", "a b", "a\u{0}b", "\u{202e}", "{", "🦀"];
    let texts: Vec<String> = texts.iter().map(|text| (*text).into()).chain([long]).collect();
    prop_oneof![
        Just(serde_json::Value::Null),
        prop::sample::select(texts).prop_map(serde_json::Value::from),
        prop::sample::select(vec![-1_i64, 0, i64::MAX, i64::MIN]).prop_map(serde_json::Value::from),
        Just(serde_json::json!(1e300)),
        Just(serde_json::json!([[[[]]]])),
        Just(serde_json::json!({"x": {}})),
    ]
}

/// How many values there are in a value, itself included.
fn count(value: &serde_json::Value) -> usize {
    1 + match value {
        serde_json::Value::Array(items) => items.iter().map(count).sum(),
        serde_json::Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Replaces the value at a place, counted depth first.
fn replace(value: &mut serde_json::Value, place: &mut usize, junk: &serde_json::Value) {
    if *place == 0 {
        *value = junk.clone();
    }
    let Some(left) = place.checked_sub(1) else {
        *place = usize::MAX;
        return;
    };
    *place = left;
    let children: Vec<&mut serde_json::Value> = match value {
        serde_json::Value::Array(items) => items.iter_mut().collect(),
        serde_json::Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    for child in children {
        if *place != usize::MAX {
            replace(child, place, junk);
        }
    }
}

/// A text as a name, key, group or JSON: accepted as it is, or refused with a message.
pub fn text_survives(text: &str) -> Result<(), String> {
    let same = |taken: String| (taken == text).then_some(()).ok_or(format!("{text:?} became {taken:?}"));
    let refused = |error: Error| check_error(&error);
    Name::parse("name", text).map_or_else(refused, |name| same(name.to_string()))?;
    Key::parse("key", text).map_or_else(refused, |key| same(key.to_string()))?;
    GroupRef::parse("group", text).map_or_else(refused, |group| same(group.to_string()))?;
    Json::parse("json", text).map_or_else(refused, |json| same(json.as_str().into()))
}
