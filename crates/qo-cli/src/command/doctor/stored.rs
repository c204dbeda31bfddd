//! What is stored: can it be read, is it whole? A function for each kind of store.

use super::{Finding, Level};
use crate::place::Place;
use crate::trouble::{Done, Trouble};
use qo::ErrorKind;

/// Opens the store and looks at what is stored there.
pub async fn examine(place: &Place, verify: bool, repair: bool) -> Done<Vec<Finding>> {
    match place.directory() {
        Some(_) => directory(place, verify, repair).await,
        None => opened(place).await,
    }
}

async fn directory(place: &Place, _verify: bool, _repair: bool) -> Done<Vec<Finding>> {
    opened(place).await
}

/// Opening reads everything that counts: what is damaged is named.
async fn opened(place: &Place) -> Done<Vec<Finding>> {
    match place.open_existing().await {
        Ok(_) => Ok(vec![Finding::new(Level::Ok, "store", format!("{} can be read", place.shown()))]),
        Err(Trouble::Error { error, .. }) if error.kind() == ErrorKind::Data => {
            let advice = "qo doctor --repair gets it going again and says what was lost";
            Ok(vec![Finding::new(Level::Problem, "store", error.message()).advice(advice)])
        }
        Err(trouble) => Err(trouble),
    }
}
