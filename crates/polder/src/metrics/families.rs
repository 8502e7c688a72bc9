//! All metrics, in one place: name (a noun and its unit), help, and where the value comes from.

use crate::status::StatusReport;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// The type of the text that [`text`] gives.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One value with its labels.
struct Sample {
    labels: Vec<(&'static str, String)>,
    value: f64,
}

struct Family {
    name: &'static str,
    help: &'static str,
    is_counter: bool,
    samples: fn(&StatusReport) -> Vec<Sample>,
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    samples: fn(&StatusReport) -> Vec<Sample>,
) -> Family {
    Family { name, help, is_counter: false, samples }
}

const fn counter(
    name: &'static str,
    help: &'static str,
    samples: fn(&StatusReport) -> Vec<Sample>,
) -> Family {
    Family { name, help, is_counter: true, samples }
}

/// A value for each site.
macro_rules! sites {
    ($site:ident => $value:expr) => {
        |report| {
            let sample = |$site: &crate::status::SiteStatus| Sample {
                labels: vec![("site", $site.name.clone())],
                value: $value,
            };
            report.sites.iter().map(sample).collect()
        }
    };
}

/// A value for each admission class of each site.
macro_rules! classes {
    ($class:ident => $value:expr) => {
        |report| {
            let of = |site: &crate::status::SiteStatus| -> Vec<Sample> {
                let sample = |$class: &crate::status::ClassStatus| Sample {
                    labels: vec![("site", site.name.clone()), ("class", $class.name.clone())],
                    value: $value,
                };
                site.classes.iter().map(sample).collect()
            };
            report.sites.iter().flat_map(of).collect()
        }
    };
}

/// A value for each node.
macro_rules! nodes {
    ($node:ident => $value:expr) => {
        |report| {
            let sample = |$node: &crate::status::NodeStatus| Sample {
                labels: vec![("node", $node.name.clone())],
                value: $value,
            };
            report.nodes.iter().map(sample).collect()
        }
    };
}

/// A value for each edge.
macro_rules! edges {
    ($edge:ident => $value:expr) => {
        |report| {
            let sample = |$edge: &crate::status::EdgeStatus| Sample {
                labels: vec![("edge", $edge.edge.to_string())],
                value: $value,
            };
            report.edges.iter().map(sample).collect()
        }
    };
}

/// A value for each edge with a cache.
macro_rules! caches {
    ($cache:ident => $value:expr) => {
        |report| {
            let sample = |edge: &crate::status::EdgeStatus| {
                let $cache = edge.cache.as_ref()?;
                Some(Sample { labels: vec![("edge", edge.edge.to_string())], value: $value })
            };
            report.edges.iter().filter_map(sample).collect()
        }
    };
}

/// A value for each edge whose cache has a disk tier.
macro_rules! disks {
    ($disk:ident => $value:expr) => {
        |report| {
            let sample = |edge: &crate::status::EdgeStatus| {
                let $disk = edge.cache.as_ref()?.disk.as_ref()?;
                Some(Sample { labels: vec![("edge", edge.edge.to_string())], value: $value })
            };
            report.edges.iter().filter_map(sample).collect()
        }
    };
}

fn cache_forwards(report: &StatusReport) -> Vec<Sample> {
    let of = |edge: &crate::status::EdgeStatus| -> Vec<Sample> {
        let forwards = edge.cache.iter().flat_map(|cache| &cache.forwards);
        let sample = |(why, &count): (&String, &u64)| Sample {
            labels: vec![("edge", edge.edge.to_string()), ("reason", why.clone())],
            value: count as f64,
        };
        forwards.map(sample).collect()
    };
    report.edges.iter().flat_map(of).collect()
}

fn one(value: f64) -> Vec<Sample> {
    vec![Sample { labels: Vec::new(), value }]
}

fn node_sites(report: &StatusReport) -> Vec<Sample> {
    let served = report.nodes.iter().filter_map(|node| {
        let site = node.site.clone()?;
        Some(Sample { labels: vec![("node", node.name.clone()), ("site", site)], value: 1.0 })
    });
    served.collect()
}

fn below_hard(report: &StatusReport) -> Vec<Sample> {
    let causes = |site: &crate::status::SiteStatus| {
        let (name, below) = (site.name.clone(), &site.terms.below_hard);
        let all = [("unmet", below.unmet_s), ("node", below.node_s), ("move", below.move_s)];
        all.map(|(cause, value)| Sample {
            labels: vec![("site", name.clone()), ("cause", cause.to_owned())],
            value,
        })
    };
    report.sites.iter().flat_map(causes).collect()
}

const FAMILIES: &[Family] = &[
    gauge("polder_uptime_seconds", "Time since the pool started.", |report| {
        one(report.pool.uptime_s as f64)
    }),
    gauge("polder_paused", "1 while moves are paused by a person.", |report| {
        one(f64::from(u8::from(report.pool.paused)))
    }),
    gauge("polder_warnings", "Warnings that `polder status` shows.", |report| {
        one(report.warnings.len() as f64)
    }),
    gauge("polder_site_nodes", "Nodes that serve the site.", sites!(site => site.nodes.into())),
    gauge("polder_site_hard_nodes", "Nodes that no move takes.", sites!(site => site.hard.into())),
    gauge(
        "polder_site_soft_nodes",
        "Nodes that the site gets back when it is loaded.",
        sites!(site => site.terms.soft.into()),
    ),
    gauge(
        "polder_site_max_nodes",
        "Nodes beyond which the site takes no more; none without a bound.",
        |report| {
            let sample = |site: &crate::status::SiteStatus| {
                let labels = vec![("site", site.name.clone())];
                Some(Sample { labels, value: site.max?.into() })
            };
            report.sites.iter().filter_map(sample).collect()
        },
    ),
    gauge(
        "polder_site_priority",
        "Importance of the site; the larger goes first.",
        sites!(site => site.terms.priority.into()),
    ),
    gauge(
        "polder_site_hard_met",
        "1 while the site has the nodes that no move takes.",
        sites!(site => f64::from(u8::from(site.terms.hard_met))),
    ),
    gauge(
        "polder_site_soft_met",
        "1 while the site has as many nodes as it gets back when it is loaded.",
        sites!(site => f64::from(u8::from(site.terms.soft_met))),
    ),
    counter(
        "polder_site_below_hard_seconds",
        "Time below the hard guarantee, by cause: unmet yet, nodes that died, or moves.",
        below_hard,
    ),
    gauge(
        "polder_site_objective_seconds",
        "Time within which the site promises 99 of 100 responses; none without a promise.",
        |report| {
            let sample = |site: &crate::status::SiteStatus| {
                let labels = vec![("site", site.name.clone())];
                Some(Sample { labels, value: f64::from(site.terms.p99_ms?) / 1e3 })
            };
            report.sites.iter().filter_map(sample).collect()
        },
    ),
    counter(
        "polder_site_slower_requests",
        "Requests that took longer than the site's objective.",
        sites!(site => site.terms.slower as f64),
    ),
    gauge(
        "polder_site_service_seconds",
        "Mean time that the site's servers take for one request, of late.",
        sites!(site => site.terms.service_ms.map_or(f64::NAN, |ms| ms / 1e3)),
    ),
    gauge(
        "polder_site_load_ratio",
        "Requests in flight and queued, over what the site's nodes take at once.",
        sites!(site => site.load.unwrap_or(f64::NAN)),
    ),
    gauge("polder_site_queued_requests", "Requests that wait.", sites!(site => site.queued as f64)),
    gauge(
        "polder_site_in_flight_requests",
        "Requests in flight.",
        sites!(site => site.in_flight as f64),
    ),
    counter("polder_site_requests", "Requests taken.", sites!(site => site.requests as f64)),
    counter(
        "polder_site_failed_requests",
        "Requests that failed through no fault of the client.",
        sites!(site => site.failed as f64),
    ),
    counter(
        "polder_site_refused_requests",
        "Requests refused because the queue was full or the wait too long.",
        sites!(site => site.refused as f64),
    ),
    counter(
        "polder_site_client_limited_requests",
        "Requests refused with 429 because their client asked too often.",
        sites!(site => site.traffic.client_limited as f64),
    ),
    counter(
        "polder_site_limited_requests",
        "Requests refused with 429 because all clients together asked too often.",
        sites!(site => site.traffic.site_limited as f64),
    ),
    counter(
        "polder_site_ejections",
        "Ejections of servers that failed requests in a row.",
        sites!(site => site.traffic.ejections as f64),
    ),
    gauge(
        "polder_site_ejected_servers",
        "Servers that get no requests because they failed some, at the edge that has most.",
        sites!(site => site.traffic.ejected.into()),
    ),
    counter(
        "polder_site_spread_requests",
        "Requests spread over all servers because too many of them failed at once.",
        sites!(site => site.traffic.spread as f64),
    ),
    gauge(
        "polder_site_slow_starting_servers",
        "Servers that have not got to their whole share yet.",
        sites!(site => site.traffic.slow.into()),
    ),
    counter(
        "polder_site_sticky_kept_requests",
        "Sticky requests that went to the server that they belong to.",
        sites!(site => site.traffic.sticky_kept as f64),
    ),
    counter(
        "polder_site_sticky_anew_requests",
        "Sticky requests that went elsewhere: their server was gone, or full for too long.",
        sites!(site => site.traffic.sticky_anew as f64),
    ),
    counter(
        "polder_class_requests",
        "Requests of an admission class.",
        classes!(class => class.requests as f64),
    ),
    counter(
        "polder_class_shed_requests",
        "Requests of an admission class that were refused for want of room.",
        classes!(class => class.shed as f64),
    ),
    gauge(
        "polder_class_queued_requests",
        "Requests of an admission class that wait.",
        classes!(class => class.queued as f64),
    ),
    gauge("polder_node_site", "1 for the site that the node serves.", node_sites),
    gauge(
        "polder_node_in_flight_requests",
        "Requests in flight at the node.",
        nodes!(node => node.in_flight.into()),
    ),
    gauge(
        "polder_node_upgraded_connections",
        "Upgraded connections to the node's servers; they are not in flight.",
        nodes!(node => node.upgraded as f64),
    ),
    gauge(
        "polder_node_capacity_ratio",
        "How much the node serves in a given time; a usual node is 1.",
        nodes!(node => f64::from(node.traits.capacity_pct) / 1e2),
    ),
    counter(
        "polder_node_restarts",
        "Servers of the node that were started again.",
        nodes!(node => node.restarts.into()),
    ),
    gauge(
        "polder_edge_up",
        "1 if the edge answers.",
        edges!(edge => f64::from(u8::from(edge.alive))),
    ),
    gauge(
        "polder_edge_connections",
        "Client connections of the edge.",
        edges!(edge => edge.connections as f64),
    ),
    gauge(
        "polder_edge_look_interval_seconds",
        "Time between two looks of the edge at present.",
        edges!(edge => edge.look_every_ms / 1e3),
    ),
    gauge(
        "polder_edge_look_seconds",
        "Median time that a look took in the last second.",
        edges!(edge => edge.look_us / 1e6),
    ),
    gauge(
        "polder_edge_look_cpu_ratio",
        "Share of a core that looking takes.",
        edges!(edge => edge.look_cpu_pct / 1e2),
    ),
    counter(
        "polder_edge_moves",
        "Moves that the edge carried out.",
        edges!(edge => edge.moves as f64),
    ),
    gauge(
        "polder_edge_upgraded_connections",
        "Client connections of the edge that were upgraded to another protocol.",
        edges!(edge => edge.upgraded as f64),
    ),
    counter(
        "polder_edge_tls_handshakes",
        "TLS handshakes that were completed.",
        edges!(edge => edge.tls_handshakes as f64),
    ),
    counter(
        "polder_edge_failed_tls_handshakes",
        "TLS handshakes that failed, those whose client went away among them.",
        edges!(edge => edge.tls_failures as f64),
    ),
    counter(
        "polder_edge_refused_proxy_headers",
        "Connections closed because they did not begin with a PROXY header as they must.",
        edges!(edge => edge.proxy_headers_refused as f64),
    ),
    counter(
        "polder_edge_dropped_access_log_lines",
        "Lines of the access log that were dropped because they could not be written in time.",
        edges!(edge => edge.access_log_dropped as f64),
    ),
    counter(
        "polder_cache_hits",
        "Requests that the edge answered from its cache without a question.",
        caches!(cache => cache.hits as f64),
    ),
    counter(
        "polder_cache_forwards",
        "Requests of sites with a cache that went to a server, by the reason.",
        cache_forwards,
    ),
    counter(
        "polder_cache_stored_responses",
        "Responses that were stored.",
        caches!(cache => cache.stored as f64),
    ),
    counter(
        "polder_cache_unstored_responses",
        "Responses to GET that were not stored.",
        caches!(cache => cache.not_stored as f64),
    ),
    counter(
        "polder_cache_renewed_responses",
        "Stored responses that a server said still hold.",
        caches!(cache => cache.renewed as f64),
    ),
    counter(
        "polder_cache_stale_stand_ins",
        "Stale responses that stood in for a failed server.",
        caches!(cache => cache.stood_in as f64),
    ),
    counter(
        "polder_cache_refused_hits",
        "Fresh responses that were no hit, because their tags had changed.",
        caches!(cache => cache.refused as f64),
    ),
    counter(
        "polder_cache_audits",
        "Hits about which a server was asked too.",
        caches!(cache => cache.audited as f64),
    ),
    counter(
        "polder_cache_audit_violations",
        "Hits that were proved to be older than they may be: a change was not told.",
        caches!(cache => cache.violations as f64),
    ),
    counter("polder_cache_purges", "Purges.", caches!(cache => cache.purges as f64)),
    counter(
        "polder_cache_evictions",
        "Stored responses that had to make room.",
        caches!(cache => cache.evicted as f64),
    ),
    gauge(
        "polder_cache_held_bytes",
        "Bytes that the cache holds.",
        caches!(cache => cache.bytes as f64),
    ),
    gauge(
        "polder_cache_held_urls",
        "URLs that the cache holds a response for.",
        caches!(cache => cache.urls as f64),
    ),
    gauge(
        "polder_cache_waiting_requests",
        "Requests that wait for another request's response.",
        caches!(cache => cache.waiting as f64),
    ),
    gauge(
        "polder_cache_disk_held_bytes",
        "Bytes of the files of the cache's disk tier.",
        disks!(disk => disk.bytes as f64),
    ),
    gauge(
        "polder_cache_disk_held_urls",
        "URLs that the disk tier holds a response for.",
        disks!(disk => disk.urls as f64),
    ),
    counter(
        "polder_cache_disk_recalls",
        "URLs whose responses came back from the disk.",
        disks!(disk => disk.recalled as f64),
    ),
    counter(
        "polder_cache_disk_written_files",
        "Files written by the disk tier.",
        disks!(disk => disk.written as f64),
    ),
    counter(
        "polder_cache_disk_evictions",
        "Files that had to make room.",
        disks!(disk => disk.evicted as f64),
    ),
    counter(
        "polder_cache_disk_dropped_urls",
        "URLs that memory gave up faster than the disk could take them.",
        disks!(disk => disk.dropped as f64),
    ),
    counter(
        "polder_cache_disk_faults",
        "Files that were damaged, or could not be read or written.",
        disks!(disk => (disk.damaged + disk.failed) as f64),
    ),
];

#[derive(Debug)]
struct Report(StatusReport);

impl Collector for Report {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in FAMILIES {
            let kind = if family.is_counter { MetricType::Counter } else { MetricType::Gauge };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for Sample { labels, value } in (family.samples)(&self.0) {
                if labels.is_empty() {
                    metric.encode_gauge(&value)?;
                    continue;
                }
                let mut labelled = metric.encode_family(&labels)?;
                if family.is_counter {
                    labelled.encode_counter::<[(String, String); 0], f64, f64>(&value, None)?;
                } else {
                    labelled.encode_gauge(&value)?;
                }
            }
        }
        Ok(())
    }
}

/// The report as metrics.
#[must_use]
pub fn text(report: StatusReport) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Report(report)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .expect("writing to a string does not fail");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::example;

    #[test]
    fn the_report_is_in_the_metrics() {
        let mut report = example();
        report.sites[1].classes = vec![crate::status::ClassStatus {
            name: "gold".into(),
            requests: 70,
            shed: 9,
            queued: 2,
        }];
        let forwards = [("uri-miss".to_owned(), 4)].into();
        let cache = crate::status::CacheStatus { hits: 6, forwards, ..Default::default() };
        report.edges[0].cache = Some(cache);
        let text = text(report);
        for line in [
            "polder_cache_hits_total{edge=\"0\"} 6.0",
            "polder_cache_forwards_total{edge=\"0\",reason=\"uri-miss\"} 4.0",
            "polder_class_shed_requests_total{site=\"blog\",class=\"gold\"} 9.0",
            "polder_site_nodes{site=\"shop\"} 1.0",
            "polder_site_requests_total{site=\"blog\"} 5000.0",
            "polder_site_soft_nodes{site=\"shop\"} 1.0",
            "polder_site_max_nodes{site=\"shop\"} 4.0",
            "polder_site_soft_met{site=\"shop\"} 1.0",
            "polder_site_below_hard_seconds_total{site=\"shop\",cause=\"move\"} 0.0",
            "polder_site_slower_requests_total{site=\"shop\"} 0.0",
            "polder_node_capacity_ratio{node=\"n1\"} 1.0",
            "polder_node_site{node=\"n2\",site=\"blog\"} 1.0",
            "polder_edge_look_interval_seconds{edge=\"0\"} 0.001",
            "polder_node_upgraded_connections{node=\"n2\"} 3.0",
            "polder_edge_refused_proxy_headers_total{edge=\"0\"} 0.0",
            "polder_uptime_seconds 3700.0",
            "# TYPE polder_site_requests counter",
            "# HELP polder_site_nodes Nodes that serve the site.",
            "# EOF",
        ] {
            assert!(text.lines().any(|given| given == line), "{line}:\n{text}");
        }
    }

    #[test]
    fn names_are_unique_nouns_with_units_and_counters_without_total() {
        let mut names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FAMILIES.len());
        for family in FAMILIES {
            assert!(family.name.starts_with("polder_") && !family.name.ends_with("_total"));
            assert!(family.help.ends_with('.'), "{}", family.name);
        }
    }

    #[test]
    fn labels_cannot_break_a_line() {
        let mut report = example();
        report.sites[0].name = "a\"b\\c\nd".into();
        let text = text(report);
        assert!(text.contains(r#"site="a\"b\\c\nd""#), "{text}");
    }
}
