//! The names of the objects of slots.

use object_store::path::Path;
use qo_core::GroupRef;

/// The folder of all slots, and of what belongs to them.
pub(super) const ROOT: &str = "concurrency";

pub(super) fn folder(group: &GroupRef) -> Path {
    Path::from_iter([ROOT, &group.to_string(), "slots"])
}

pub(super) fn path(group: &GroupRef, slot_id: u64) -> Path {
    folder(group).join(slot_id.to_string())
}

/// The group that a folder below [`ROOT`] stands for, if it is one.
pub(super) fn group(folder: &str) -> Option<GroupRef> {
    GroupRef::parse("group", &decoded(folder)).ok()
}

/// The slot that an object is, by its name. An object with another name is not a slot.
pub(super) fn slot(object: &Path) -> Option<(GroupRef, u64)> {
    let parts: Vec<_> = object.parts().collect();
    let [_, folder, _, slot_id] = &parts[..] else { return None };
    let (group, slot_id) = (group(folder.as_ref())?, slot_id.as_ref().parse().ok()?);
    (path(&group, slot_id) == *object).then_some((group, slot_id))
}

/// The text that a part of a path stands for: a path percent-encodes what it cannot hold.
fn decoded(part: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = part.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match (first, code.and_then(|code| u8::from_str_radix(code, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_a_path_of_its_own() {
        for text in ["g", "g/key", "g/a/b", "g/ü%2f:", "g/%", "g/ "] {
            let group = GroupRef::parse("group", text).expect("a group");
            let path = path(&group, 3);
            assert_eq!(path.parts().count(), 4, "{path}");
            assert_eq!(slot(&path), Some((group, 3)));
        }
        let group = GroupRef::parse("group", "deploy/eu").expect("a group");
        assert_eq!(path(&group, 0).as_ref(), "concurrency/deploy%2Feu/slots/0");
    }

    #[test]
    fn an_object_with_another_name_is_no_slot() {
        for other in
            ["concurrency/tried_out", "concurrency/g/slots/x", "concurrency/g/slots/01", "log/g/slots/1"]
        {
            assert_eq!(slot(&Path::from(other)), None, "{other}");
        }
    }
}
