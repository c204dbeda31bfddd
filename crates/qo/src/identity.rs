//! Who this process is to a server: its token, and whose certificates it believes.
//!
//! They come from the environment alone. A URL stands in logs and in the list of processes, and a configuration file is
//! checked in.

use crate::settings::Environment;
use qo_core::{Bearer, Error, Result};
use std::path::Path;

/// The token, and the names of the variables that this module reads.
const TOKEN: &str = "QO_TOKEN";
const TOKEN_FILE: &str = "QO_TOKEN_FILE";
const CA_FILE: &str = "QO_CA_FILE";
const INSECURE: &str = "QO_INSECURE";
/// Longest file of a token, in bytes.
const MOST: u64 = 4 << 10;

/// The options of a connection, as the environment of this process has them.
pub(crate) fn of_process() -> Result<qo_wire::Options> {
    of(&Environment::of_process())
}

fn of(environment: &Environment) -> Result<qo_wire::Options> {
    let token = match (environment.get(TOKEN), environment.get(TOKEN_FILE)) {
        (Some(_), Some(file)) => {
            return Err(Error::invalid(TOKEN_FILE, file, "must not be set together with QO_TOKEN"));
        }
        (Some(text), None) => Some(Bearer::parse(text.trim()).map_err(|error| error.found_in(TOKEN))?),
        (None, Some(file)) => Some(from_file(Path::new(file))?),
        (None, None) => None,
    };
    let authorities = match environment.get(CA_FILE) {
        Some(file) => Some(std::fs::read(file).map_err(|error| unreadable(CA_FILE, file, &error))?),
        None => None,
    };
    let insecure = match environment.get(INSECURE) {
        None | Some("0") => false,
        Some("1") => true,
        Some(other) => return Err(Error::invalid(INSECURE, other, "must be 1 or 0")),
    };
    Ok(qo_wire::Options { token, authorities, insecure, ..qo_wire::Options::default() })
}

fn from_file(path: &Path) -> Result<Bearer> {
    let shown = path.display().to_string();
    let length = std::fs::metadata(path).map_err(|error| unreadable(TOKEN_FILE, &shown, &error))?.len();
    if length > MOST {
        return Err(Error::invalid(TOKEN_FILE, &shown, "must be a file that holds a token and nothing else"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(TOKEN_FILE, &shown, &error))?;
    Bearer::parse(text.trim()).map_err(|error| error.found_in(shown))
}

fn unreadable(variable: &str, path: &str, error: &std::io::Error) -> Error {
    Error::invalid(variable, path, format_args!("must be a file that can be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn token() -> String {
        Bearer::from_random(std::array::from_fn(|at| at as u8)).secret_text()
    }

    #[test]
    fn a_token_comes_from_a_variable_or_a_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), format!("{}\n", token())).expect("it is written");
        let path = file.path().display().to_string();
        let due = Bearer::parse(&token()).expect("a token").id();
        for pairs in [[("QO_TOKEN", token().as_str())], [("QO_TOKEN_FILE", path.as_str())]] {
            let read = of(&environment(&pairs)).expect("options").token;
            assert_eq!(read.map(|token| token.id()), Some(due));
        }
        assert!(of(&environment(&[])).expect("options").token.is_none());
    }

    #[test]
    fn a_bad_token_is_refused_and_not_shown() {
        let missing = "/nonexistent/token";
        let secret = "qo_abcd1234_not-a-secret-of-the-right-length";
        for (pairs, said) in [
            (vec![("QO_TOKEN", secret)], "must be qo_ID_SECRET"),
            (vec![("QO_TOKEN_FILE", missing)], "must be a file that can be read"),
            (vec![("QO_TOKEN", secret), ("QO_TOKEN_FILE", missing)], "must not be set together"),
            (vec![("QO_CA_FILE", missing)], "must be a file that can be read"),
            (vec![("QO_INSECURE", "yes")], "must be 1 or 0"),
        ] {
            let refused = of(&environment(&pairs)).map(drop).expect_err("refused").to_string();
            assert!(refused.contains(said) && !refused.contains("not-a-secret"), "{refused}");
        }
    }
}
