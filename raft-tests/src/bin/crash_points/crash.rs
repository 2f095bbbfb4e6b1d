//! One point: the scene is laid, somebody dies at the step, and it is judged what became of it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use records::keys::UnitKey;
use records::record::PackageRef;
use records::{Failure, JobId, UnitId};
use tokio::time::{sleep, timeout};

use crate::judge::{self, BOUND, FILES};
use crate::points::Operation::{
    self, Create, CreateListed, OnDemand, Register, RegisterUnequal, Remove, RemoveByForce, RemovePinned,
};
use crate::points::Outcome::{Either, Everywhere, Undone};
use crate::points::Who::{First, Leader, Second};
use crate::points::{Outcome, Point, points};
use crate::summary::Ended;
use crate::trap::When::After;
use crate::world::World;
use crate::{client, wishes};

/// Pause before a write that the store did not take is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// Runs the point over `world`, which is started if there is none.
pub async fn crash(world: &mut Option<World>, point: Point) -> Ended {
    let began = Instant::now();
    let outcome = match in_world(world, point).await {
        Ok(became) => Ok(became),
        Err(why) => Err(format!("{why:#}{}", keep_logs(world.as_ref(), point))),
    };
    Ended { point: Some(point), outcome, took: began.elapsed() }
}

async fn in_world(world: &mut Option<World>, point: Point) -> Result<Outcome> {
    if world.is_none() {
        *world = Some(World::start().await?);
    }
    let world = world.as_mut().context("a world was started")?;
    let place = points().iter().position(|other| *other == point).context("a point of the table")?;
    let app = UnitId::new(&format!("app-{place}"), "1.0.0").map_err(|refusal| anyhow!("{refusal}"))?;
    Crash { world, app, place, point }.run().await
}

/// The logs of a world that is given up stay below the programs' directory; where.
fn keep_logs(world: Option<&World>, point: Point) -> String {
    let Some(world) = world else { return String::new() };
    let name = format!("{point:?}").replace(|c: char| !c.is_alphanumeric(), "");
    let kept = testkit::binaries::directory().join("crash-points-logs").join(name);
    let copied = std::fs::create_dir_all(&kept).and_then(|()| {
        for entry in std::fs::read_dir(world.cluster.path())?.flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                std::fs::copy(entry.path(), kept.join(entry.file_name()))?;
            }
        }
        Ok(())
    });
    match copied {
        Ok(()) => format!("\nlogs: {}", kept.display()),
        Err(error) => format!("\nthe logs could not be kept: {error}"),
    }
}

struct Crash<'a> {
    world: &'a mut World,
    app: UnitId,
    place: usize,
    point: Point,
}

impl Crash<'_> {
    async fn run(mut self) -> Result<Outcome> {
        let (operation, _, _, _, dies, _) = self.point;
        self.lay(operation).await?;
        let killed = self.stop_at().await?;
        // The survivors come to an end of it first, or the dead one comes back at once: each half of the points.
        if self.point.3 == After && operation != OnDemand {
            self.world.until("over", |view| judge::is_settled(view, &self.app)).await?;
        }
        match dies {
            First => self.world.first = self.world.restarted("a").await?,
            Second => self.world.second = self.world.restarted("b").await?,
            Leader => self.world.cluster.restart(&killed),
        }
        if operation == OnDemand && dies != Leader {
            self.pull();
        }
        let became = self.judge().await?;
        if became == Undone && operation != RegisterUnequal && operation != Register {
            let next = client::create_again(&self.app, &self.world.first.address()).await;
            next.map_err(|why| anyhow!(why))?;
            let (app, disks) = (&self.app, self.world.disks());
            let is = |view: &_| judge::is_everywhere(view, app, &disks);
            self.world.until("READY by the next try", is).await?;
        }
        self.world.doctor()?;
        self.clean().await.context("removed after the point")?;
        Ok(became)
    }

    /// What must be there before the operation.
    async fn lay(&self, operation: Operation) -> Result<()> {
        let (app, world) = (&self.app, &self.world);
        let created = match operation {
            Create | CreateListed => return Ok(()),
            Register => {
                world.disks().iter().for_each(|disk| disk.lay(app, &FILES));
                return Ok(());
            }
            RegisterUnequal => {
                world.first.disk().lay(app, &FILES);
                world.second.disk().lay(app, &FILES[..1]);
                return Ok(());
            }
            Remove | RemovePinned | RemoveByForce => client::create(app.clone(), world.first.address()).await,
            OnDemand => client::create_on(app.clone(), world.first.address(), "a").await,
        };
        ensure!(created == Some(200), "the create before it is answered {created:?}");
        Ok(())
    }

    /// Whoever comes to the step is stopped there, and somebody is killed; a replica's name if it was one.
    async fn stop_at(&mut self) -> Result<String> {
        let (operation, at, _, _, dies, _) = self.point;
        let trapped = if at == First { &mut self.world.first } else { &mut self.world.second };
        trapped.set_trap(self.place).await?;
        let pinned = self.ask(operation).await?;
        let trapped = if at == First { &mut self.world.first } else { &mut self.world.second };
        trapped.sprung().await?;
        let mut killed = String::new();
        match dies {
            First => self.world.first.kill().await?,
            Second => self.world.second.kill().await?,
            Leader => killed = self.world.kill_leader()?,
        }
        if at != dies {
            let trapped = if at == First { &mut self.world.first } else { &mut self.world.second };
            trapped.go_on().await?;
        }
        if let Some(job) = pinned {
            self.insist(async || wishes::cancel(&*self.world.kv, &job).await).await?;
        }
        Ok(killed)
    }

    /// Asks for the operation; whoever answers, or not. A job that pins the package and waits, if it takes one.
    async fn ask(&self, operation: Operation) -> Result<Option<JobId>> {
        let (app, kv, address) = (self.app.clone(), &*self.world.kv, self.world.first.address());
        match operation {
            Create => drop(tokio::spawn(client::create(app, address))),
            CreateListed => drop(tokio::spawn(client::create_listed(app, address))),
            Register | RegisterUnequal => {
                drop(tokio::spawn(client::post(client::of(&app, &address, "/register"))));
            }
            OnDemand => self.pull(),
            Remove => wishes::remove(kv, &app, false).await?,
            RemoveByForce => wishes::remove(kv, &app, true).await?,
            RemovePinned => {
                let op = self.unit_op().await?.context("it is there")?;
                // No node has so many slots: the job waits, and may start here as long as it waits.
                let mut spec = wishes::spec(&PackageRef { unit: app.clone(), op }, "finish", &[]);
                spec.parallelism = 1000;
                let job = wishes::admit(kv, &self.world.dispatcher, self.world.lease, &spec).await?;
                wishes::remove(kv, &app, false).await?;
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    async fn unit_op(&self) -> Result<Option<String>> {
        let view = self.world.view().await?;
        let found = view.get(&UnitKey::new(&self.app)).map_err(|refusal| anyhow!("{refusal}"))?;
        Ok(found.map(|found| found.op.clone()))
    }

    /// The second node is asked to have it.
    fn pull(&self) {
        let url = client::of(&self.app, &self.world.second.address(), "/pull");
        drop(tokio::spawn(client::post(url)));
    }

    /// What became of it, as the table says.
    async fn judge(&self) -> Result<Outcome> {
        let (operation, .., wanted) = self.point;
        let (app, disks) = (&self.app, self.world.disks());
        let is_everywhere = |view: &_| judge::is_everywhere(view, app, &disks);
        let is_nowhere = |view: &_| judge::is_nowhere(view, operation, &disks);
        self.world
            .until(&format!("{wanted:?}"), |view| match wanted {
                Everywhere => is_everywhere(view),
                Undone => is_nowhere(view),
                Either => is_everywhere(view) || is_nowhere(view),
            })
            .await?;
        if wanted != Either {
            return Ok(wanted);
        }
        Ok(if is_everywhere(&self.world.view().await?) { Everywhere } else { Undone })
    }

    /// The package is removed, and nothing of it may be left for the next point.
    async fn clean(&self) -> Result<()> {
        if self.unit_op().await?.is_some() {
            self.insist(async || wishes::remove(&*self.world.kv, &self.app, true).await).await?;
        }
        let disks = self.world.disks();
        let is_clean = |view: &_| {
            judge::records_left(view) == 0 && disks.iter().all(|disk| disk.left_over(0).is_empty())
        };
        self.world.until("gone", is_clean).await?;
        for disk in disks {
            // What the scene laid there, and what nodes make to look at it.
            match std::fs::remove_dir_all(disk.work_dir.join("icp").join(&self.app.name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                Err(_) | Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Writes until the store has a leader that takes it.
    async fn insist(&self, write: impl AsyncFn() -> Result<(), Failure>) -> Result<()> {
        let trying = async {
            loop {
                match write().await {
                    Ok(()) => return Ok(()),
                    Err(Failure::Refused(refusal)) => return Err(anyhow!("{refusal}")),
                    Err(Failure::Store(_) | Failure::Contended) => sleep(AGAIN).await,
                }
            }
        };
        timeout(BOUND, trying).await.context("the store does not take a write")?
    }
}
