//! Machines in network namespaces, on one switch in a namespace of its own.

use std::process::{Command, Output};

/// The network of all machines.
const NET: &str = "10.77.0";

/// Machines, each with an address. Dropped, all are gone.
pub struct Rack {
    name: String,
    machines: Vec<String>,
}

fn ip(words: &[&str]) -> Output {
    Command::new("ip").args(words).output().expect("`ip` starts")
}

/// Why machines can't be made here; none if they can.
pub fn refusal() -> Option<String> {
    let name = format!("pt{}-try", std::process::id());
    let made = match Command::new("ip").args(["netns", "add", &name]).output() {
        Err(error) => return Some(format!("there is no `ip`: {error}")),
        Ok(made) => made,
    };
    if !made.status.success() {
        return Some(String::from_utf8_lossy(&made.stderr).trim().to_owned());
    }
    let bridge = ip(&["-n", &name, "link", "add", "br0", "type", "bridge"]);
    let pair = ip(&["-n", &name, "link", "add", "a0", "type", "veth", "peer", "name", "a1"]);
    ip(&["netns", "del", &name]);
    let failed = [bridge, pair].into_iter().find(|output| !output.status.success());
    failed.map(|output| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

impl Rack {
    /// Machine `index` has the address NET.(index + 1).
    pub fn new(machines: &[&str]) -> Self {
        let name = format!("pt{}", std::process::id());
        let mut rack = Self { name, machines: Vec::new() };
        let switch = rack.space("sw");
        rack.must(&["netns", "add", &switch]);
        rack.must(&["-n", &switch, "link", "add", "br0", "type", "bridge"]);
        rack.must(&["-n", &switch, "link", "set", "br0", "up"]);
        for (index, machine) in machines.iter().enumerate() {
            rack.machines.push((*machine).to_owned());
            let (space, port) = (rack.space(machine), format!("p-{machine}"));
            let address = format!("{}/24", address(index));
            rack.must(&["netns", "add", &space]);
            rack.must(&[
                "-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", "eth0",
                "netns", &space,
            ]);
            rack.must(&["-n", &switch, "link", "set", &port, "master", "br0", "up"]);
            rack.must(&["-n", &space, "addr", "add", &address, "dev", "eth0"]);
            rack.must(&["-n", &space, "link", "set", "eth0", "up"]);
            rack.must(&["-n", &space, "link", "set", "lo", "up"]);
        }
        rack
    }

    fn must(&self, words: &[&str]) {
        let output = ip(words);
        assert!(output.status.success(), "ip {words:?}: {output:?}");
    }

    /// The name of a machine's namespace.
    pub fn space(&self, machine: &str) -> String {
        format!("{}-{machine}", self.name)
    }

    /// Pulls a machine's cable, or plugs it in.
    pub fn plug(&self, machine: &str, is_in: bool) {
        let state = if is_in { "up" } else { "down" };
        self.must(&["-n", &self.space("sw"), "link", "set", &format!("p-{machine}"), state]);
    }

    /// Lets all that a machine sends to an address get lost, or lets it pass again.
    pub fn lose(&self, machine: &str, to: &str, is_lost: bool) {
        let space = self.space(machine);
        if is_lost {
            let nobody = "02:00:00:00:ff:fe";
            self.must(&[
                "-n",
                &space,
                "neigh",
                "replace",
                to,
                "lladdr",
                nobody,
                "dev",
                "eth0",
                "nud",
                "permanent",
            ]);
        } else {
            self.must(&["-n", &space, "neigh", "del", to, "dev", "eth0"]);
        }
    }

    /// Moves the calling thread, and all that it starts, onto a machine.
    pub fn enter(&self, machine: &str) {
        let file = std::fs::File::open(format!("/run/netns/{}", self.space(machine))).unwrap();
        let network = rustix::thread::LinkNameSpaceType::Network;
        rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(network))
            .unwrap();
    }
}

/// The address of a machine by its place.
pub fn address(index: usize) -> String {
    format!("{NET}.{}", index + 1)
}

impl Drop for Rack {
    fn drop(&mut self) {
        for machine in self.machines.iter().map(String::as_str).chain(["sw"]) {
            ip(&["netns", "del", &self.space(machine)]);
        }
    }
}
