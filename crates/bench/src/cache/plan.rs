//! What is measured, how often, for how long. Pure.

use super::changes::Kind;
use super::mixes::Mix;
use serde::Serialize;
use std::time::Duration;

/// Who answers, and what it proves of a page before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scheme {
    /// Polder without a cache: the application makes each page.
    NoCache,
    /// nginx, which asks the application at each hit whether its page is still right.
    NginxAsks,
    /// Varnish, which does the same, but for a millisecond.
    VarnishAsks,
    /// Polder, which reads the version table in shared memory.
    Strict,
    /// Polder, which reads it by `tcp` of whoever answers on the application's core.
    StrictTcp,
    /// The same with an answering thread of real-time priority.
    StrictTcpFifo,
    /// Polder in mode `http`, which believes what the page says of its freshness.
    Unvalidated,
    NginxHit,
    VarnishHit,
    /// nginx with the pages as files.
    NginxStatic,
}

impl Scheme {
    pub(crate) const ALL: [Self; 10] = [
        Self::NoCache,
        Self::NginxAsks,
        Self::VarnishAsks,
        Self::Strict,
        Self::StrictTcp,
        Self::StrictTcpFifo,
        Self::Unvalidated,
        Self::NginxHit,
        Self::VarnishHit,
        Self::NginxStatic,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoCache => "no cache (Polder, off)",
            Self::NginxAsks => "nginx, asks at each hit",
            Self::VarnishAsks => "Varnish, asks at each hit",
            Self::Strict => "Polder strict, shm",
            Self::StrictTcp => "Polder strict, tcp, normal",
            Self::StrictTcpFifo => "Polder strict, tcp, real-time",
            Self::Unvalidated => "Polder, unvalidated (http)",
            Self::NginxHit => "nginx, unvalidated",
            Self::VarnishHit => "Varnish, unvalidated",
            Self::NginxStatic => "nginx, static files",
        }
    }

    /// No answer is older than the data was when the request came.
    pub(crate) const fn is_coherent(self) -> bool {
        !matches!(self, Self::Unvalidated | Self::NginxHit | Self::VarnishHit | Self::NginxStatic)
    }
}

/// Those that never answer with old data.
const COHERENT: [Scheme; 6] = [
    Scheme::NoCache,
    Scheme::NginxAsks,
    Scheme::VarnishAsks,
    Scheme::Strict,
    Scheme::StrictTcp,
    Scheme::StrictTcpFifo,
];
/// Whose hits are compared.
const HITS: [Scheme; 4] =
    [Scheme::Strict, Scheme::Unvalidated, Scheme::NginxHit, Scheme::VarnishHit];
const OWN: [Scheme; 2] = [Scheme::Strict, Scheme::Unvalidated];

/// Connections of load.
pub(crate) const CONNECTIONS: u32 = 64;
/// Threads on the application's core of the rows that say `_200`.
pub(crate) const MANY: u32 = 200;

/// Rows under the same conditions, which take turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) mix: Mix,
    /// Threads that compute on the application's core.
    pub(crate) threads: u32,
    pub(crate) edges: u8,
    pub(crate) connections: u32,
    pub(crate) changes: Kind,
    /// Load is on the application's core, and does not disturb what is in front.
    pub(crate) is_alone: bool,
    pub(crate) schemes: Vec<Scheme>,
    pub(crate) rounds: usize,
    pub(crate) cell_s: u32,
    /// Cells of [`SHORT_CELL`] in place, with load by this program, whose connections stay.
    pub(crate) is_short: bool,
}

/// What differs by little is compared in many short turns: turns of 30 ms scatter hardly more than
/// turns of 100 ms, and there are three times as many.
pub(crate) const SHORT_CELL: Duration = Duration::from_millis(25);

impl Block {
    fn ticks(threads: u32, schemes: &[Scheme], rounds: usize, cell_s: u32) -> Self {
        let (mix, edges, connections, changes) = (Mix::Pages, 1, CONNECTIONS, Kind::Ticks);
        let schemes = schemes.to_vec();
        Self {
            mix,
            threads,
            edges,
            connections,
            changes,
            is_alone: false,
            schemes,
            rounds,
            cell_s,
            is_short: false,
        }
    }

    /// Our two kinds of hits in short turns.
    fn duel(threads: u32, rounds: usize) -> Self {
        Self { is_short: true, ..Self::ticks(threads, &OWN, rounds, 0) }
    }

    /// Of hits, with load on the core of the application, which has nothing to do.
    fn alone(schemes: &[Scheme], rounds: usize, cell_s: u32) -> Self {
        Self { is_alone: true, ..Self::ticks(0, schemes, rounds, cell_s) }
    }

    fn updates(mix: Mix, threads: u32, rounds: usize, cell_s: u32) -> Self {
        let block = Self::ticks(threads, &COHERENT, rounds, cell_s);
        Self { mix, changes: Kind::Updates, ..block }
    }

    fn one_connection(self) -> Self {
        Self { connections: 1, ..self }
    }

    /// Seconds of load.
    pub(crate) fn expected_s(&self) -> f64 {
        self.cell().as_secs_f64() * (self.schemes.len() * self.rounds) as f64
    }

    /// How long a cell lasts.
    pub(crate) fn cell(&self) -> Duration {
        if self.is_short { SHORT_CELL } else { Duration::from_secs(self.cell_s.into()) }
    }
}

/// All of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) blocks: Vec<Block>,
}

/// Threads on the application's core, in the order in which rows follow each other.
const THREADS: [u32; 3] = [0, 50, MANY];

pub(crate) fn plan(quick: bool) -> Plan {
    if quick {
        let named: Vec<_> =
            HITS.into_iter().filter(|&scheme| scheme != Scheme::Unvalidated).collect();
        let mut changing = Block::updates(Mix::Pages, MANY, 1, 2);
        changing.schemes =
            vec![Scheme::NoCache, Scheme::NginxAsks, Scheme::Strict, Scheme::StrictTcp];
        // The others are orders of magnitude apart; of these two one turn each says too little.
        let mut rivals = Block::updates(Mix::Pages, MANY, 2, 1);
        rivals.schemes = vec![Scheme::Strict, Scheme::StrictTcpFifo];
        return Plan {
            blocks: vec![
                Block::ticks(0, &named, 2, 1),
                // Its ratio is near what is asked for, and turns differ by a tenth.
                Block::duel(0, 140),
                Block::duel(MANY, 80),
                Block::ticks(MANY, &[Scheme::Strict], 1, 1).one_connection(),
                changing,
                rivals,
            ],
        };
    }
    let hits = [&HITS[..], &[Scheme::NginxStatic]].concat();
    let mut blocks = vec![Block::alone(&hits, 7, 2)];
    for threads in THREADS {
        let schemes = if threads == 0 { &hits[..] } else { &OWN };
        blocks.push(Block::ticks(threads, schemes, 9, 2));
        blocks.push(Block::duel(threads, 480));
        let stages = Scheme::ALL.into_iter().filter(|&scheme| scheme != Scheme::NginxStatic);
        let stages: Vec<Scheme> = stages.collect();
        blocks.push(Block::ticks(threads, &stages, 1, 3).one_connection());
        for mix in [Mix::Pages, Mix::Zipf, Mix::Nasa] {
            blocks.push(Block::updates(mix, threads, 3, 3));
        }
        // Edges of Polder only: its peers share no table.
        let own = vec![Scheme::NoCache, Scheme::Strict, Scheme::Unvalidated];
        blocks.push(Block { edges: 3, schemes: own, ..Block::updates(Mix::Pages, threads, 3, 3) });
    }
    Plan { blocks }
}

/// A cell of each kind of hit, and two beside a busy application.
pub(crate) fn least() -> Plan {
    let own = [Scheme::Strict];
    let changing = Block::updates(Mix::Pages, MANY, 1, 1);
    Plan {
        blocks: vec![
            Block::ticks(0, &HITS, 1, 1),
            Block::duel(0, 4),
            Block::ticks(MANY, &own, 1, 1).one_connection(),
            Block { schemes: own.to_vec(), ..changing },
        ],
    }
}

impl Plan {
    /// Seconds of load.
    pub(crate) fn expected_s(&self) -> f64 {
        self.blocks.iter().map(Block::expected_s).sum()
    }

    /// Numbers of edges that pools are wanted with.
    pub(crate) fn edges(&self) -> Vec<u8> {
        let mut edges: Vec<u8> = self.blocks.iter().map(|block| block.edges).collect();
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    pub(crate) fn mixes(&self) -> Vec<Mix> {
        let all = [Mix::Pages, Mix::Zipf, Mix::Nasa];
        all.into_iter().filter(|mix| self.blocks.iter().any(|b| b.mix == *mix)).collect()
    }
}

/// Who is when in a round: it begins with another one each time, and when all have been first the
/// next rounds run backwards, so that nobody always follows the same one.
pub(crate) fn order(schemes: &[Scheme], round: usize) -> Vec<Scheme> {
    let mut order = schemes.to_vec();
    if order.is_empty() {
        return order;
    }
    order.rotate_left(round % schemes.len());
    if round / schemes.len() % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_is_short_and_has_what_its_numbers_need() {
        let quick = plan(true);
        assert!(quick.expected_s() <= 40.0, "{}", quick.expected_s());
        assert_eq!((quick.edges(), quick.mixes()), (vec![1], vec![Mix::Pages]));
        let has = |threads, changes, is_alone, scheme| {
            quick.blocks.iter().any(|block| {
                (block.threads, block.changes, block.is_alone) == (threads, changes, is_alone)
                    && block.schemes.contains(&scheme)
            })
        };
        assert!(HITS.iter().all(|&scheme| has(0, Kind::Ticks, false, scheme)));
        for threads in [0, MANY] {
            let is_duel = |block: &&Block| block.is_short && block.threads == threads;
            let duel = quick.blocks.iter().find(is_duel).unwrap();
            assert!(duel.schemes == OWN && duel.rounds >= 10);
        }
        let named = COHERENT.iter().filter(|&&scheme| scheme != Scheme::VarnishAsks);
        assert!(named.clone().all(|&scheme| has(MANY, Kind::Updates, false, scheme)));
        assert!(COHERENT.iter().all(|scheme| scheme.is_coherent()));
    }

    #[test]
    fn the_long_form_has_all_mixes_loads_and_edges() {
        let long = plan(false);
        assert_eq!(long.edges(), [1, 3]);
        assert_eq!(long.mixes().len(), 3);
        for threads in THREADS {
            assert!(long.blocks.iter().any(|block| block.threads == threads));
        }
        assert!(least().expected_s() < 10.0);
    }

    #[test]
    fn the_order_changes_and_loses_nobody() {
        for schemes in [&HITS[..], &OWN] {
            let firsts = |wanted| {
                let rounds = 0..2 * schemes.len();
                rounds.filter(|&round| order(schemes, round)[0] == wanted).count()
            };
            assert!(schemes.iter().all(|&scheme| firsts(scheme) == 2), "{schemes:?}");
        }
        for round in 0..4 {
            assert!(HITS.iter().all(|scheme| order(&HITS, round).contains(scheme)));
        }
        assert!(order(&[], 1).is_empty());
    }
}
