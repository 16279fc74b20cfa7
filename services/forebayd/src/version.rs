//! `forebayd version`: lists, activates, rolls back and drops the versions of a store, at a running
//! node or at `forebay-snapshot`.

use forebay_core::{Error, Result};
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
    /// Activate the version before the live one.
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
/// `NotFound` for a rollback without a previous version; else as the node's answer.
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
    let missing = || {
        let message = "the store has no version before the live one; `version list` names its \
            versions, `version activate` activates another one";
        Error::not_found(message).with_store(&at.store)
    };
    let number = previous(&list(at).await?).ok_or_else(missing)?;
    activate(at, number).await
}

/// Returns the number of the version before the live one.
fn previous(versions: &v1::StoreVersions) -> Option<u32> {
    let numbers = versions.versions.iter().map(|version| version.number);
    numbers.filter(|number| *number < versions.live).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollback_activates_the_newest_version_before_the_live_version() {
        let version = |number| v1::StoreVersion { number, ..v1::StoreVersion::default() };
        let kept: Vec<_> = [2, 5, 6].into_iter().map(version).collect();
        for (live, expected) in [(6, Some(5)), (5, Some(2)), (2, None)] {
            let versions =
                v1::StoreVersions { versions: kept.clone(), live, ..v1::StoreVersions::default() };
            assert_eq!(previous(&versions), expected);
        }
    }
}
