//! A run request in a query string, or in the text parts of a form: the same fields as in a body, as text.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::Value;

use crate::coerce::{self, Mismatch};
use crate::error::RestError;
use crate::query::Query;
use crate::run_request::{
    RestoreMode, Route, RunRequest, bad_job_id, bad_restore_mode, one_of, refuse_unknown,
};
use crate::{args, job_id};

impl RunRequest {
    /// Reads the query's form of the fields.
    pub fn from_query(route: Route, query: &Query) -> Result<Self, RestError> {
        if route == Route::RunAsync {
            refuse_unknown("query parameter", query.names())?;
        }
        let common = Self {
            entry_class: entry_class_of(route, query)?,
            program_args: program_args_of(route, query)?,
            parallelism: parallelism_of(query)?,
            allow_non_restored_state: allow_non_restored_state_of(route, query)?,
            savepoint_path: owned(query.non_empty("savepointPath")),
            ..Self::default()
        };
        if route == Route::JarsRun {
            return Ok(common);
        }
        Ok(Self {
            flink_configuration: flink_configuration_of(query)?,
            job_id: job_id_of(query)?,
            restore_mode: restore_mode_of(query)?,
            trigger_id: owned(query.get("triggerId")),
            jar_id: owned(query.non_empty("jarId")),
            packages: one_of([
                ("packages", list_of(query, "packages")?),
                ("classPaths", list_of(query, "classPaths")?),
            ])?,
            ..common
        })
    }
}

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

fn entry_class_of(route: Route, query: &Query) -> Result<Option<String>, RestError> {
    let (ours, flinks) = (query.non_empty("entryClass"), query.non_empty("entry-class"));
    match route {
        Route::JarsRun => Ok(owned(flinks.or(ours))),
        Route::RunAsync => Ok(owned(one_of([("entryClass", ours), ("entry-class", flinks)])?)),
    }
}

/// Flink's route takes the list before a command line.
fn program_args_of(route: Route, query: &Query) -> Result<Option<Vec<String>>, RestError> {
    let line = |name| query.non_empty(name).map(args::split_command_line);
    let list = query.non_empty("programArg").map(args::split_comma_list);
    if route == Route::JarsRun {
        return Ok(list.or_else(|| line("program-args")).or_else(|| line("programArgs")));
    }
    one_of([
        ("programArgsList", list_of(query, "programArgsList")?),
        ("programArg", list),
        ("programArgs", line("programArgs")),
        ("program-args", line("program-args")),
    ])
}

/// A list in a query: as JSON, so that its items may have commas, or separated by commas.
fn list_of(query: &Query, name: &str) -> Result<Option<Vec<String>>, RestError> {
    match query.non_empty(name) {
        Some(text) if text.starts_with('[') => json_of(name, text, coerce::strings),
        text => Ok(text.map(args::split_comma_list)),
    }
}

fn flink_configuration_of(query: &Query) -> Result<Option<BTreeMap<String, String>>, RestError> {
    const NAME: &str = "flinkConfiguration";
    query.non_empty(NAME).map_or(Ok(None), |text| json_of(NAME, text, coerce::string_map))
}

/// A parameter whose value is JSON.
fn json_of<T>(
    name: &str,
    text: &str,
    coerce: fn(&Value) -> Result<Option<T>, Mismatch>,
) -> Result<Option<T>, RestError> {
    let bad = |why: String| RestError::new(StatusCode::BAD_REQUEST, format!("{name}: {why}"));
    let value = serde_json::from_str(text).map_err(|error| bad(format!("its value is not JSON: {error}")))?;
    coerce(&value)
        .map_err(|mismatch| bad(format!("expected {}, found {}", mismatch.expected, mismatch.found)))
}

fn parallelism_of(query: &Query) -> Result<Option<i32>, RestError> {
    let Some(text) = query.non_empty("parallelism") else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(RestError::bad_query_parameter("parallelism", text)),
    }
}

/// On Flink's route anything but `true` is false.
fn allow_non_restored_state_of(route: Route, query: &Query) -> Result<Option<bool>, RestError> {
    let Some(text) = query.non_empty("allowNonRestoredState") else { return Ok(None) };
    match (text.to_ascii_lowercase().as_str(), route) {
        ("true", _) => Ok(Some(true)),
        ("false", _) | (_, Route::JarsRun) => Ok(Some(false)),
        (_, Route::RunAsync) => Err(RestError::bad_query_parameter("allowNonRestoredState", text)),
    }
}

fn job_id_of(query: &Query) -> Result<Option<String>, RestError> {
    let Some(text) = query.non_empty("jobId") else { return Ok(None) };
    job_id::parse(text).map(Some).ok_or_else(|| bad_job_id(text))
}

fn restore_mode_of(query: &Query) -> Result<Option<RestoreMode>, RestError> {
    let mode = |name: &'static str| {
        let Some(text) = query.non_empty(name) else { return Ok((name, None)) };
        let refusal = || RestError::new(StatusCode::BAD_REQUEST, bad_restore_mode(name, text));
        RestoreMode::parse(text).map(|mode| (name, Some(mode))).ok_or_else(refusal)
    };
    one_of([mode("claimMode")?, mode("restoreMode")?])
}
