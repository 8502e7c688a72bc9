//! The scheduling of a service's thread.
//!
//! Under `SCHED_FIFO` it runs as soon as a request comes, whatever else the owner's machine
//! computes. The kernel allows it to processes with `CAP_SYS_NICE` or a limit `RLIMIT_RTPRIO`,
//! and, where control groups share real-time run time out (version 1 with
//! `CONFIG_RT_GROUP_SCHED`), only in a group that was granted some. The thread sleeps unless it
//! has requests, and the kernel takes real-time threads off the processor after 95 % of each
//! second, so that it cannot lock a machine up.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::error::{NotFirst, Priority};

/// Sets the calling thread's, if that is wanted, and says what came of it.
pub(super) fn apply(real_time: bool) -> Priority {
    if !real_time {
        return Priority::Normal { why: NotFirst::AsSet };
    }
    match crate::sys::run_first() {
        Ok(()) => Priority::RealTime,
        Err(Errno::PERM) => {
            let group = run_time_file().filter(|file| reads_zero(file));
            let why = match group {
                Some(file) => NotFirst::NoRunTime { file },
                None => NotFirst::NotPermitted,
            };
            Priority::Normal { why }
        }
        Err(cause) => Priority::Normal { why: NotFirst::Kernel { cause } },
    }
}

/// Where the control group of this process (version 1) says how long its real-time threads may
/// run.
fn run_time_file() -> Option<PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(cpu_group)?;
    Some(Path::new("/sys/fs/cgroup/cpu").join(path).join("cpu.rt_runtime_us"))
}

/// The path in a line such as `4:cpu,cpuacct:/system.slice`, without its first slash.
fn cpu_group(line: &str) -> Option<&str> {
    let mut fields = line.splitn(3, ':').skip(1);
    let has_cpu = fields.next()?.split(',').any(|controller| controller == "cpu");
    let path = fields.next()?.trim_start_matches('/');
    has_cpu.then_some(path)
}

fn reads_zero(file: &Path) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_the_processor_is_found() {
        assert_eq!(cpu_group("4:cpu,cpuacct:/a/b"), Some("a/b"));
        assert_eq!(cpu_group("4:cpuset:/a"), None);
        assert_eq!(cpu_group("0::/user.slice"), None);
        assert_eq!(cpu_group("nonsense"), None);
    }

    #[test]
    fn what_came_of_it_is_what_the_kernel_says() {
        let (asked, not_asked) = std::thread::spawn(|| {
            let not_asked = apply(false);
            (apply(true), not_asked)
        })
        .join()
        .unwrap();
        assert_eq!(not_asked, Priority::Normal { why: NotFirst::AsSet });
        match asked {
            Priority::RealTime => {}
            Priority::Normal { why } => {
                println!("skipped: real-time scheduling, {why}");
            }
        }
    }
}
