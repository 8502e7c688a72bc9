//! MediaWiki as Debian ships it, on the servers and the database of `examples/shop`, with what
//! `examples/wiki` tells it; and people who read and write it.

use super::client::{Answer, Connection};
use super::pool::Pool;
use lab::{Shop, ShopExtras, ShopOptions};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where the package lies.
const PACKAGE: &str = "/usr/share/mediawiki";
/// The wiki's pages: a folder beside the package, which a wiki of several on a machine has too.
const PAGES: [(&str, &str); 4] = [
    (
        "index.php",
        "<?php\ndefine('MW_CONFIG_FILE', __DIR__ . '/LocalSettings.php');\n\
         require '/usr/share/mediawiki/index.php';\n",
    ),
    (
        "api.php",
        "<?php\ndefine('MW_CONFIG_FILE', __DIR__ . '/LocalSettings.php');\n\
         require '/usr/share/mediawiki/api.php';\n",
    ),
    ("polder.php", include_str!("../../../../examples/wiki/polder.php")),
    ("healthz.php", "<?php echo 'ok';\n"),
];
/// What the example calls the wiki, and where its edge listens.
const EXAMPLE: (&str, &str) = ("wiki.example", "'127.0.0.1:8080'");
/// The first user.
const NAME: &str = "Admin";
const PASSWORD: &str = "nobody guesses this one";
/// As [`Connection`] waits.
const HANG: Duration = Duration::from_secs(30);

/// An installed wiki and its database. Drop it after the pool.
pub struct Wiki {
    shop: Shop,
}

impl Wiki {
    /// Installs one, which takes some seconds; says why if there is none here.
    pub fn install() -> Option<Self> {
        if !Path::new(PACKAGE).join("maintenance/install.php").exists() {
            eprintln!("skipped: {PACKAGE} was not found; the Debian package is mediawiki");
            return None;
        }
        let options = ShopOptions { children: 6, payment: Duration::ZERO };
        let extras = ShopExtras { pages: &PAGES, schema: "" };
        let wiki = match Shop::start_with(options, extras) {
            Err(error) if error.is_lack() => {
                eprintln!("skipped: {error}");
                return None;
            }
            started => Self { shop: started.unwrap() },
        };
        let (folder, socket) = (wiki.shop.folder(), wiki.shop.folder().join("database.sock"));
        // The database knows its user by the socket.
        let words = format!(
            "php {PACKAGE}/maintenance/install.php --confpath '{}' --dbtype mysql \
             --dbserver 'localhost:{}' --dbname wiki --dbuser \"$(id -un)\" \
             --installdbuser \"$(id -un)\" --server http://wiki.test --scriptpath '' \
             --pass '{PASSWORD}' 'A wiki' {NAME}",
            folder.join("site").display(),
            socket.display(),
        );
        wiki.run(&words, "");
        Some(wiki)
    }

    /// The command that serves it.
    pub fn command(&self) -> Vec<String> {
        self.shop.command()
    }

    /// Tells it of its edges; before the first request, since PHP keeps programs for seconds.
    pub fn tell_of(&self, pool: &Pool) {
        let site = self.shop.folder().join("site");
        let told = std::fs::read_to_string(site.join("polder.php")).unwrap();
        assert!(told.contains(EXAMPLE.0) && told.contains(EXAMPLE.1), "{told}");
        let told = told.replace(EXAMPLE.0, "wiki.test");
        let told = told.replace(EXAMPLE.1, &format!("'{}'", pool.edges[0]));
        std::fs::write(site.join("polder.php"), told).unwrap();
        let settings = site.join("LocalSettings.php");
        let mut settings = std::fs::File::options().append(true).open(settings).unwrap();
        // The queue of its jobs is worked off when the test says so.
        let own = "\n$wgJobRunRate = 0;\n$wgArticlePath = '/wiki/$1';\n\
                   $wgCacheDirectory = __DIR__ . '/../cache';\n\
                   require __DIR__ . '/polder.php';\n";
        settings.write_all(own.as_bytes()).unwrap();
    }

    /// A program of its `maintenance` folder, and what it reads; without curl if that is said.
    pub fn maintain(&self, arguments: &str, input: &str, has_curl: bool) {
        let without = if has_curl { "" } else { "curl_exec,curl_multi_exec,curl_multi_init" };
        let settings = self.shop.folder().join("site/LocalSettings.php");
        let (program, arguments) = arguments.split_once(' ').unwrap_or((arguments, ""));
        let words = format!(
            "php -d disable_functions={without} {PACKAGE}/maintenance/{program}.php --conf '{}' \
             {arguments}",
            settings.display()
        );
        self.run(&words, input);
    }

    /// Runs a shell's command as the user whose servers these are.
    fn run(&self, words: &str, input: &str) {
        let folder = self.shop.folder();
        let mut command = Command::new("setpriv");
        if rustix::process::geteuid().is_root() {
            command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
        }
        command.args(["sh", "-c", words]).env("TMPDIR", &folder).current_dir(&folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
        assert!(output.status.success(), "{words}: {}{}", said[0], said[1]);
    }
}

/// Somebody with a browser of his own.
#[derive(Clone, Debug)]
pub struct Visitor {
    edge: SocketAddr,
    address: Ipv4Addr,
    cookies: BTreeMap<String, String>,
}

impl Visitor {
    pub fn of(edge: SocketAddr) -> Self {
        Self { edge, address: Ipv4Addr::LOCALHOST, cookies: BTreeMap::new() }
    }

    /// The same at another edge.
    pub fn at(&self, edge: SocketAddr) -> Self {
        Self { edge, ..self.clone() }
    }

    /// The same from another loopback address.
    pub fn from(&self, address: [u8; 4]) -> Self {
        Self { address: address.into(), ..self.clone() }
    }

    pub fn with_cookie(mut self, name: &str, value: &str) -> Self {
        self.cookies.insert(name.to_owned(), value.to_owned());
        self
    }

    pub fn has_cookie(&self, name: &str) -> bool {
        self.cookies.contains_key(name)
    }

    /// Sends a request, keeps the cookies of its answer.
    pub fn ask(&mut self, method: &str, target: &str, form: &str) -> Answer {
        let mut connection = self.connect();
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: wiki.test\r\n");
        let cookies: Vec<_> =
            self.cookies.iter().map(|(key, value)| format!("{key}={value}")).collect();
        if !cookies.is_empty() {
            let _ = write!(head, "Cookie: {}\r\n", cookies.join("; "));
        }
        if method == "POST" {
            let kind = "application/x-www-form-urlencoded";
            let _ = write!(head, "Content-Type: {kind}\r\nContent-Length: {}\r\n", form.len());
        }
        connection.stream().write_all((head + "\r\n" + form).as_bytes()).unwrap();
        let answer = connection.receive().unwrap();
        for cookie in answer.headers("set-cookie") {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        answer
    }

    fn connect(&self) -> Connection {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::new(IpAddr::V4(self.address), 0)).unwrap();
        connect(&socket, &self.edge).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.set_write_timeout(Some(HANG)).unwrap();
        Connection::over(stream, self.edge)
    }

    /// Looks at a page without keeping cookies: status, text, whether it was a hit.
    pub fn view(&self, path: &str) -> (u16, String, bool) {
        let answer = self.clone().ask("GET", path, "");
        let is_hit = answer.is_hit();
        (answer.status, String::from_utf8(answer.body).unwrap(), is_hit)
    }

    /// Asks the wiki's API, by POST if there are fields besides.
    pub fn api(&mut self, query: &str, fields: &[(&str, &str)]) -> serde_json::Value {
        let field = |(name, value): &(&str, &str)| format!("{name}={}", escaped(value));
        let form: Vec<_> = fields.iter().map(field).collect();
        let method = if fields.is_empty() { "GET" } else { "POST" };
        let target = format!("/api.php?format=json&formatversion=2&{query}");
        let answer = self.ask(method, &target, &form.join("&"));
        let text = String::from_utf8(answer.body).unwrap();
        assert_eq!(answer.status, 200, "{target}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{target}: {error}: {text}"))
    }

    /// A token of this kind.
    fn token(&mut self, kind: &str) -> String {
        let answer = self.api(&format!("action=query&meta=tokens&type={kind}"), &[]);
        let token = &answer["query"]["tokens"][format!("{kind}token")];
        token.as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    pub fn log_in(&mut self) {
        let token = self.token("login");
        let fields = [("lgname", NAME), ("lgpassword", PASSWORD), ("lgtoken", &token)];
        let answer = self.api("action=login", &fields);
        assert_eq!(answer["login"]["result"], "Success", "{answer}");
    }

    /// Does something that changes the wiki: `edit`, `move`, `delete`.
    pub fn change(&mut self, action: &str, fields: &[(&str, &str)]) {
        let token = self.token("csrf");
        let fields = [fields, &[("token", &token)]].concat();
        let answer = self.api(&format!("action={action}"), &fields);
        assert!(answer.get(action).is_some(), "{answer}");
    }

    pub fn edit(&mut self, title: &str, text: &str) {
        self.change("edit", &[("title", title), ("text", text)]);
    }
}

/// A field of a form.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}
