//! The owner of the version table, and what becomes of a table when it restarts.

use super::Flaw;
use super::options::{ATTACH_NS, FLEETING_NS, SETTLE_EVERY_NS};
use super::outcome::Note;
use super::table::{SHAPE, Table};
use super::world::{Due, World};

/// What stands between the newest table and its hits.
#[derive(Clone, Debug, Default)]
pub(super) struct Owner {
    /// Tables that were given up, and how many of their records were seen free since.
    earlier: Vec<(usize, u16)>,
    /// Updates that were wished for before the last table was lost: all must be decided.
    decided_before: usize,
    /// A look is planned.
    is_looking: bool,
}

impl World {
    fn newest(&self) -> usize {
        self.tables.len() - 1
    }

    fn new_table(&mut self) {
        // Any number that no table had.
        let incarnation = self.chance.draw() | 1;
        self.tables.push(Table::new(incarnation));
        if self.flaw == Flaw::OpensAtOnce {
            self.admit_hits();
        }
        self.look_soon();
    }

    fn admit_hits(&mut self) {
        let table = self.newest();
        self.tables[table].admit_hits();
        self.note(Note::TableOpen { table });
    }

    /// A restarted owner adopts the table, gives it up, and publishes a new one.
    pub(super) fn restart_owner(&mut self) {
        if !self.is_published {
            return;
        }
        let table = self.newest();
        self.tables[table].retire();
        self.counts.tables_retired += 1;
        self.note(Note::TableGivenUp { table, is_lost: false });
        self.owner.earlier.push((table, 0));
        self.new_table();
        for edge in 0..self.edges.len() {
            self.attach_soon(edge);
        }
    }

    /// All processes but the edges die, and the table with them. Edges go on with it for a while;
    /// until they have let it go, no update begins.
    pub(super) fn lose_table(&mut self) {
        if !self.is_published {
            return;
        }
        let table = self.newest();
        self.counts.tables_lost += 1;
        self.note(Note::TableGivenUp { table, is_lost: true });
        self.is_published = false;
        self.crash_agent(true);
        for edge in 0..self.edges.len() {
            let after_ns = self.delays.between(ATTACH_NS.0, ATTACH_NS.1);
            self.after(after_ns, Due::LetGo { edge, table });
        }
    }

    /// An edge lets a lost table go. When the last has, there is a new one.
    pub(super) fn let_go(&mut self, edge: usize, table: usize) {
        let mapped = &mut self.edges[edge].table;
        if mapped.is_some_and(|mapped| mapped <= table) {
            *mapped = None;
        }
        if self.is_published || self.edges.iter().any(|edge| edge.table.is_some()) {
            return;
        }
        self.lost_before = self.tables.len();
        self.owner.earlier.clear();
        self.owner.decided_before = self.updates.len();
        self.left.retain(|&update| self.updates[update].table >= self.lost_before);
        self.is_published = true;
        self.new_table();
        let table = self.newest();
        for writer in &mut self.writers {
            writer.table = table;
        }
        for edge in 0..self.edges.len() {
            self.attach_soon(edge);
        }
        self.start_agent_soon();
    }

    pub(super) fn attach_soon(&mut self, edge: usize) {
        let after_ns = self.delays.between(ATTACH_NS.0, ATTACH_NS.1);
        let (table, life) = (self.newest(), self.edges[edge].life);
        self.after(after_ns, Due::Attach { edge, life, table });
    }

    /// An edge has heard of a table.
    pub(super) fn attach(&mut self, edge: usize, life: u32, table: usize) {
        let mapped = &mut self.edges[edge];
        let is_news = mapped.table.is_none_or(|old| old < table) && table >= self.lost_before;
        if mapped.life == life && mapped.is_up && self.is_published && is_news {
            mapped.table = Some(table);
        }
    }

    fn look_soon(&mut self) {
        if !std::mem::replace(&mut self.owner.is_looking, true) {
            let after_ns = self.delays.between(SETTLE_EVERY_NS.0, SETTLE_EVERY_NS.1);
            self.after(after_ns, Due::Owner);
        }
    }

    /// The owner reads the next record of a table that was given up.
    pub(super) fn look(&mut self) {
        self.owner.is_looking = false;
        let decided = self.updates.iter().take(self.owner.decided_before);
        let mut waits = !decided.clone().all(super::writer::Update::is_decided);
        if let Some((table, seen)) = self.owner.earlier.first_mut() {
            if self.tables[*table].is_free(*seen) {
                *seen += 1;
            } else {
                (*seen, waits) = (0, true);
            }
            if *seen == SHAPE.records {
                self.owner.earlier.remove(0);
            }
        }
        if self.owner.earlier.is_empty() && !waits {
            if !self.tables[self.newest()].is_open() {
                self.admit_hits();
            }
            return;
        }
        self.owner.is_looking = true;
        let bounds = if waits { SETTLE_EVERY_NS } else { FLEETING_NS };
        let after_ns = self.delays.between(bounds.0, bounds.1);
        self.after(after_ns, Due::Owner);
    }
}
