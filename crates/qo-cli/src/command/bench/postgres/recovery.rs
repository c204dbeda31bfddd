//! stub
use super::Fleet;
use crate::command::bench::Bench;
use crate::command::bench::figure::Figure;
use qo::Result;
pub async fn recovery(_: &Bench<'_, Fleet>) -> Result<Vec<Figure>> {
    Ok(vec![])
}
