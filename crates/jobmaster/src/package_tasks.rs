//! What the package agent does about one package at a time, and how it ends.

use std::sync::Arc;

use records::packages::{abort, draining};
use records::record::PackageRef;
use records::{Class, JobId, Scope};

use crate::deploy_coordinator::take_over;
use crate::host::Host;
use crate::package_copy::{EnsureError, For, drop_copy, ensure, forget, report};
use crate::register_target::{confirm, take_part};
use crate::session::Tenure;

/// Something to do about one package.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Task {
    /// Have it.
    Ensure(PackageRef),
    /// Have it though this node was no target: a copy elsewhere is lost.
    MakeGood(PackageRef),
    /// The next step of a register that this node is a target of.
    TakePart(PackageRef),
    /// It was READY: registered files are the package's from now on.
    Confirm(PackageRef),
    /// Say that it is here: it is being removed, this job may still start from it, and this boot has not said so.
    Keep(PackageRef, JobId),
    /// Say that it is being given up.
    Drain(PackageRef, usize),
    /// Delete it, and the row.
    Drop(PackageRef),
    /// Delete what the records do not know, if they still do not.
    Forget(PackageRef),
    /// Give up a create of this node that nobody carries: the answer of its reservation was lost, or the store stayed
    /// away while it was undone. Its epoch, and the request whose outcome is settled with it.
    Abort(PackageRef, u64, Option<String>),
    /// Go on with a create whose coordinator is lost: the whole package is here.
    TakeOver(PackageRef),
}

impl Task {
    /// The package it is about.
    pub fn package(&self) -> &PackageRef {
        match self {
            Self::Ensure(package)
            | Self::MakeGood(package)
            | Self::TakePart(package)
            | Self::Confirm(package)
            | Self::Keep(package, _)
            | Self::Drain(package, _)
            | Self::Drop(package)
            | Self::Forget(package)
            | Self::TakeOver(package)
            | Self::Abort(package, _, _) => package,
        }
    }

    /// What it is counted as.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Ensure(_) => "copies-ensured",
            Self::MakeGood(_) => "lost-copies-made-good",
            Self::TakePart(_) => "register-steps",
            Self::Confirm(_) => "registered-confirmed",
            Self::Keep(..) => "kept-for-jobs",
            Self::Drain(..) => "drains-told",
            Self::Drop(_) => "copies-dropped",
            Self::Forget(_) => "unknown-deleted",
            Self::Abort(..) => "creates-aborted",
            Self::TakeOver(_) => "creates-taken-over",
        }
    }

    /// True if files may be left that nobody needs any more.
    pub fn leaves_something(&self) -> bool {
        matches!(self, Self::Drop(_) | Self::Forget(_) | Self::Abort(..))
    }
}

/// How a task ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// The records moved on: the next view says what is to be done.
    MovedOn,
    /// Not now: it is tried again after a pause.
    NotYet,
    /// Disk or sources: it is tried again after a pause.
    Failed(String),
}

/// Does one task.
pub async fn carry(host: &Arc<Host>, tenure: &Tenure, task: &Task) -> Outcome {
    let package = task.package();
    let outcome = match task {
        Task::TakePart(package) => take_part(host, tenure, package).await,
        Task::Confirm(package) => confirm(host, package).await,
        Task::Ensure(package) | Task::MakeGood(package) => ensure(host, tenure, package, For::Node).await,
        Task::Keep(package, job) => ensure(host, tenure, package, For::Pin(job)).await,
        Task::Drain(package, uses) => {
            let report = report(tenure, package);
            let uses = *uses as u64;
            let scope = Scope::package(&package.unit);
            host.insist(tenure, &scope, |view| draining(view, &report, uses)).await.map_err(Into::into)
        }
        Task::Drop(package) => drop_copy(host, tenure, package).await,
        Task::TakeOver(package) => take_over(host, tenure, package).await,
        Task::Forget(package) => forget(host, tenure, package).await,
        Task::Abort(package, epoch, request) => {
            let scope = Scope::package(&package.unit);
            let scope = request.iter().fold(scope, |scope, request| scope.and_request(request));
            let why = "its coordinator lost track of it: the store did not answer in time";
            let PackageRef { unit, op } = package;
            let given_up = host.insist(tenure, &scope, |view| abort(view, unit, op, *epoch, why)).await;
            if given_up.is_ok() {
                tracing::warn!(package = %unit, op, "a create that nobody carried is undone");
            }
            given_up.map_err(Into::into)
        }
    };
    match outcome {
        Ok(()) => Outcome::Done,
        Err(EnsureError::Refused(refusal)) => {
            tracing::debug!(package = %package.unit, %refusal, "not done");
            if refusal.class == Class::NotYet { Outcome::NotYet } else { Outcome::MovedOn }
        }
        Err(EnsureError::Failed(why)) => {
            tracing::warn!(package = %package.unit, %why, "not done; trying again later");
            Outcome::Failed(why.to_string())
        }
    }
}
