//! All targets of the tree, read from one `bazel query` in XML. Labels are absolute and complete:
//! `//libs/core:forebay_core`, `@crates//:serde`.

use std::collections::{BTreeMap, BTreeSet};

use roxmltree::{Document, Node};

use super::{QUERY_BOUND, host, log};
use crate::process;
use crate::workspace::Workspace;

/// A target that a rule defines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildRule {
    /// The rule's name: `rust_library`.
    pub class: String,
    /// Lists of labels and of words, by attribute.
    pub lists: BTreeMap<String, Vec<String>>,
    /// All inputs, files included.
    pub inputs: BTreeSet<String>,
}

/// The result of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// The rules' targets, by label.
    pub rules: BTreeMap<String, BuildRule>,
    /// The package groups' specifications, with those of the groups that they include.
    pub groups: BTreeMap<String, BTreeSet<String>>,
}

impl BuildRule {
    /// Returns the values of a list, empty if there is none.
    #[must_use]
    pub fn list(&self, name: &str) -> &[String] {
        self.lists.get(name).map_or(&[], Vec::as_slice)
    }

    /// Reports whether `bazel test` runs the target.
    #[must_use]
    pub fn is_test(&self) -> bool {
        self.class.ends_with("_test")
    }
}

impl Graph {
    /// Returns the folders with a BUILD file; the root is the empty string.
    #[must_use]
    pub fn packages(&self) -> BTreeSet<&str> {
        self.rules.keys().map(|label| package(label)).collect()
    }
}

/// Returns the package of a label: `//libs/core:x` is in `libs/core`.
#[must_use]
pub fn package(label: &str) -> &str {
    let inside = label.split_once("//").map_or(label, |(_, inside)| inside);
    inside.split_once(':').map_or(inside, |(package, _)| package)
}

/// Reads all targets.
///
/// # Errors
/// Returns an error if Bazel cannot load a BUILD file, or its output cannot be read.
pub fn load(workspace: &Workspace) -> Result<Graph, String> {
    let mut command = host(workspace, &["query", "--output=xml", "//...:*"]);
    let text = process::read_bounded(&mut command, &log(workspace, "query.xml")?, QUERY_BOUND)?;
    let graph = parse(&text)?;
    if graph.rules.is_empty() { Err("the query found no target".to_owned()) } else { Ok(graph) }
}

/// Returns the labels that match a query.
///
/// # Errors
/// Returns an error if Bazel refuses the query.
pub fn labels(workspace: &Workspace, query: &str) -> Result<BTreeSet<String>, String> {
    let mut command = host(workspace, &["query", "--output=label", query]);
    let text = process::read_bounded(&mut command, &log(workspace, "labels.log")?, QUERY_BOUND)?;
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

fn parse(text: &str) -> Result<Graph, String> {
    // Bazel declares XML 1.1 but uses only 1.0, which is all that the parser knows.
    let body = text.split_once("?>").map_or(text, |(_, body)| body);
    let document = Document::parse(body).map_err(|error| format!("read the query: {error}"))?;
    let mut graph = Graph::default();
    let mut groups = BTreeMap::new();
    for node in document.root_element().children().filter(Node::is_element) {
        let name = node.attribute("name").unwrap_or_default().to_owned();
        match node.tag_name().name() {
            "rule" => {
                graph.rules.insert(name, rule(node));
            }
            "package-group" => {
                groups.insert(name, (values(node, "packages"), values(node, "includes")));
            }
            _ => {}
        }
    }
    for name in groups.keys() {
        graph.groups.insert(name.clone(), specifications(&groups, name));
    }
    Ok(graph)
}

fn rule(node: Node<'_, '_>) -> BuildRule {
    let class = node.attribute("class").unwrap_or_default().to_owned();
    let mut rule = BuildRule { class, ..BuildRule::default() };
    for child in node.children().filter(Node::is_element) {
        let name = child.attribute("name").unwrap_or_default();
        match child.tag_name().name() {
            "list" => {
                rule.lists.insert(name.to_owned(), items(child));
            }
            "rule-input" => {
                rule.inputs.insert(name.to_owned());
            }
            _ => {}
        }
    }
    rule
}

fn items(list: Node<'_, '_>) -> Vec<String> {
    let elements = list.children().filter(Node::is_element);
    elements.filter_map(|item| item.attribute("value")).map(str::to_owned).collect()
}

fn values(node: Node<'_, '_>, name: &str) -> Vec<String> {
    let lists = node.children().filter(|child| child.has_tag_name("list"));
    lists.filter(|list| list.attribute("name") == Some(name)).flat_map(items).collect()
}

/// Returns the specifications of a group and of all groups that it includes, each group once.
fn specifications(
    groups: &BTreeMap<String, (Vec<String>, Vec<String>)>,
    name: &str,
) -> BTreeSet<String> {
    let (mut found, mut labels_seen, mut next) = (BTreeSet::new(), BTreeSet::new(), vec![name]);
    while let Some(name) = next.pop() {
        let Some((packages, includes)) = groups.get(name).filter(|_| labels_seen.insert(name))
        else {
            continue;
        };
        found.extend(packages.iter().cloned());
        next.extend(includes.iter().map(String::as_str));
    }
    found
}

/// Bazel's XML for a small tree, for the tests of the rules.
#[cfg(test)]
pub mod fixture {
    use super::{Graph, parse};

    /// Returns one rule; `lists` are `(attribute, labels with commas)`.
    pub fn rule(class: &str, label: &str, lists: &[(&str, &str)]) -> String {
        let mut text = format!("<rule class=\"{class}\" name=\"{label}\">");
        for (name, labels) in lists {
            text.push_str(&format!("<list name=\"{name}\">"));
            let labels = labels.split(',').filter(|label| !label.is_empty());
            labels.clone().for_each(|label| text.push_str(&format!("<label value=\"{label}\"/>")));
            text.push_str("</list>");
            labels.for_each(|label| text.push_str(&format!("<rule-input name=\"{label}\"/>")));
        }
        text + "</rule>"
    }

    /// Returns a package group.
    pub fn group(label: &str, packages: &[&str], includes: &[&str]) -> String {
        let items = |words: &[&str]| -> String {
            words.iter().map(|word| format!("<string value=\"{word}\"/>")).collect()
        };
        let (packages, includes) = (items(packages), items(includes));
        format!(
            "<package-group name=\"{label}\"><list name=\"packages\">{packages}</list>\
             <list name=\"includes\">{includes}</list></package-group>"
        )
    }

    /// The whole answer.
    pub fn graph(elements: &[String]) -> Graph {
        let head = "<?xml version=\"1.1\" encoding=\"UTF-8\" standalone=\"no\"?>";
        parse(&format!("{head}<query version=\"2\">{}</query>", elements.concat())).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_lists_and_inputs_are_read() {
        let lists = [("srcs", "//libs/a:src/lib.rs"), ("deps", "@crates//:serde,//libs/b:b")];
        let graph = fixture::graph(&[fixture::rule("rust_library", "//libs/a:a", &lists)]);
        let rule = &graph.rules["//libs/a:a"];
        assert_eq!((rule.class.as_str(), rule.is_test()), ("rust_library", false));
        assert_eq!(rule.list("deps"), ["@crates//:serde", "//libs/b:b"]);
        assert_eq!(rule.list("data"), Vec::<String>::new());
        assert!(rule.inputs.contains("//libs/a:src/lib.rs"));
        assert_eq!(graph.packages(), BTreeSet::from(["libs/a"]));
    }

    #[test]
    fn groups_contain_their_included_groups() {
        let graph = fixture::graph(&[
            fixture::group("//l:a", &["//x"], &["//l:b"]),
            fixture::group("//l:b", &["//y"], &["//l:a"]),
        ]);
        assert_eq!(graph.groups["//l:a"], BTreeSet::from(["//x", "//y"].map(str::to_owned)));
    }

    #[test]
    fn label_names_its_package() {
        assert_eq!(package("//libs/core:a"), "libs/core");
        assert_eq!(package("//:a"), "");
        assert_eq!(package("@crates//:serde"), "");
    }

    #[test]
    fn query_without_xml_is_an_error() {
        assert!(parse("Loading: 0 packages").is_err());
    }
}
