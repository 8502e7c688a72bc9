//! An owner publishes a counter, and a peer adds to it without the owner doing anything.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::time::Duration;

use remote_memory::Mapped;
use remote_memory::shm::{OwnedRegion, RegionServer, attach};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("owner-and-peer-{}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&directory)?;
    let socket = directory.join("counter.sock");

    // The owner: usually a process of its own.
    let owned = Arc::new(OwnedRegion::create("counter", 4096)?);
    let server = RegionServer::bind(&socket, Arc::clone(&owned))?;

    // The peer.
    let attachment = attach(&socket, Duration::from_secs(1))?;
    let region = attachment.region();
    println!(
        "attached to {} of incarnation {}",
        region.descriptor().label,
        region.descriptor().incarnation
    );
    region.fetch_and_add(0, 42)?;
    println!("the owner reads {}", owned.read(0)?);

    drop(server);
    println!(
        "owner alive: {}; the region still reads {}",
        attachment.owner_alive(),
        region.read(0)?
    );
    std::fs::remove_dir(&directory)?;
    Ok(())
}
