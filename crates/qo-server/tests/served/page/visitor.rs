//! A browser without JavaScript: it gets pages, follows redirects, and posts the forms that it was shown.

use crate::stage::{PATIENCE, Served};
use qo_core::{Bearer, Store};
use std::fmt::Write;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A person in front of a server.
pub struct Visitor {
    served: Served,
    /// The header by which it shows a token, if it has one.
    shows: String,
}

/// What a server answered.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The fields of the form that posts to an address, as a browser would send them.
    pub fn form(&self, action: &str) -> Vec<(String, String)> {
        let (_, form) = self.body.split_once(&format!("action=\"{action}\"")).expect("it has the form");
        let (form, _) = form.split_once("</form>").expect("it ends");
        let of = |tag: &str, name: &str| {
            let (_, value) = tag.split_once(&format!(" {name}=\""))?;
            Some(unescaped(value.split_once('"')?.0))
        };
        let tags = form.split("<input").skip(1);
        tags.filter_map(|tag| Some((of(tag, "name")?, of(tag, "value")?))).collect()
    }
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Fields as a query or a body.
pub fn encoded(fields: &[(String, String)]) -> String {
    let mut text = String::new();
    for (at, (name, value)) in fields.iter().enumerate() {
        let separator = if at > 0 { "&" } else { "" };
        write!(text, "{separator}{name}=").expect("a string");
        value.bytes().for_each(|byte| write!(text, "%{byte:02X}").expect("a string"));
    }
    text
}

impl Visitor {
    /// In front of a server of this store.
    pub async fn of(store: Arc<dyn Store>) -> Self {
        Self { served: Served::start(store).await, shows: String::new() }
    }

    /// The same with a token.
    pub fn with(mut self, bearer: &Bearer) -> Self {
        self.shows = format!("Authorization: Bearer {}\r\n", bearer.secret_text());
        self
    }

    /// A connection of its own, for a stream.
    pub async fn open(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.served.address).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.served.address);
        stream.write_all(request.as_bytes()).await.expect("it is sent");
        stream
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        let host = self.served.address;
        let mut stream = TcpStream::connect(host).await.expect("it listens");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nConnection: close\r\n{}\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            self.shows,
            body.len()
        );
        stream.write_all(request.as_bytes()).await.expect("it is sent");
        let mut answer = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut answer))
            .await
            .expect("it answers")
            .expect("a whole answer");
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut answer = Answer { status, head: head.to_owned(), body: body.to_owned() };
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = whole(&answer.body);
        }
        answer
    }

    /// Gets an address.
    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    /// Gets a page that must be there.
    pub async fn page(&self, path: &str) -> Answer {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer
    }

    /// Posts fields.
    pub async fn post(&self, path: &str, fields: &[(String, String)]) -> Answer {
        self.send("POST", path, &encoded(fields)).await
    }

    /// Presses the button of a page: reads what will be done, confirms it, and comes to the page after it.
    pub async fn press(&self, page: &str, action: &str, more: &[(&str, &str)]) -> (Answer, Answer) {
        let path = format!("/actions/{action}");
        let mut fields = self.page(page).await.form(&path);
        for (name, value) in more {
            fields.retain(|(known, _)| known != name);
            fields.push(((*name).to_owned(), (*value).to_owned()));
        }
        self.confirm(&path, &fields).await
    }

    /// Asks for an action with these fields, and confirms it.
    pub async fn confirm(&self, path: &str, fields: &[(String, String)]) -> (Answer, Answer) {
        let asked = self.page(&format!("{path}?{}", encoded(fields))).await;
        let done = self.post(path, &asked.form(path)).await;
        assert_eq!(done.status, 303, "{path}: {}", done.body);
        let home = done.header("location").expect("where to").to_owned();
        assert!(home.starts_with('/') && !home.starts_with("//"), "{home}");
        (asked, self.page(&home).await)
    }
}

/// A body that was sent in pieces.
fn whole(body: &str) -> String {
    let (mut rest, mut whole) = (body, String::new());
    while let Some((length, text)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a length");
        if length == 0 {
            break;
        }
        whole.push_str(&text[..length]);
        rest = &text[length + 2..];
    }
    whole
}
