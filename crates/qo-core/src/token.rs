//! Tokens: what a caller of a server shows, and what it may then do.
//!
//! 1. A client makes the token on its own machine, from randomness of the operating system: [`Bearer`].
//! 2. It stores the id and the SHA-256 of the secret: [`NewToken`]. The secret never reaches a store.
//! 3. A caller shows the token as a text, `qo_ID_SECRET`. The server finds the row by the id, and compares the hashes in
//!    constant time: [`Token::is_borne_by`].
//!
//! A secret has at least 192 random bits, so its plain hash cannot be guessed. That needs neither salt nor a slow hash.

use crate::{Error, Name, Result, Time, caps};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::{fmt, str::FromStr};
use subtle::ConstantTimeEq;

/// What a token lets its bearer do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Look at jobs, groups, queues and workers.
    Read,
    /// Submit jobs.
    Submit,
    /// Run jobs: open sessions, and register what it runs.
    Work,
    /// Do what an operator does, and create and revoke tokens.
    Admin,
}

impl Scope {
    /// Every scope, in order.
    pub const ALL: [Self; 4] = [Self::Read, Self::Submit, Self::Work, Self::Admin];

    /// Its name: `read`, `submit`, `work` or `admin`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Submit => "submit",
            Self::Work => "work",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let scope = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        scope.ok_or_else(|| Error::invalid("scope", text, "must be read, submit, work or admin"))
    }
}

/// The public id of a token: 8 characters of `a-z` and `0-9`, made by the client that creates it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenId([u8; Self::LENGTH]);

impl TokenId {
    const LENGTH: usize = 8;
    const CHARACTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

    /// An id from random bytes.
    pub fn from_random(random: [u8; 8]) -> Self {
        // Bytes are not spread evenly over 36 characters. An id must only be rare, because a taken one is a conflict.
        Self(random.map(|byte| Self::CHARACTERS[usize::from(byte) % Self::CHARACTERS.len()]))
    }

    /// The id itself.
    pub fn as_str(&self) -> &str {
        // Every way to make an id checks its characters.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for TokenId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let id = <[u8; Self::LENGTH]>::try_from(text.as_bytes());
        match id {
            Ok(id) if id.iter().all(|c| Self::CHARACTERS.contains(c)) => Ok(Self(id)),
            _ => Err(Error::invalid("token", text, "must be 8 characters of a-z and 0-9")),
        }
    }
}

impl TryFrom<String> for TokenId {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<TokenId> for String {
    fn from(id: TokenId) -> Self {
        id.as_str().into()
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The SHA-256 of a token's secret.
///
/// It is compared in constant time, and `Debug` prints nothing of it.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a secret.
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// A hash as a store keeps it.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash, for a store to keep.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for TokenHash {}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(..)")
    }
}

impl From<TokenHash> for String {
    fn from(hash: TokenHash) -> Self {
        hash.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for TokenHash {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        // The error must not show the value.
        let bad = || Error::invalid("hash", "..", "must be 64 hexadecimal digits");
        let mut hash = [0; 32];
        if text.len() != 2 * hash.len() || !text.is_ascii() {
            return Err(bad());
        }
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| bad())?;
        }
        Ok(Self(hash))
    }
}

/// A token as its bearer has it: the id and the secret. `Debug` shows the id alone.
///
/// Its text is `qo_ID_SECRET`, of characters that a URL and a header may hold.
#[derive(Clone)]
pub struct Bearer {
    id: TokenId,
    secret: String,
}

impl Bearer {
    const PREFIX: &str = "qo_";
    /// The characters of a secret: 64, so that each carries six random bits.
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-~";
    /// 42 characters carry 252 bits.
    const LENGTH: usize = 42;

    /// A token from random bytes: the first 8 make the id, the others the secret.
    pub fn from_random(random: [u8; 50]) -> Self {
        let (id, secret) = random.split_at(8);
        let id = std::array::from_fn(|at| id[at]);
        let character = |byte: &u8| char::from(Self::CHARACTERS[usize::from(byte % 64)]);
        Self { id: TokenId::from_random(id), secret: secret.iter().map(character).collect() }
    }

    /// A token as a caller shows it. The error shows nothing of the text.
    pub fn parse(text: &str) -> Result<Self> {
        let parts = text.strip_prefix(Self::PREFIX).and_then(|rest| rest.split_once('_'));
        let parts = parts.and_then(|(id, secret)| Some((id.parse().ok()?, secret)));
        match parts {
            Some((id, secret))
                if secret.len() == Self::LENGTH && secret.bytes().all(|c| Self::CHARACTERS.contains(&c)) =>
            {
                Ok(Self { id, secret: secret.into() })
            }
            _ => Err(Error::invalid("token", "..", "must be qo_ID_SECRET, as qo token create prints it")),
        }
    }

    /// The token's id.
    pub fn id(&self) -> TokenId {
        self.id
    }

    /// What a store keeps of the secret.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.secret)
    }

    /// The whole text: a secret. It belongs on the stdout of the command that made it and in a request, nowhere else.
    pub fn secret_text(&self) -> String {
        format!("{}{}_{}", Self::PREFIX, self.id, self.secret)
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bearer({}, ..)", self.id)
    }
}

/// A token to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewToken {
    /// Its id, made by the client. Creating the same token again is the same token.
    pub id: TokenId,
    /// Its name: no other live token has it.
    pub name: Name,
    /// The hash of its secret.
    pub hash: TokenHash,
    /// What its bearer may do: at least one scope.
    pub scopes: BTreeSet<Scope>,
    /// The queues whose jobs its bearer may see and change. Defaults to all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<BTreeSet<Name>>,
    /// The app that its bearer may configure and register. Defaults to any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<Name>,
    /// When it expires. Defaults to never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

impl NewToken {
    /// Checks every rule that needs no state. A store calls it before anything else.
    pub fn check(&self) -> Result<()> {
        if self.scopes.is_empty() {
            return Err(Error::invalid(
                "scopes",
                "",
                "must name at least one of read, submit, work and admin",
            ));
        }
        if let Some(queues) = &self.queues {
            let rule =
                format_args!("must name 1 to {} queues; leave it out for all of them", caps::TOKEN_QUEUES);
            if !(1..=caps::TOKEN_QUEUES).contains(&queues.len()) {
                return Err(Error::invalid("queues", queues.len(), rule));
            }
        }
        if let Some(at) = self.expires_at.filter(|at| !(0..=caps::TIME_MS).contains(&at.as_millis())) {
            return Err(Error::invalid("expires_at", at, "must lie between the years 1970 and 9999"));
        }
        Ok(())
    }

    /// Whether its time is over.
    pub(crate) fn has_expired(&self, now: Time) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// A live token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct Token {
    /// Its id.
    pub id: TokenId,
    /// Its name.
    pub name: Name,
    /// The hash of its secret. None if a server told of the token: a hash does not leave the store's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<TokenHash>,
    /// What its bearer may do.
    pub scopes: BTreeSet<Scope>,
    /// The queues whose jobs its bearer may see and change. None means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<BTreeSet<Name>>,
    /// The app that its bearer may configure and register. None means any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<Name>,
    /// When it expires. None means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// When it was created.
    pub created_at: Time,
}

impl Token {
    /// A token that was created at that time.
    pub fn new(token: NewToken, created_at: Time) -> Self {
        let NewToken { id, name, hash, scopes, queues, app, expires_at } = token;
        Self { id, name, hash: Some(hash), scopes, queues, app, expires_at, created_at }
    }

    /// Whether it is the bearer's: the same id, and the hash of the same secret, compared in constant time.
    pub fn is_borne_by(&self, bearer: &Bearer) -> bool {
        self.id == bearer.id && self.hash.is_some_and(|hash| hash == bearer.hash())
    }

    /// What its bearer may do, in words, as the audit log keeps it: `read, submit; queues mail, video; app shop`.
    pub fn rights(&self) -> String {
        let scopes: Vec<_> = self.scopes.iter().map(|scope| scope.as_str()).collect();
        let mut rights = scopes.join(", ");
        if let Some(queues) = &self.queues {
            let queues: Vec<_> = queues.iter().map(AsRef::as_ref).collect();
            rights += &format!("; queues {}", queues.join(", "));
        }
        if let Some(app) = &self.app {
            rights += &format!("; app {app}");
        }
        rights
    }

    /// Whether its time is over at that moment of store time.
    pub fn has_expired(&self, now: Time) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer() -> Bearer {
        Bearer::from_random(std::array::from_fn(|at| (at * 37) as u8))
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let bearer = bearer();
        let text = bearer.secret_text();
        assert!(text.starts_with("qo_") && text.len() == 3 + 8 + 1 + 42, "{text}");
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_~".contains(c);
        assert!(text.chars().all(safe), "{text}");
        let read = Bearer::parse(&text).expect("it was written so");
        assert_eq!((read.id(), read.hash()), (bearer.id(), bearer.hash()));
    }

    #[test]
    fn a_text_that_is_no_token_is_refused_and_not_shown() {
        let text = bearer().secret_text();
        let short = text.strip_suffix(|_: char| true).expect("a character").to_owned();
        let spaced = text.replace('~', " ").replacen(char::is_uppercase, " ", 1);
        for bad in
            ["", "qo_", "secret", &text[3..], &text.to_uppercase(), &format!("{text}A"), &short, &spaced]
        {
            let error = Bearer::parse(bad).expect_err(bad).to_string();
            assert!(bad.len() < 4 || !error.contains(bad), "{error}");
            assert!(error.contains("must be qo_ID_SECRET"), "{error}");
        }
    }

    #[test]
    fn nothing_shows_a_secret_or_its_hash() {
        let bearer = bearer();
        let text = bearer.secret_text();
        let secret = &text[12..];
        let hash = String::from(bearer.hash());
        let new = NewToken {
            id: bearer.id(),
            name: Name::parse("name", "ci").expect("a name"),
            hash: bearer.hash(),
            scopes: [Scope::Read].into(),
            queues: None,
            app: None,
            expires_at: None,
        };
        let token = Token::new(new.clone(), Time::from_millis(1));
        let bad_hash = TokenHash::try_from(format!("{hash}0")).expect_err("too long");
        for shown in [format!("{bearer:?} {new:?} {token:?}"), bad_hash.to_string()] {
            assert!(!shown.contains(secret) && !shown.contains(&hash), "{shown}");
        }
    }

    #[test]
    fn only_its_own_secret_bears_a_token() {
        let bearer = bearer();
        let other =
            Bearer { secret: bearer.secret.replacen(char::is_alphanumeric, "~", 1), ..bearer.clone() };
        let named = Bearer { id: TokenId::from_random([7; 8]), ..bearer.clone() };
        let new = NewToken {
            id: bearer.id(),
            name: Name::parse("name", "ci").expect("a name"),
            hash: bearer.hash(),
            scopes: [Scope::Admin].into(),
            queues: None,
            app: None,
            expires_at: None,
        };
        let token = Token::new(new, Time::from_millis(1));
        let told = Token { hash: None, ..token.clone() };
        let borne = [&bearer, &other, &named].map(|bearer| token.is_borne_by(bearer));
        assert_eq!((borne, told.is_borne_by(&bearer)), ([true, false, false], false));
    }

    #[test]
    fn a_hash_is_read_as_it_was_written() {
        let hash = TokenHash::of("abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(serde_json::to_value(hash).expect("JSON"), text);
        assert_eq!(TokenHash::try_from(text.to_owned()), Ok(hash));
        for bad in ["", &text[2..], &text.replace('b', "g"), &"ä".repeat(32)] {
            assert!(TokenHash::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_id_is_eight_small_letters_and_digits() {
        assert_eq!("ab12cd34".parse::<TokenId>().map(|id| id.to_string()), Ok("ab12cd34".into()));
        for bad in ["", "ab12cd3", "ab12cd345", "AB12cd34", "ab12cd3_", "äb12cd3"] {
            assert!(bad.parse::<TokenId>().is_err(), "{bad}");
        }
    }
}
