//! What a caller states about a run: the body of `/jars/:jarid/run` and of `/run-async`, and their query forms.
//!
//! Only what was stated is kept; defaults come later, so that two requests can be compared field by field. The body
//! wins over the query, as in Flink. On Flink's own route unknown fields are ignored, on ours they are refused.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::coerce::{self, Mismatch};
use crate::error::RestError;
use crate::{args, job_id};

/// Which contract a request is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// `POST /jars/:jarid/run`: lenient and with Flink's texts.
    JarsRun,
    /// `POST /run-async`: every parameter in query and body, nothing unknown, our own texts.
    RunAsync,
}

/// Who owns the savepoint a job is restored from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RestoreMode {
    /// The job.
    Claim,
    /// Nobody new.
    NoClaim,
    /// As before Flink 1.15.
    Legacy,
}

impl RestoreMode {
    /// Flink's name of it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "CLAIM",
            Self::NoClaim => "NO_CLAIM",
            Self::Legacy => "LEGACY",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Claim, Self::NoClaim, Self::Legacy].into_iter().find(|mode| mode.as_str() == text)
    }
}

/// The stated fields of a run. `None` = not stated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunRequest {
    /// The class whose main is run.
    pub entry_class: Option<String>,
    /// The arguments of main.
    pub program_args: Option<Vec<String>>,
    /// Default parallelism; positive.
    pub parallelism: Option<i32>,
    /// The id the job shall have, 32 lower-case hex digits.
    pub job_id: Option<String>,
    /// Whether savepoint state that the job does not know may be skipped.
    pub allow_non_restored_state: Option<bool>,
    /// The savepoint to restore from.
    pub savepoint_path: Option<String>,
    /// Who owns that savepoint.
    pub restore_mode: Option<RestoreMode>,
    /// Settings of this job.
    pub flink_configuration: Option<BTreeMap<String, String>>,
    /// The idempotency token; `/run-async` only, not yet validated.
    pub trigger_id: Option<String>,
    /// An uploaded JAR; `/run-async` only.
    pub jar_id: Option<String>,
    /// Further code packages for the class path, `NAME:VERSION`; `/run-async` only. Stated as `packages` or as
    /// `classPaths`.
    pub packages: Option<Vec<String>>,
}

/// The fields of a JSON body. On `/run-async` the query takes the same names; lists are then JSON or separated by
/// commas, an object is JSON.
pub const BODY_FIELDS: &[&str] = &[
    "allowNonRestoredState",
    "claimMode",
    "classPaths",
    "entryClass",
    "flinkConfiguration",
    "jarId",
    "jobId",
    "packages",
    "parallelism",
    "programArgs",
    "programArgsList",
    "restoreMode",
    "savepointPath",
    "triggerId",
];

/// Flink's other names of some of them, which it takes from the query; `/run-async` takes them from the body too.
pub const ALIASES: &[&str] = &["entry-class", "program-args", "programArg"];

impl RunRequest {
    /// Parses a JSON body; an empty one states nothing.
    pub fn from_body(route: Route, body: &[u8]) -> Result<Self, RestError> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        let fields = match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => return Err(bad_body(route, "the body must be a JSON object")),
            Err(error) => return Err(bad_body(route, &format!("the body is not JSON: {error}"))),
        };
        if route == Route::RunAsync {
            refuse_unknown("field", fields.keys().map(String::as_str))?;
        }
        let reader = BodyReader { route, fields: &fields };
        let request = Self {
            entry_class: reader.entry_class()?,
            program_args: reader.program_args()?,
            parallelism: reader.read("parallelism", coerce::integer)?,
            job_id: reader.job_id()?,
            allow_non_restored_state: reader.read("allowNonRestoredState", coerce::boolean)?,
            savepoint_path: reader.string("savepointPath")?,
            restore_mode: reader.restore_mode()?,
            flink_configuration: reader.read("flinkConfiguration", coerce::string_map)?,
            ..Self::default()
        };
        if route == Route::JarsRun {
            return Ok(request);
        }
        Ok(Self {
            trigger_id: reader.read("triggerId", coerce::string)?,
            jar_id: reader.string("jarId")?,
            packages: one_of([
                ("packages", reader.read("packages", coerce::strings)?),
                ("classPaths", reader.read("classPaths", coerce::strings)?),
            ])?,
            ..request
        })
    }

    /// The one request that a query and a body make together: the body wins, except that two trigger ids must agree.
    pub fn merge(query: Self, body: Self) -> Result<Self, RestError> {
        if let (Some(one), Some(other)) = (&query.trigger_id, &body.trigger_id)
            && one != other
        {
            return Err(RestError::new(
                StatusCode::BAD_REQUEST,
                format!("triggerId is \"{one}\" in the query and \"{other}\" in the body; send one of them"),
            ));
        }
        Ok(Self {
            entry_class: body.entry_class.or(query.entry_class),
            program_args: body.program_args.or(query.program_args),
            parallelism: body.parallelism.or(query.parallelism),
            job_id: body.job_id.or(query.job_id),
            allow_non_restored_state: body.allow_non_restored_state.or(query.allow_non_restored_state),
            savepoint_path: body.savepoint_path.or(query.savepoint_path),
            restore_mode: body.restore_mode.or(query.restore_mode),
            flink_configuration: body.flink_configuration.or(query.flink_configuration),
            trigger_id: body.trigger_id.or(query.trigger_id),
            jar_id: body.jar_id.or(query.jar_id),
            packages: body.packages.or(query.packages),
        })
    }

    /// Checks what no merge can change; -1 is Flink's "use the default" and counts as not stated.
    pub fn checked(mut self, route: Route) -> Result<Self, RestError> {
        if self.parallelism == Some(-1) {
            self.parallelism = None;
        }
        match (self.parallelism, route) {
            (Some(p), Route::JarsRun) if p < 1 => {
                Err(RestError::handler(StatusCode::BAD_REQUEST, "Could not execute application.")
                    .caused_by(&format!("parallelism must be at least 1, found {p}")))
            }
            (Some(p), Route::RunAsync) if p < 1 => Err(RestError::new(
                StatusCode::BAD_REQUEST,
                format!("parallelism must be at least 1, found {p}; leave it out for the default"),
            )),
            _ => Ok(self),
        }
    }
}

struct BodyReader<'a> {
    route: Route,
    fields: &'a Map<String, Value>,
}

impl BodyReader<'_> {
    fn read<T>(
        &self,
        name: &str,
        coerce: fn(&Value) -> Result<Option<T>, Mismatch>,
    ) -> Result<Option<T>, RestError> {
        let Some(value) = self.fields.get(name) else { return Ok(None) };
        coerce(value).map_err(|mismatch| {
            let Mismatch { expected, found } = mismatch;
            bad_body(self.route, &format!("{name}: expected {expected}, found {found}"))
        })
    }

    /// Flink takes an empty class name, path or argument line as not stated.
    fn string(&self, name: &str) -> Result<Option<String>, RestError> {
        Ok(self.read(name, coerce::string)?.filter(|text| !text.is_empty()))
    }

    fn entry_class(&self) -> Result<Option<String>, RestError> {
        let stated = self.string("entryClass")?;
        if self.route == Route::JarsRun {
            return Ok(stated);
        }
        one_of([("entryClass", stated), ("entry-class", self.string("entry-class")?)])
    }

    fn program_args(&self) -> Result<Option<Vec<String>>, RestError> {
        let line = self.string("programArgs")?;
        let list = self.read("programArgsList", coerce::strings)?;
        if self.route == Route::RunAsync {
            return one_of([
                ("programArgsList", list),
                ("programArgs", line.as_deref().map(args::split_command_line)),
                ("program-args", self.string("program-args")?.as_deref().map(args::split_command_line)),
                ("programArg", self.string("programArg")?.as_deref().map(args::split_comma_list)),
            ]);
        }
        match (line, list) {
            (Some(_), Some(_)) => Err(RestError::handler(
                StatusCode::BAD_REQUEST,
                "Confusing request: programArgs and programArgsList are specified, please, use only \
                 programArgsList.",
            )),
            (Some(line), None) => Ok(Some(args::split_command_line(&line))),
            (None, list) => Ok(list),
        }
    }

    fn job_id(&self) -> Result<Option<String>, RestError> {
        let Some(text) = self.read("jobId", coerce::string)? else { return Ok(None) };
        match job_id::parse(&text) {
            Some(id) => Ok(Some(id)),
            None if self.route == Route::JarsRun => {
                Err(RestError::bad_format("JarRunRequestBody").caused_by(&job_id::parse_failure(&text)))
            }
            None => Err(bad_job_id(&text)),
        }
    }

    fn restore_mode(&self) -> Result<Option<RestoreMode>, RestError> {
        let mode = |name: &'static str| {
            let Some(text) = self.string(name)? else { return Ok((name, None)) };
            match RestoreMode::parse(&text) {
                Some(mode) => Ok((name, Some(mode))),
                None => Err(bad_body(self.route, &bad_restore_mode(name, &text))),
            }
        };
        let claim_mode = mode("claimMode")?;
        if self.route == Route::JarsRun && claim_mode.1.is_some() {
            return Ok(claim_mode.1);
        }
        one_of([claim_mode, mode("restoreMode")?])
    }
}

/// What is stated under one of several names of one field; under two of them it must be the same.
pub(crate) fn one_of<T: PartialEq, const N: usize>(
    named: [(&str, Option<T>); N],
) -> Result<Option<T>, RestError> {
    let mut found: Option<(&str, T)> = None;
    for (name, value) in named {
        match (&found, value) {
            (Some((first, stated)), Some(value)) if *stated != value => {
                return Err(RestError::new(
                    StatusCode::BAD_REQUEST,
                    format!("{first} and {name} are two names of one field and differ; send one of them"),
                ));
            }
            (None, Some(value)) => found = Some((name, value)),
            _ => {}
        }
    }
    Ok(found.map(|(_, value)| value))
}

pub(crate) fn bad_restore_mode(name: &str, text: &str) -> String {
    format!("{name}: expected CLAIM, NO_CLAIM or LEGACY, found \"{text}\"")
}

pub(crate) fn bad_job_id(text: &str) -> RestError {
    RestError::new(
        StatusCode::BAD_REQUEST,
        format!("jobId: expected 32 hexadecimal digits, found \"{text}\""),
    )
}

fn bad_body(route: Route, why: &str) -> RestError {
    match route {
        Route::JarsRun => RestError::bad_format("JarRunRequestBody"),
        Route::RunAsync => RestError::new(StatusCode::BAD_REQUEST, why),
    }
}

pub(crate) fn refuse_unknown<'a>(
    kind: &str,
    mut given: impl Iterator<Item = &'a str>,
) -> Result<(), RestError> {
    let Some(name) = given.find(|name| !BODY_FIELDS.contains(name) && !ALIASES.contains(name)) else {
        return Ok(());
    };
    Err(RestError::new(
        StatusCode::BAD_REQUEST,
        format!("unknown {kind} \"{name}\"; did you mean \"{}\"?", nearest(name, BODY_FIELDS)),
    ))
}

/// The known name that looks most like `name`.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> &'a str {
    let likeness =
        |candidate: &str| strsim::jaro_winkler(&name.to_ascii_lowercase(), &candidate.to_ascii_lowercase());
    known.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap_or_default()
}

#[cfg(test)]
#[path = "run_request_tests.rs"]
mod tests;
