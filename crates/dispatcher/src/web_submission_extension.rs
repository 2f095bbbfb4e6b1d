//! The routes of the REST front: Flink's, `/run-async`, `/icp`, `/nodes`; every one also below `/v1`.

use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use flink_rest::RestError;
use flink_rest::path::canonicalize;
use http::{Method, StatusCode};
use process_kit::{Metrics, Readiness, ops_routes};
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::front::Front;
use crate::{
    cluster_handlers, delete_jar_run_async_handler, flink_routes, icp_check_handler, icp_download,
    icp_handlers, icp_node_handlers, icp_register_handler, icp_upload, list_jar_run_async_handler,
    log_handlers, openapi, reconciler_handlers, request, status_jar_run_async_handler,
    submit_jar_run_async_handler,
};

/// The whole front as a service: paths are made canonical before they are routed.
pub type FrontService = BoxCloneSyncService<Request, Response, std::convert::Infallible>;

/// Builds the front.
pub fn service(front: Front, metrics: Metrics, readiness: Readiness) -> FrontService {
    let router = flink_routes::routes()
        .merge(own_routes())
        .fallback(request::fallback)
        .method_not_allowed_fallback(request::fallback)
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn(refuse_paths))
        .layer(middleware::from_fn(process_kit::refused::read_rest))
        .with_state(front)
        .merge(ops_routes(metrics, readiness));
    BoxCloneSyncService::new(router.map_request(|request: Request| canonicalize(request)))
}

/// Our own routes, each from the annotation of its handler: so none is without its description (`openapi`).
fn own_routes() -> OpenApiRouter<Front> {
    openapi::route()
        .routes(routes!(submit_jar_run_async_handler::submit, list_jar_run_async_handler::list))
        .routes(routes!(status_jar_run_async_handler::status, delete_jar_run_async_handler::delete))
        .routes(routes!(icp_handlers::list))
        .routes(routes!(icp_handlers::versions))
        .routes(routes!(icp_handlers::create, icp_handlers::status, icp_handlers::remove))
        .routes(routes!(icp_upload::missing))
        .routes(routes!(icp_upload::put_file, icp_download::file))
        .routes(routes!(icp_register_handler::register))
        .routes(routes!(icp_check_handler::check))
        .routes(routes!(icp_node_handlers::pull))
        .routes(routes!(icp_node_handlers::refs))
        .routes(routes!(cluster_handlers::nodes))
        .routes(routes!(reconciler_handlers::reconcilers))
        .routes(routes!(icp_node_handlers::on_node))
        .routes(routes!(log_handlers::output))
}

/// The description of our own routes.
pub fn openapi() -> OpenApi {
    openapi::finish(own_routes().into_openapi())
}

/// HEAD is no route in Flink, whatever has a GET. A path that is no text is none at all.
async fn refuse_paths(request: Request, next: Next) -> Response {
    if request.method() == Method::HEAD {
        return RestError::no_route(&request::raw_path(&request).0).into_response();
    }
    if percent_encoding::percent_decode_str(request.uri().path()).decode_utf8().is_err() {
        return RestError::new(StatusCode::BAD_REQUEST, "the path is not UTF-8").into_response();
    }
    next.run(request).await
}
