//! The shop of `examples/shop` as the servers of nodes: Apache httpd, PHP-FPM and one MariaDB.
//!
//! Its files are part of this program; a folder of its own holds a copy, the database and what
//! servers write. Without root all of it runs as the user, with root as nobody.

use crate::apache::remove_leftovers;
use crate::error::{LabError, on};
use crate::owner;
use rustix::process::{Pid, Signal, kill_process};
use std::env;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The files, each with its name in the folder.
const FILES: [(&str, &str); 4] = [
    ("shop", include_str!("../../../examples/shop/shop")),
    ("schema.sql", include_str!("../../../examples/shop/schema.sql")),
    ("site/index.php", include_str!("../../../examples/shop/site/index.php")),
    ("site/style.css", include_str!("../../../examples/shop/site/style.css")),
];
/// What must be there: where it is looked for, the beginning of its name, and its package.
const PARTS: [(&str, &str, &str); 5] = [
    ("/usr/sbin", "apache2", "apache2-bin"),
    ("/usr/sbin", "php-fpm", "php-fpm"),
    ("/usr/lib/php/*", "pdo_mysql.so", "php-mysql"),
    ("/usr/sbin", "mariadbd", "mariadb-server"),
    ("/usr/bin", "mariadb-install-db", "mariadb-server"),
];
/// How long a database may take to write what it has before it is killed.
const END_PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at a database that ends.
const END_POLL: Duration = Duration::from_millis(10);
/// What of its complaints is shown.
const SAID_BYTES_MAX: u64 = 4_000;

/// What every server of the shop is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShopOptions {
    /// Requests that PHP serves at once.
    pub children: u16,
    /// What a payment provider takes for each order, while nothing is computed.
    pub payment: Duration,
}

impl Default for ShopOptions {
    /// Eight at once, and payment takes no time.
    fn default() -> Self {
        Self { children: 8, payment: Duration::ZERO }
    }
}

/// What a figure adds to the shop: pages of its own, and what they read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShopExtras<'a> {
    /// Files of the site, each with its name.
    pub pages: &'a [(&'a str, &'a str)],
    /// Statements behind those of the shop's schema.
    pub schema: &'a str,
}

/// A running database, and all that servers need. Ends when dropped: end the servers first.
#[derive(Debug)]
pub struct Shop {
    database: Child,
    folder: TempDir,
    options: ShopOptions,
}

impl Shop {
    /// The path of an order; it wants POST.
    pub const ORDER_PATH: &str = "/orders?item=3";

    /// Starts an empty database with the catalogue. Blocks for some seconds. It ends with the
    /// thread that calls this.
    ///
    /// # Errors
    ///
    /// [`LabError::Missing`] with what to install, [`LabError::Shop`] when it does not start.
    pub fn start(options: ShopOptions) -> Result<Self, LabError> {
        Self::start_with(options, ShopExtras::default())
    }

    /// The same with further pages and tables.
    ///
    /// # Errors
    ///
    /// As [`Shop::start`].
    pub fn start_with(options: ShopOptions, extras: ShopExtras<'_>) -> Result<Self, LabError> {
        for (folder, name, package) in PARTS {
            find(folder, name, package)?;
        }
        let place = env::temp_dir();
        remove_leftovers(&place);
        // Processes may run as nobody, and must reach their own folder in it.
        let folder = tempfile::Builder::new()
            .prefix(&format!("{}-", owner::own_name()))
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(&place)
            .map_err(on(&place))?;
        let script = write_source(&folder.path().join("source"), extras)?;
        let spawned = Command::new("setpriv")
            .args(["--pdeathsig", "TERM"])
            .arg(&script)
            .arg("database")
            .arg(shop_folder(folder.path()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let database = spawned.map_err(on(&script))?;
        let mut shop = Self { database, folder, options };
        shop.wait_ready()?;
        Ok(shop)
    }

    fn wait_ready(&mut self) -> Result<(), LabError> {
        let mut line = String::new();
        if let Some(stdout) = self.database.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(on(self.folder.path()))?;
        }
        if line.trim() == "ready" {
            return Ok(());
        }
        let mut said = line;
        if let Some(stderr) = self.database.stderr.take() {
            // What cannot be read is missing in the error, no more.
            let _ = stderr.take(SAID_BYTES_MAX).read_to_string(&mut said);
        }
        Err(LabError::Shop(said.trim().to_owned()))
    }

    /// The command that starts the server of a node for a site, in the foreground. `{host}`,
    /// `{port}`, `{node}` and `{site}` are to be filled in. Start it in a process group of its
    /// own: when Apache ends, it ends its whole group.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        let ShopOptions { children, payment } = self.options;
        let script = self.script().display().to_string();
        let words = [
            &script,
            "server",
            "{host}",
            "{port}",
            "{node}",
            "{site}",
            &children.to_string(),
            &payment.as_millis().to_string(),
        ];
        words.map(str::to_owned).to_vec()
    }

    /// Orders in the database; those of one site if it is named. Blocks for its answer.
    ///
    /// # Errors
    ///
    /// [`LabError::Shop`] when it does not answer.
    pub fn orders(&self, site: Option<&str>) -> Result<u64, LabError> {
        let script = self.script();
        let output = Command::new(&script)
            .arg("orders")
            .args(site)
            .stdin(Stdio::null())
            .output()
            .map_err(on(&script))?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().map_err(|_| {
            let said = String::from_utf8_lossy(&output.stderr);
            LabError::Shop(format!("no count of orders: {text}{said}"))
        })
    }

    /// Where everything lies, the logs of servers too.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        shop_folder(self.folder.path())
    }

    fn script(&self) -> PathBuf {
        self.folder().join("shop")
    }
}

impl Drop for Shop {
    /// Asks the database to end, waits, and kills it if that does not help.
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.database.id()).ok().and_then(Pid::from_raw) {
            // It is not yet waited for, so the number is its own even if it has ended.
            let _ = kill_process(pid, Signal::TERM);
        }
        let started = Instant::now();
        while matches!(self.database.try_wait(), Ok(None)) {
            if started.elapsed() > END_PATIENCE {
                // Nothing better is left to do; what it started dies with it.
                let _ = self.database.kill();
                let _ = self.database.wait();
                return;
            }
            sleep(END_POLL);
        }
    }
}

/// Writes the shop's files and what is added; where its script is.
fn write_source(source: &Path, extras: ShopExtras<'_>) -> Result<PathBuf, LabError> {
    let site = source.join("site");
    fs::create_dir_all(&site).map_err(on(&site))?;
    for (name, text) in FILES {
        let path = source.join(name);
        let text = if name == "schema.sql" { &format!("{text}{}", extras.schema) } else { text };
        fs::write(&path, text).map_err(on(&path))?;
    }
    for (name, text) in extras.pages {
        let path = site.join(name);
        fs::write(&path, text).map_err(on(&path))?;
    }
    let script = source.join("shop");
    fs::set_permissions(&script, Permissions::from_mode(0o755)).map_err(on(&script))?;
    Ok(script)
}

fn shop_folder(folder: &Path) -> PathBuf {
    folder.join("shop")
}

/// Looks for a file whose name begins so, in a folder or in all folders of one.
fn find(folder: &str, name: &str, package: &'static str) -> Result<(), LabError> {
    let has = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(name))
    };
    let found = match folder.strip_suffix("/*") {
        Some(above) => {
            let inner = fs::read_dir(above).into_iter().flatten().flatten();
            inner.into_iter().any(|entry| has(&entry.path()))
        }
        None => has(Path::new(folder)),
    };
    if found {
        return Ok(());
    }
    let (what, tried) = (name.to_owned(), folder.to_owned());
    Err(LabError::Missing { what, tried, package })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_by_the_beginning_of_their_names() {
        find("/proc", "self", "x").unwrap();
        find("/proc/self/task/*", "status", "x").unwrap();
        let error = find("/proc/self/task/*", "nothing", "the-package").unwrap_err();
        assert!(error.is_lack() && error.to_string().contains("the-package"), "{error}");
    }

    #[test]
    fn the_database_starts_empty_and_leaves_nothing() {
        let shop = match Shop::start(ShopOptions::default()) {
            Err(error) if error.is_lack() => {
                eprintln!("skipped: {error}");
                return;
            }
            started => started.unwrap(),
        };
        assert_eq!(shop.orders(None).unwrap(), 0);
        assert_eq!(shop.orders(Some("books")).unwrap(), 0);
        assert!(shop.orders(Some("x' OR '1")).is_err());
        let folder = shop.folder();
        let logs = fs::read_to_string(folder.join("database.log")).unwrap();
        assert!(!logs.to_lowercase().contains("password"), "{logs}");
        drop(shop);
        assert!(!folder.exists());
    }
}
