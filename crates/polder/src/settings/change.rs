//! From one pool's settings to the next: which typed changes lead there, and which can't be made
//! while the pool runs.
//!
//! Ids are places in the lists of sites and nodes, and shared memory is full of them. So the next
//! settings are first put into the order of the present ones ([`arranged`]): what is known keeps
//! its place, what is new follows.
//!
//! ```text
//! changes(old, new) = what differs, table by table, or all that stands in the way
//! apply(changes(old, new), old) = arranged(old, new)
//! ```

use super::model::{AccessLog, Edge, Health, Http, Node, Pool, Servers, Settings, Site};
use pool_model::{NodeId, NodeTraits, SiteId};

/// One change. Each carries the whole new table.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// `[pool]`, but for what a pool has for life.
    Pool(Pool),
    /// `[http]`.
    Http(Http),
    /// `[health]`.
    Health(Health),
    /// `[access_log]`: other processes take over from all edges.
    AccessLog(AccessLog),
    /// An edge listens elsewhere, or with other threads: another process takes over from it.
    Edge {
        /// Its place.
        place: usize,
        /// What it is.
        edge: Edge,
    },
    /// One more edge, behind the others.
    EdgeAdded(Edge),
    /// The last edge goes.
    EdgeRemoved,
    /// The names of classes.
    Classes(Vec<String>),
    /// A site.
    Site {
        /// Which.
        id: SiteId,
        /// What it is.
        site: Box<Site>,
    },
    /// A node.
    Node {
        /// Which.
        id: NodeId,
        /// What it is.
        node: Node,
    },
    /// One more node, behind the others.
    NodeAdded(Node),
    /// The last node goes.
    NodeRemoved,
}

/// What leads from `old` to `new`, which must be in the order of [`arranged`].
///
/// # Errors
/// What can't change while the pool runs, each with what to do about it.
pub fn changes(old: &Settings, new: &Settings) -> Result<Vec<Change>, Vec<String>> {
    let refused = refused(old, new);
    if !refused.is_empty() {
        return Err(refused);
    }
    // A table that is added to the settings has to be named here.
    let Settings { pool, edges, http, health, access_log, remote: _, sites, nodes, classes } = new;
    let mut changes = Vec::new();
    if *pool != old.pool {
        changes.push(Change::Pool(pool.clone()));
    }
    if *http != old.http {
        changes.push(Change::Http(http.clone()));
    }
    if *health != old.health {
        changes.push(Change::Health(health.clone()));
    }
    if *access_log != old.access_log {
        changes.push(Change::AccessLog(access_log.clone()));
    }
    if *classes != old.classes {
        changes.push(Change::Classes(classes.clone()));
    }
    for (index, (site, before)) in sites.iter().zip(&old.sites).enumerate() {
        if let (true, Ok(id)) = (site != before, SiteId::from_index(index)) {
            changes.push(Change::Site { id, site: Box::new(site.clone()) });
        }
    }
    for (place, (edge, before)) in edges.iter().zip(&old.edges).enumerate() {
        if edge != before {
            changes.push(Change::Edge { place, edge: edge.clone() });
        }
    }
    changes.extend(edges.iter().skip(old.edges.len()).cloned().map(Change::EdgeAdded));
    changes.extend(old.edges.iter().skip(edges.len()).map(|_| Change::EdgeRemoved));
    for ((node, before), number) in nodes.iter().zip(&old.nodes).zip(0..) {
        if let (true, Ok(id)) = (node != before, NodeId::new(number)) {
            changes.push(Change::Node { id, node: node.clone() });
        }
    }
    changes.extend(nodes.iter().skip(old.nodes.len()).cloned().map(Change::NodeAdded));
    changes.extend(old.nodes.iter().skip(nodes.len()).map(|_| Change::NodeRemoved));
    Ok(changes)
}

/// Makes one change.
pub fn apply(settings: &mut Settings, change: Change) {
    match change {
        Change::Pool(pool) => settings.pool = pool,
        Change::Http(http) => settings.http = http,
        Change::Health(health) => settings.health = health,
        Change::AccessLog(access_log) => settings.access_log = access_log,
        Change::Classes(classes) => settings.classes = classes,
        Change::Edge { place, edge } => settings.edges[place] = edge,
        Change::EdgeAdded(edge) => settings.edges.push(edge),
        Change::EdgeRemoved => drop(settings.edges.pop()),
        Change::Site { id, site } => settings.sites[id.index()] = *site,
        Change::Node { id, node } => settings.nodes[id.index()] = node,
        Change::NodeAdded(node) => settings.nodes.push(node),
        Change::NodeRemoved => drop(settings.nodes.pop()),
    }
}

/// What a running pool can't become, and what to do instead.
fn refused(old: &Settings, new: &Settings) -> Vec<String> {
    let mut refused = Vec::new();
    let fixed = [
        ("name", old.pool.name == new.pool.name),
        ("runtime_dir", old.pool.runtime_dir == new.pool.runtime_dir),
        ("metrics", old.pool.metrics == new.pool.metrics),
    ];
    for (key, _) in fixed.iter().filter(|(_, same)| !same) {
        let text = "is fixed for a pool's life: stop the pool and start it with the new settings";
        refused.push(format!("`{key}` in [pool] {text}"));
    }
    if old.remote != new.remote {
        let text = "concerns roles on other machines: start them, and this pool, again";
        refused.push(format!("[remote] {text}"));
    }
    let names = |settings: &Settings| -> Vec<String> {
        settings.sites.iter().map(|site| site.name.clone()).collect()
    };
    if names(old) != names(new) {
        let text = "sites can't come, go or get another name while the pool runs";
        let (old, new) = (names(old).join(", "), names(new).join(", "));
        refused.push(format!(
            "{text} (they are {old}; the file has {new}): stop the pool and start it again"
        ));
    }
    for (site, before) in new.sites.iter().zip(&old.sites) {
        // Sites that are not the same ones were refused above.
        if site.name == before.name && site.tags != before.tags {
            let text = "are fixed for a pool's life: stop the pool and start it again";
            let keys = "`tags`, `writers_socket` and `writers_group`";
            refused.push(format!("{keys} of site {} {text}", site.name));
        }
    }
    for (node, before) in new.nodes.iter().zip(&old.nodes) {
        let is_here = |node: &Node| matches!(node.servers, Servers::Addresses(_));
        if node.name != before.name {
            let name = &before.name;
            refused.push(format!(
                "node {name} is missing, and only the nodes that were added last can leave a \
                 running pool: keep it in the file, and take it out of service by `polder drain \
                 {name}`"
            ));
            break;
        }
        if is_here(node) != is_here(before) {
            let name = &node.name;
            let text = "can't change between `servers` and an agent while the pool runs";
            refused.push(format!("node {name} {text}: add a node with another name"));
        }
    }
    refused
}

/// The new settings in the order of the old ones: who is known keeps its id.
#[must_use]
pub fn arranged(old: &Settings, new: Settings) -> Settings {
    let mut arranged = new;
    let before: Vec<String> = arranged.sites.iter().map(|site| site.name.clone()).collect();
    sort(&mut arranged.sites, |site| old.site(&site.name).map(|(id, _)| id.index()));
    sort(&mut arranged.nodes, |node| old.node(&node.name).map(|(id, _)| id.index()));
    // Addresses of servers are in the order of the sites.
    let place = |site: &Site| before.iter().position(|name| *name == site.name);
    let order: Vec<usize> = arranged.sites.iter().filter_map(place).collect();
    for node in &mut arranged.nodes {
        if let Servers::Addresses(addresses) = &mut node.servers {
            *addresses = order.iter().filter_map(|&at| addresses.get(at).copied()).collect();
        }
    }
    arranged
}

/// Known ones in their order; then the others in theirs.
fn sort<T>(list: &mut [T], known: impl Fn(&T) -> Option<usize>) {
    list.sort_by_key(|one| known(one).unwrap_or(usize::MAX));
}

/// Whether a node's agent goes by something that differs: then another takes over from it.
#[must_use]
pub fn concerns_agent(old: &Settings, new: &Settings, node: NodeId) -> bool {
    // What the policy knows of a node is nothing to its agent.
    let own = |settings: &Settings| {
        let node = settings.nodes.get(node.index())?;
        Some(Node { traits: NodeTraits::default(), ..node.clone() })
    };
    let (before, after) = (own(old), own(new));
    let health = |settings: &Settings| {
        let Health {
            check_every_ms,
            check_timeout_ms,
            rise,
            fall,
            unresponsive_max_ms,
            stop_timeout_ms,
            ..
        } = settings.health;
        let checks = (check_every_ms, check_timeout_ms, rise, fall);
        (checks, unresponsive_max_ms, stop_timeout_ms)
    };
    let pool = |settings: &Settings| (settings.pool.drain_max_ms, settings.pool.slot_lease_ms);
    let same_sites = old.sites.iter().zip(&new.sites).all(|(before, after)| {
        (&before.command, before.start, &before.check)
            == (&after.command, after.start, &after.check)
    });
    before != after || health(old) != health(new) || pool(old) != pool(new) || !same_sites
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
