//! The TOML file of `forebayd dev`. A key has the name and the syntax of a flag, so the parsers of
//! the flags read the file, too. Unknown keys and wrong values are errors with their line.

use std::ffi::OsString;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{Arg, Command, CommandFactory, Parser};
use forebay_core::{Error, Result};
use toml::de::{DeTable, DeValue};

use crate::config::DevSettings;

/// The flags of `dev`, without the name of a program before them.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Flags {
    #[command(flatten)]
    settings: DevSettings,
}

impl DevSettings {
    /// Parses the flags and the environment of `dev`, and completes them from the file that they
    /// name, if they name one.
    ///
    /// # Errors
    /// `InvalidArgument`, with the flag, or with the file, the line and the key.
    pub fn parse(flags: Vec<OsString>) -> Result<Self> {
        let settings = parse(&flags).map_err(Error::invalid_argument)?;
        match &settings.config {
            None => Ok(settings),
            Some(path) => complete(flags, path),
        }
    }
}

/// Adds the values of a file for which there is neither a flag nor a variable.
fn complete(mut flags: Vec<OsString>, path: &Path) -> Result<DevSettings> {
    let wrong = |problem: String| Error::invalid_argument(format!("{}: {problem}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong(format!("could not read the file: {error}; name another file")))?;
    let table = DeTable::parse(&text).map_err(|error| wrong(error.to_string()))?;
    let command = Flags::command();
    let given = command.clone().try_get_matches_from(&flags);
    let given = given.map_err(|error| Error::invalid_argument(first_line(&error)))?;
    for (key, value) in table.get_ref() {
        let line = text[..key.span().start].matches('\n').count() + 1;
        let wrong = |problem: String| wrong(format!("line {line}: {problem}"));
        let arg = argument(&command, key.get_ref()).map_err(wrong)?;
        let Some(flag) = flag(arg, value.get_ref()).map_err(wrong)? else { continue };
        parse(&[OsString::from(&flag)]).map_err(wrong)?;
        let source = given.value_source(arg.get_id().as_str());
        if !matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
            flags.push(flag.into());
        }
    }
    parse(&flags).map_err(wrong)
}

fn parse(flags: &[OsString]) -> std::result::Result<DevSettings, String> {
    let flags = Flags::try_parse_from(flags).map_err(|error| first_line(&error))?;
    Ok(flags.settings)
}

/// Returns the sentence of an error, without the advice to try `--help`.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Returns the flag of a key.
fn argument<'c>(command: &'c Command, key: &str) -> std::result::Result<&'c Arg, String> {
    let mut args = command.get_arguments().filter(|arg| arg.get_env().is_some());
    args.find(|arg| arg.get_id() == key && key != "config").ok_or_else(|| {
        format!("unknown key `{key}`; write a flag of `forebayd dev`, with `_` for `-`")
    })
}

/// Returns the flag with this value; `None` for a flag without a value that is not set.
fn flag(arg: &Arg, value: &DeValue<'_>) -> std::result::Result<Option<String>, String> {
    let (key, flag) = (arg.get_id(), format!("--{}", arg.get_long().unwrap_or_default()));
    let delimiter = arg.get_value_delimiter();
    match (arg.get_action().takes_values(), value, delimiter) {
        (false, DeValue::Boolean(is_set), _) => Ok(is_set.then_some(flag)),
        (false, _, _) => Err(format!("`{key}` has another value; write true or false")),
        (true, DeValue::String(text), _) => Ok(Some(format!("{flag}={text}"))),
        (true, DeValue::Integer(number), _) => Ok(Some(format!("{flag}={number}"))),
        (true, DeValue::Array(items), Some(delimiter)) => {
            let texts = items.iter().map(|item| match item.get_ref().as_str() {
                Some(text) if !text.contains(delimiter) => Ok(text),
                _ => Err(format!(
                    "`{key}` is not a list of texts; write each text in its own quotes"
                )),
            });
            let texts = texts.collect::<std::result::Result<Vec<_>, _>>()?;
            Ok(Some(format!("{flag}={}", texts.join(&delimiter.to_string()))))
        }
        (true, _, _) => Err(format!("`{key}` is not a text; write the value of {flag} in quotes")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tempfile::NamedTempFile;

    use super::*;
    use crate::config::{Durability, LogKind};

    fn settings(text: &str, flags: &[&str]) -> Result<DevSettings> {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let flags = flags.iter().map(OsString::from);
        let config = ["--config".into(), file.path().into()];
        let settings = DevSettings::parse(flags.chain(config).collect())?;
        settings.check()?;
        Ok(DevSettings { config: None, ..settings })
    }

    fn refusal(text: &str) -> String {
        settings(text, &[]).unwrap_err().to_string()
    }

    #[test]
    fn flags_and_settings_in_code_have_the_same_defaults() {
        assert_eq!(DevSettings::parse(Vec::new()).unwrap(), DevSettings::default());
    }

    #[test]
    fn unknown_keys_are_errors_that_name_the_key() {
        for key in ["data_dri", "config", "help"] {
            let error = refusal(&format!("listen = \"127.0.0.1:1\"\n{key} = \"x\"\n"));
            assert!(error.contains(key) && error.contains("line 2"), "{error}");
        }
    }

    #[test]
    fn wrong_values_are_errors_with_their_line() {
        for (text, word) in [
            ("\nshard_memory = \"256\"", "has no unit"),
            ("\nshard_memory = 256", "has no unit"),
            ("\nsnapshot_interval = 900", "time unit needed"),
            ("\ndirect_io = \"yes\"", "true or false"),
            ("\nsnapshots = true", "in quotes"),
            ("\nbrokers = [\"a:1,b:2\"]", "its own quotes"),
            ("\nlisten = ", "TOML"),
        ] {
            let error = refusal(text);
            assert!(error.contains("line 2") && error.contains(word), "{error}");
        }
    }

    #[test]
    fn file_overrides_only_the_keys_in_it() {
        let read = settings("durability = \"buffered\"\nsnapshot_retention = 2\n", &[]).unwrap();
        let mut expected =
            DevSettings { durability: Durability::Buffered, ..DevSettings::default() };
        expected.schedule.snapshot_retention = 2;
        assert_eq!(read, expected);
    }

    #[test]
    fn flag_overrides_the_file() {
        let text = "snapshot_retention = 2\ndirect_io = true\nbrokers = [\"a:1\"]";
        let flags = ["--snapshot-retention=3", "--brokers=b:1,c:1", "--change-log=kafka"];
        let read = settings(text, &flags).unwrap();
        assert_eq!(read.schedule.snapshot_retention, 3);
        assert_eq!(read.kafka.brokers, ["b:1", "c:1"]);
        assert!(read.shards.direct_io);
        assert_eq!(read.change_log, LogKind::Kafka);
    }

    #[test]
    fn kafka_needs_brokers_and_the_embedded_log_refuses_them() {
        let kafka = "change_log = \"kafka\"\nbrokers = [\"127.0.0.1:9092\", \"b-2.zone:9092\"]";
        settings(kafka, &[]).unwrap();
        for (text, word) in [
            ("change_log = \"kafka\"", "no brokers are set"),
            ("brokers = [\"127.0.0.1:9092\"]", "set change_log to kafka"),
            ("change_log = \"kafka\"\nbrokers = [\"127.0.0.1\"]", "`127.0.0.1` is not an address"),
            ("change_log = \"kafka\"\nbrokers = [\"a:1,b:2\"]", "its own quotes"),
            ("change_log = \"kafka\"\nbrokers = [\"a:1\"]\ntopic_prefix = \"a b\"", "topic prefix"),
        ] {
            let error = refusal(text);
            assert!(error.contains("InvalidArgument") && error.contains(word), "{error}");
        }
    }
}
