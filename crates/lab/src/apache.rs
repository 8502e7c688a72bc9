//! Apache httpd as the servers of nodes: a folder with documents and one configuration, and the
//! command that starts a server of one node for one site.
//!
//! A request costs what Apache takes for a static file, and, if wanted, a set CPU time on top that
//! `mod_lua` burns before: so that few requests per second fill a node, and edges and generators
//! on the same machine take little beside it.

mod config;

use crate::error::{LabError, check_name, on};
use crate::owner;
use config::configuration;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Joins the group named first, then becomes the rest. A shell, because a process must join before
/// it becomes Apache, and must not have to be one of ours.
const LAUNCHER: &str = "echo 0 >\"$0\" && exec \"$@\"";
/// Where programs of administrators lie that a user's PATH may lack.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
/// Where distributions keep Apache's modules.
const MODULE_FOLDERS: [&str; 4] = [
    "/usr/lib/apache2/modules",
    "/usr/lib64/httpd/modules",
    "/usr/lib/httpd/modules",
    "/usr/libexec/apache2",
];
/// Folders of others looked at for leftovers.
const ENTRIES_MAX: usize = 10_000;
/// Requests at once of one server: `MaxRequestWorkers`' own default limit.
const WORKERS_MAX: u16 = 256;
/// The longest that a request may burn: a tenth of a second.
const BURN_US_MAX: u32 = 100_000;

/// A document that every server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its path.
    pub path: &'static str,
    /// Its length.
    pub bytes: usize,
}

/// Documents of the sizes that papers use.
pub const DOCUMENTS: [Document; 3] = [
    Document { path: "/1k.html", bytes: 1_024 },
    Document { path: "/4k.html", bytes: 4_096 },
    Document { path: "/16k.html", bytes: 16_384 },
];

/// How a server handles connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpm {
    /// A process for each connection.
    Prefork,
    /// One process with threads.
    Event,
}

/// What every server is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApacheOptions {
    /// How it handles connections.
    pub mpm: Mpm,
    /// Connections at once.
    pub workers: u16,
    /// CPU time that each request burns before it is answered; microseconds. Only with
    /// [`Mpm::Prefork`], where a process has one request at a time and its clock is the request's.
    pub burn_us: u32,
}

impl Default for ApacheOptions {
    /// Ten processes that burn nothing.
    fn default() -> Self {
        Self { mpm: Mpm::Prefork, workers: 10, burn_us: 0 }
    }
}

impl ApacheOptions {
    fn check(&self) -> Result<(), LabError> {
        let wrong = |text: String| Err(LabError::Options(text));
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return wrong(format!("workers must be 1 to {WORKERS_MAX}, not {}", self.workers));
        }
        if self.burn_us > BURN_US_MAX {
            let text = format!("a request may burn {BURN_US_MAX} us, not {}", self.burn_us);
            return wrong(text);
        }
        if self.burn_us > 0 && self.mpm != Mpm::Prefork {
            let text = "a set CPU time needs prefork: threads of one process share a clock";
            return wrong(text.to_owned());
        }
        Ok(())
    }
}

/// An installed Apache httpd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApacheProgram {
    program: PathBuf,
    modules: PathBuf,
}

impl ApacheProgram {
    /// Looks for it, under the names of Debian and of others.
    ///
    /// # Errors
    ///
    /// [`LabError::Missing`] with what to install.
    pub fn find() -> Result<Self, LabError> {
        let package = "apache2-bin";
        let missing =
            |what: &str, tried: String| LabError::Missing { what: what.to_owned(), tried, package };
        let path = env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> =
            env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from)).collect();
        let names = ["apache2", "httpd"];
        let all = names.iter().flat_map(|name| folders.iter().map(move |at| at.join(name)));
        let program = all.into_iter().find(|file| file.is_file());
        let program = program.ok_or_else(|| missing("apache2 or httpd", "PATH".to_owned()))?;
        let module = "mod_mpm_prefork.so";
        let mut folders = MODULE_FOLDERS.map(PathBuf::from).into_iter();
        let modules = folders.find(|folder| folder.join(module).is_file());
        let modules = modules.ok_or_else(|| missing(module, MODULE_FOLDERS.join(", ")))?;
        Ok(Self { program, modules })
    }
}

/// A server that runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApacheServer {
    /// Its node.
    pub node: String,
    /// Its site.
    pub site: String,
    /// Where it listens, on the address that it was given.
    pub port: u16,
}

/// A folder with all that servers need. Removed when dropped: end the servers first.
#[derive(Debug)]
pub struct Apache {
    program: PathBuf,
    folder: TempDir,
}

impl Apache {
    /// Writes documents and configuration into a new folder of the system's place for temporary
    /// files. Removes what killed runs left there.
    ///
    /// # Errors
    ///
    /// [`LabError::Options`] for options that contradict each other, [`LabError::Io`].
    pub fn prepare(program: &ApacheProgram, options: &ApacheOptions) -> Result<Self, LabError> {
        options.check()?;
        let place = env::temp_dir();
        remove_leftovers(&place);
        // Apache's processes run as nobody when root starts them, and must read it.
        let folder = tempfile::Builder::new()
            .prefix(&format!("{}-", owner::own_name()))
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(&place)
            .map_err(on(&place))?;
        let made = Self { program: program.program.clone(), folder };
        made.write(options, &program.modules)?;
        Ok(made)
    }

    fn write(&self, options: &ApacheOptions, modules: &Path) -> Result<(), LabError> {
        let folder = self.folder.path();
        for name in ["run", "documents"] {
            let path = folder.join(name);
            fs::create_dir(&path).map_err(on(&path))?;
        }
        for document in DOCUMENTS {
            let path = folder.join("documents").join(&document.path[1..]);
            fs::write(&path, page(document.bytes)).map_err(on(&path))?;
        }
        if options.burn_us > 0 {
            let path = folder.join("burn.lua");
            fs::write(&path, config::burn_script(options.burn_us)).map_err(on(&path))?;
        }
        let is_root = rustix::process::geteuid().is_root();
        let path = folder.join("apache.conf");
        fs::write(&path, configuration(options, folder, modules, is_root)).map_err(on(&path))
    }

    /// The command that starts the server of a node for a site in the node's group, in the
    /// foreground. `join_path` is the group's ([`crate::Groups::join_path`]). `{host}`, `{port}`,
    /// `{node}` and `{site}` are to be filled in, also in `join_path`. Start it in a process group
    /// of its own: when Apache ends, it ends its whole group.
    #[must_use]
    pub fn command(&self, join_path: &str) -> Vec<String> {
        let folder = self.folder.path().display();
        let mut words: Vec<String> =
            ["/bin/sh", "-c", LAUNCHER, join_path].map(str::to_owned).to_vec();
        words.push(self.program.display().to_string());
        words.extend(["-D", "FOREGROUND", "-f"].map(str::to_owned));
        words.push(format!("{folder}/apache.conf"));
        // What differs from one server to the other.
        words.push("-c".to_owned());
        words.push("Listen {host}:{port}".to_owned());
        words.push("-c".to_owned());
        words.push(format!("PidFile {folder}/run/{{node}}.{{site}}.{{port}}.pid"));
        words.push("-c".to_owned());
        words.push("Header always set X-Site {site}".to_owned());
        words
    }

    /// The same command filled in.
    ///
    /// # Errors
    ///
    /// [`LabError::Name`] for a node or a site whose name is none.
    pub fn command_for(
        &self,
        join_path: &str,
        server: &ApacheServer,
    ) -> Result<Vec<String>, LabError> {
        check_name(&server.node)?;
        check_name(&server.site)?;
        let port = server.port.to_string();
        let fill = |word: String| {
            word.replace("{host}", "127.0.0.1")
                .replace("{port}", &port)
                .replace("{node}", &server.node)
                .replace("{site}", &server.site)
        };
        Ok(self.command(join_path).into_iter().map(fill).collect())
    }

    /// The servers that run, in order: each says where it listens by the name of its file of the
    /// process number.
    ///
    /// # Errors
    ///
    /// [`LabError::Io`] when the folder cannot be read.
    pub fn servers(&self) -> Result<Vec<ApacheServer>, LabError> {
        let run = self.folder.path().join("run");
        let mut servers = Vec::new();
        for entry in fs::read_dir(&run).map_err(on(&run))?.flatten() {
            servers.extend(server_of(&entry.file_name().to_string_lossy()));
        }
        servers.sort();
        Ok(servers)
    }

    /// Where everything lies.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// `NODE.SITE.PORT.pid`.
fn server_of(file_name: &str) -> Option<ApacheServer> {
    let mut parts = file_name.strip_suffix(".pid")?.split('.');
    let (node, site, port) = (parts.next()?, parts.next()?, parts.next()?.parse().ok()?);
    Some(ApacheServer { node: node.to_owned(), site: site.to_owned(), port })
}

/// A page of so many bytes.
fn page(bytes: usize) -> String {
    let (head, tail) = ("<!doctype html>\n<title>page</title>\n<p>", "\n");
    let words = "polder ".chars().cycle();
    let fill = bytes.saturating_sub(head.len() + tail.len());
    let text: String = words.take(fill).collect();
    format!("{head}{text}{tail}")
}

/// Removes the folders of runs that have ended without doing it.
pub(crate) fn remove_leftovers(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.take(ENTRIES_MAX).flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && owner::is_abandoned(&entry.file_name().to_string_lossy()) {
            // Another run may be removing it too, or it may belong to somebody else.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_their_length() {
        for document in DOCUMENTS {
            assert_eq!(page(document.bytes).len(), document.bytes, "{}", document.path);
        }
    }

    #[test]
    fn a_server_is_known_by_its_file() {
        let server = server_of("rigid-n1.site2.4711.pid").unwrap();
        assert_eq!((&*server.node, &*server.site, server.port), ("rigid-n1", "site2", 4_711));
        for name in ["", "a.pid", "a.b.pid", "a.b.70000.pid", "a.b.1"] {
            assert_eq!(server_of(name), None, "{name}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let base = ApacheOptions::default();
        base.check().unwrap();
        let event = ApacheOptions { mpm: Mpm::Event, ..base };
        event.check().unwrap();
        assert!(ApacheOptions { burn_us: 5, ..event }.check().is_err());
        assert!(ApacheOptions { workers: 0, ..base }.check().is_err());
        assert!(ApacheOptions { burn_us: BURN_US_MAX + 1, ..base }.check().is_err());
    }
}
