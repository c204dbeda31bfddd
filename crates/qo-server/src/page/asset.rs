//! The style sheet and the script, under names that hold a hash of their content, so that browsers keep them.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::fmt::Write;
use std::sync::LazyLock;

const STYLE: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/page.js");
const ICON: &str = include_str!("assets/icon.svg");

/// A file that belongs to the page.
struct Asset {
    name: String,
    kind: &'static str,
    content: &'static str,
}

impl Asset {
    fn new(stem: &str, extension: &str, kind: &'static str, content: &'static str) -> Self {
        Self { name: format!("{stem}-{}.{extension}", hash(content)), kind, content }
    }
}

static ASSETS: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    [
        Asset::new("page", "css", "text/css; charset=utf-8", STYLE),
        Asset::new("page", "js", "text/javascript; charset=utf-8", SCRIPT),
        Asset::new("icon", "svg", "image/svg+xml", ICON),
    ]
});

/// FNV-1a: names must differ when the content does, and a collision gains an attacker nothing.
fn hash(content: &str) -> String {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = content.bytes().fold(0xcbf2_9ce4_8422_2325, fold);
    let mut text = String::new();
    // Writing to a string cannot fail.
    write!(text, "{hash:016x}").ok();
    text
}

fn path(at: usize) -> String {
    format!("/assets/{}", ASSETS[at].name)
}

/// Where the style sheet is.
pub fn style() -> String {
    path(0)
}

/// Where the script is.
pub fn script() -> String {
    path(1)
}

/// Where the icon is.
pub fn icon() -> String {
    path(2)
}

pub(crate) async fn asset(Path(name): Path<String>) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return (StatusCode::NOT_FOUND, "there is nothing here\n").into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, asset.content).into_response()
}
