//! The routes of the REST front: Flink's, `/run-async`, `/icp`, `/nodes`; every one also below `/v1`.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
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
    cluster_handlers, delete_jar_run_async_handler, icp_check_handler, icp_download, icp_handlers,
    icp_node_handlers, icp_register_handler, icp_upload, jar_handlers, jar_run_handler, job_handlers,
    list_jar_run_async_handler, log_handlers, openapi, reconciler_handlers, request,
    status_jar_run_async_handler, submit_jar_run_async_handler,
};

/// The whole front as a service: paths are made canonical before they are routed.
pub type FrontService = BoxCloneSyncService<Request, Response, std::convert::Infallible>;

/// Builds the front.
pub fn service(front: Front, metrics: Metrics, readiness: Readiness) -> FrontService {
    let router = flink_routes()
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

fn flink_routes() -> Router<Front> {
    Router::new()
        .route("/jars", get(jar_handlers::list))
        .route("/jars/upload", post(jar_handlers::upload))
        .route("/jars/{jarid}", delete(jar_handlers::delete))
        .route("/jars/{jarid}/run", post(jar_run_handler::run))
        .route("/overview", get(cluster_handlers::overview))
        .route("/config", get(cluster_handlers::config))
        .route("/taskmanagers", get(cluster_handlers::task_managers))
        .route("/jobs", get(job_handlers::list).post(needs_flink))
        .route("/jobs/overview", get(job_handlers::overview))
        .route("/jobs/{jobid}", get(job_handlers::details).patch(job_handlers::cancel))
        .route("/jobs/{jobid}/status", get(job_handlers::status))
        .route("/jobs/{jobid}/execution-result", get(job_handlers::execution_result))
        .route("/jobs/{jobid}/savepoints", post(needs_flink))
        .route("/jobs/{jobid}/checkpoints", post(needs_flink))
        .route("/jobs/{jobid}/stop", post(needs_flink))
        .route("/jobs/{jobid}/rescaling", axum::routing::patch(needs_flink))
        .route("/jobs/{jobid}/resource-requirements", put(needs_flink))
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

/// What only a Flink cluster can do.
async fn needs_flink(request: Request) -> RestError {
    let text = format!(
        "{} {} needs a Flink cluster: set engine = flink on the JobMaster processes",
        request.method(),
        request::raw_path(&request).0
    );
    RestError::new(StatusCode::NOT_IMPLEMENTED, text)
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
