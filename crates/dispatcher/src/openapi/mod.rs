//! `GET /openapi.json`: the description of our own routes, made from the annotations beside their handlers. A route is
//! made of the same annotation, so that neither can be without the other; docs/openapi.json is a copy.

pub mod bodies;
pub mod run_bodies;

use axum::Json;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{ContentBuilder, InfoBuilder, OpenApi, RefOr, Response};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use self::bodies::*;
pub use self::run_bodies::*;
use crate::front::Front;

const DESCRIPTION: &str = "Code packages, asynchronous runs and nodes. Every path is also served below `/v1`. Beside \
                           these, a dispatcher serves Flink's own routes as Flink describes them, and `/metrics`, \
                           `/livez`, `/readyz`.";

/// Finishes what the router collected.
pub fn finish(mut api: OpenApi) -> OpenApi {
    api.info = InfoBuilder::new()
        .title("Metastore dispatcher")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .license(Some(utoipa::openapi::License::new(env!("CARGO_PKG_LICENSE"))))
        .build();
    let schemas = &mut api.components.get_or_insert_default().schemas;
    schemas.insert(Refused::name().into_owned(), Refused::schema());
    for operation in api.paths.paths.values_mut().flat_map(operations) {
        operation.responses.responses.insert("default".to_owned(), RefOr::T(refused()));
    }
    api
}

/// Every route may refuse, and always in the same form.
fn refused() -> Response {
    let content = ContentBuilder::new().schema(Some(utoipa::openapi::Ref::from_schema_name(Refused::name())));
    let mut response = Response::new("Refused: the status is the kind, the text the reason");
    response.content.insert("application/json".to_owned(), content.build().into());
    response
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [get, put, post, delete, patch].into_iter().flatten()
}

/// The route of the description itself.
pub fn route() -> OpenApiRouter<Front> {
    OpenApiRouter::new().routes(routes!(openapi))
}

/// The description of these routes.
#[utoipa::path(get, path = "/openapi.json", tag = "about", operation_id = "openapi",
    responses((status = 200, description = "An OpenAPI 3.1 document", body = Object)))]
pub async fn openapi() -> Json<OpenApi> {
    Json(crate::web_submission_extension::openapi())
}

/// The text of docs/openapi.json.
pub fn text() -> String {
    let api = crate::web_submission_extension::openapi();
    // A tree of strings always serializes.
    api.to_pretty_json().unwrap_or_default() + "\n"
}
