//! `admission` of a site: which of its requests go first.

use super::names;
use super::problem::Findings;
use super::reader::{At, Table, shown};
use super::schema::ADMISSION;
use edge::{CLASSES_MAX, ClassRule, HeaderRule, LAST_CLASS};
use std::collections::HashSet;
use toml::de::DeValue;

/// Reads the list, the most important class first.
pub(super) fn admission<'a>(site: &Table<'a>, findings: &'a Findings) -> Vec<ClassRule> {
    let Some(value) = site.get("admission") else { return Vec::new() };
    let DeValue::Array(items) = value.get_ref() else {
        let help = "write `[{ name = \"gold\", header = \"X-Plan: gold\" }]`";
        findings.error(&value.span(), "`admission` is not a list of tables", help);
        return Vec::new();
    };
    if items.len() >= CLASSES_MAX {
        let most = CLASSES_MAX - 1;
        let message = format!("`admission` has {} classes, more than {most}", items.len());
        let help = "requests that match none of them form one more";
        findings.error(&value.span(), message, help);
    }
    let mut rules = Vec::new();
    let mut known = HashSet::new();
    for item in items.iter().take(CLASSES_MAX) {
        let mut table = Table::open(&ADMISSION, Some(item), findings);
        table.title = format!("a class in `admission` of {}", site.title);
        if !item.get_ref().is_table() {
            continue;
        }
        let name = names::name_of(&table, "class", findings);
        if name.value == LAST_CLASS {
            let message = format!("`{LAST_CLASS}` is what requests that match no class are called");
            findings.error(&name.span, message, "take another name");
        } else if !name.value.is_empty() && !known.insert(name.value.clone()) {
            let message = format!("there are two classes `{}`", shown(&name.value));
            findings.error(&name.span, message, "give each class its own name");
        }
        rules.push(rule(&table, name.value, findings));
    }
    rules
}

fn rule(table: &Table<'_>, name: String, findings: &Findings) -> ClassRule {
    let header = table.text_given("header");
    let path = table.text_given("path");
    if table.get("header").or_else(|| table.get("path")).is_none() {
        let message = format!("{} says neither `header` nor `path`", table.title);
        let help = "say by what its requests are known: `header = \"X-Plan: gold\"`";
        findings.error(&table.span, message, help);
    }
    ClassRule {
        name,
        header: header.and_then(|text| header_rule(&text, findings)),
        path: path.and_then(|text| path_start(&text, findings)),
    }
}

fn header_rule(text: &At<&str>, findings: &Findings) -> Option<HeaderRule> {
    let rule = HeaderRule::parse(text.value);
    if rule.is_none() {
        let message = format!("`{}` is no header field", shown(text.value));
        findings.error(&text.span, message, "write `Name: value`, or `Name` for any value");
    }
    rule
}

fn path_start(text: &At<&str>, findings: &Findings) -> Option<String> {
    let plain = text.value.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?');
    if text.value.starts_with('/') && plain {
        return Some(text.value.to_owned());
    }
    let message = format!("`{}` is not how a path begins", shown(text.value));
    findings.error(&text.span, message, "start it with `/`; escape what is not ASCII");
    None
}

#[cfg(test)]
mod tests {
    use crate::settings::{Problems, Settings, parse};

    fn settings(admission: &str) -> Result<Settings, Problems> {
        let text = format!(
            "[[sites]]\nname = 'shop'\nhosts = ['shop.localhost']\nadmission = {admission}\n\
             [[nodes]]\nname = 'n'\nservers = {{ shop = '127.0.0.1:9001' }}\n"
        );
        parse("x.toml", &text, &[]).map(|checked| checked.settings)
    }

    #[test]
    fn classes_are_read_in_their_order_and_written_back() {
        let given =
            "[{ name = 'gold', header = 'X-Plan: gold' }, { name = 'api', path = '/api/' }]";
        let read = settings(given).unwrap();
        let names: Vec<_> = read.sites[0].admission.iter().map(|rule| &rule.name).collect();
        assert_eq!(names, ["gold", "api"]);
        let again = parse("copy", &read.to_toml(), &[]).unwrap().settings;
        assert_eq!(again, read);
        assert_eq!(settings("[]").unwrap().sites[0].admission, []);
        let set = ["sites.shop.admission=[{ name = \"x\", path = \"/\" }]".to_owned()];
        let over = parse("copy", &read.to_toml(), &set).unwrap().settings;
        assert_eq!(over.sites[0].admission.len(), 1);
    }

    #[test]
    fn what_is_wrong_with_a_class_is_named() {
        let class = "{ name = 'a1', path = '/' }";
        let many: Vec<String> = (0..8).map(|n| class.replace("a1", &format!("a{n}"))).collect();
        let cases = [
            ("3", "`admission` is not a list of tables"),
            ("[3]", "not a table"),
            ("[{ name = 'gold' }]", "says neither `header` nor `path`"),
            ("[{ path = '/' }]", "has no `name`"),
            ("[{ name = 'Gold', path = '/' }]", "cannot name a class"),
            ("[{ name = 'other', path = '/' }]", "match no class"),
            ("[{ name = 'gold', header = 'a b: c' }]", "no header field"),
            ("[{ name = 'gold', path = 'api' }]", "not how a path begins"),
            ("[{ name = 'gold', paht = '/' }]", "unknown key `paht`"),
            (&format!("[{class}, {class}]"), "two classes `a1`"),
            (&format!("[{}]", many.join(", ")), "8 classes, more than 7"),
        ];
        for (given, words) in cases {
            let problems = settings(given).unwrap_err();
            assert!(problems.to_string().contains(words), "{given}: {problems}");
        }
    }
}
