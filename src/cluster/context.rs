//! Which cluster: kubeconfig files, contexts, the credentials inside a cluster.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use kube::config::{ExecInteractiveMode, KubeConfigOptions, Kubeconfig, NamedContext};
use kube::{Client, Config};

use super::client::{ClientError, from_config};
use super::source::ClientSource;
use crate::model::{Str, clean};

/// Why no cluster could be chosen. Each is one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// Neither a file nor a cluster around us.
    #[error(
        "no kubeconfig found (looked at {looked}) and not inside a cluster: set KUBECONFIG, or try `gpudeck demo`"
    )]
    NoKubeconfig {
        /// The places, joined.
        looked: String,
    },
    /// A file that is there but cannot be used.
    #[error("cannot read the kubeconfig {path}: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// No context of that name.
    #[error("the kubeconfig {path} has no context {name:?}: {known}")]
    UnknownContext {
        /// The file or files.
        path: String,
        /// What was asked for.
        name: String,
        /// Those that exist, in words.
        known: String,
    },
    /// No context was named and none is current.
    #[error("the kubeconfig {path} names no current context: give --context; {known}")]
    NoCurrentContext {
        /// The file or files.
        path: String,
        /// Those that exist, in words.
        known: String,
    },
    /// The context is there, but what it refers to is not.
    #[error("the context {name:?} cannot be used: {why}")]
    Incomplete {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The login helper does not exist.
    #[error(
        "the login helper `{command}` of context {name:?} is not installed or not in PATH{hint}"
    )]
    NoHelper {
        /// The context.
        name: String,
        /// The command.
        command: String,
        /// The kubeconfig's own hint, with a colon before it, or empty.
        hint: String,
    },
    /// The client could not be made of it.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The set-up task itself was stopped.
    #[error("the client set-up was stopped: {0}")]
    Stopped(String),
}

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct ContextOptions {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
    /// `--namespace`.
    pub namespace: Option<String>,
    /// A login helper must not use the terminal: the console has it.
    pub screen_taken: bool,
}

/// A context of the kubeconfig, for the switcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextEntry {
    /// Its name, cleaned for display.
    pub name: Str,
    /// Its cluster.
    pub cluster: Str,
    /// Its user.
    pub user: Str,
    /// Its default namespace.
    pub namespace: Option<Str>,
    /// The current one of the file.
    pub current: bool,
}

/// A chosen cluster.
pub struct Connected {
    /// Its clients.
    pub source: ClientSource,
    /// The context's name, `in-cluster` inside a cluster.
    pub context: Str,
    /// `--namespace`, where given: show only this one.
    pub namespace: Option<Str>,
    /// The context's own namespace: the one to fall back to when all may not be listed.
    pub default_namespace: Str,
}

/// The name shown for the cluster that we run in.
const IN_CLUSTER: &str = "in-cluster";

/// Where kubeconfigs are looked for: the flag, else `$KUBECONFIG` (a list), else
/// `~/.kube/config`.
fn places(flag: Option<&Path>, env: Option<OsString>, home: Option<PathBuf>) -> Vec<PathBuf> {
    if let Some(path) = flag {
        return vec![path.to_owned()];
    }
    let listed: Vec<PathBuf> = env
        .map(|list| {
            std::env::split_paths(&list)
                .filter(|p| !p.as_os_str().is_empty())
                .collect()
        })
        .unwrap_or_default();
    if !listed.is_empty() {
        return listed;
    }
    home.map(|h| h.join(".kube").join("config"))
        .into_iter()
        .collect()
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME")
        .filter(|h| !h.is_empty())
        .map(PathBuf::from)
}

fn joined(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    names.join(", ")
}

/// Reads and merges the files that exist, as kubectl does; `None` when none does. A file that was
/// named by a flag must exist.
fn read(paths: &[PathBuf], must_exist: bool) -> Result<Option<Kubeconfig>, ContextError> {
    let mut merged: Option<Kubeconfig> = None;
    for path in paths {
        let unreadable = |why: String| ContextError::Unreadable {
            path: path.display().to_string(),
            why: clean(&why, 400).into_owned(),
        };
        match std::fs::metadata(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !must_exist => continue,
            Err(e) => return Err(unreadable(e.to_string())),
            Ok(m) if m.is_dir() => return Err(unreadable("it is a directory".to_owned())),
            Ok(m) if m.len() == 0 && must_exist => {
                return Err(unreadable("it is empty".to_owned()));
            }
            Ok(m) if m.len() == 0 => continue,
            Ok(_) => {}
        }
        let one = Kubeconfig::read_from(path).map_err(|e| unreadable(innermost(&e)))?;
        merged = Some(match merged {
            None => one,
            Some(before) => before.merge(one).map_err(|e| unreadable(e.to_string()))?,
        });
    }
    Ok(merged)
}

/// The first line of the cause at the end of an error's chain: it names the file or line, and
/// what follows may quote a token.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut at = error;
    while let Some(next) = at.source() {
        at = next;
    }
    let text = at.to_string();
    let first = text.lines().next().unwrap_or("");
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}

fn known(config: &Kubeconfig) -> String {
    let names: Vec<&str> = config.contexts.iter().map(|c| &*c.name).collect();
    if names.is_empty() {
        "it has none".to_owned()
    } else {
        let list = clean(&names.join(", "), 400).into_owned();
        format!("it has {list}")
    }
}

/// The chosen context of a kubeconfig.
fn choose<'a>(
    config: &'a Kubeconfig,
    wanted: Option<&str>,
    path: &str,
) -> Result<&'a NamedContext, ContextError> {
    let current = config.current_context.as_deref().filter(|c| !c.is_empty());
    let Some(name) = wanted.or(current) else {
        return Err(ContextError::NoCurrentContext {
            path: path.to_owned(),
            known: known(config),
        });
    };
    config
        .contexts
        .iter()
        .find(|c| c.name == name)
        .ok_or_else(|| ContextError::UnknownContext {
            path: path.to_owned(),
            name: clean(name, 200).into_owned(),
            known: known(config),
        })
}

/// Whether a command can be started: a path that exists, or a name in `$PATH`.
fn is_installed(command: &str, search: Option<OsString>) -> bool {
    if command.contains('/') {
        return Path::new(command).is_file();
    }
    search.is_some_and(|list| std::env::split_paths(&list).any(|dir| dir.join(command).is_file()))
}

/// What can be done again when credentials are refused: everything from the files on.
#[derive(Clone)]
struct Recipe {
    paths: Vec<PathBuf>,
    must_exist: bool,
    context: Option<String>,
}

/// A configuration with what the screen says of it.
struct Prepared {
    config: Config,
    context: String,
}

impl Recipe {
    fn new(options: &ContextOptions) -> Self {
        Recipe {
            paths: places(
                options.kubeconfig.as_deref(),
                std::env::var_os("KUBECONFIG"),
                home(),
            ),
            must_exist: options.kubeconfig.is_some(),
            context: options.context.clone(),
        }
    }

    /// Reads the files anew. `interactive` lets a login helper use the terminal: only before the
    /// screen is taken over.
    async fn prepare(&self, interactive: bool) -> Result<Prepared, ContextError> {
        let Some(mut config) = read(&self.paths, self.must_exist)? else {
            if self.context.is_none()
                && let Ok(config) = Config::incluster()
            {
                return Ok(Prepared {
                    config,
                    context: IN_CLUSTER.to_owned(),
                });
            }
            return Err(ContextError::NoKubeconfig {
                looked: if self.paths.is_empty() {
                    "KUBECONFIG and ~/.kube/config".to_owned()
                } else {
                    joined(&self.paths)
                },
            });
        };
        let path = joined(&self.paths);
        let chosen = choose(&config, self.context.as_deref(), &path)?;
        let name = chosen.name.clone();
        let user = chosen.context.as_ref().and_then(|c| c.user.clone());
        let exec = config
            .auth_infos
            .iter_mut()
            .filter(|a| Some(&a.name) == user.as_ref())
            .find_map(|a| a.auth_info.as_mut()?.exec.as_mut());
        if let Some(exec) = exec {
            if !interactive {
                exec.interactive_mode = Some(ExecInteractiveMode::Never);
            }
            if let Some(command) = &exec.command
                && !is_installed(command, std::env::var_os("PATH"))
            {
                let hint = exec.install_hint.as_deref().unwrap_or("").trim();
                return Err(ContextError::NoHelper {
                    name: clean(&name, 200).into_owned(),
                    command: clean(command, 200).into_owned(),
                    hint: if hint.is_empty() {
                        String::new()
                    } else {
                        format!(": {}", clean(hint, 300))
                    },
                });
            }
        }
        let options = KubeConfigOptions {
            context: Some(name.clone()),
            ..KubeConfigOptions::default()
        };
        let config = Config::from_custom_kubeconfig(config, &options)
            .await
            .map_err(|e| ContextError::Incomplete {
                name: clean(&name, 200).into_owned(),
                why: clean(&e.to_string(), 400).into_owned(),
            })?;
        Ok(Prepared {
            config,
            context: name,
        })
    }

    /// Everything anew, without the terminal. Blocks; for the blocking pool.
    fn rebuild(&self) -> Result<Client, ClientError> {
        let prepared = tokio::runtime::Handle::current().block_on(self.prepare(false));
        match prepared {
            Ok(p) => from_config(p.config),
            Err(e) => Err(ClientError::Context(e.to_string())),
        }
    }
}

/// Sets up the chosen cluster's client. Login helpers run now and may use the terminal: call this
/// before raw mode. No request is made yet.
///
/// # Errors
/// One sentence for the user.
pub async fn connect(options: &ContextOptions) -> Result<Connected, ContextError> {
    let mut recipe = Recipe::new(options);
    let prepared = recipe.prepare(!options.screen_taken).await?;
    if prepared.context != IN_CLUSTER {
        // A later login must not follow a current-context that has changed on disk since.
        recipe.context = Some(prepared.context.clone());
    }
    let server = prepared.config.cluster_url.to_string();
    let server: Str = clean(server.trim_end_matches('/'), 300).into();
    let default_namespace: Str = clean(&prepared.config.default_namespace, 253).into();
    let client = tokio::task::spawn_blocking(move || from_config(prepared.config))
        .await
        .map_err(|e| ContextError::Stopped(e.to_string()))??;
    Ok(Connected {
        source: ClientSource::new(client, server, move || recipe.rebuild()),
        context: clean(&prepared.context, 253).into(),
        namespace: options.namespace.as_deref().map(|n| clean(n, 253).into()),
        default_namespace,
    })
}

/// The contexts of the kubeconfig, in its order; none inside a cluster.
///
/// # Errors
/// A file that is there but cannot be read.
pub fn contexts(options: &ContextOptions) -> Result<Vec<ContextEntry>, ContextError> {
    let recipe = Recipe::new(options);
    let Some(config) = read(&recipe.paths, recipe.must_exist)? else {
        return Ok(Vec::new());
    };
    let text = |raw: &str| -> Str { clean(raw, 253).into() };
    let current = config.current_context.as_deref();
    Ok(config
        .contexts
        .iter()
        .map(|named| {
            let context = named.context.clone().unwrap_or_default();
            ContextEntry {
                name: text(&named.name),
                cluster: text(&context.cluster),
                user: text(context.user.as_deref().unwrap_or("")),
                namespace: context.namespace.as_deref().map(text),
                current: Some(&*named.name) == current,
            }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    const TWO: &str = r#"
apiVersion: v1
kind: Config
current-context: lab
clusters:
- {name: lab, cluster: {server: "https://127.0.0.1:6443"}}
contexts:
- {name: lab, context: {cluster: lab, user: ada, namespace: team-nlp}}
- {name: prod, context: {cluster: prod, user: ada}}
users:
- {name: ada, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-login-helper, installHint: "install it from\nthe intranet", interactiveMode: IfAvailable}}}
"#;

    fn recipe(text: &str, context: Option<&str>) -> (tempfile::TempDir, Recipe) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        std::fs::write(&path, text).unwrap();
        let recipe = Recipe {
            paths: vec![path],
            must_exist: true,
            context: context.map(str::to_owned),
        };
        (dir, recipe)
    }

    async fn sentence(text: &str, context: Option<&str>) -> String {
        let (dir, recipe) = recipe(text, context);
        let Err(e) = recipe.prepare(true).await else {
            panic!("an error");
        };
        e.to_string()
            .replace(&dir.path().display().to_string(), "DIR")
    }

    #[tokio::test]
    async fn each_error_is_one_sentence_that_helps() {
        assert_eq!(
            sentence(TWO, Some("x")).await,
            "the kubeconfig DIR/config has no context \"x\": it has lab, prod"
        );
        assert_eq!(
            sentence(TWO, None).await,
            "the login helper `no-such-login-helper` of context \"lab\" is not installed or not in PATH: install it from the intranet"
        );
        let none = TWO.replace("current-context: lab", "");
        assert_eq!(
            sentence(&none, None).await,
            "the kubeconfig DIR/config names no current context: give --context; it has lab, prod"
        );
        let plain = TWO.replace("{exec:", "{unknown:");
        assert!(
            sentence(&plain, Some("prod"))
                .await
                .starts_with("the context \"prod\" cannot be used: "),
        );
        let broken = sentence("contexts: [", None).await;
        assert!(
            broken.starts_with("cannot read the kubeconfig DIR/config: ")
                && broken.contains("line"),
            "{broken}"
        );
        let secret = sentence(
            "clusters: []\nusers: [{name: a, user: {token: s3cr3t, exec: 7}}]",
            None,
        )
        .await;
        assert!(
            secret.contains("line 2") && !secret.contains("s3cr3t"),
            "{secret}"
        );
    }

    #[tokio::test]
    async fn without_any_file_the_demo_is_named() {
        let recipe = Recipe {
            paths: vec![PathBuf::from("/nonexistent/config")],
            must_exist: false,
            context: None,
        };
        let Err(e) = recipe.prepare(true).await else {
            panic!("an error");
        };
        assert_eq!(
            e.to_string(),
            "no kubeconfig found (looked at /nonexistent/config) and not inside a cluster: set KUBECONFIG, or try `gpudeck demo`"
        );
        let named = Recipe {
            must_exist: true,
            ..recipe
        };
        let Err(e) = named.prepare(true).await else {
            panic!("an error");
        };
        assert!(
            e.to_string()
                .starts_with("cannot read the kubeconfig /nonexistent/config: No such file")
        );
        let emptied = |must_exist| {
            let paths = [PathBuf::from("/dev/null")];
            read(&paths, must_exist).map(|found| found.is_some())
        };
        assert_eq!(
            emptied(true).unwrap_err().to_string(),
            "cannot read the kubeconfig /dev/null: it is empty"
        );
        assert!(!emptied(false).unwrap(), "one of a list is passed over");
    }

    #[test]
    fn the_flag_then_the_variable_then_home() {
        let home = || Some(PathBuf::from("/home/ada"));
        let list = || Some(OsString::from("/a::/b"));
        assert_eq!(
            places(Some(Path::new("/f")), list(), home()),
            [PathBuf::from("/f")]
        );
        assert_eq!(
            places(None, list(), home()),
            [PathBuf::from("/a"), PathBuf::from("/b")]
        );
        assert_eq!(
            places(None, Some("".into()), home()),
            [PathBuf::from("/home/ada/.kube/config")]
        );
    }

    #[test]
    fn files_of_a_list_are_merged_and_missing_ones_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, TWO).unwrap();
        std::fs::write(
            &b,
            TWO.replace("name: lab", "name: other")
                .replace("current-context: lab", ""),
        )
        .unwrap();
        let merged = read(&[a, dir.path().join("missing"), b], false)
            .unwrap()
            .unwrap();
        let names: Vec<&str> = merged.contexts.iter().map(|c| &*c.name).collect();
        assert_eq!(names, ["lab", "prod", "other"]);
        assert_eq!(merged.current_context.as_deref(), Some("lab"));
    }
}
