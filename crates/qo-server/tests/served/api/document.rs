//! The OpenAPI document has every route and no other.

use super::Stage;
use crate::stage::block_on;
use serde_json::Value;
use std::collections::BTreeSet;

/// The page for people.
const PAGE: &str = include_str!("../../../../../docs/reference/http.md");

/// The routes of the interface.
fn routes() -> BTreeSet<String> {
    let routes = qo_server::server::listed().into_iter().filter(|route| route.path.starts_with("/api/v1/"));
    routes.map(|route| format!("{} {}", route.method, route.path)).collect()
}

async fn document() -> Value {
    Stage::in_memory().await.get("/openapi.json").await.json(200)
}

#[test]
fn the_document_has_every_route_and_no_other() {
    block_on(async {
        let document = document().await;
        assert!(
            document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")),
            "{}",
            document["openapi"]
        );
        let described: BTreeSet<String> = document["paths"]
            .as_object()
            .expect("paths")
            .iter()
            .flat_map(|(path, item)| {
                item.as_object()
                    .expect("methods")
                    .keys()
                    .map(move |method| format!("{} {path}", method.to_uppercase()))
            })
            .collect();
        let listed = routes();
        assert!(listed.len() > 35, "{listed:?}");
        assert_eq!(described, listed);
    });
}

#[test]
fn the_page_has_every_route_and_no_other() {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let rows = rows.filter_map(|(route, _)| route.split_once(" /"));
    let listed: BTreeSet<String> = rows.map(|(method, path)| format!("{method} /api/v1/{path}")).collect();
    assert_eq!(listed, routes());
}

#[test]
fn every_operation_of_the_document_says_what_it_is() {
    block_on(async {
        let document = document().await;
        let mut ids = BTreeSet::new();
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("methods") {
                let id = operation["operationId"].as_str().expect("an id");
                assert!(ids.insert(id.to_owned()), "{id} is there twice");
                assert!(operation["summary"].is_string(), "{method} {path}");
                assert!(
                    operation["responses"]["default"]["content"]["application/problem+json"].is_object(),
                    "{id}"
                );
                let named = operation["parameters"].as_array().cloned().unwrap_or_default();
                let named: BTreeSet<_> = named
                    .iter()
                    .filter(|one| one["in"] == "path")
                    .map(|one| one["name"].as_str().expect("a name").to_owned())
                    .collect();
                let used: BTreeSet<_> = path
                    .split('{')
                    .skip(1)
                    .map(|part| part.split('}').next().expect("a name").to_owned())
                    .collect();
                assert_eq!(named, used, "{method} {path}");
            }
        }
    });
}

#[test]
fn the_document_names_every_option_of_a_job() {
    block_on(async {
        let document = document().await;
        let properties =
            document["components"]["schemas"]["NewJob"]["properties"].as_object().expect("properties");
        let described: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
        assert_eq!(described, qo_text::NAMES.into_iter().collect());
    });
}

/// A reference that points nowhere would make the document useless to generators.
#[test]
fn every_reference_of_the_document_points_to_a_schema() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    block_on(async {
        let document = document().await;
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for reference in found {
            let pointer = reference.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    });
}
