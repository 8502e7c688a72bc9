//! stub
use crate::output::Output;
use load::generate::Cancel;
pub(crate) fn run(_output: &Output, _cancel: &Cancel) -> anyhow::Result<()> {
    Ok(())
}
