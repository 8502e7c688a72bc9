//! A stub of exactly 2,000 requests per second, and bursts against it: is the stub exact, and what
//! does a request cost?
//!
//! ```text
//! cargo run --release -p load --example stub_and_burst
//! ```

use std::error::Error;
use std::time::Duration;

use load::generate::{ConstantOptions, Generator, GeneratorOptions, SiteTarget};
use load::stub::{NodeOptions, StubOptions, StubServer, measure_capacity};

/// What the paper's nodes take at a time, and the room of the measured bound.
const IN_FLIGHT: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let node = NodeOptions::named("node-1");
    for round in 1..=3 {
        let capacity = measure_capacity(&node, IN_FLIGHT, Duration::from_secs(1))?;
        println!(
            "capacity {round}: {:.1} requests/s of {:.0} at {IN_FLIGHT} in flight ({:+.2} %)",
            capacity.measured_per_second,
            capacity.exact_per_second,
            capacity.deviation() * 100.0,
        );
    }
    let stub = StubServer::start(&StubOptions::every_site_on_every_node(vec![node], &["red"]))?;
    let edges = stub.listeners().iter().map(|listener| listener.address).collect();
    let sites = vec![SiteTarget::served_as("red.test", "red")];
    let mut generator = Generator::new(GeneratorOptions::new(edges, sites))?;

    for requests in [512, 2_048, 4_096] {
        let stub_before = stub.thread_task().time();
        let burst = generator.burst(0, requests)?;
        let stub_cpu = stub.thread_task().time().since(stub_before);
        println!(
            "burst of {requests}: {:.0} requests/s, p50 {} us, p99 {} us, failed {}; \
             CPU per request: generator {:.1} us, stub {:.1} us; waited for a CPU {:.1} %",
            burst.throughput_per_second(),
            burst.tally.latency.p50_us(),
            burst.tally.latency.p99_us(),
            burst.tally.failures,
            burst.cpu.run_ns as f64 / 1e3 / requests as f64,
            stub_cpu.run_ns as f64 / 1e3 / requests as f64,
            stub_cpu.wait_ns as f64 / 1e7 / burst.seconds(),
        );
    }
    let open = generator.constant(&ConstantOptions::new(1_000.0, Duration::from_secs(1), 0))?;
    let tally = &open.run.sites[0];
    println!(
        "constant 1,000/s: {} requests, failed {}, p50 {} us, p99 {} us, late {}; \
         generator {:.1} us of CPU per request",
        tally.requests,
        tally.failures,
        tally.latency.p50_us(),
        tally.latency.p99_us(),
        open.late,
        open.run.cpu_us_per_request(),
    );
    Ok(())
}
