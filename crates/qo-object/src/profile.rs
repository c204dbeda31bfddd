//! A profile of the AWS command line: credentials and a region in `~/.aws`.
//!
//! Written by hand, because the crates that read these files bring an SDK with them, and qo needs sections of keys and
//! values only.

use qo_core::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::path::PathBuf;

/// What qo needs of a profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) access_key_id: Option<String>,
    pub(crate) secret_access_key: Option<String>,
    pub(crate) session_token: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

/// The environment, by name: tests bring their own.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Profile {
    /// The profile that the environment names (`AWS_PROFILE`), else `default`, if there is one.
    pub(crate) fn read(variable: Variables<'_>) -> Result<Self> {
        let named = variable("AWS_PROFILE").filter(|name| !name.is_empty());
        let name = named.as_deref().unwrap_or("default");
        let credentials = text(variable, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let config = text(variable, "AWS_CONFIG_FILE", "config");
        let mut values = section(&config, &[&format!("profile {name}"), name]).unwrap_or_default();
        let is_known = section(&config, &[&format!("profile {name}"), name]).is_some()
            || section(&credentials, &[name]).is_some();
        values.extend(section(&credentials, &[name]).unwrap_or_default());
        if let Some(named) = &named
            && !is_known
        {
            let rule = "is not in ~/.aws/credentials nor in ~/.aws/config";
            return Err(Error::invalid("AWS_PROFILE", named, rule));
        }
        let has_keys = values.contains_key("aws_access_key_id");
        let elsewhere = ["role_arn", "sso_session", "sso_start_url", "credential_process"];
        if let (false, Some(_), Some(how)) =
            (has_keys, &named, elsewhere.into_iter().find(|key| values.contains_key(*key)))
        {
            let what = format!(
                "AWS_PROFILE: \"{name}\": its credentials come by {how}, which qo does not do: \
                 eval \"$(aws configure export-credentials --profile {name} --format env)\" does"
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let mut take = |key: &str| values.remove(key);
        Ok(Self {
            access_key_id: take("aws_access_key_id"),
            secret_access_key: take("aws_secret_access_key"),
            session_token: take("aws_session_token"),
            region: take("region"),
            endpoint: take("endpoint_url"),
        })
    }
}

/// The text of a file that a variable names, else of the one in `~/.aws`; nothing if it cannot be read.
fn text(variable: Variables<'_>, named_by: &str, file: &str) -> String {
    let in_home = || Some(PathBuf::from(variable("HOME")?).join(".aws").join(file));
    let path = variable(named_by).map(PathBuf::from).or_else(in_home);
    path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
}

/// The keys and values of the first section with one of these names.
fn section(text: &str, names: &[&str]) -> Option<HashMap<String, String>> {
    let (mut found, mut inside) = (None::<HashMap<_, _>>, false);
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = names.contains(&name.trim());
            if inside {
                found.get_or_insert_default();
            }
        } else if inside
            && !line.starts_with(['#', ';'])
            && let (Some((key, value)), Some(found)) = (line.split_once('='), &mut found)
        {
            found.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(credentials: &str, config: &str, profile: Option<&str>) -> Result<Profile> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join(".aws")).expect("a folder");
        for (file, text) in [("credentials", credentials), ("config", config)] {
            std::fs::write(folder.path().join(".aws").join(file), text).expect("written");
        }
        let home = folder.path().to_str().expect("a path").to_owned();
        Profile::read(&|name| match name {
            "HOME" => Some(home.clone()),
            "AWS_PROFILE" => profile.map(str::to_owned),
            _ => None,
        })
    }

    const CREDENTIALS: &str = "# mine\n[default]\naws_access_key_id = one\naws_secret_access_key=secret\n\n\
                               [work]\naws_access_key_id=two\naws_secret_access_key = other\naws_session_token = t\n";
    const CONFIG: &str = "[default]\nregion = eu-central-1\n[profile work]\nregion=eu-west-1\nendpoint_url = https://s3.example\n\
         [profile role]\nrole_arn = arn\n";

    #[test]
    fn the_default_profile_is_used_unless_another_is_named() {
        let default = read(CREDENTIALS, CONFIG, None).expect("a profile");
        assert_eq!(default.access_key_id.as_deref(), Some("one"));
        assert_eq!(default.region.as_deref(), Some("eu-central-1"));
        let work = read(CREDENTIALS, CONFIG, Some("work")).expect("a profile");
        let told =
            [&work.access_key_id, &work.secret_access_key, &work.session_token, &work.region, &work.endpoint];
        let due = ["two", "other", "t", "eu-west-1", "https://s3.example"].map(|text| Some(text.to_owned()));
        assert!(told.into_iter().eq(due.iter()), "{told:?}");
        assert_eq!(read("", "", None), Ok(Profile::default()));
    }

    #[test]
    fn an_unknown_or_unsupported_profile_is_refused_by_name() {
        let error = read(CREDENTIALS, CONFIG, Some("play")).expect_err("no such profile");
        assert!(error.message().contains("AWS_PROFILE: \"play\""), "{error}");
        let error = read(CREDENTIALS, CONFIG, Some("role")).expect_err("a role");
        assert!(error.message().contains("role_arn"), "{error}");
    }
}
