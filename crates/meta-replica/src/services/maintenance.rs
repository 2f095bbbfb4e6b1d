//! The operator's calls, each answered by the replica it is sent to.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::alarm_request::AlarmAction;
use meta_api::pb::etcdserverpb::downgrade_request::DowngradeAction;
use meta_api::pb::etcdserverpb::maintenance_server::Maintenance;
use meta_api::status::refusal_to_status;
use meta_types::Refusal;
use tonic::{Request, Response, Status};

use crate::ETCD_VERSION;
use crate::context::Context;
use crate::metrics::Rpc;

/// The Maintenance service.
#[derive(Clone)]
pub(crate) struct MaintenanceService(pub(crate) Arc<Context>);

type Answered<T> = Result<Response<T>, Status>;

impl MaintenanceService {
    /// The alarms of this replica: they raise and lift themselves.
    fn alarms(&self) -> Vec<pb::AlarmMember> {
        let raised = self.0.quota.is_exceeded();
        let alarm =
            pb::AlarmMember { member_id: self.0.headers.member_id, alarm: pb::AlarmType::Nospace.into() };
        raised.then_some(alarm).into_iter().collect()
    }

    fn state_hash(&self) -> u32 {
        let hash = self.0.core.read().state_hash();
        (hash ^ (hash >> 32)) as u32
    }
}

#[tonic::async_trait]
impl Maintenance for MaintenanceService {
    type SnapshotStream = Pin<Box<dyn Stream<Item = Result<pb::SnapshotResponse, Status>> + Send>>;

    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Answered<pb::AlarmResponse> {
        let request = request.into_inner();
        match AlarmAction::try_from(request.action) {
            // What lifts itself needs no disarming: the answer is what would have been disarmed, nothing.
            Ok(AlarmAction::Get) => {}
            Ok(AlarmAction::Deactivate) if self.alarms().is_empty() => {}
            Ok(AlarmAction::Deactivate) => {
                return Err(Status::failed_precondition(
                    "metastore: the alarm lifts itself under nine tenths of the quota; delete keys",
                ));
            }
            Ok(AlarmAction::Activate) | Err(_) => {
                return Err(Status::unimplemented("metastore: alarms cannot be raised by hand"));
            }
        }
        let header = self.0.header(self.0.revision());
        Ok(Response::new(pb::AlarmResponse { header, alarms: self.alarms() }))
    }

    async fn status(&self, request: Request<pb::StatusRequest>) -> Answered<pb::StatusResponse> {
        let context = &self.0;
        let work = async {
            context.admit_local(&request)?;
            let (revision, live, history) = {
                let core = context.core.read();
                (core.revision(), core.live_bytes() as i64, core.history_bytes() as i64)
            };
            let status = context.status.borrow().clone();
            let alarm = |alarm: pb::AlarmMember| format!("memberID:{} alarm:NOSPACE ", alarm.member_id);
            Ok(Response::new(pb::StatusResponse {
                header: context.header(revision),
                version: ETCD_VERSION.to_owned(),
                db_size: live + history,
                leader: status.leader.unwrap_or(0),
                // The two figures are read one after the other.
                raft_index: status.committed.max(status.applied),
                raft_term: status.term,
                raft_applied_index: status.applied,
                errors: self.alarms().into_iter().map(alarm).chain(status.failed.clone()).collect(),
                db_size_in_use: live,
                is_learner: status.is_learner(),
                storage_version: ETCD_VERSION.to_owned(),
                db_size_quota: context.quota.limit() as i64,
                downgrade_info: Some(pb::DowngradeInfo::default()),
            }))
        };
        context.metrics.measure(&context.clock, Rpc::Status, work).await
    }

    /// Space comes back by itself, so this has nothing to do.
    async fn defragment(&self, _: Request<pb::DefragmentRequest>) -> Answered<pb::DefragmentResponse> {
        Ok(Response::new(pb::DefragmentResponse { header: self.0.header(self.0.revision()) }))
    }

    async fn hash(&self, _: Request<pb::HashRequest>) -> Answered<pb::HashResponse> {
        let header = self.0.header(self.0.revision());
        Ok(Response::new(pb::HashResponse { header, hash: self.state_hash() }))
    }

    async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Answered<pb::HashKvResponse> {
        let asked = request.into_inner().revision;
        let core = self.0.core.read();
        let (revision, compact_revision) = (core.revision(), core.compact_revision());
        if asked > revision {
            return Err(refusal_to_status(&Refusal::FutureRevision));
        }
        if asked > 0 && asked < compact_revision {
            return Err(refusal_to_status(&Refusal::Compacted { compact_revision }));
        }
        if asked > 0 && asked < revision {
            return Err(Status::unimplemented("metastore: only the newest revision can be hashed yet"));
        }
        let hash = core.state_hash();
        let header = self.0.header(revision);
        Ok(Response::new(pb::HashKvResponse {
            header,
            hash: (hash ^ (hash >> 32)) as u32,
            compact_revision,
            hash_revision: revision,
        }))
    }

    async fn snapshot(&self, _: Request<pb::SnapshotRequest>) -> Answered<Self::SnapshotStream> {
        Err(Status::unimplemented("metastore: snapshots cannot be streamed yet"))
    }

    async fn move_leader(&self, request: Request<pb::MoveLeaderRequest>) -> Answered<pb::MoveLeaderResponse> {
        let target = request.into_inner().target_id;
        let status = self.0.status.borrow().clone();
        if !status.is_leader() {
            return Err(Status::failed_precondition("etcdserver: not leader"));
        }
        if !status.members.iter().any(|member| member.id == target && member.voter) {
            return Err(Status::failed_precondition("etcdserver: bad leader transferee"));
        }
        if target != status.member_id {
            return Err(Status::unimplemented("metastore: leadership cannot be moved by hand yet"));
        }
        Ok(Response::new(pb::MoveLeaderResponse { header: self.0.header(self.0.revision()) }))
    }

    async fn downgrade(&self, request: Request<pb::DowngradeRequest>) -> Answered<pb::DowngradeResponse> {
        let pb::DowngradeRequest { action, version } = request.into_inner();
        if action == i32::from(DowngradeAction::Cancel) {
            let header = self.0.header(self.0.revision());
            return Ok(Response::new(pb::DowngradeResponse { header, version: "3.7".to_owned() }));
        }
        let numbers = version.split('.').map(str::parse::<u16>);
        let text = match numbers.collect::<Result<Vec<_>, _>>() {
            Ok(numbers) if (2..=3).contains(&numbers.len()) => "etcdserver: invalid downgrade target version",
            Ok(_) | Err(_) => "etcdserver: wrong downgrade target version format",
        };
        Err(Status::invalid_argument(text))
    }
}
