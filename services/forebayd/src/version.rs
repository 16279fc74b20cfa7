//! `forebayd version`: lists, activates, rolls back and drops the versions of a store, at a running
//! node or at `forebay-snapshot`.

use forebay_core::Result;
use forebay_wire::v1;
use forebay_wire::v1::pushes_client::PushesClient;
use tonic::transport::Channel;

use crate::node_args::{StoreArgs, channel, print};
use crate::push::map_status;

/// Subcommands of `version`.
#[derive(clap::Subcommand)]
pub(crate) enum VersionCommand {
    /// List the versions of a store.
    #[command(after_help = "Example:\n  forebayd version list --store users")]
    List(StoreArgs),
    /// Activate a version, so that reads answer from it.
    #[command(after_help = "Example:\n  forebayd version activate --store users 2")]
    Activate(VersionSettings),
    /// Activate the version that was live before the live one, whatever its number. A second
    /// rollback returns to the version that the first one left.
    #[command(after_help = "Example:\n  forebayd version rollback --store users")]
    Rollback(StoreArgs),
    /// Drop a version that is not live.
    #[command(after_help = "Example:\n  forebayd version drop --store users 1")]
    Drop(VersionSettings),
}

/// A version of a store.
#[derive(clap::Args)]
pub(crate) struct VersionSettings {
    #[command(flatten)]
    at: StoreArgs,
    /// Number of the version, as `version list` prints it.
    number: u32,
}

/// Lists or alters the versions of a store, and prints the resulting versions.
///
/// # Errors
/// As the node's answer.
pub(crate) fn run(command: VersionCommand) -> Result<()> {
    forebay_runtime::run(async {
        let versions = match command {
            VersionCommand::List(at) => list(&at).await?,
            VersionCommand::Activate(settings) => activate(&settings.at, settings.number).await?,
            VersionCommand::Rollback(at) => roll_back(&at).await?,
            VersionCommand::Drop(settings) => drop_version(&settings.at, settings.number).await?,
        };
        for version in versions.versions {
            let is_live = if version.number == versions.live { "  live" } else { "" };
            print(format!("{}{is_live}", version.number));
        }
        Ok(())
    })
}

fn client(at: &StoreArgs) -> Result<PushesClient<Channel>> {
    Ok(PushesClient::new(channel(&at.node.address)?))
}

async fn list(at: &StoreArgs) -> Result<v1::StoreVersions> {
    let request = v1::ListVersionsRequest { store: at.store.clone() };
    let answer = client(at)?.list_versions(request).await.map_err(map_status)?.into_inner();
    Ok(answer.versions.unwrap_or_default())
}

async fn activate(at: &StoreArgs, version: u32) -> Result<v1::StoreVersions> {
    let request = v1::ActivateVersionRequest { store: at.store.clone(), version };
    let answer = client(at)?.activate_version(request).await.map_err(map_status)?.into_inner();
    Ok(answer.versions.unwrap_or_default())
}

async fn drop_version(at: &StoreArgs, version: u32) -> Result<v1::StoreVersions> {
    let request = v1::DropVersionRequest { store: at.store.clone(), version };
    let answer = client(at)?.drop_version(request).await.map_err(map_status)?.into_inner();
    Ok(answer.versions.unwrap_or_default())
}

async fn roll_back(at: &StoreArgs) -> Result<v1::StoreVersions> {
    let request = v1::RollbackVersionRequest { store: at.store.clone() };
    let answer = client(at)?.rollback_version(request).await.map_err(map_status)?.into_inner();
    Ok(answer.versions.unwrap_or_default())
}
