//! The REST front: Flink's routes, `/run-async`, `/icp`; reconcilers for runs, placement and packages.
//!
//! A dispatcher is stateless: every answer comes from the store, every write is a guarded transaction, and what it
//! drives hangs on its lease, so that another one goes on when it dies. Only with `single.enable = false` does it
//! also host JobMasters, and then it is a server node like any other.

pub mod admission;
pub mod api_error;
pub mod checkpoint_handlers;
pub mod cluster_handlers;
pub mod delete_jar_run_async_handler;
pub mod deploy;
pub mod dispatcher;
pub mod flink_routes;
pub mod front;
pub mod icp_check_handler;
pub mod icp_download;
pub mod icp_handlers;
pub mod icp_node_handlers;
pub mod icp_register_handler;
pub mod icp_upload;
pub mod jar_handlers;
pub mod jar_run_handler;
pub mod job_detail_handlers;
pub mod job_handlers;
pub mod job_manager_handlers;
pub mod job_master_dispatcher;
pub mod job_master_primary_dispatcher;
pub mod limits;
pub mod list_jar_run_async_handler;
pub mod log_handlers;
pub mod metrics;
pub mod mirror;
pub mod node_client;
pub mod openapi;
pub mod options;
pub mod package_reconciler;
pub mod receive;
pub mod reconcile;
pub mod reconciler_handlers;
pub mod request;
pub mod retention;
pub mod run_reconciler;
pub mod run_submission;
pub mod session;
pub mod status_jar_run_async_handler;
pub mod submit_jar_run_async_handler;
pub mod task_manager_handlers;
pub mod wait;
pub mod warning;
pub mod web_submission_extension;

pub use dispatcher::{Dispatcher, StartError};
pub use options::{DispatcherOptions, RestartDefaults};
