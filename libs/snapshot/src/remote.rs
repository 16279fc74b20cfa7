//! Object stores over a network: their settings, from a caller or the environment, and their
//! timeouts.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::limits::{
    SNAPSHOT_BACKOFF_MS_MAX, SNAPSHOT_BACKOFF_MS_MIN, SNAPSHOT_CONNECT_MS, SNAPSHOT_REQUEST_MS,
    SNAPSHOT_RETRY_MS,
};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, ObjectStoreScheme, RetryConfig};
use url::Url;

/// Settings of an object store.
pub(crate) enum Settings {
    /// Settings of a caller, for whom an unknown name is an error.
    Given(Vec<(String, String)>),
    /// Settings from environment variables, some of which belong to other programs.
    Found(Vec<(String, String)>),
}

impl Settings {
    /// Selects the environment variables for this kind of store by name. An object store accepts
    /// most options by short names, too, but a variable such as `TOKEN` or `REGION` may belong to
    /// any program.
    pub(crate) fn find(
        scheme: &ObjectStoreScheme,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Self {
        let (prefix, exact_name) = match scheme {
            ObjectStoreScheme::AmazonS3 => ("AWS_", ""),
            // Azure sets the second name in its own services.
            ObjectStoreScheme::MicrosoftAzure => ("AZURE_", "IDENTITY_ENDPOINT"),
            _ => ("GOOGLE_", ""),
        };
        let is_of_it = |name: &str| name.starts_with(prefix) || name == exact_name;
        let texts = variables.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self::Found(texts.filter(|(name, _)| is_of_it(name)).collect())
    }
}

/// Configures a builder. The three builders have the same methods, but no common trait.
macro_rules! build {
    ($builder:ident, $key:ident, $endpoints:expr, $url:expr, $settings:expr) => {{
        let mut builder = $builder::new().with_url($url.as_str()).with_retry(retries());
        for (key, time_ms) in times() {
            builder = builder.with_config($key::Client(key), format!("{time_ms} ms"));
        }
        let (settings, is_given) = match $settings {
            Settings::Given(settings) => (settings, true),
            Settings::Found(settings) => (settings, false),
        };
        for (name, value) in settings {
            match name.to_ascii_lowercase().parse::<$key>() {
                Ok(key) => builder = builder.with_config(key, value),
                Err(_) if is_given => return Err(format!("the object store has no option {name}")),
                Err(_) => {}
            }
        }
        let endpoints = $endpoints.iter().filter_map(|key| builder.get_config_value(key));
        check_tls(endpoints, builder.get_config_value(&$key::Client(ClientConfigKey::AllowHttp)))?;
        builder.build().map(|objects| Arc::new(objects) as Arc<dyn ObjectStore>)
    }};
}

/// Connects to the store of a URL; `Err` describes invalid settings.
pub(crate) fn connect(
    url: &Url,
    scheme: &ObjectStoreScheme,
    settings: Settings,
) -> Result<Arc<dyn ObjectStore>, String> {
    let built = match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let endpoints = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint];
            build!(AmazonS3Builder, AmazonS3ConfigKey, endpoints, url, settings)
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let endpoints = [AzureConfigKey::Endpoint];
            build!(MicrosoftAzureBuilder, AzureConfigKey, endpoints, url, settings)
        }
        _ => {
            let endpoints = [GoogleConfigKey::BaseUrl];
            build!(GoogleCloudStorageBuilder, GoogleConfigKey, endpoints, url, settings)
        }
    };
    built.map_err(|error| error.to_string())
}

/// Reports an endpoint without TLS that is not allowed: the client itself would fail at each
/// request without a reason.
fn check_tls(
    mut endpoints: impl Iterator<Item = String>,
    allowed: Option<String>,
) -> Result<(), String> {
    let is_allowed = allowed.is_none_or(|value| {
        !["0", "false", "off", "no", "n"].contains(&value.to_ascii_lowercase().as_str())
    });
    match endpoints.find(|endpoint| endpoint.starts_with("http://")) {
        Some(endpoint) if !is_allowed => Err(format!(
            "{endpoint} has no TLS, which AWS_ALLOW_HTTP=true or AZURE_ALLOW_HTTP=true allows"
        )),
        _ => Ok(()),
    }
}

/// Returns the retry settings. The client reports a refused connection within some seconds, and a
/// server that hangs when the first request has timed out. The users of snapshots retry by
/// themselves, and log the failures.
fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(SNAPSHOT_BACKOFF_MS_MIN),
            max_backoff: Duration::from_millis(SNAPSHOT_BACKOFF_MS_MAX),
            ..BackoffConfig::default()
        },
        // The retry time bounds the retries: no more than this number fit into it.
        max_retries: (SNAPSHOT_RETRY_MS / SNAPSHOT_BACKOFF_MS_MIN) as usize,
        retry_timeout: Duration::from_millis(SNAPSHOT_RETRY_MS),
    }
}

fn times() -> [(ClientConfigKey, u64); 2] {
    [
        (ClientConfigKey::ConnectTimeout, SNAPSHOT_CONNECT_MS),
        (ClientConfigKey::Timeout, SNAPSHOT_REQUEST_MS),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scheme: &ObjectStoreScheme) -> Vec<String> {
        let variables = [
            "AWS_REGION",
            "AWS_PROFILE",
            "AZURE_STORAGE_TOKEN",
            "GOOGLE_BUCKET",
            "IDENTITY_ENDPOINT",
            "TOKEN",
            "REGION",
            "ENDPOINT",
            "PATH",
            "xAWS_REGION",
        ];
        let variables = variables.map(|name| (OsString::from(name), OsString::from("x")));
        match Settings::find(scheme, variables.into_iter()) {
            Settings::Found(settings) => settings.into_iter().map(|(name, _)| name).collect(),
            Settings::Given(_) => panic!("found, not given"),
        }
    }

    #[test]
    fn only_the_stores_own_environment_variables_are_used() {
        assert_eq!(names(&ObjectStoreScheme::AmazonS3), ["AWS_REGION", "AWS_PROFILE"]);
        let azure = ["AZURE_STORAGE_TOKEN", "IDENTITY_ENDPOINT"];
        assert_eq!(names(&ObjectStoreScheme::MicrosoftAzure), azure);
        assert_eq!(names(&ObjectStoreScheme::GoogleCloudStorage), ["GOOGLE_BUCKET"]);
    }

    #[test]
    fn unknown_option_is_refused_from_a_caller_and_ignored_in_the_environment() {
        let scheme = ObjectStoreScheme::AmazonS3;
        let url = Url::parse("s3://bucket/folder").unwrap();
        let settings = || vec![("AWS_PROFILE".to_owned(), "mine".to_owned())];
        let problem = connect(&url, &scheme, Settings::Given(settings())).unwrap_err();
        assert!(problem.contains("AWS_PROFILE"), "{problem}");
        connect(&url, &scheme, Settings::Found(settings())).unwrap();
    }
}
