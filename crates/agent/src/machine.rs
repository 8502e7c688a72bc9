//! What the machine is doing: run queue, CPU, memory, from `/proc` (proc(5)). Three small files
//! for each reading, some 100 us.

use shared_state::AgentStatus;

/// Reads the machine's state; keeps what the next reading is compared with.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    last: Option<Ticks>,
}

/// CPU time of all cores since boot, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl Machine {
    /// One reading. What cannot be read stays zero: it is news for people, nothing depends on it.
    pub(crate) fn read(&mut self, servers_ready: u64) -> AgentStatus {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let now = parse_stat(&text("/proc/stat"));
        let (memory_total_kib, available_kib) =
            parse_meminfo(&text("/proc/meminfo")).unwrap_or_default();
        let status = AgentStatus {
            run_queue_milli: parse_loadavg(&text("/proc/loadavg")).unwrap_or_default(),
            cpu_permille: self.last.zip(now).map_or(0, |(last, now)| permille(last, now)),
            memory_used_kib: memory_total_kib.saturating_sub(available_kib),
            memory_total_kib,
            servers_ready,
            pid: u64::from(std::process::id()),
        };
        self.last = now;
        status
    }
}

fn permille(last: Ticks, now: Ticks) -> u64 {
    let all = now.all.saturating_sub(last.all);
    let busy = now.busy.saturating_sub(last.busy).min(all);
    (busy * 1_000).checked_div(all).unwrap_or(0)
}

/// The load average over one minute, in thousandths.
fn parse_loadavg(text: &str) -> Option<u64> {
    let first: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    // A float that is no count becomes zero or the largest one.
    Some((first * 1_000.0) as u64)
}

/// The line `cpu`: user, nice, system, idle, iowait, irq, softirq, steal; what follows is
/// contained in the first two.
fn parse_stat(text: &str) -> Option<Ticks> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> =
        line.split_ascii_whitespace().take(8).map_while(|f| f.parse().ok()).collect();
    let idle = fields.get(3)?.saturating_add(*fields.get(4)?);
    let all = fields.iter().fold(0, |sum: u64, field| sum.saturating_add(*field));
    Some(Ticks { busy: all.saturating_sub(idle), all })
}

/// Total and available memory in KiB.
fn parse_meminfo(text: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    Some((field("MemTotal:")?, field("MemAvailable:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        assert_eq!(parse_loadavg("1.52 0.43 0.40 1/345 6789\n"), Some(1_520));
        let stat = "cpu  10 20 30 400 40 1 2 3 9 9\ncpu0 1 2 3\n";
        assert_eq!(parse_stat(stat), Some(Ticks { busy: 66, all: 506 }));
        let meminfo = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n";
        assert_eq!(parse_meminfo(meminfo), Some((1_000, 400)));
    }

    #[test]
    fn noise_is_nothing() {
        for noise in ["", "\n", "cpu", "cpu  1 2", "cpu  a b c d e", "x y z", "MemTotal:"] {
            assert_eq!(parse_loadavg(noise), None, "{noise:?}");
            assert_eq!(parse_stat(noise), None, "{noise:?}");
            assert_eq!(parse_meminfo(noise), None, "{noise:?}");
        }
    }

    #[test]
    fn shares_are_of_the_time_between_two_readings() {
        let last = Ticks { busy: 100, all: 1_000 };
        assert_eq!(permille(last, Ticks { busy: 150, all: 1_100 }), 500);
        assert_eq!(permille(last, last), 0);
        assert_eq!(permille(last, Ticks { busy: 0, all: 0 }), 0, "a counter that ran back");
    }

    #[test]
    fn this_machine_has_memory_and_a_pid() {
        let status = Machine::default().read(3);
        assert!(status.memory_used_kib <= status.memory_total_kib && status.memory_total_kib > 0);
        assert_eq!((status.servers_ready, status.pid), (3, u64::from(std::process::id())));
    }
}
