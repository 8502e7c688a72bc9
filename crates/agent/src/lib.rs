//! The helper beside the applications on a node: its record, its servers, their health.
