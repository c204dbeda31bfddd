//! Randomness of the operating system, for what must not be guessed.

use qo_core::{Error, ErrorKind, Result};

/// Random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let provider = rustls::crypto::ring::default_provider();
    let failed = |_| Error::new(ErrorKind::Unavailable, "the operating system has no randomness");
    provider.secure_random.fill(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// A text of 256 random bits.
pub(crate) fn secret() -> Result<String> {
    Ok(random::<32>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}
