//! Whether a program exists, before the first job needs it.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where programs are looked for if there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The file that runs when `program` is started in `directory`, with the `PATH` of this process. If there is none, the
/// rule that `program` breaks.
pub fn find(program: &str, directory: &Path) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH");
    find_on(path.as_deref().unwrap_or(OsStr::new(DEFAULT_PATH)), program, directory)
}

fn find_on(path: &OsStr, program: &str, directory: &Path) -> Result<PathBuf, String> {
    if program.contains('/') {
        let file = directory.join(program);
        let why = match file.metadata() {
            Ok(found) if is_executable(&found) => return Ok(file),
            Ok(found) if found.is_dir() => "this is a directory".to_owned(),
            Ok(_) => "this file is not executable (chmod +x)".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => "there is no such file".to_owned(),
            Err(error) => error.to_string(),
        };
        return Err(format!("must be a program: {why}"));
    }
    // An empty entry is the current directory, and a relative one is relative to it.
    let files = std::env::split_paths(path).map(|folder| directory.join(folder).join(program));
    let mut files = files.filter(|file| file.metadata().is_ok_and(|found| is_executable(&found)));
    files.next().ok_or_else(|| {
        let hint = match directory.join(program).is_file() {
            true => format!("; the file of that name in its directory is ./{program}"),
            false => String::new(),
        };
        format!("must be a program: there is none of that name on the PATH{hint}")
    })
}

/// Whether any user may execute a file. If this user may not, starting it fails and says so.
fn is_executable(found: &Metadata) -> bool {
    found.is_file() && found.permissions().mode() & 0o111 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_the_system_would_find_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path();
        for (name, mode) in [("tool", 0o755), ("text", 0o644)] {
            std::fs::write(here.join(name), "").expect("written");
            std::fs::set_permissions(here.join(name), std::fs::Permissions::from_mode(mode)).expect("a mode");
        }
        let find = |path: &str, program: &str| find_on(OsStr::new(path), program, here);
        assert_eq!(find("", "./tool"), Ok(here.join("./tool")));
        assert_eq!(find("/nowhere:.", "tool"), Ok(here.join("./tool")));
        assert_eq!(find(&here.display().to_string(), "tool"), Ok(here.join("tool")));
        for (path, program, rule) in [
            ("/nowhere", "tool", "is ./tool"),
            (".", "text", "on the PATH"),
            (".", "other", "on the PATH"),
            ("", "./text", "not executable"),
            ("", "./other", "no such file"),
            ("", "./tool/x", "Not a directory"),
            ("", "/", "a directory"),
        ] {
            let refused = find(path, program).expect_err("a rule");
            assert!(refused.contains(rule), "{program} on {path}: {refused}");
        }
    }
}
