//! How many clients an edge may let in: a connection costs a file descriptor, and an edge that has
//! none left can reach no server, so that idle clients would fail the requests of others.

use crate::settings::Settings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of an edge besides connections and records: sockets that listen, event queues and
/// timers of its threads, control connections, standard streams. A dozen for each of a few
/// threads.
const OWN: u64 = 64;
/// For each node, its record's connection, and one more while that is made anew.
const PER_NODE: u64 = 2;

/// The part of all descriptors that is kept for upgraded connections' way to servers, where there
/// are not many: the others hold no place of `max_in_flight` and would be counted nowhere.
const UPGRADED_PART: u64 = 16;

/// Takes as many descriptors as the system allows this process, and says how many clients it can
/// let in, at most `connections_max`, and how many of them can be upgraded, at most
/// `upgraded_max`. Changes the limit of the whole process.
pub(super) fn connections_max(settings: &Settings, threads: usize) -> (usize, usize) {
    let wanted = u64::from(settings.http.connections_max);
    let limit = raised().unwrap_or(u64::MAX);
    let upgraded = for_upgraded(limit, settings);
    let upstream = upstream(settings, threads);
    let granted = for_clients(limit, own(settings) + upgraded, upstream).min(wanted);
    if granted < wanted {
        tracing::warn!(
            "an edge lets {granted} clients in, not {wanted} (`connections_max`): it may open \
             {limit} files (`ulimit -n`)"
        );
    }
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    (count(granted), count(upgraded))
}

/// Connections to servers for upgraded clients.
fn for_upgraded(limit: u64, settings: &Settings) -> u64 {
    let wanted = if settings.http.upgrades { u64::from(settings.http.upgraded_max) } else { 0 };
    let granted = wanted.min(limit / UPGRADED_PART);
    if granted < wanted {
        tracing::info!(
            "an edge upgrades {granted} connections, not {wanted} (`upgraded_max`): it may open \
             {limit} files (`ulimit -n`)"
        );
    }
    granted
}

/// The limit on open files, raised as far as allowed; none for no limit.
fn raised() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        // Then it stays what it was.
        Err(_) => limit.current,
    }
}

fn own(settings: &Settings) -> u64 {
    OWN + PER_NODE * settings.nodes.len() as u64
}

/// Connections to servers: each thread keeps some to every server, at most as many as a server
/// takes requests.
fn upstream(settings: &Settings, threads: usize) -> u64 {
    let kept = u64::from(settings.http.upstream_idle_max);
    let at_node = settings.nodes.iter().map(|node| u64::from(node.max_in_flight).min(kept));
    at_node.sum::<u64>().saturating_mul(settings.sites.len() as u64 * threads as u64)
}

/// What is left for clients; servers get no more than half of what is left for both.
fn for_clients(limit: u64, own: u64, upstream: u64) -> u64 {
    let left = limit.saturating_sub(own);
    (left - upstream.min(left / 2)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_room_for_servers() {
        assert_eq!(for_clients(1_024, 76, 96), 852);
        assert_eq!(for_clients(1_024, 76, 5_000), 474);
        assert_eq!(for_clients(50, 76, 96), 1, "an edge without room says so when it starts");
        assert_eq!(for_clients(u64::MAX, 76, 96), u64::MAX - 172);
    }

    #[test]
    fn upgraded_connections_have_a_part_of_their_own() {
        let text = "[http]\nupgraded_max = 100\n[[sites]]\nname = \"a\"\nhosts = [\"a\"]\n\
                    command = [\"x\"]\n[[nodes]]\nname = \"n\"\n";
        let mut settings = crate::settings::parse("x", text, &[]).unwrap().settings;
        assert_eq!((for_upgraded(1_024, &settings), for_upgraded(4_096, &settings)), (64, 100));
        settings.http.upgrades = false;
        assert_eq!(for_upgraded(u64::MAX, &settings), 0);
    }

    #[test]
    fn servers_need_what_they_take_at_once() {
        let text = "[http]\nupstream_idle_max = 16\n\
                    [[sites]]\nname = \"a\"\nhosts = [\"a\"]\ncommand = [\"x\"]\n\
                    [[sites]]\nname = \"b\"\nhosts = [\"b\"]\ncommand = [\"x\"]\n\
                    [[nodes]]\nname = \"n\"\ncount = 3\nmax_in_flight = 8\n\
                    [[nodes]]\nname = \"big\"\nmax_in_flight = 200\n";
        let settings = crate::settings::parse("x", text, &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(upstream(&settings.settings, 1), 2 * (3 * 8 + 16));
        assert_eq!(upstream(&settings.settings, 2), 4 * (3 * 8 + 16));
        assert_eq!(own(&settings.settings), 64 + 8);
    }
}
