//! Moments as RFC 3339 in the documents for programs.
//!
//! A store keeps [`Time`] as a number of milliseconds, and the views of `qo-core` serialize it so. This serializer
//! passes everything on unchanged, except a newtype struct called `Time`: it writes that as a string. It looks at
//! types, not at names of fields, so that a payload or a group called `run_at` stays as it is.

use qo::core::Time;
use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use std::fmt::Display;

/// A value whose moments are written as RFC 3339.
pub struct Dated<'a, T: ?Sized>(pub &'a T);

impl<T: Serialize + ?Sized> Serialize for Dated<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(Dates(serializer))
    }
}

/// A serializer, or a part of one, that writes moments as RFC 3339.
struct Dates<S>(S);

/// Methods that take one value and pass it on.
macro_rules! pass_on {
    ($($method:ident: $type:ty,)*) => {
        $(fn $method(self, value: $type) -> Result<Self::Ok, Self::Error> {
            self.0.$method(value)
        })*
    };
}

type Name = &'static str;

impl<S: Serializer> Serializer for Dates<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Dates<S::SerializeSeq>;
    type SerializeTuple = Dates<S::SerializeTuple>;
    type SerializeTupleStruct = Dates<S::SerializeTupleStruct>;
    type SerializeTupleVariant = Dates<S::SerializeTupleVariant>;
    type SerializeMap = Dates<S::SerializeMap>;
    type SerializeStruct = Dates<S::SerializeStruct>;
    type SerializeStructVariant = Dates<S::SerializeStructVariant>;

    pass_on! {
        serialize_bool: bool, serialize_char: char, serialize_str: &str, serialize_bytes: &[u8],
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_f32: f32, serialize_f64: f64, serialize_unit_struct: Name,
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.0.serialize_none()
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.0.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.serialize_some(&Dated(value))
    }

    fn serialize_unit_variant(self, name: Name, index: u32, variant: Name) -> Result<S::Ok, S::Error> {
        self.0.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T>(self, name: Name, value: &T) -> Result<S::Ok, S::Error>
    where
        T: Serialize + ?Sized,
    {
        if name != "Time" {
            return self.0.serialize_newtype_struct(name, &Dated(value));
        }
        let millis = serde_json::to_value(value).map_err(S::Error::custom)?.as_i64();
        let millis = millis.ok_or_else(|| S::Error::custom("a moment must be a number of milliseconds"))?;
        self.0.collect_str(&Time::from_millis(millis))
    }

    fn serialize_newtype_variant<T>(
        self,
        name: Name,
        index: u32,
        variant: Name,
        value: &T,
    ) -> Result<S::Ok, S::Error>
    where
        T: Serialize + ?Sized,
    {
        self.0.serialize_newtype_variant(name, index, variant, &Dated(value))
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.0.serialize_seq(length).map(Dates)
    }

    fn serialize_tuple(self, length: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.0.serialize_tuple(length).map(Dates)
    }

    fn serialize_tuple_struct(
        self,
        name: Name,
        length: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.0.serialize_tuple_struct(name, length).map(Dates)
    }

    fn serialize_tuple_variant(
        self,
        name: Name,
        index: u32,
        variant: Name,
        length: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.0.serialize_tuple_variant(name, index, variant, length).map(Dates)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        self.0.serialize_map(length).map(Dates)
    }

    fn serialize_struct(self, name: Name, length: usize) -> Result<Self::SerializeStruct, S::Error> {
        self.0.serialize_struct(name, length).map(Dates)
    }

    fn serialize_struct_variant(
        self,
        name: Name,
        index: u32,
        variant: Name,
        length: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.0.serialize_struct_variant(name, index, variant, length).map(Dates)
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// The parts of a serializer that take one value after another.
macro_rules! elements {
    ($($part:ident.$method:ident,)*) => {
        $(impl<S: $part> $part for Dates<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
                self.0.$method(&Dated(value))
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        })*
    };
}

elements! {
    SerializeSeq.serialize_element,
    SerializeTuple.serialize_element,
    SerializeTupleStruct.serialize_field,
    SerializeTupleVariant.serialize_field,
}

/// The parts of a serializer that take named fields.
macro_rules! fields {
    ($($part:ident,)*) => {
        $(impl<S: $part> $part for Dates<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn serialize_field<T>(&mut self, name: Name, value: &T) -> Result<(), S::Error>
            where
                T: Serialize + ?Sized,
            {
                self.0.serialize_field(name, &Dated(value))
            }

            fn skip_field(&mut self, name: Name) -> Result<(), S::Error> {
                self.0.skip_field(name)
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        })*
    };
}

fields! { SerializeStruct, SerializeStructVariant, }

impl<S: SerializeMap> SerializeMap for Dates<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.0.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_value(&Dated(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qo::core::{LastTick, TickOutcome};
    use serde_json::value::RawValue;
    use std::collections::BTreeMap;

    #[derive(serde::Serialize)]
    struct Document {
        #[serde(flatten)]
        last: LastTick,
        next: Option<Time>,
        limits: BTreeMap<&'static str, i64>,
        payload: Box<RawValue>,
    }

    #[test]
    fn moments_are_strings_and_everything_else_stays_as_it_is() {
        let payload = r#"{"tick": 1000, "big": 12345678901234567890123}"#;
        let document = Document {
            last: LastTick { tick: Time::from_millis(1_500), outcome: TickOutcome::Skipped },
            next: Some(Time::from_millis(0)),
            limits: BTreeMap::from([("tick", -5)]),
            payload: RawValue::from_string(payload.to_owned()).expect("JSON"),
        };
        let expected = format!(
            "{{\"tick\":\"1970-01-01T00:00:01.5Z\",\"outcome\":\"skipped\",\"next\":\"1970-01-01T00:00:00Z\",\
             \"limits\":{{\"tick\":-5}},\"payload\":{payload}}}"
        );
        assert_eq!(serde_json::to_string(&Dated(&document)).expect("JSON"), expected);
    }
}
