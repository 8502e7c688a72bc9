//! Faults as they begin and end.

use crate::agenda::Due;
use crate::engine::Simulation;
use crate::fault::{Fault, Kind, Step};
use crate::history::Record;
use crate::memory::NodeLife;
use moves::protocol::{Op, Reply, Task, Word};

impl Simulation {
    pub(crate) fn begin_fault(&mut self, index: u16) {
        let fault = self.faults[usize::from(index)];
        self.note(&fault, true);
        self.monitor.disturbed(self.now_ns);
        self.counts.faults += 1;
        let mut lasts = true;
        match fault.kind {
            Kind::EdgeCrash => self.crash_edge(fault.edge),
            Kind::CrashInMove(step) => {
                // It begins when an edge gets there.
                self.armed.push((index, step));
                return;
            }
            Kind::EdgePause => {
                self.counts.pauses += 1;
                let edge = &mut self.edges[usize::from(fault.edge)];
                edge.stopped_until_ns = edge.stopped_until_ns.max(self.now_ns + fault.for_ns);
            }
            Kind::NodeFailure => lasts = self.fail_node(&fault),
            Kind::AgentRestart => lasts = self.silence(&fault),
            Kind::HomeWipe => {
                self.counts.wipes += 1;
                self.memory.wipe_home();
            }
            Kind::SlowNetwork => self.weather.slow += 1,
            Kind::Losses => self.weather.lossy += 1,
            Kind::Partition => self.weather.set_cut(fault.edge, fault.node, true),
        }
        if lasts {
            self.weather.others += 1;
            self.agenda.plan(self.now_ns + fault.for_ns, Due::Mend { index });
        }
    }

    /// False where the node is not there to fail.
    fn fail_node(&mut self, fault: &Fault) -> bool {
        let Some(node) = self.node(fault.node) else { return false };
        if self.memory.life(node) != NodeLife::Up {
            return false;
        }
        self.counts.node_failures += 1;
        let site = self.memory.site(node);
        self.monitor.node_failed(self.now_ns, node, site);
        self.memory.set_life(node, NodeLife::Down);
        self.lose_node(node);
        self.nodes_changed(site);
        true
    }

    fn silence(&mut self, fault: &Fault) -> bool {
        let Some(node) = self.node(fault.node) else { return false };
        if self.memory.life(node) != NodeLife::Up {
            return false;
        }
        self.counts.agent_restarts += 1;
        self.memory.set_life(node, NodeLife::Silent);
        true
    }

    pub(crate) fn end_fault(&mut self, index: u16) {
        let fault = self.faults[usize::from(index)];
        self.note(&fault, false);
        self.monitor.disturbed(self.now_ns);
        self.weather.others -= 1;
        match fault.kind {
            Kind::EdgeCrash => self.restart_edge(fault.edge),
            Kind::CrashInMove(_) => {
                let edge = self.faults[usize::from(index)].edge;
                self.restart_edge(edge);
            }
            Kind::EdgePause => self.pump_edge(fault.edge),
            Kind::NodeFailure | Kind::AgentRestart => self.revive(&fault),
            Kind::HomeWipe => {}
            Kind::SlowNetwork => self.weather.slow -= 1,
            Kind::Losses => self.weather.lossy -= 1,
            Kind::Partition => self.weather.set_cut(fault.edge, fault.node, false),
        }
    }

    fn revive(&mut self, fault: &Fault) {
        let Some(node) = self.node(fault.node) else { return };
        let site = self.memory.site(node);
        match fault.kind {
            Kind::NodeFailure => self.memory.reboot(node),
            _ => self.memory.adopt(node),
        }
        self.monitor.region_opened(node, self.memory.read(Word::Assign(node)));
        self.nodes_changed(site);
    }

    fn note(&mut self, fault: &Fault, begins: bool) {
        let target = match fault.kind {
            Kind::NodeFailure | Kind::AgentRestart | Kind::Partition => fault.node,
            _ => u16::from(fault.edge),
        };
        let record = Record::Fault { kind: fault.kind.name(), target, begins };
        self.history.add(self.now_ns, record);
    }

    /// Whether this edge dies right after this answer, because a fault lies in wait for that step.
    pub(crate) fn dies_here(&mut self, number: u8, task: &Task, op: &Op, reply: &Reply) -> bool {
        let (Some(step), false) = (passed(task, op, reply), self.armed.is_empty()) else {
            return false;
        };
        let Some(place) = self.armed.iter().position(|&(_, at)| at == step) else { return false };
        let (index, _) = self.armed.remove(place);
        let fault = &mut self.faults[usize::from(index)];
        fault.edge = number;
        let (for_ns, fault) = (fault.for_ns, *fault);
        self.note(&fault, true);
        self.counts.crashes_in_mid_move += 1;
        self.weather.others += 1;
        self.monitor.disturbed(self.now_ns);
        self.agenda.plan(self.now_ns + for_ns, Due::Mend { index });
        self.crash_edge(number);
        true
    }
}

/// The step of a move that an answer completes.
fn passed(task: &Task, op: &Op, reply: &Reply) -> Option<Step> {
    let (Op::CompareAndSwap { word, expected, .. }, Reply::Swapped { found }) = (op, reply) else {
        return None;
    };
    if found != expected {
        return None;
    }
    match (task, word) {
        (Task::Claim(_), _) => Some(Step::Claim),
        (Task::Attempt(_), Word::Depart(_)) => Some(Step::Install),
        (Task::Attempt(_), Word::Assign(_)) => Some(Step::Swap),
        _ => None,
    }
}
