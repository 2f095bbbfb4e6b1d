//! Who the replicas are. Membership does not change yet; what is wrong with a request is said all the same.

use std::sync::Arc;

use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::cluster_server::Cluster;
use tonic::{Request, Response, Status};

use crate::context::Context;
use crate::metrics::Rpc;

const BAD_URLS: &str = "etcdserver: given member URLs are invalid";
const NOT_FOUND: &str = "etcdserver: member not found";
const LATER: &str = "metastore: membership cannot be changed yet";

/// The Cluster service.
#[derive(Clone)]
pub(crate) struct ClusterService(pub(crate) Arc<Context>);

type Answered<T> = Result<Response<T>, Status>;

impl ClusterService {
    fn members(&self) -> Vec<pb::Member> {
        let members = self.0.status.borrow().members.clone();
        let mut members: Vec<_> = members
            .into_iter()
            .map(|member| pb::Member {
                id: member.id,
                name: member.member.name,
                peer_ur_ls: urls(&member.member.peer_addr),
                client_ur_ls: urls(&member.member.client_addr),
                is_learner: !member.voter,
            })
            .collect();
        members.sort_unstable_by_key(|member| member.id);
        members
    }

    fn known(&self, id: u64) -> Result<pb::Member, Status> {
        let found = self.members().into_iter().find(|member| member.id == id);
        found.ok_or_else(|| Status::not_found(NOT_FOUND))
    }
}

fn urls(addr: &str) -> Vec<String> {
    if addr.is_empty() { Vec::new() } else { vec![format!("http://{addr}")] }
}

fn check_urls(urls: &[String]) -> Result<(), Status> {
    let good = |url: &String| {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let port = rest.and_then(|rest| rest.rsplit_once(':')).and_then(|(_, port)| port.parse::<u16>().ok());
        port.is_some()
    };
    if urls.is_empty() || !urls.iter().all(good) {
        return Err(Status::invalid_argument(BAD_URLS));
    }
    Ok(())
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn member_list(&self, request: Request<pb::MemberListRequest>) -> Answered<pb::MemberListResponse> {
        let context = &self.0;
        let work = async {
            let deadline = context.admit_local(&request)?;
            if request.get_ref().linearizable {
                context.read_index(&deadline).await?;
            }
            // Header revision 0, as etcd: members are not keys.
            Ok(Response::new(pb::MemberListResponse { header: context.header(0), members: self.members() }))
        };
        context.metrics.measure(&context.clock, Rpc::MemberList, work).await
    }

    async fn member_add(&self, request: Request<pb::MemberAddRequest>) -> Answered<pb::MemberAddResponse> {
        let asked = request.into_inner().peer_ur_ls;
        check_urls(&asked)?;
        if self.members().iter().any(|member| member.peer_ur_ls.iter().any(|url| asked.contains(url))) {
            return Err(Status::failed_precondition("etcdserver: Peer URLs already exists"));
        }
        Err(Status::unimplemented(LATER))
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Answered<pb::MemberRemoveResponse> {
        self.known(request.into_inner().id)?;
        Err(Status::unimplemented(LATER))
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Answered<pb::MemberUpdateResponse> {
        let request = request.into_inner();
        check_urls(&request.peer_ur_ls)?;
        self.known(request.id)?;
        Err(Status::unimplemented(LATER))
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Answered<pb::MemberPromoteResponse> {
        if !self.known(request.into_inner().id)?.is_learner {
            return Err(Status::failed_precondition("etcdserver: can only promote a learner member"));
        }
        Err(Status::unimplemented(LATER))
    }
}
