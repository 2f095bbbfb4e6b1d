//! What is left of a run when its details are gone: its token still answers, and says what it was.

use records::jobs::{self, Ending};
use records::record::{Exit, JobState, Phase, Run, RunToken, StatedRequest, TokenEnd};
use records::runs::{self, Admit, Advance, Delete};
use records::{Class, packages};

use crate::world::{Proc, World, admit_wish, drive_wish, job, report, trigger};

struct Setup {
    world: World,
    node: Proc,
    wish: Admit,
}

/// A run, taken by dispatcher d one second after midnight.
fn setup() -> Setup {
    let world = World::default();
    let (node, d) = (world.server("a"), world.dispatcher("d"));
    let package = world.package("p:1", &node, "x");
    world.must(|view| packages::present(view, &report(&package.unit, &package.op, &node), 3));
    let wish = Admit { now_ms: 1_000, ..admit_wish("t", 1, &package, &d) };
    world.admit(&wish);
    Setup { world, node, wish }
}

impl Setup {
    fn run(&self) -> Run {
        runs::run(&self.world.view(), &trigger("t")).unwrap().unwrap().run.value
    }

    /// Runs the job, completes the run one minute after midnight, and lets its record run out.
    fn complete_and_forget(&self) {
        self.world.must(|view| jobs::drive(view, &drive_wish(&job(1))));
        let epoch = self.world.launch(&job(1), &self.node);
        self.world.must(|view| jobs::created(view, &job(1), epoch, 1));
        let seen = jobs::job(&self.world.view(), &job(1)).unwrap().unwrap().job;
        assert_eq!(
            runs::shown_phase(&self.run(), Some(&seen)),
            Phase::Submitted,
            "created, not yet completed"
        );
        let ending = Ending {
            state: JobState::Finished,
            exit: Exit::default(),
            created: true,
            retention: 0,
            now_ms: 2,
        };
        self.world.must(|view| jobs::ended(view, &job(1), epoch, &ending));
        let details = self.world.kv.grant(std::time::Duration::from_secs(60)).id;
        let run_epoch = runs::run(&self.world.view(), &trigger("t")).unwrap().unwrap().epoch.unwrap();
        let wish = Advance {
            trigger: trigger("t"),
            epoch: run_epoch,
            run_retention: details,
            token_retention: 0,
            now_ms: 60_000,
        };
        self.world.must(|view| runs::advance(view, &wish));
        assert_eq!(runs::shown_phase(&self.run(), Some(&seen)), Phase::Completed);
        assert!(self.world.kv.revoke(details));
    }

    fn lookup(&self, stated: &StatedRequest) -> Result<Option<runs::Earlier>, records::Refusal> {
        runs::lookup(&self.world.view(), &trigger("t"), stated)
    }
}

fn other(stated: &StatedRequest) -> StatedRequest {
    StatedRequest { parallelism: Some(7), ..stated.clone() }
}

#[test]
fn a_different_request_is_told_what_differs_and_who_took_the_first_and_when() {
    let s = setup();
    let says = "triggerId t was used for a different request that d took at 1970-01-01T00:00:01Z; these fields \
                differ: parallelism";
    let refusal = s.lookup(&other(&s.wish.stated)).unwrap_err();
    assert_eq!((refusal.class, refusal.text.as_str()), (Class::Different, says));
    // The same, once only the token knows.
    s.complete_and_forget();
    assert_eq!(runs::run(&s.world.view(), &trigger("t")).unwrap(), None);
    assert_eq!(s.lookup(&other(&s.wish.stated)).unwrap_err().text, says);
    let earlier = s.lookup(&s.wish.stated).unwrap().unwrap();
    assert_eq!((earlier.job, earlier.new), (job(1), false));
}

#[test]
fn a_deleted_one_says_since_when() {
    let s = setup();
    s.complete_and_forget();
    let wish = Delete { trigger: trigger("t"), token_retention: 0, job_retention: 0, now_ms: 120_000 };
    s.world.must(|view| runs::delete(view, &wish));
    for stated in [s.wish.stated.clone(), other(&s.wish.stated)] {
        let refusal = s.lookup(&stated).unwrap_err();
        assert_eq!(refusal.class, Class::Deleted);
        assert!(refusal.text.contains("was deleted at 1970-01-01T00:02:00Z"), "{refusal}");
    }
}

/// Records of a writer that did not note who took the run are read and judged as before.
#[test]
fn older_records_are_read() {
    let token =
        r#"{"v":1,"stated":{},"job":"00000000000000000000000000000001","end":"deleted","ended_at_ms":5}"#;
    let token: RunToken = serde_json::from_str(token).unwrap();
    assert_eq!((token.end, token.accepted_at_ms, token.accepted_by.as_str()), (TokenEnd::Deleted, 0, ""));
    let s = setup();
    let mut run = serde_json::to_value(s.run()).unwrap();
    assert!(run.as_object_mut().unwrap().remove("accepted_by").is_some());
    let run: Run = serde_json::from_value(run).unwrap();
    assert_eq!(run.accepted_by, "");
}
