//! `forebayd view`: applies declarations of feature views and describes, lists, verifies and drops
//! views, at a running node or at `forebay-writer`.

mod text;

use std::io::Read;

use forebay_core::limits::VIEW_FILE_BYTES_MAX;
use forebay_core::schema::Definition;
use forebay_core::{Error, Result};
use forebay_wire::v1;
use forebay_wire::v1::apply_view_response::Result as Applied;
use forebay_wire::v1::training_client::TrainingClient;
use forebay_wire::v1::writer_client::WriterClient;
use forebay_writer_service::read_view_documents;
use tonic::transport::Channel;

use crate::node_args::{self, NodeArgs, channel, print};

/// Subcommands of `view`.
#[derive(clap::Subcommand)]
pub(crate) enum ViewCommand {
    /// Create the views that a file declares, or alter them to match the file. The documents of the
    /// file are applied in order; an invalid document prevents all of them.
    #[command(after_help = "Example:\n  forebayd view apply --dry-run -f spending.yaml")]
    Apply(ApplySettings),
    /// Describe a view and the values that it answers.
    #[command(after_help = "Example:\n  forebayd view describe spending")]
    Describe(NamedSettings),
    /// List all views.
    #[command(after_help = "Example:\n  forebayd view list --node 127.0.0.1:7070")]
    List(NodeArgs),
    /// Replay the logs of some groups and compare the results bit by bit with the stored values;
    /// fails if they differ.
    #[command(after_help = "Example:\n  forebayd view verify spending --groups 100")]
    Verify(VerifyViewSettings),
    /// Drop a view, its events and all data derived from them.
    #[command(after_help = "Example:\n  forebayd view drop spending")]
    Drop(NamedSettings),
}

/// Arguments of `view apply`.
#[derive(clap::Args)]
pub(crate) struct ApplySettings {
    #[command(flatten)]
    node: NodeArgs,
    /// Only print the effect on each view, as if the other documents were not applied.
    #[arg(long)]
    dry_run: bool,
    /// File with declarations in YAML, separated by lines `---`; `-` reads stdin.
    #[arg(short, long)]
    file: String,
}

/// A feature view.
#[derive(clap::Args)]
pub(crate) struct NamedSettings {
    #[command(flatten)]
    node: NodeArgs,
    /// Name of the view.
    name: String,
}

/// Arguments of `view verify`.
#[derive(clap::Args)]
pub(crate) struct VerifyViewSettings {
    #[command(flatten)]
    view: NamedSettings,
    /// Number of groups to verify per partition, starting at a random group.
    #[arg(long, default_value_t = 1_000)]
    groups: u32,
}

/// Applies, describes, lists, verifies or drops views.
///
/// # Errors
/// `NotFound` for a file or a view that does not exist; else as the node's answer, with document,
/// line and column of an invalid declaration.
pub(crate) fn run(command: ViewCommand) -> Result<()> {
    forebay_runtime::run(async {
        match command {
            ViewCommand::Apply(settings) => apply(settings).await,
            ViewCommand::Describe(settings) => describe(settings).await,
            ViewCommand::List(node) => list(&node).await,
            ViewCommand::Verify(settings) => verify(settings).await,
            ViewCommand::Drop(settings) => drop_view(settings).await,
        }
    })
}

fn client(node: &NodeArgs) -> Result<WriterClient<Channel>> {
    Ok(WriterClient::new(channel(&node.address)?))
}

fn map_status(status: tonic::Status) -> Error {
    node_args::map_status(
        status,
        "the node does not offer feature views; upgrade the node, or name another one with --node",
    )
}

async fn apply(settings: ApplySettings) -> Result<()> {
    let ApplySettings { node, dry_run, file } = settings;
    let documents = read_view_documents(&read(&file)?)?;
    let mut client = client(&node)?;
    for document in documents {
        let (declaration, first_line) = (document.text.clone(), document.first_line);
        let request = v1::ApplyViewRequest { declaration, dry_run, first_line };
        let answer = client.apply_view(request).await;
        let answer = answer.map_err(|status| document.locate(map_status(status)))?;
        print_applied(answer.into_inner(), dry_run)?;
    }
    Ok(())
}

fn print_applied(answer: v1::ApplyViewResponse, is_dry_run: bool) -> Result<()> {
    let (done, would) = match answer.result() {
        Applied::Created => ("created", "would create"),
        Applied::Altered => ("altered", "would alter"),
        Applied::Unchanged => ("left as it was:", "would leave as it is:"),
        Applied::Unspecified => {
            let message = "the node reported a result that this build does not know; upgrade this \
                build and describe the view";
            return Err(Error::upgrade_needed(message));
        }
    };
    let definition = answer.definition.unwrap_or_default();
    let done = if is_dry_run { would } else { done };
    print(format!("{done} {}, version {}", definition.name, definition.version));
    Ok(())
}

async fn describe(NamedSettings { node, name }: NamedSettings) -> Result<()> {
    let all = definitions(&mut client(&node)?).await?;
    let definition = find(&all, &name)?;
    text::lines(definition, &all).into_iter().for_each(print);
    Ok(())
}

async fn verify(VerifyViewSettings { view, groups }: VerifyViewSettings) -> Result<()> {
    let mut training = TrainingClient::new(channel(&view.node.address)?);
    let request = v1::VerifyViewRequest { view: view.name.clone(), groups };
    let compared = training.verify_view(request).await.map_err(map_status)?.into_inner();
    let v1::VerifyViewResponse { groups, values, differing } = compared;
    print(format!("{groups} groups, {values} values: {} differ", differing.len()));
    if differing.is_empty() {
        return Ok(());
    }
    differing.into_iter().for_each(print);
    let message =
        "the view differs from a replay of its log; keep the data directory and report a bug";
    Err(Error::corrupt(message).with_store(view.name))
}

async fn list(node: &NodeArgs) -> Result<()> {
    let all = definitions(&mut client(node)?).await?;
    let views = all.iter().filter_map(|definition| Some((definition, definition.view()?)));
    for (definition, view) in views {
        let (name, version) = (&definition.name, definition.version);
        let (stream, features) = (text::name_of(&all, view.source), view.features.len());
        print(format!("{name}  version {version}  of {stream}  {features} features"));
    }
    Ok(())
}

async fn drop_view(NamedSettings { node, name }: NamedSettings) -> Result<()> {
    let mut client = client(&node)?;
    find(&definitions(&mut client).await?, &name)?;
    let request = v1::DeleteStoreRequest { name: name.clone() };
    client.delete_store(request).await.map_err(map_status)?;
    print(format!("dropped {name}"));
    Ok(())
}

/// Returns all streams and stores, because a view names others by their ids.
async fn definitions(client: &mut WriterClient<Channel>) -> Result<Vec<Definition>> {
    let answer =
        client.list_stores(v1::ListStoresRequest {}).await.map_err(map_status)?.into_inner();
    answer.definitions.into_iter().map(Definition::try_from).collect()
}

fn find<'d>(all: &'d [Definition], name: &str) -> Result<&'d Definition> {
    let found = all.iter().find(|definition| definition.name == name);
    let found =
        found.ok_or_else(|| Error::not_found("no such view; list the views with `view list`"));
    let found = found.map_err(|error| error.with_store(name))?;
    if found.view().is_none() {
        let message = "the store is not a feature view; list the views with `view list`";
        return Err(Error::invalid_argument(message).with_store(name));
    }
    Ok(found)
}

/// Reads a file or stdin; stops one byte after the maximum length, which is then refused.
fn read(file: &str) -> Result<Vec<u8>> {
    let missing = |error| Error::not_found(format!("`{file}`: {error}; name a file, or -"));
    let from: Box<dyn Read> = match file {
        "-" => Box::new(std::io::stdin()),
        path => Box::new(std::fs::File::open(path).map_err(missing)?),
    };
    let mut bytes = Vec::new();
    let some = from.take(VIEW_FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    some.map_err(missing)?;
    Ok(bytes)
}
