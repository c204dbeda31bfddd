//! What the handlers themselves record: from when to when they ran, and with which token. The judge (`qo_judge`) reads it.

use qo::Context;
use qo_judge::{Diary, Pen, Running};
use std::fs;
use std::path::Path;

const START: &str = "diary-";

/// The pen of this process, which is named by its process id.
pub fn pen(folder: &Path) -> Pen {
    let pid = std::process::id().to_string();
    Pen::open(&folder.join(format!("{START}{pid}")), &pid).expect("a file")
}

/// Records that a handler begins.
pub fn begin(pen: &Pen, context: &Context) -> Running {
    let (job, key) = (context.job().to_string(), context.key().map(ToString::to_string).unwrap_or_default());
    pen.begin(context.fence_token().0, &job, &job, &key).expect("written")
}

/// What the handlers of all processes have written in a folder.
pub fn read(folder: &Path) -> Diary {
    let mut diary = Diary::default();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(START)) {
            diary.add_file(&path).expect("a diary");
        }
    }
    diary
}
