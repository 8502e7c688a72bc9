//! `tls = { ... }` of a site.

use super::model::{ClientCertificate, SiteTls};
use super::problem::Findings;
use super::reader::{At, Table};
use super::schema::TLS;
use std::path::PathBuf;

/// Reads the table, if there is one.
pub(super) fn read(site: &Table<'_>, findings: &Findings) -> Option<SiteTls> {
    let value = site.get("tls")?;
    if !value.get_ref().is_table() {
        let help = "write `{ certificate = \"/etc/...\", key = \"/etc/...\" }`";
        findings.error(&value.span(), "`tls` is not a table", help);
        return None;
    }
    let mut table = Table::open(&TLS, Some(value), findings);
    table.title = format!("`tls` of {}", site.title);
    let modes = [ClientCertificate::Off, ClientCertificate::Optional, ClientCertificate::Required];
    let tls = SiteTls {
        certificate: path("certificate", &table.text("certificate"), findings),
        key: path("key", &table.text("key"), findings),
        client_ca: table.text_given("client_ca").map(|text| path("client_ca", &text, findings)),
        client_certificate: table.choice("client_certificate", &modes),
    };
    if tls.client_certificate != ClientCertificate::Off && tls.client_ca.is_none() {
        let message = format!("{} has no `client_ca`", table.title);
        let help = "name the file of those who sign the clients' certificates";
        findings.error(&table.span, message, help);
    }
    Some(tls)
}

fn path(name: &str, text: &At<&str>, findings: &Findings) -> PathBuf {
    let path = PathBuf::from(text.value);
    // What is missing was reported.
    if !text.value.is_empty() && (!path.is_absolute() || text.value.contains('\0')) {
        let message = format!("`{name}` is not an absolute path");
        findings.error(&text.span, message, "start it with `/`");
    }
    path
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    fn site(tls: &str) -> String {
        format!(
            "[[edges]]\ntls_listen = [\"127.0.0.1:0\"]\n[[sites]]\nname = \"a\"\n\
             hosts = [\"a.localhost\"]\ncommand = [\"x\"]\ntls = {tls}\n\
             [[nodes]]\nname = \"n\"\n"
        )
    }

    #[test]
    fn a_certificate_survives_the_way_to_text_and_back() {
        let text = site(
            "{ certificate = \"/a.pem\", key = \"/a.key\", client_ca = \"/ca.pem\", \
             client_certificate = \"required\" }",
        );
        let settings = parse("x", &text, &[]).unwrap().settings;
        assert!(settings.edges[0].listen.is_empty() && settings.edges[0].tls_listen.len() == 1);
        assert_eq!(parse("x", &settings.to_toml(), &[]).unwrap().settings, settings);
    }

    #[test]
    fn mistakes_are_named() {
        for (tls, words) in [
            ("\"/a.pem\"", "not a table"),
            ("{ certificate = \"/a\" }", "has no `key`"),
            ("{ certificate = \"a.pem\", key = \"/a\" }", "`certificate` is not an absolute path"),
            ("{ certificate = \"/a\", key = \"/a\", client = 1 }", "unknown key `client`"),
            (
                "{ certificate = \"/a\", key = \"/a\", client_certificate = \"optional\" }",
                "has no `client_ca`",
            ),
            ("{ certificate = \"/a\", key = \"/a\", client_certificate = \"on\" }", "not known"),
        ] {
            let problems = parse("x", &site(tls), &[]).unwrap_err().to_string();
            assert!(problems.contains(words), "{problems}");
        }
    }
}
