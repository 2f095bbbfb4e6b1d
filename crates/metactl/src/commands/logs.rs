//! Output of jobs, for `metactl job logs` and `metactl run logs`: read piece by piece through a dispatcher, however long
//! it is; with `-f` from attempt to attempt until the job has ended.

use std::{io::Write as _, ops::ControlFlow, pin::pin, time::Duration};

use clap::Args;
use records::{
    JobId, Scope,
    keys::JobKey,
    record::{Attempt, Job},
};
use reqwest::{Method, Response};

use super::job::find;
use crate::{
    changes::{Changes, load_patiently},
    cli::Globals,
    exit::{Done, Failure, NOT_FOUND, OK, UNAVAILABLE},
    rest::Dispatchers,
    view,
};

/// How often the node is asked for more output while the job runs: nothing tells when a program writes a line.
const FOLLOW_EVERY: Duration = Duration::from_millis(300);
/// How far the stream goes by now.
const LOG_SIZE: &str = "x-log-size";
/// Where the piece begins: behind what was asked for, if output was dropped there.
const LOG_OFFSET: &str = "x-log-offset";

/// Which attempt and stream.
#[derive(Debug, Args)]
pub struct WhichLogs {
    /// Number of the attempt; the last one if left out.
    #[arg(long)]
    attempt: Option<u32>,
    /// Standard error instead of standard output.
    #[arg(long)]
    stderr: bool,
    /// Goes on with what is written, from attempt to attempt, until the job has ended.
    #[arg(short, long)]
    follow: bool,
}

/// Prints what a job wrote.
pub async fn print(globals: &Globals, id: &JobId, which: &WhichLogs) -> Done {
    if which.follow {
        return follow(globals, id, which).await;
    }
    // One attempt for all pieces, even if the job moves meanwhile.
    let number = match which.attempt {
        Some(number) => Some(number),
        None => find(&view::load(globals, scope(id)).await?, id)?.attempts.last().map(|last| last.number),
    };
    let attempt = number.map_or_else(|| "latest".to_owned(), |number| number.to_string());
    Stream::new(globals, id, which, &attempt).print_present().await?;
    Ok(OK)
}

fn scope(id: &JobId) -> Scope {
    Scope::default().and_key(&JobKey::new(id))
}

async fn follow(globals: &Globals, id: &JobId, which: &WhichLogs) -> Done {
    let (scope, changes) = (scope(id), Changes::new(globals)?);
    let mut view = view::load(globals, scope.clone()).await?;
    let mut followed = Followed { globals, id, which, at: None };
    loop {
        let job = find(&view, id)?;
        let mut changed = pin!(changes.after(&scope, view.revision()));
        loop {
            if followed.print_present(&job).await?.is_break() {
                return Ok(OK);
            }
            tokio::select! {
                () = &mut changed => break,
                () = tokio::time::sleep(FOLLOW_EVERY), if followed.at.is_some() => {}
            }
        }
        view = load_patiently(globals, &scope).await?;
    }
}

/// Where a follower is: the attempt's number and its stream.
struct Followed<'a> {
    globals: &'a Globals,
    id: &'a JobId,
    which: &'a WhichLogs,
    at: Option<(u32, Stream<'a>)>,
}

impl Followed<'_> {
    /// Prints what there is by now; breaks when no more will come.
    async fn print_present(&mut self, job: &Job) -> Result<ControlFlow<()>, Failure> {
        loop {
            let Some((number, stream)) = &mut self.at else {
                match self.first(job)? {
                    Some(attempt) => self.open(attempt),
                    None if job.state.is_terminal() => return Ok(ControlFlow::Break(())),
                    None => return Ok(ControlFlow::Continue(())),
                }
                continue;
            };
            let (number, read) = (*number, stream.print_present().await);
            let newer = job.attempts.iter().find(|attempt| attempt.number > number);
            if newer.is_none() && !job.state.is_terminal() {
                // Its first byte is not there yet, or its node is going: the job's record will tell.
                return match read {
                    Err(failure) if !matches!(failure.code, NOT_FOUND | UNAVAILABLE) => Err(failure),
                    _ => Ok(ControlFlow::Continue(())),
                };
            }
            let Some(newer) = newer.filter(|_| self.which.attempt.is_none()) else {
                return read.map(ControlFlow::Break);
            };
            if let Err(failure) = read {
                eprintln!("metactl: the rest of attempt {number}: {failure}");
            }
            eprintln!("metactl: attempt {} is on node {}", newer.number, newer.owner.node);
            self.open(newer);
        }
    }

    /// The attempt to begin with; none if it has not been started yet.
    fn first<'j>(&self, job: &'j Job) -> Result<Option<&'j Attempt>, Failure> {
        let Some(wanted) = self.which.attempt else { return Ok(job.attempts.last()) };
        let found = job.attempts.iter().find(|attempt| attempt.number == wanted);
        if found.is_none() && (job.state.is_terminal() || wanted <= job.attempt) {
            return Err(Failure::not_found(format!("job {} has no attempt {wanted} (any more)", self.id)));
        }
        Ok(found)
    }

    fn open(&mut self, attempt: &Attempt) {
        let stream = Stream::new(self.globals, self.id, self.which, &attempt.number.to_string());
        self.at = Some((attempt.number, stream));
    }
}

/// One stream of one attempt, read up to `at`.
struct Stream<'a> {
    globals: &'a Globals,
    path: String,
    at: u64,
}

impl<'a> Stream<'a> {
    fn new(globals: &'a Globals, id: &JobId, which: &WhichLogs, attempt: &str) -> Self {
        let stream = if which.stderr { "stderr" } else { "stdout" };
        Self { globals, path: format!("/jobs/{id}/attempts/{attempt}/{stream}"), at: 0 }
    }

    /// Prints what is there now and was not printed yet. What is written meanwhile may be left for the next time.
    async fn print_present(&mut self) -> Result<(), Failure> {
        let dispatchers = Dispatchers::find(self.globals).await?;
        let mut end = None;
        loop {
            let path = format!("{}?offset={}", self.path, self.at);
            let piece = dispatchers.simple(Method::GET, &path, self.globals.command_timeout).await?;
            let begins = number(&piece, LOG_OFFSET).unwrap_or(self.at);
            let end = *end.get_or_insert(number(&piece, LOG_SIZE).unwrap_or(0));
            if begins > self.at {
                let dropped = begins - self.at;
                eprintln!("metactl: {dropped} bytes are not kept here (job.output.max-bytes of the node)");
            }
            let length = pass_on(piece).await?;
            self.at = begins + length;
            if length == 0 || self.at >= end {
                return Ok(());
            }
        }
    }
}

/// Prints an answer's body as it comes; its length.
async fn pass_on(mut piece: Response) -> Result<u64, Failure> {
    let mut out = std::io::stdout();
    let broken = |error: reqwest::Error| Failure::unavailable(format!("the output broke off: {error}"));
    let mut length = 0;
    while let Some(chunk) = piece.chunk().await.map_err(broken)? {
        out.write_all(&chunk)?;
        length += chunk.len() as u64;
    }
    out.flush()?;
    Ok(length)
}

fn number(piece: &Response, header: &str) -> Option<u64> {
    piece.headers().get(header)?.to_str().ok()?.parse().ok()
}
