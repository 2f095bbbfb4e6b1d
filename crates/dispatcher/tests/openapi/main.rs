//! The description of the REST API: as an OpenAPI 3.1 document must be, of every route of ours and of no other, and
//! true of what is answered.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod schema;

use std::collections::BTreeSet;

use serde_json::Value;
use support::Cluster;

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

fn document() -> Value {
    serde_json::from_str(&dispatcher::openapi::text()).unwrap()
}

/// Path, method and description of every operation.
fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, item)| {
            item.as_object().unwrap().iter().map(move |(method, of)| (path.as_str(), method.as_str(), of))
        })
        .collect()
}

#[test]
fn the_file_is_what_the_code_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let kept = std::fs::read_to_string(file).unwrap_or_default();
    assert!(kept == dispatcher::openapi::text(), "docs/openapi.json is stale: run cargo xtask conf");
}

/// What OpenAPI 3.1 demands of a document, as far as this one goes.
#[test]
fn it_is_an_openapi_document() {
    let document = document();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    for field in ["title", "version"] {
        assert!(document["info"][field].as_str().is_some_and(|text| !text.is_empty()), "info.{field}");
    }
    let mut ids = BTreeSet::new();
    let mut tags = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let at = format!("{method} {path}");
        assert!(path.starts_with('/') && METHODS.contains(&method), "{at}");
        let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{at} has no operationId"));
        assert!(ids.insert(id.to_owned()), "{at}: {id} is there twice");
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{at} has no summary");
        tags.extend(operation["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap().to_owned()));
        parameters(&at, path, operation);
        let responses = operation["responses"].as_object().unwrap();
        for (status, response) in responses {
            let is_status =
                status == "default" || status.parse().is_ok_and(|code: u16| (200..600).contains(&code));
            assert!(is_status && response["description"].is_string(), "{at}: {status}");
            content(&document, &format!("{at} {status}"), response);
        }
        assert!(
            responses.contains_key("default") && responses.keys().any(|status| status.starts_with('2')),
            "{at}"
        );
        if !operation["requestBody"].is_null() {
            assert!(method == "put" || method == "post", "{at} has a body");
            content(&document, &at, &operation["requestBody"]);
        }
    }
    assert_eq!(Vec::from_iter(tags), ["about", "nodes", "packages", "runs"]);
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)), "{name}");
        schema::check(&document, name, schema);
    }
}

fn parameters(at: &str, path: &str, operation: &Value) {
    let mut seen = BTreeSet::new();
    let mut in_path = BTreeSet::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let (name, place) = (parameter["name"].as_str().unwrap(), parameter["in"].as_str().unwrap());
        assert!(["path", "query", "header"].contains(&place), "{at}: {name} in {place}");
        assert!(seen.insert((name.to_owned(), place)), "{at}: {name} is there twice");
        assert!(parameter["description"].is_string() && parameter["schema"].is_object(), "{at}: {name}");
        if place == "path" {
            assert_eq!(parameter["required"], true, "{at}: {name}");
            in_path.insert(format!("{{{name}}}"));
        }
    }
    let template: BTreeSet<String> =
        path.split('/').filter(|step| step.starts_with('{')).map(str::to_owned).collect();
    assert_eq!(template, in_path, "{at}");
}

fn content(document: &Value, at: &str, of: &Value) {
    for (media_type, content) in of["content"].as_object().into_iter().flatten() {
        assert!(media_type.contains('/'), "{at}: {media_type}");
        if !content["schema"].is_null() {
            schema::check(document, at, &content["schema"]);
        }
    }
}

/// The text of the routers: a route of ours that is made without its description stands there as a literal.
#[test]
fn no_route_of_ours_is_without_a_description() {
    let sources =
        [include_str!("../../src/web_submission_extension.rs"), include_str!("../../src/flink_routes.rs")];
    let quoted = sources.iter().flat_map(|source| source.split('"').skip(1).step_by(2));
    let literal: Vec<&str> = quoted.filter(|text| text.starts_with('/')).collect();
    for path in ["/jars/upload", "/savepoint-disposal"] {
        assert!(literal.contains(&path), "the text is read as it is meant to be");
    }
    let flinks = [
        "/applications",
        "/config",
        "/datasets",
        "/jars",
        "/jobmanager",
        "/jobs",
        "/overview",
        "/savepoint-disposal",
        "/taskmanagers",
    ];
    for path in literal {
        let root = path.match_indices('/').nth(1).map_or(path, |(at, _)| &path[..at]);
        assert!(
            flinks.contains(&root) && !path.contains("/attempts/"),
            "{path} has no description: use routes!"
        );
    }
    let document = document();
    let described: BTreeSet<&str> = operations(&document).iter().map(|(path, ..)| *path).collect();
    for root in ["/icp", "/run-async", "/nodes", "/openapi.json"] {
        assert!(described.contains(root), "{root}");
    }
}

#[tokio::test]
async fn what_is_described_is_a_route_and_nothing_else_is() {
    let cluster = Cluster::start(1).await;
    let document = document();
    let described: BTreeSet<(&str, &str)> =
        operations(&document).iter().map(|(path, method, _)| (*path, *method)).collect();
    let paths: BTreeSet<&str> = described.iter().map(|(path, _)| *path).collect();
    for path in paths {
        // What is a name, a number and a hash at once.
        let filled: Vec<&str> =
            path.split('/').map(|step| if step.starts_with('{') { "1" } else { step }).collect();
        let filled = filled.join("/");
        for method in METHODS {
            let answer = cluster.send(0, &method.to_uppercase(), &filled, &[], vec![]).await;
            // The fallback is Flink's: nothing but these words tells that there is no such route.
            let no_route =
                [format!("Unable to load requested file {filled}."), format!("Not found: {filled}")];
            let is_route = answer.status != 404 || !no_route.iter().any(|text| answer.error() == text);
            assert_eq!(is_route, described.contains(&(path, method)), "{method} {path}: {}", answer.text);
        }
    }
    cluster.stop().await;
}

#[tokio::test]
async fn every_dispatcher_serves_it() {
    let cluster = Cluster::start(1).await;
    for path in ["/openapi.json", "/v1/openapi.json"] {
        let answer = cluster.get(0, path).await;
        assert_eq!((answer.status, &answer.json), (200, &document()));
    }
    cluster.stop().await;
}
