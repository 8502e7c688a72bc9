//! The text of Apache's configuration.

use super::{ApacheOptions, Mpm};
use std::fmt::Write as _;
use std::path::Path;

/// Idle connections of an edge stay open for as long as any figure leaves a server alone.
const KEEP_ALIVE_S: u32 = 600;
/// The user and group `nobody` of every Linux.
const NOBODY: u32 = 65_534;

/// Everything but where a server listens, whose file of the process number, and its site.
pub(super) fn configuration(
    options: &ApacheOptions,
    folder: &Path,
    modules: &Path,
    is_root: bool,
) -> String {
    let (folder, modules) = (folder.display(), modules.display());
    let mut text = String::new();
    let mut put = |line: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    };
    let mpm = match options.mpm {
        Mpm::Prefork => "mpm_prefork",
        Mpm::Event => "mpm_event",
    };
    put(format_args!("ServerRoot \"{folder}\""));
    for module in [mpm, "authz_core", "headers"] {
        put(format_args!("LoadModule {module}_module \"{modules}/mod_{module}.so\""));
    }
    put(format_args!("ServerName localhost\nServerTokens Prod\nErrorLog /dev/stderr"));
    put(format_args!("LogLevel warn\nDefaultRuntimeDir \"{folder}/run\""));
    // The only kind that a killed server leaves nothing of.
    put(format_args!("Mutex pthread default"));
    if is_root {
        put(format_args!("User #{NOBODY}\nGroup #{NOBODY}"));
    }
    put(format_args!("DocumentRoot \"{folder}/documents\""));
    put(format_args!("KeepAlive On\nMaxKeepAliveRequests 0\nKeepAliveTimeout {KEEP_ALIVE_S}"));
    put(format_args!("EnableSendfile Off"));
    let workers = options.workers;
    match options.mpm {
        // All processes from the start: none is forked, out of the node's quota, in a burst.
        Mpm::Prefork => put(format_args!(
            "StartServers {workers}\nMinSpareServers 1\nMaxSpareServers {}\nServerLimit {workers}\n\
             MaxRequestWorkers {workers}",
            u32::from(workers) + 1,
        )),
        Mpm::Event => put(format_args!(
            "StartServers 1\nServerLimit 1\nThreadLimit {workers}\nThreadsPerChild {workers}\n\
             MinSpareThreads 1\nMaxSpareThreads {workers}\nMaxRequestWorkers {workers}\n\
             AsyncRequestWorkerFactor 4",
        )),
    }
    if options.burn_us > 0 {
        put(format_args!("LoadModule lua_module \"{modules}/mod_lua.so\""));
        put(format_args!("LuaScope thread\nLuaCodeCache forever"));
        put(format_args!("LuaHookFixups \"{folder}/burn.lua\" burn"));
    }
    text
}

/// Takes so much CPU time before a request is answered. Lua's clock is that of its process, which
/// stands still while the quota stops it.
pub(super) fn burn_script(burn_us: u32) -> String {
    format!(
        "local clock = os.clock\n\
         function burn(request)\n  \
           local ends = clock() + {burn_us}e-6\n  \
           repeat until clock() >= ends\n  \
           return apache2.DECLINED\n\
         end\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(options: &ApacheOptions, is_root: bool) -> String {
        configuration(options, Path::new("/tmp/x"), Path::new("/m"), is_root)
    }

    #[test]
    fn each_way_has_its_own_lines() {
        let prefork = ApacheOptions { burn_us: 150, ..ApacheOptions::default() };
        let with_burn = text(&prefork, true);
        for line in [
            "LoadModule mpm_prefork_module \"/m/mod_mpm_prefork.so\"",
            "StartServers 10",
            "MaxSpareServers 11",
            "User #65534",
            "LuaHookFixups \"/tmp/x/burn.lua\" burn",
        ] {
            assert!(with_burn.lines().any(|one| one == line), "{line}:\n{with_burn}");
        }
        let event = ApacheOptions { mpm: Mpm::Event, ..ApacheOptions::default() };
        let text = text(&event, false);
        assert!(text.contains("ThreadsPerChild 10") && !text.contains("StartServers 10"));
        assert!(!text.contains("lua") && !text.contains("User"), "{text}");
        assert!(burn_script(150).contains("clock() + 150e-6"));
    }
}
